"""The journal's bucket full, denied, slow and lying, over HTTP: as stated, nothing lost, and loud.

P ---> C ---> E          real region tasks with real event streams; between them and the S3 server a proxy
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from expected_errors import fails_with
from fakes import CHAIN, IDENTITY, Process, World

from airflow_recovery.attempt.region_task import RegionResult
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import StoreAccessDenied, StoreError, StoreFull
from airflow_recovery.journal import codec, frames
from airflow_recovery.journal.events import JobEvent
from airflow_recovery.journal.history import GapKind
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.replay import Replay, differences, replay
from airflow_recovery.journal.stream import EventWriter, NoEvents, StreamClosed
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectStore, StoredObject
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S
from scripts.s3_proxy import Answer, Fate, S3Proxy, S3Request

pytestmark = pytest.mark.s3

FULL = Answer(507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold.")
QUOTA = Answer(403, "QuotaExceeded", "The bucket's quota is used up.")
DENIED = Answer(403, "AccessDenied", "Access Denied")
SLOW_S = 2.0

REFUSALS = {
    "full": (FULL, StoreFull),
    "quota": (QUOTA, StoreFull),
    "denied": (DENIED, StoreAccessDenied),
}


class InABucket(World):
    """A run whose journal is on S3, and whose every try writes its event stream there."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(CHAIN)
        self.journal_store = store
        self.stream: EventWriter | None = None
        self.closed: list[StreamClosed] = []
        self.before_close: Callable[[], object] = lambda: None

    def journal(self, process: Process | None = None, writer: str = "test") -> Journal:
        store = super().journal(process, writer).store
        listener = Recorder(self._record, self.now) if self.stream is not None else None
        return Journal(store, IDENTITY, writer=writer, listener=listener, deadline_s=0.5)

    def run(self, own: TaskTry, process: Process, writer: str) -> Run:
        return replace(super().run(own, process, writer), events=self.stream or NoEvents())

    def go(self, region: str, **given: object) -> RegionResult:
        self.stream = EventWriter(self.journal_store, IDENTITY, uuid.uuid4().hex, flush_interval_s=0.05)
        try:
            return super().go(region, **given)  # type: ignore[arg-type]
        finally:
            self.before_close()
            self.closed.append(self.stream.close(timeout_s=HANG_S if self.is_patient else 0.5))
            self.stream = None

    is_patient = True

    def _record(self, event: JobEvent) -> None:
        assert self.stream is not None
        self.stream.record(event)

    @property
    def history(self) -> Replay:
        return replay(Journal(self.journal_store, IDENTITY, writer="reader"))

    def unlike(self) -> tuple[str, ...]:
        """What the journal says and the history does not."""
        return differences(self.state(), self.history.state)


class SlowProxy(S3Proxy):
    """Each request takes ``delay_s`` longer; those of other threads go on meanwhile.

    Requests of the stream are held until ``takes_events`` is set.
    """

    delay_s = 0.0

    def __init__(self, server: S3Server) -> None:
        super().__init__(server)
        self.takes_events = threading.Event()
        self.takes_events.set()

    def evaluate(self, request: S3Request) -> Fate | None:
        time.sleep(self.delay_s)
        if is_stream(request):
            assert self.takes_events.wait(HANG_S), "somebody waits for an event to be written"
        return super().evaluate(request)


@pytest.fixture
def proxy(start_s3_server: Callable[[str], S3Server], s3_server_names: list[str]) -> Iterator[SlowProxy]:
    with SlowProxy(start_s3_server(s3_server_names[-1])) as proxy:
        yield proxy


@pytest.fixture
def world(proxy: S3Proxy, start_s3_server: Callable[[str], S3Server], s3_server_names: list[str]) -> InABucket:
    session = start_s3_server(s3_server_names[-1]).session()
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    bucket = InABucket(S3Store(uri, endpoint_url=proxy.endpoint_url, session=session, max_read_attempts=1))
    bucket.go("P")
    return bucket


def refuse(proxy: S3Proxy, answer: Answer, to: Callable[[S3Request], bool]) -> Callable[[], None]:
    """Until the returned function is called."""

    def rule(request: S3Request) -> Answer | None:
        return answer if to(request) else None

    proxy.rules.append(rule)
    return lambda: proxy.rules.remove(rule)


def is_stream(request: S3Request) -> bool:
    return request.method == "PUT" and "/_streams/" in request.key


def is_write(request: S3Request) -> bool:
    return request.method == "PUT"


def is_any(request: S3Request) -> bool:
    return True


def check_nothing_is_lost(world: InABucket) -> None:
    """When the trouble is over: the run ends, what had finished was not made again, and nobody finds a fault."""
    world.until_green()
    assert [each for each in world.ran if each[0] == "P"] == [("P", 1)]
    assert world.content("E") == """E of ["C of ['P of []']"]"""
    report = world.verify()
    assert report.violated == ()


# full, and denied


