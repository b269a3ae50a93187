"""The real SDK against a real server, with a proxy between that misbehaves: faults 21 to 25 and 28 as they happen."""

from __future__ import annotations

import http.client
import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from airflow_recovery.errors import (
    ObjectExists,
    ObjectTooLarge,
    StoreAccessDenied,
    StoreCredentialsExpired,
    StoreTimeout,
    StoreUnavailable,
    StoreUnsuitable,
    WriteLost,
    kind_of,
)
from airflow_recovery.store import ObjectStore, get_many, probe
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_clients import new_session
from airflow_recovery.store.write_once import Written, write_once
from airflow_recovery.testing import MotoServer, S3Server
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from scripts.s3_proxy import Answer, CutReply, Delayed, Fate, LostReply, Rewritten, S3Proxy, S3Request

if TYPE_CHECKING:
    from airflow_recovery.store.s3_clients import AnySession

pytestmark = pytest.mark.s3

SLOW_DOWN = Answer(503, "SlowDown")
CONFLICT = Answer(409, "ConditionalRequestConflict")
EXPIRED = Answer(400, "ExpiredToken", "The provided token has expired.")
KMS_DENIED = Answer(403, "AccessDenied", "not authorized to perform: kms:GenerateDataKey on resource: the key")


@pytest.fixture
def proxy(start_s3_server: Callable[[str], S3Server], s3_server_names: list[str]) -> Iterator[S3Proxy]:
    """Before one server: what the proxy does is the same before each."""
    with S3Proxy(start_s3_server(s3_server_names[-1])) as proxy:
        yield proxy


@pytest.fixture
def remote(proxy: S3Proxy) -> S3Store:
    return opened(proxy, renew=Renewals())


def opened(
    proxy: S3Proxy, access_key: str = ACCESS_KEY, renew: Callable[[], AnySession] | None = None, **more: Any
) -> S3Store:
    session = new_session(access_key, SECRET_KEY)
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    return S3Store(uri, endpoint_url=proxy.endpoint_url, region_name=REGION, session=session, renew=renew, **more)


def happens(proxy: S3Proxy, *fates: Fate | None, to: Callable[[S3Request], bool] = lambda _: True) -> None:
    """To the next requests that ``to`` picks, one after the other."""
    left = iter(fates)
    proxy.rules.append(lambda request: next(left, None) if to(request) else None)


def is_write(request: S3Request) -> bool:
    return request.method == "PUT"


def write(store: ObjectStore, body: bytes = b"mine", pauses: list[float] | None = None) -> Written:
    pauses = [] if pauses is None else pauses
    return write_once(
        store,
        "a/00000001.claim",
        body,
        is_mine=lambda found: found == body,
        clock=lambda: sum(pauses),
        sleep=pauses.append,
        rng=random.Random(7),
    )


def writes(proxy: S3Proxy) -> int:
    return sum(request.is_conditional for request in proxy.requests)


def test_a_body_that_comes_in_chunks_gets_through_and_a_delayed_one_too(remote: S3Store, proxy: S3Proxy) -> None:
    """As pyarrow's SDK sends what it does not know the length of; the server checks the signature."""
    from pyarrow.fs import S3FileSystem

    name = remote.base_uri.removeprefix("s3://")
    where = {"endpoint_override": proxy.endpoint_url, "region": REGION, "scheme": "http"}
    fresh = S3FileSystem(access_key=ACCESS_KEY, secret_key=SECRET_KEY, **where)
    happens(proxy, Delayed(0.01), to=is_write)
    with fresh.open_output_stream(f"{name}/chunked") as out:
        out.write(b"x" * 100_000)
    assert remote.get("chunked").body == b"x" * 100_000


@pytest.mark.parametrize("then_retried", [False, True])
def test_fault_21_24_a_lost_reply_over_http_is_our_own_write(
    remote: S3Store, proxy: S3Proxy, then_retried: bool
) -> None:
    happens(proxy, LostReply(then_retried), to=is_write)
    assert not write(remote).created
    assert writes(proxy) == (1 if then_retried else 2)


