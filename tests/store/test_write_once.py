"""The PUT rule (docs/protocol.md#put-rule), over real stores with faults in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import (
    ObjectExists,
    ObjectMissing,
    RecordInvalid,
    StoreAccessDenied,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
    WriteLost,
)
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.store.write_once import Backoff, Written, write_once
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, SeededFaults, Verb

PUT = Verb.PUT_IF_ABSENT


class ManualClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def write(store: ObjectStore, clock: ManualClock, body: bytes = b"mine", deadline_s: float = 300.0) -> Written:
    return write_once(
        store,
        "t/a/00000001.claim",
        body,
        is_mine=lambda found: found == body,
        deadline_s=deadline_s,
        clock=clock,
        sleep=clock.sleep,
        rng=random.Random(7),
    )


def test_a_first_write_is_one_request(local_store: LocalStore, clock: ManualClock) -> None:
    counting = CountingStore(local_store)
    written = write(counting, clock)
    assert written.created
    assert counting.counts() == {PUT: 1}
    assert [each.etag for each in local_store.list()] == [written.info.etag]


def test_a_lost_race_raises_with_what_was_found(store: ObjectStore, clock: ManualClock) -> None:
    store.put_if_absent("t/a/00000001.claim", b"theirs")
    with fails_with("written-by-another") as raised:
        write(store, clock)
    assert isinstance(raised.value, WriteLost)
    assert raised.value.held == b"theirs"
    assert clock.pauses == []


def test_fault_21_a_lost_reply_then_412_is_our_own_write(store: ObjectStore, clock: ManualClock) -> None:
    faulty = FaultyStore(store, [Fault(PUT, FaultKind.LOST_REPLY_THEN_RETRIED)])
    written = write(faulty, clock)
    assert not written.created
    assert written.info.etag == store.get("t/a/00000001.claim").info.etag
    assert clock.pauses == []


def test_fault_21_negative_control_without_the_read_back_the_owner_loses(
    store: ObjectStore, clock: ManualClock
) -> None:
    faulty = FaultyStore(store, [Fault(PUT, FaultKind.LOST_REPLY_THEN_RETRIED)])
    with pytest.raises(ObjectExists):
        faulty.put_if_absent("t/a/00000001.claim", b"mine")
    assert store.get("t/a/00000001.claim").body == b"mine"


def test_fault_21_of_eight_with_lost_replies_exactly_one_wins(store: ObjectStore) -> None:
    def race(number: int) -> bool:
        try:
            write(SeededFaults(store, number, rate=0.5, limit=20), ManualClock(), b"%d" % number, deadline_s=1e9)
        except WriteLost:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(race, range(8)))
    assert sum(won) == 1
    assert store.get("t/a/00000001.claim").body == b"%d" % won.index(True)


def test_fault_22_a_conflict_is_repeated_and_never_read_as_exists(store: ObjectStore, clock: ManualClock) -> None:
    counting = CountingStore(store)
    written = write(FaultyStore(counting, [Fault(PUT, FaultKind.CONFLICT, times=3)]), clock)
    assert written.created
    assert len(clock.pauses) == 3
    assert counting.counts() == {PUT: 1}


def test_fault_22_negative_control_one_put_alone_would_give_up(store: ObjectStore, clock: ManualClock) -> None:
    faulty = FaultyStore(store, [Fault(PUT, FaultKind.CONFLICT, times=3)])
    with pytest.raises(StoreUnavailable):
        write(faulty, clock, deadline_s=0)
    assert list(store.list()) == []


def test_fault_23_a_storm_is_met_with_growing_pauses_and_few_requests(
    local_store: LocalStore, clock: ManualClock
) -> None:
    counting = CountingStore(FaultyStore(local_store, [Fault(PUT, FaultKind.SLOW_DOWN, times=None)]))
    with pytest.raises(StoreUnavailable, match="unknown"):
        write(counting, clock, deadline_s=300)
    # Doubling from 0.2 s reaches the cap of 10 s after 6; from then on a request each 5 s at most.
    assert 300 / 10 <= len(counting.requests) <= 7 + 300 / 5
    assert clock.now_s <= 300
    assert all(pause <= 10 for pause in clock.pauses)
    assert sorted(clock.pauses[:4]) == clock.pauses[:4]


def test_fault_23_progress_goes_on_when_the_storm_ends(local_store: LocalStore, clock: ManualClock) -> None:
    assert write(FaultyStore(local_store, [Fault(PUT, FaultKind.SLOW_DOWN, times=20)]), clock).created


def test_fault_23_workers_do_not_pause_in_step() -> None:
    backoff = Backoff()
    pauses = [[backoff.pause_s(n, random.Random(seed)) for n in range(1, 8)] for seed in range(50)]
    assert len({tuple(pause) for pause in pauses}) == 50
    assert all(0.1 <= pause[0] <= 0.2 and 5 <= pause[6] <= 10 for pause in pauses)


def test_fault_23_negative_control_without_backoff_the_storm_grows(local_store: LocalStore, clock: ManualClock) -> None:
    counting = CountingStore(FaultyStore(local_store, [Fault(PUT, FaultKind.SLOW_DOWN, times=1000)]))
    write_once(counting, "k", b"", is_mine=bool, backoff=Backoff(initial_s=0, cap_s=0), clock=clock, sleep=clock.sleep)
    assert len(counting.requests) == 1001
    assert clock.now_s == 0


def test_fault_24_after_a_time_out_the_same_put_is_repeated(store: ObjectStore, clock: ManualClock) -> None:
    counting = CountingStore(store)
    written = write(FaultyStore(counting, [Fault(PUT, FaultKind.TIMEOUT, times=2)]), clock)
    assert written.created
    assert counting.counts() == {PUT: 1}


def test_fault_24_a_time_out_after_the_effect_is_found_to_be_ours(store: ObjectStore, clock: ManualClock) -> None:
    written = write(FaultyStore(store, [Fault(PUT, FaultKind.LOST_REPLY)]), clock)
    assert not written.created
    assert [each.key for each in store.list()] == ["t/a/00000001.claim"]


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.LOST_REPLY])
def test_fault_24_unknown_is_never_success(store: ObjectStore, clock: ManualClock, kind: FaultKind) -> None:
    faulty = FaultyStore(store, [Fault(PUT, kind, times=None), Fault(Verb.GET, FaultKind.TIMEOUT, times=None)])
    with pytest.raises(StoreTimeout, match="whether it was written is unknown"):
        write(faulty, clock, deadline_s=30)


def test_fault_24_negative_control_a_read_after_the_time_out_proves_nothing(
    store: ObjectStore, clock: ManualClock
) -> None:
    """Crash case 16: the read finds nothing, then the request lands; only a second PUT is told the truth."""
    faulty = FaultyStore(store, [Fault(PUT, FaultKind.TIMEOUT)])
    with pytest.raises(StoreTimeout):
        faulty.put_if_absent("t/a/00000001.claim", b"late")
    with pytest.raises(ObjectMissing):
        faulty.get("t/a/00000001.claim")  # "so it was not written": wrong
    store.put_if_absent("t/a/00000001.claim", b"late")  # the delayed request lands
    assert not write(faulty, clock, b"late").created


def test_fault_42_no_room_is_asked_again_until_there_is_some(local_store: LocalStore, clock: ManualClock) -> None:
    full = Full(local_store.base_uri)
    full.left = 3
    assert write(full, clock).created
    assert len(clock.pauses) == 3
    full.left = 99
    with pytest.raises(StoreFull, match=r"Gave up writing .* No room"):
        write(full, clock, deadline_s=0)


class Full(LocalStore):
    """For so many writes."""

    left = 0

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        if self.left == 0:
            return super().put_if_absent(key, body)
        self.left -= 1
        raise StoreFull("No room.")


def test_denied_is_raised_at_once(local_store: LocalStore, clock: ManualClock) -> None:
    faulty = FaultyStore(local_store, [Fault(PUT, FaultKind.DENIED)])
    with pytest.raises(StoreAccessDenied):
        write(faulty, clock)
    assert clock.pauses == []


def test_a_denied_read_back_is_denied_and_not_lost(local_store: LocalStore, clock: ManualClock) -> None:
    local_store.put("t/a/00000001.claim", b"mine")
    faulty = FaultyStore(local_store, [Fault(Verb.GET, FaultKind.DENIED)])
    with pytest.raises(StoreAccessDenied):
        write(faulty, clock)


@pytest.mark.parametrize("kind", [FaultKind.TIMEOUT, FaultKind.SLOW_DOWN])
def test_a_failed_read_back_is_repeated(local_store: LocalStore, clock: ManualClock, kind: FaultKind) -> None:
    local_store.put("t/a/00000001.claim", b"mine")
    assert not write(FaultyStore(local_store, [Fault(Verb.GET, kind, times=2)]), clock).created
    assert len(clock.pauses) == 2


def test_exists_that_cannot_be_read_is_repeated(
    local_store: LocalStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """412, then deleted before the read: nobody has the key, so the same PUT may win."""
    local_store.put("t/a/00000001.claim", b"theirs")
    real: Callable[[str], object] = local_store.get

    def gone(key: str) -> object:
        local_store.delete([key])
        return real(key)

    monkeypatch.setattr(local_store, "get", gone)
    assert write(local_store, clock).created


def test_an_object_that_can_not_be_judged_is_neither_ours_nor_lost(local_store: LocalStore, clock: ManualClock) -> None:
    local_store.put("k", b"damaged")

    def evaluate(found: bytes) -> bool:
        raise RecordInvalid("damaged")

    with pytest.raises(RecordInvalid):
        write_once(local_store, "k", b"mine", is_mine=evaluate, clock=clock, sleep=clock.sleep)
