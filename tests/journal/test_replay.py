"""Whoever replays the event streams comes to the same state as whoever folds the write-once objects."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from example_events import AT, EXAMPLE_EVENTS, FOR_EVER, IDENTITY, STREAMS
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.errors import AttemptLost, Failure, ObjectExists, ObjectMissing, StoreTimeout
from airflow_recovery.journal import replay as replay_module
from airflow_recovery.journal.events import RecordWritten, event_to_json
from airflow_recovery.journal.frames import SegmentHeader, record_line
from airflow_recovery.journal.history import GapKind, read_stream
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.replay import EventFold, differences, replay
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    FenceCause,
    Lost,
    Outcome,
    PlanRecord,
    Publish,
    PublishedRegion,
    ReadMetrics,
    Released,
    Reset,
)
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, StoredObject
from airflow_recovery.testing import Fault, FaultKind, FaultyStore, Verb

REGIONS = ("a", "b", "c/1")
WRITERS = 3


class DictStore:
    """A store in memory, for many processes that are threads of one."""

    base_uri = "memory://journal"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        with self._lock:
            if key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = body
        return self._info(key)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        self.objects[key] = body
        return self._info(key)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        if key not in self.objects:
            raise ObjectMissing(key)
        return StoredObject(self._info(key), self.objects[key])

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > start_after)
        yield from (self._info(key) for key in keys)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def _info(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.objects[key]), str(hash(self.objects[key])))


class History:
    """A run that several processes work on, each with its stream; any of them may be killed."""

    def __init__(self) -> None:
        self.inner = DictStore()
        self.store = FaultyStore(self.inner)
        self._started = 0
        self.killed = False
        self._processes = [self._start() for _ in range(WRITERS)]

    def _start(self) -> tuple[EventWriter, Journal]:
        self._started += 1
        name = f"process {self._started}"
        events = EventWriter(self.inner, IDENTITY, name, buffer_bytes=300, flush_interval_s=FOR_EVER, now=lambda: AT)
        recorder = Recorder(events.record, lambda: AT)
        return events, Journal(self.store, IDENTITY, writer=name, listener=recorder, sleep=lambda seconds: None)

    def journal(self, who: int) -> Journal:
        return self._processes[who % WRITERS][1]

    def kill(self, who: int) -> None:
        events, _ = self._processes[who % WRITERS]
        with events._changed:
            events._dead = True
            events._changed.notify_all()
        self._processes[who % WRITERS] = self._start()
        self.killed = True

    def end(self) -> None:
        for events, _ in self._processes:
            assert events.close().failed is None

    def fold(self) -> RunState:
        journal = Journal(self.inner, IDENTITY, writer="reader")
        return journal.load(journal.list(REGIONS))

    # what processes do

    def step(self, verb: str, who: int, which: int) -> None:
        journal, region, state = self.journal(who), REGIONS[which % len(REGIONS)], self.fold()
        mine = state.of(region)
        with suppress(AttemptLost, StoreTimeout):
            getattr(self, verb)(journal, who, region, mine)

    def plan(self, journal, who, region, mine) -> None:
        journal.put_plan(PlanRecord(f"jobs:{region}", ()))

    def claim(self, journal, who, region, mine) -> None:
        if mine.open_attempt is None:
            inputs = self._inputs()
            journal.claim(
                Claim(region, mine.latest_attempt + 1, journal.writer, "0a", inputs, "run", 1, "ti", "tag", AT)
            )

    def finish(self, journal, who, region, mine, *, told: bool = True) -> None:
        opened = mine.open_attempt
        if opened is None:
            return
        outcome = Outcome(
            region,
            opened.number,
            AttemptState.FINISHED,
            opened.claim.writer,
            AT,
            "f1",
            opened.claim.inputs,
            outputs=(PartitionManifest("r", "s3://d", (ResultObject("p", 3, "e"),), 3, None),),
            read=ReadMetrics(1, 2, None),
            accumulators=(("bad", 2),),
        )
        journal.sibling(IDENTITY).finish(outcome)  # the driver: a process without a stream
        if told:
            journal.noticed(outcome)

    def finish_and_die(self, journal, who, region, mine) -> None:
        self.finish(journal, who, region, mine, told=False)
        self.kill(who)

    def keep(self, journal, who, region, mine) -> None:
        if mine.current is not None:
            journal.noticed(mine.current.outcome)

    def fence(self, journal, who, region, mine) -> None:
        if mine.open_attempt is not None:
            number, failure = mine.open_attempt.number, Failure("E", "m")
            journal.noticed(mine.open_attempt.claim)
            journal.fence(
                Outcome(
                    region,
                    number,
                    AttemptState.FENCED,
                    journal.writer,
                    AT,
                    cause=FenceCause.OWN_FAILURE,
                    failure=failure,
                )
            )

    def reset(self, journal, who, region, mine) -> None:
        journal.reset(Reset(region, mine.latest_attempt, journal.writer, "asked for"))

    def lose(self, journal, who, region, mine) -> None:
        if mine.current is not None:
            journal.report_lost(Lost(region, mine.current.number, journal.writer, ("gone",)))

    def release(self, journal, who, region, mine) -> None:
        if mine.current is not None:
            journal.release(Released(region, mine.current.number, journal.writer))

    def publish(self, journal, who, region, mine) -> None:
        if mine.current is not None:
            number = self.fold().newest_publish + 1
            journal.publish(Publish(number, (PublishedRegion(region, mine.current.number, "e", ("r",)),)))

    def purge(self, journal, who, region, mine) -> None:
        """``closed``, and later the objects; the streams go too, or not, where somebody came back meanwhile."""
        state = self.fold()
        if any(region.open_attempt is not None for region in state.regions.values()):
            return
        highest = tuple(
            InputRef(name, each.latest_attempt) for name, each in state.regions.items() if each.latest_attempt
        )
        number = sum(1 for _ in self.inner.list(journal.layout.closed)) + 1
        journal.close(Closed(highest), number)
        for info in list(self.inner.list(journal.layout.prefix)):
            if journal.layout.parse_closed(info.key) is None:
                self.inner.delete([info.key])

    def lose_reply(self, journal, who, region, mine) -> None:
        self.store._faults = [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY)]
        self.store._seen = [0]

    def die(self, journal, who, region, mine) -> None:
        self.kill(who)

    def _inputs(self) -> tuple[InputRef, ...]:
        current = self.fold().of("a").current
        return (InputRef("a", current.number),) if current is not None else ()


CALM = [
    "plan",
    "claim",
    "claim",
    "finish",
    "finish",
    "keep",
    "fence",
    "reset",
    "lose",
    "release",
    "publish",
    "lose_reply",
]
PURGES = ["purge"]
KILLS = ["die", "finish_and_die"]


def steps(verbs: list[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    return st.lists(st.tuples(st.sampled_from(verbs), st.integers(0, 2), st.integers(0, 2)), max_size=40)


def played(history: list[tuple[str, int, int]]) -> History:
    run = History()
    for verb, who, which in history:
        run.step(verb, who, which)
    run.end()
    return run


@settings(max_examples=120)
@given(steps(CALM))
def test_the_history_and_the_fold_come_to_the_same_state(history) -> None:
    run = played(history)
    found = replay(Journal(run.inner, IDENTITY, writer="reader"))
    assert differences(run.fold(), found.state) == ()
    assert found.gaps == ()


@pytest.mark.slow
@settings(max_examples=80)
@given(steps(CALM + PURGES))
def test_fault_43_what_was_purged_counts_in_neither_even_where_its_events_are_left(history) -> None:
    run = played(history)
    found = replay(Journal(run.inner, IDENTITY, writer="reader"))
    fold = run.fold()
    # Plans go with a purge; the events that name them may stay. A plan is never a reason to run anything.
    assert [difference for difference in differences(fold, found.state) if not difference.startswith("plans")] == []


@pytest.mark.slow
@settings(max_examples=80)
@given(steps(CALM + KILLS))
def test_where_processes_are_killed_the_history_may_lack_something_and_never_contradicts(history) -> None:
    run = played(history)
    found = replay(Journal(run.inner, IDENTITY, writer="reader"))
    fold = run.fold()
    for name, region in found.state.regions.items():
        for number, told in region.attempts.items():
            is_so = fold.of(name).attempts[number]
            for mark in ("is_claimed", "has_outcome", "is_reset", "is_lost", "is_released"):
                assert getattr(is_so, mark) or not getattr(told, mark)
            assert told.outcome in (None, is_so.outcome)
            assert told.reset in (None, is_so.reset)
    if not run.killed:
        assert differences(fold, found.state) == ()


def test_control_an_event_that_is_not_recorded_is_found_out() -> None:
    """The comparison is no formality: leave one event type out, and it says so."""
    run = played([("claim", 0, 1), ("finish", 0, 1), ("reset", 1, 1), ("claim", 1, 1)])
    events = [each.event for each in read_stream(run.inner, IDENTITY)]
    for left_out in {type(event) for event in events} - {type(EXAMPLE_EVENTS[-1])}:
        fold = EventFold({})
        for event in events:
            if type(event) is not left_out:
                fold.add(event)
        assert differences(run.fold(), fold.state()), left_out


def test_fault_40_and_41_events_may_come_twice_and_in_any_order() -> None:
    run = played(
        [("claim", 0, 1), ("finish", 0, 1), ("reset", 1, 1), ("claim", 1, 1), ("fence", 2, 1), ("claim", 2, 1)]
    )
    events = [each.event for each in read_stream(run.inner, IDENTITY)] * 2
    rng = random.Random(1)
    for _ in range(20):
        rng.shuffle(events)
        fold = EventFold({})
        for event in events:
            fold.add(event)
        assert differences(run.fold(), fold.state()) == ()


def test_a_write_without_an_answer_is_a_hole_that_the_history_names() -> None:
    run = History()
    run.store._faults, run.store._seen = [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY, times=None)], [0]
    journal = Journal(
        run.store,
        IDENTITY,
        writer="w",
        deadline_s=0,
        listener=Recorder(run._processes[0][0].record, lambda: AT),
        sleep=lambda seconds: None,
    )
    with pytest.raises(StoreTimeout):
        journal.claim(Claim("a", 1, "w", "0a", (), "run", 1, "ti", "tag", AT))
    run.end()
    found = replay(Journal(run.inner, IDENTITY, writer="reader"))
    assert [gap.kind for gap in found.gaps] == [GapKind.IN_DOUBT]
    assert differences(run.fold(), found.state) == ("a@1: claimed in the journal, nothing in the history",)


def test_a_record_of_another_process_that_is_as_good_is_what_the_history_tells() -> None:
    """Two ask for one reset: the journal has the first one's words, and so has the history."""
    run = played([("reset", 0, 0), ("reset", 1, 0)])
    found = replay(Journal(run.inner, IDENTITY, writer="reader"))
    assert differences(run.fold(), found.state) == ()
    assert found.state.of("a").attempts[0].reset.who == "process 1"