def test_fault_21_24_negative_control_the_bare_write_says_exists_or_nothing(remote: S3Store, proxy: S3Proxy) -> None:
    happens(proxy, LostReply(then_retried=True), LostReply(), to=is_write)
    with pytest.raises(ObjectExists):
        remote.put_if_absent("a", b"mine")
    with pytest.raises(StoreTimeout):
        remote.put_if_absent("b", b"mine")
    assert remote.get("a").body == remote.get("b").body == b"mine"


def test_fault_22_a_409_over_http_is_asked_again(remote: S3Store, proxy: S3Proxy) -> None:
    happens(proxy, CONFLICT, CONFLICT, to=is_write)
    assert write(remote).created
    assert writes(proxy) == 3


def test_fault_22_negative_control_the_bare_write_gives_up(remote: S3Store, proxy: S3Proxy) -> None:
    happens(proxy, CONFLICT, to=is_write)
    with pytest.raises(StoreUnavailable):
        remote.put_if_absent("a", b"mine")


def test_fault_23_a_storm_of_503_over_http_is_met_with_pauses_and_progress(remote: S3Store, proxy: S3Proxy) -> None:
    """The SDK sends no write twice by itself, so that what our pauses bound is all that the server sees."""
    happens(proxy, *[SLOW_DOWN] * 6, to=is_write)
    pauses: list[float] = []
    assert write(remote, pauses=pauses).created
    assert writes(proxy) == 7
    assert pauses == sorted(pauses)


@pytest.mark.slow
def test_fault_23_reads_are_repeated_by_the_sdk_and_then_told(remote: S3Store, proxy: S3Proxy) -> None:
    remote.put("a", b"1")
    happens(proxy, SLOW_DOWN, SLOW_DOWN)
    assert remote.get("a").body == b"1"
    happens(proxy, *[SLOW_DOWN] * 99)
    with pytest.raises(StoreUnavailable):
        list(remote.list())
    assert len(proxy.requests) == 1 + 3 + 4


def test_fault_23_many_writers_through_a_storm_all_get_through_and_one_wins(remote: S3Store, proxy: S3Proxy) -> None:
    rng = random.Random(3)
    proxy.rules.append(lambda request: SLOW_DOWN if is_write(request) and rng.random() < 0.5 else None)

    def race(writer: int) -> bool:
        try:
            return write(remote, str(writer).encode()).created
        except WriteLost:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(race, range(8))) == 1
    assert writes(proxy) < 40