@pytest.mark.parametrize("kind", REFUSALS)
def test_fault_42_no_room_for_events_the_region_finishes_and_its_history_says_that_it_has_a_hole(
    world: InABucket, proxy: S3Proxy, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.is_patient = False
    heal = refuse(proxy, REFUSALS[kind][0], is_stream)
    with caplog.at_level(logging.WARNING):
        world.go("C")
    assert world.current("C") == 1
    assert (world.closed[-1].written, world.closed[-1].dropped) == (0, 2)
    assert REFUSALS[kind][0].code in str(world.closed[-1].failed)
    assert "can't be written" in caplog.text
    assert "C@1: claimed, outcome in the journal, nothing in the history" in " ".join(world.unlike())
    heal()
    check_nothing_is_lost(world)


@pytest.mark.parametrize("kind", REFUSALS)
def test_fault_42_room_comes_back_in_time_and_the_history_has_no_hole(
    world: InABucket, proxy: S3Proxy, kind: str
) -> None:
    heal = refuse(proxy, REFUSALS[kind][0], is_stream)
    world.go("C", on_finished=heal)
    assert (world.closed[-1].dropped, world.closed[-1].failed) == (0, None)
    assert world.unlike() == ()
    assert world.history.gaps == ()
    check_nothing_is_lost(world)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "when"), [("full", "on_start"), ("quota", "on_written"), ("denied", "on_written")])
def test_no_record_can_be_written_the_task_fails_by_name_and_the_next_try_goes_on(
    world: InABucket, proxy: S3Proxy, kind: str, when: str
) -> None:
    world.is_patient = False
    answer, error = REFUSALS[kind]
    healed: list[Callable[[], None]] = []
    with pytest.raises(StoreError, match=answer.code) as raised:
        world.go("C", **{when: lambda: healed.append(refuse(proxy, answer, is_write))})
    assert isinstance(raised.value, error)
    assert world.airflow.state("C") != "success"
    healed[0]()
    world.is_patient = True
    check_nothing_is_lost(world)


@pytest.mark.parametrize("kind", REFUSALS)
def test_fault_27_nothing_can_be_asked_nothing_is_taken_for_lost(world: InABucket, proxy: S3Proxy, kind: str) -> None:
    world.is_patient = False
    heal = refuse(proxy, REFUSALS[kind][0], is_any)
    with pytest.raises(StoreError, match=REFUSALS[kind][0].code):
        world.go("C")
    heal()
    assert world.attempts("C") == 0
    world.is_patient = True
    check_nothing_is_lost(world)


# slow


@pytest.mark.slow
def test_two_seconds_a_request_the_region_and_its_history_are_whole_and_nobody_waits_for_an_event(
    world: InABucket, proxy: SlowProxy
) -> None:
    proxy.takes_events.clear()
    world.before_close = proxy.takes_events.set
    proxy.delay_s, asked = SLOW_S, len(proxy.requests)
    world.go("C")
    proxy.delay_s, asked = 0, len(proxy.requests) - asked
    assert world.current("C") == 1
    assert (world.closed[-1].dropped, world.closed[-1].failed) == (0, None)
    # 4 round trips, some of two requests (docs/protocol.md#requests), and the stream: flushed at the end.
    assert asked < 10
    assert world.unlike() == ()
    check_nothing_is_lost(world)


# lying: what comes back is not what was written, under the same etag


class Lying:
    """``inner``, which flips one digit of what it reads from keys that ``about`` matches."""

    def __init__(self, inner: ObjectStore, about: str, pattern: bytes) -> None:
        self._inner, self._about, self._pattern = inner, re.compile(about), re.compile(pattern)
        self.lies = True

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        found = self._inner.get(key, max_bytes)
        if not self.lies or not self._about.search(key):
            return found
        at = self._pattern.search(found.body)
        if at is None:
            return found
        other = b"7" if found.body[at.end() - 1 : at.end()] != b"7" else b"8"
        return replace(found, body=found.body[: at.end() - 1] + other + found.body[at.end() :])

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def lying_about(world: InABucket, about: str, pattern: bytes = rb'"rows":\d') -> Lying:
    world.journal_store = lying = Lying(world.journal_store, about, pattern)
    return lying


def test_fault_35_a_flipped_byte_in_a_finish_stops_its_reader_by_name_and_decides_nothing(world: InABucket) -> None:
    lying = lying_about(world, r"/P/00000001\.outcome$")
    with fails_with("record-checksum"):
        world.go("C")
    lying.lies = False
    assert world.attempts("C") == 0
    check_nothing_is_lost(world)


def test_fault_35_control_without_the_checksum_the_lie_is_believed(
    world: InABucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "checksum", lambda body: _Equal())
    lying_about(world, r"/P/00000001\.outcome$")
    told = world.state().of("P").current.outcome
    assert told.outputs[0].rows == 7, "it wrote one"


def test_fault_35_a_flipped_byte_in_a_stream_is_a_hole_that_the_history_names(world: InABucket) -> None:
    world.go("C")
    lying = lying_about(world, "_streams/", rb'"seq":\d')
    gaps = world.history.gaps
    assert {gap.kind for gap in gaps} == {GapKind.DAMAGED}
    assert all("checksum" in gap.text for gap in gaps)
    assert world.unlike() != ()
    lying.lies = False
    assert world.unlike() == ()
    check_nothing_is_lost(world)


def test_fault_35_control_without_the_checksum_of_a_line_another_attempt_is_told(
    world: InABucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying_about(world, "_streams/")
    monkeypatch.setattr(frames.zlib, "crc32", lambda body: _Equal())
    told = world.history
    assert told.gaps == ()
    assert told.state.of("P").current.outcome.outputs[0].rows == 7


class _Equal(int):
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def test_the_proxy_is_what_everything_goes_through(world: InABucket, proxy: S3Proxy) -> None:
    kinds = {json.dumps([request.method, "/_streams/" in request.key]) for request in proxy.requests}
    assert {'["PUT", true]', '["PUT", false]', '["GET", false]'} <= kinds