def test_it_is_told_once_even_if_noticed_often() -> None:
    run = played([("claim", 0, 0), ("finish", 0, 0), ("keep", 0, 0), ("keep", 0, 0), ("keep", 1, 0)])
    finishes = [each for each in read_stream(run.inner, IDENTITY) if each.event.type == "ExecutionVertexFinished"]
    assert [finish.writer for finish in finishes] == ["process 1", "process 2"]


@pytest.mark.slow
def test_replaying_100_000_events_takes_seconds() -> None:
    """50,000 attempts of 1,000 regions, in the streams of 1,000 processes."""
    store = DictStore()
    claim = next(example_event.subject for example_event in EXAMPLE_EVENTS if example_event.type == "AttemptClaimed")
    outcome = next(
        example_event.subject for example_event in EXAMPLE_EVENTS if example_event.type == "ExecutionVertexFinished"
    )
    texts = []
    for number in range(1, 51):
        claimed = RecordWritten(occurred_at=AT, record=replace(claim, region="(r)", attempt=number))
        finished = replace(outcome, region="(r)", attempt=number, inputs=())
        both = (claimed, RecordWritten(occurred_at=AT, record=finished))
        texts += [canonical_json(event_to_json(each)) for each in both]
    for process in range(1_000):
        lines = [SegmentHeader(IDENTITY, f"w{process}", 1, 1).line()]
        for number, text in enumerate(texts, start=1):
            lines.append(record_line(f"w{process}", number, text.replace("(r)", f"r{process}")))
        store.put(f"{STREAMS}w{process}/00000001", b"".join(lines))
    begin_s = time.process_time()
    found = replay(Journal(store, IDENTITY, writer="reader"))
    took_s = time.process_time() - begin_s
    assert (found.events, found.writers) == (100_000, 1_000)
    assert found.state.of("r7").current.number == 50
    assert took_s < 20, "about 5 s of one core on the machine where this was written"


def test_a_tombstone_is_an_event_and_its_object_is_what_counts() -> None:
    run = played([("claim", 0, 0), ("finish", 0, 0), ("purge", 1, 0), ("claim", 1, 0)])
    assert any(each.event.type == "RunClosed" for each in read_stream(run.inner, IDENTITY))
    found = replay(Journal(run.inner, IDENTITY, writer="reader")).state
    assert (found.is_closed, found.of("a").closed_at, found.of("a").latest_attempt) == (True, 1, 2)


def test_fault_43_control_without_the_boundary_a_purged_attempt_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    run = played([("claim", 0, 0), ("finish", 0, 0), ("purge", 1, 0)])
    reader = Journal(run.inner, IDENTITY, writer="reader")
    assert replay(reader).state.of("a").current is None
    monkeypatch.setattr(replay_module.EventFold, "__init__", _without_boundary)
    assert replay(reader).state.of("a").current is not None


def _without_boundary(self, closed_at) -> None:
    self._closed_at, self._attempts, self._plans, self._newest_publish = {}, {}, set(), 0