@pytest.mark.slow
def test_fault_25_a_proxy_that_drops_the_condition_is_found_by_the_probe(
    start_s3_server: Callable[[str], S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    # moto: a server that checks signatures refuses what was changed on its way.
    with S3Proxy(start_s3_server(MotoServer.name)) as proxy:
        forward = proxy.forward

        def without_condition(
            method: str, path: str, headers: Mapping[str, str], body: bytes
        ) -> http.client.HTTPResponse:
            kept = {name: each for name, each in headers.items() if name != "If-None-Match"}
            return forward(method, path, kept, body)

        monkeypatch.setattr(proxy, "forward", without_condition)
        with pytest.raises(StoreUnsuitable, match="no conditional writes"):
            probe(opened(proxy))


def test_fault_25_negative_control_the_honest_proxy_passes_the_probe(remote: S3Store) -> None:
    probe(remote)


# bodies that are not whole

BODY = bytes(range(256)) * 8


def is_read(request: S3Request) -> bool:
    return request.method == "GET" and bool(request.key)


def is_listing(request: S3Request) -> bool:
    return request.method == "GET" and "list-type" in request.query


def reads(proxy: S3Proxy) -> int:
    return sum(map(is_read, proxy.requests))


def test_a_body_that_breaks_off_is_read_again_after_a_pause(proxy: S3Proxy) -> None:
    pauses: list[float] = []
    remote = opened(proxy, sleep=pauses.append)
    remote.put("a", BODY)
    happens(proxy, CutReply(100), CutReply(0), None, to=is_read)
    assert remote.get("a").body == BODY
    assert reads(proxy) == 3
    assert len(pauses) == 2
    assert pauses[0] < pauses[1]


def test_a_body_that_always_breaks_off_is_a_time_out_after_four_reads(proxy: S3Proxy) -> None:
    pauses: list[float] = []
    remote = opened(proxy, sleep=pauses.append)
    remote.put("a", BODY)
    proxy.rules.append(lambda request: CutReply(100) if is_read(request) else None)
    with pytest.raises(StoreTimeout, match="no complete answer"):
        remote.get("a")
    assert (reads(proxy), len(pauses)) == (4, 3)


def load_through_cuts(proxy: S3Proxy, **more: Any) -> int:
    """How many of ten loads of 20 objects fail where 7 % of the bodies break off."""
    remote = opened(proxy, sleep=lambda seconds: None, **more)
    keys = [f"a/{number}" for number in range(20)]
    for key in keys:
        remote.put(key, BODY)
    rng = random.Random(11)
    proxy.rules.append(lambda request: CutReply(100) if is_read(request) and rng.random() < 0.07 else None)

    def fails() -> bool:
        try:
            return {each.body for each in get_many(remote, keys, connections=1).values()} != {BODY}
        except StoreTimeout:
            return True

    return sum(fails() for _ in range(10))


def test_a_load_gets_through_a_line_that_cuts_bodies(proxy: S3Proxy) -> None:
    assert load_through_cuts(proxy) == 0


def test_control_without_repeats_most_loads_fail_where_bodies_are_cut(proxy: S3Proxy) -> None:
    assert load_through_cuts(proxy, max_read_attempts=1) > 5


def test_a_body_without_a_length_is_refused(remote: S3Store, proxy: S3Proxy) -> None:
    remote.put("a", BODY)
    happens(proxy, CutReply(100, says_length=False), to=is_read)
    with pytest.raises(StoreUnsuitable, match="expected ContentLength in the answer to reading an object") as refused:
        remote.get("a")
    assert kind_of(refused.value).is_final
    assert reads(proxy) == 1


def test_control_believed_without_a_length_half_a_body_is_read_as_whole(
    remote: S3Store, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "_field", lambda self, answer, name, to: answer.get(name, 0))
    remote.put("a", BODY)
    happens(proxy, CutReply(100, says_length=False), to=is_read)
    assert remote.get("a").body == BODY[:100]


def with_checksum(remote: S3Store, key: str) -> None:
    """As a server keeps what AWS's SDK has written by its defaults."""
    bucket, _, prefix = remote.base_uri.removeprefix("s3://").partition("/")
    client = remote._clients.sending(1)
    client.put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=BODY, ChecksumAlgorithm="CRC32")


def test_a_body_that_does_not_fit_its_checksum_is_read_again(proxy: S3Proxy) -> None:
    remote = opened(proxy, sleep=lambda seconds: None)
    with_checksum(remote, "a")
    damage = Rewritten(lambda body: b"?" + body[1:])
    happens(proxy, damage, to=is_read)
    assert remote.get("a").body == BODY
    assert reads(proxy) == 2
    proxy.rules[:] = [lambda request: damage if is_read(request) else None]
    with pytest.raises(StoreTimeout, match="checksum"):
        remote.get("a")


def test_control_without_a_checksum_a_changed_body_of_the_same_length_is_believed(
    remote: S3Store, proxy: S3Proxy
) -> None:
    remote.put("a", BODY)  # to an endpoint that is not AWS's the SDK sends no checksum
    happens(proxy, Rewritten(lambda body: b"?" + body[1:]), to=is_read)
    assert remote.get("a").body == b"?" + BODY[1:]


def test_a_body_that_is_too_large_is_not_read(remote: S3Store, proxy: S3Proxy) -> None:
    remote.put("a", BODY)
    assert remote.get("a", len(BODY)).body == BODY
    with pytest.raises(ObjectTooLarge, match=rf"expected at most {len(BODY) - 1} bytes, found {len(BODY)}"):
        remote.get("a", len(BODY) - 1)
    assert remote.get("a").body == BODY  # the connection that was given up is none of the next one's


# what a server doesn't say


def without_etags(body: bytes) -> bytes:
    return re.sub(rb"<ETag>.*?</ETag>", b"", body)


def test_a_listing_without_etags_is_refused_once_and_by_name(remote: S3Store, proxy: S3Proxy) -> None:
    remote.put("a", b"1")
    proxy.rules.append(lambda request: Rewritten(without_etags) if is_listing(request) else None)
    with pytest.raises(
        StoreUnsuitable, match=r"s3://.*: expected ETag in the answer to a listing.* found none"
    ) as refused:
        list(remote.list())
    assert kind_of(refused.value).is_final
    with pytest.raises(StoreUnsuitable, match="expected ETag"):
        probe(remote)
    assert sum(map(is_listing, proxy.requests)) == 2


def test_control_a_raw_key_error_would_be_retried(
    remote: S3Store, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "_field", lambda self, answer, name, to: answer[name])
    remote.put("a", b"1")
    proxy.rules.append(lambda request: Rewritten(without_etags) if is_listing(request) else None)
    with pytest.raises(KeyError) as raised:
        list(remote.list())
    assert not kind_of(raised.value).is_final


REQUESTS: dict[str, Callable[[S3Store], object]] = {
    "read": lambda store: store.get("a"),
    "list": lambda store: list(store.list()),
    "write": lambda store: store.put("a", b"1"),
    "conditional write": lambda store: store.put_if_absent(uuid.uuid4().hex, b"1"),
    "delete": lambda store: store.delete(["a"]),
    "list uploads": lambda store: list(store.uploads()),
}


class Renewals:
    """Counts how often credentials are fetched."""

    def __init__(self, access_key: str = ACCESS_KEY) -> None:
        self.count = 0
        self.access_key = access_key

    def __call__(self) -> AnySession:
        self.count += 1
        return new_session(self.access_key, SECRET_KEY)


def expire(proxy: S3Proxy, answer: Answer = EXPIRED) -> None:
    """The credentials ``old`` are no longer."""
    proxy.rules.append(lambda request: answer if request.access_key == "old" else None)


@pytest.mark.parametrize(
    ("answer", "requests"),
    [(EXPIRED, tuple(REQUESTS)), (KMS_DENIED, ("conditional write",)), (Answer(403, "InvalidAccessKeyId"), ("list",))],
)
def test_fault_28_expired_credentials_are_fetched_anew_once(
    proxy: S3Proxy, answer: Answer, requests: tuple[str, ...]
) -> None:
    renewals = Renewals()
    expire(proxy, answer)
    known = opened(proxy)
    for at, name in enumerate(requests, 1):
        store = opened(proxy, "old", renewals)
        known.sibling(store.base_uri).put("a", b"0")
        REQUESTS[name](store)
        REQUESTS[name](store)
        assert renewals.count == at, name


def test_fault_28_expired_again_is_an_error_that_a_retry_may_cure(proxy: S3Proxy) -> None:
    from airflow_recovery.errors import kind_of

    renewals = Renewals("old")
    expire(proxy)
    for at, request in enumerate(REQUESTS.values(), 1):
        with pytest.raises(StoreCredentialsExpired, match="next try") as raised:
            request(opened(proxy, "old", renewals))
        assert renewals.count == at
        assert not kind_of(raised.value).is_final
        assert SECRET_KEY not in str(raised.value)


def test_fault_28_negative_control_a_store_that_can_not_renew_fails_though_new_keys_are_there(proxy: S3Proxy) -> None:
    expire(proxy)
    with pytest.raises(StoreCredentialsExpired):
        opened(proxy, "old").put("a", b"1")


def test_fault_28_many_threads_fetch_once(proxy: S3Proxy) -> None:
    renewals = Renewals()
    store = opened(proxy, "old", renewals)
    expire(proxy)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(str(name), b"1"), range(16)))
    assert renewals.count == 1
    assert len(list(store.list())) == 16


def test_fault_28_a_journal_write_goes_through_and_the_journal_stays_whole(proxy: S3Proxy) -> None:
    store = opened(proxy, "old", Renewals())
    expire(proxy)
    assert write(store).created
    assert [each.key for each in store.list()] == ["a/00000001.claim"]
    with pytest.raises(ObjectExists):
        store.put_if_absent("a/00000001.claim", b"again")


def test_fault_28_denied_is_final_and_nothing_is_fetched(proxy: S3Proxy) -> None:
    renewals = Renewals()
    store = opened(proxy, renew=renewals)
    happens(proxy, Answer(403, "AccessDenied", "no"))
    with pytest.raises(StoreAccessDenied):
        store.put("a", b"1")
    assert renewals.count == 0
