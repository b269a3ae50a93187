"""FLIP-135, milestone three's failure detection at the journal, and faults of docs/faults.md of streaming regions.

What is lost with channels open, and what the regions do (approximate-single, unless a row says otherwise):

    an executor                    Spark's own affair; where it ends the driver: that region restarts alone
    a driver                       that region restarts alone, at its checkpoint
    a worker (the heartbeat)       attempt 2 is claimed beside a living attempt 1, which is refused wherever it writes
    the scheduler                  nothing: streaming regions work on, and report when it is back
    the API server                 who works works on; who has to restart others waits for it, and has changed nothing
    the metadata database          all tasks start again: what has finished is kept, the others go on at their
                                   checkpoints, in the same generations
    the network to the store       the region that could not write fails, and restarts alone
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
from fakes import Killed, Process
from streaming_world import DOWNSTREAM, SINGLE, SINK, StreamingWorld

from airflow_recovery.attempt.rebuild import finished_tasks
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import (
    AttemptLost,
    ChannelEvicted,
    Failure,
    NotMine,
    Overtaken,
    RegionFailed,
    StoreTimeout,
    UserCodeError,
)
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.records import Reset
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.store.write_once import Backoff
from airflow_recovery.streaming import failover as streaming_failover
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.mode import ChannelRef
from airflow_recovery.streaming.producer import ChannelProducer, SegmentBody


def generations(world: StreamingWorld) -> list[tuple[int, ...]]:
    return [world.state().of(each).generations for each in "ab"]


def restarted(world: StreamingWorld) -> str:
    return "".join(each for each in "abc" if world.attempts(each) > 1)


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["a", "b", "c"])
@pytest.mark.parametrize(
    "type_", ["DriverLost", "SparkException", "StoreUnavailable", "StoreTimeout", "ChannelFailed", "OutOfMemoryError"]
)
def test_who_has_lost_its_driver_an_executor_or_the_store_restarts_alone(lost, type_):
    world = StreamingWorld()
    others = [each for each in "abc" if each != lost]
    world.together(*others, meanwhile=lambda: (world.fail(lost, type_), world.go(lost)))
    world.until_green()
    assert restarted(world) == lost
    assert (generations(world), world.resets(), world.airflow.cleared) == ([(1,), (1,)], set(), [])
    assert world.earlier(lost, 2) == (1,)


def test_control_a_source_of_truth_that_knows_no_channels_drags_the_producers_in():
    """Why Flink's version had no effect: nobody says that a live channel is available."""
    world = StreamingWorld()
    world.lost_channels = {ChannelRef("a", 1), ChannelRef("b", 1)}
    world.together("a", "b", meanwhile=lambda: (world.fail("c", "DriverLost"), world.go("c")))
    world.until_green()
    assert restarted(world) == "abc"


def test_a_channel_is_available_while_its_log_is_there_whoever_runs():
    world = StreamingWorld()
    run = cast(Run, SimpleNamespace(results=world.results, journal=world.journal()))
    available = partial(streaming_failover.has_log, run)
    assert not available(ChannelRef("b", 1))
    world.fail("b", while_at_work=lambda: real_producer(world, 1))
    assert available(ChannelRef("b", 1))
    assert not available(ChannelRef("b", 2))


def test_a_worker_that_dies_without_a_word_is_a_failure_of_its_region_alone():
    world = StreamingWorld()
    process = Process()

    def worker_dies() -> None:
        with suppress(Killed):
            world.go("b", process=process, on_start=process.kill)
        world.airflow.lose_heartbeat("b")
        world.go("b")

    world.together("a", "c", meanwhile=worker_dies)
    world.until_green()
    assert restarted(world) == "b"
    assert generations(world) == [(1,), (1,)]


@pytest.mark.parametrize(
    ("strategy", "others", "generation"), [(SINGLE, "", (1,)), (DOWNSTREAM, "c", (1,)), (SINK, "ac", (2,))]
)
def test_fault_11_fault_14_attempt_2_beside_a_living_attempt_1(strategy, others, generation):
    """b's worker is cut off and lives on. What it finishes after attempt 2 has is refused."""
    world = StreamingWorld(strategy=strategy)

    def cut_off_and_again() -> None:
        world.airflow.lose_heartbeat("b")
        world.go("b")

    def b_is_frozen() -> None:
        with pytest.raises((AttemptLost, NotMine)):
            world.go("b", on_start=cut_off_and_again)

    world.together("a", "c", meanwhile=b_is_frozen)
    world.until_green()
    assert restarted(world) == "".join(sorted(f"b{others}"))
    assert world.current("b") == 2
    assert generations(world) == [generation, generation]


def test_fault_14_control_without_the_fence_the_old_attempt_s_finish_would_count(monkeypatch):
    """A try that takes an open attempt for its own way out leaves it open: it ends, and counts."""
    monkeypatch.setattr(RegionTask, "_fence_previous_attempt", lambda self, state, opened: None)
    world = StreamingWorld()

    def cut_off_and_again() -> None:
        world.airflow.lose_heartbeat("b")
        with pytest.raises(Exception, match="was not coherent"):
            world.go("b")

    world.go("b", on_start=cut_off_and_again)
    assert world.current("b") == 1


def test_the_scheduler_is_away_and_regions_work_on():
    """Nobody schedules, and nobody takes a task away: what is at work ends by itself."""
    world = StreamingWorld(strategy=DOWNSTREAM)
    world.together("a", "b", "c")
    assert world.airflow.state("c") == "success"
    assert restarted(world) == ""


@pytest.mark.parametrize("strategy", [DOWNSTREAM, SINK])
def test_the_api_server_is_away_and_who_restarts_others_has_changed_nothing(strategy):
    world = StreamingWorld(strategy=strategy)

    def no_api(request: str) -> None:
        if request == "observe":
            raise ConnectionError("the API server is away")

    def tries() -> None:
        world.fail("b")
        with pytest.raises(ConnectionError):
            world.go("b", process=Process(gate=no_api))
        assert (world.resets(), world.airflow.cleared, world.attempts("b")) == (set(), [], 1)
        world.go("b")

    world.together("a", "c", meanwhile=tries)
    world.until_green()
    assert world.attempts("b") == 2


def test_the_metadata_database_is_lost_and_the_run_is_restored_from_the_journal():
    """a has finished. b and c are at work for a run that nobody knows any more; their new tasks take over."""
    world = StreamingWorld()
    world.go("a")

    def database_is_lost() -> None:
        world.airflow.lose_database()
        evaluation = Evaluation(world.plan, world.state(), available=lambda *asked: None)
        assert set(finished_tasks(evaluation, lambda region: region.name, "memory").notes) == {"a"}
        world.go_all("abc")

    def zombies() -> None:
        with pytest.raises((AttemptLost, NotMine)):
            world.go("c", on_start=database_is_lost)

    with pytest.raises((AttemptLost, NotMine)):
        world.go("b", on_start=zombies)
    world.until_green()
    assert [world.attempts(each) for each in "abc"] == [1, 2, 2], "what has finished is kept"
    assert (generations(world), world.resets()) == ([(1,), (1,)], set())
    assert [world.earlier(each, 2) for each in "bc"] == [(1,), (1,)]


def test_control_a_run_whose_journal_is_lost_too_begins_from_nothing():
    world = StreamingWorld()
    world.go_all("abc")
    world.airflow.lose_database()
    world.journal_store.delete([each.key for each in list(world.journal_store.list())])
    world.go_all("abc")
    assert [n for name, n in world.ran if name == "a"] == [1, 1]


def test_an_m2_restart_is_not_forgotten_with_the_metadata_database():
    """c restarts behind b although the clear that was to tell it is lost: its new task does not follow the old one."""
    world = StreamingWorld(strategy=DOWNSTREAM)
    process = Process()

    def dies_before_the_clear(request: str) -> None:
        if request == "clear":
            process.kill()

    def lost() -> None:
        world.fail("b")
        process.gate = dies_before_the_clear
        with suppress(Killed):
            world.go("b", process=process)
        world.airflow.lose_database()

    world.together("a", "c", meanwhile=lost)
    world.until_green()
    assert world.attempts("c") == 2


# --- by number -------------------------------------------------------------------------------------------------------


def real_producer(world: StreamingWorld, attempt: int) -> ChannelProducer:
    """The end of the channel b that an attempt holds, in the generation that it was claimed with."""
    identity = ChannelIdentity(world.journal().identity, "b", world.pins("b", attempt)["b"])
    client = ChannelClient(world.results, identity, f"b@{attempt}", backoff=Backoff(initial_s=0.0))
    producer = ChannelProducer(client, attempt)
    producer.open(subpartitions=1, schema="rows")
    return producer


def rows(count: int) -> list[SegmentBody]:
    return [SegmentBody(0, count, b"r" * count)]


def test_fault_59_in_one_generation_the_late_record_of_an_older_attempt_is_refused():
    """Milestone 3: both attempts write to one log, which belongs to the newer one."""
    world = StreamingWorld()

    def again(old: ChannelProducer) -> None:
        world.go("b", on_start=lambda: real_producer(world, 2).publish(1, rows(3)))
        with pytest.raises(ChannelEvicted):
            old.publish(1, rows(7))

    wakes_late(world, again)
    assert read(world, "c") == (5,)


def test_fault_59_after_a_restart_from_the_beginning_it_lands_where_nobody_reads():
    """Milestone 1: the frozen attempt still owns its log, of a generation that counts no more."""
    assert late_after_a_restart() == (3,)


def test_fault_59_control_with_one_generation_for_ever_the_new_attempt_finds_the_old_one_s_work(monkeypatch):
    monkeypatch.setattr(RegionState, "generations", property(lambda self: (1,)))
    assert late_after_a_restart() == (2,), "its first epoch is taken for published: three records have vanished"


def late_after_a_restart() -> tuple[int, ...]:
    world = StreamingWorld(strategy=SINK)

    def again(old: ChannelProducer) -> None:
        world.go("b", on_start=lambda: real_producer(world, 2).publish(0, rows(3)))
        with suppress(ChannelEvicted):
            old.publish(1, rows(7))

    wakes_late(world, again)
    return read(world, "c")


def wakes_late(world: StreamingWorld, meanwhile: Callable[[ChannelProducer], object]) -> None:
    """b@1 publishes two rows and is frozen; its heartbeat is lost; ``meanwhile``; it wakes and ends."""

    def frozen() -> None:
        old = real_producer(world, 1)
        old.publish(0, rows(2))
        world.airflow.lose_heartbeat("b")
        meanwhile(old)

    def start() -> None:
        with suppress(AttemptLost, NotMine):
            world.go("b", on_start=frozen)

    world.together("a", "c", meanwhile=start)
    world.until_green()


def read(world: StreamingWorld, reader: str) -> tuple[int, ...]:
    """How much there is in the generation of b that the newest attempt of ``reader`` has read."""
    generation = world.pins(reader, world.current(reader))["b"]
    return ChannelClient(world.results, ChannelIdentity(world.journal().identity, "b", generation), "x").refresh().ends


def test_fault_58_a_region_that_stops_at_its_budget_is_not_retried_and_nothing_is_published():
    world = StreamingWorld(publish_keys=("publish",))
    exceeded = UserCodeError("the budget is 1", Failure("LossBudgetExceeded", "the budget is 1"))

    def stop() -> None:
        raise exceeded

    def c_stops() -> None:
        with pytest.raises(UserCodeError):
            world.go("c", on_start=stop)

    world.together("a", "b", meanwhile=c_stops)
    assert restarted(world) == ""
    assert world.state().of("c").current is None
    assert world.state().newest_publish == 0
    assert "publish" not in world.airflow.ready()


def test_fault_58_control_any_other_end_of_the_last_region_is_retried():
    world = StreamingWorld()
    world.together("a", "b", meanwhile=lambda: (world.fail("c"), world.go("c")))
    assert restarted(world) == "c"


def test_fault_13_two_processes_answer_one_failure_and_reset_it_once():
    """The first freezes before its claim, with all resets written; the second does it all; then the first wakes."""
    world = StreamingWorld(strategy=SINK)
    process = Process()

    def freezes(request: str) -> None:
        if "b/00000002.claim" in request:
            process.gate = lambda request: None
            world.airflow.lose_heartbeat("b")
            world.go("b")

    def both() -> None:
        world.fail("b")
        process.gate = freezes
        with pytest.raises((AttemptLost, NotMine)):
            world.go("b", process=process)

    world.together("a", "c", meanwhile=both)
    world.until_green()
    assert world.resets() == {("a", 1), ("b", 1), ("c", 1)}
    assert [world.attempts(each) for each in "abc"] == [2, 2, 2]


def test_fault_13_control_resets_that_name_no_attempt_would_take_the_new_one_away():
    """The same reset, written late and of "whatever is newest now", starts everything over a second time."""
    world = StreamingWorld(strategy=SINK)
    world.together("a", "c", meanwhile=lambda: (world.fail("b"), world.go("b")))
    world.until_green()
    world.journal().reset(Reset("b", world.attempts("b"), "late", "b@1 has failed", failover=True))
    world.airflow.clear_all()
    world.until_green()
    assert [world.attempts(each) for each in "abc"] == [3, 3, 3]


class LosesReplies(DelegatingStore):
    """The reply of the ``at``-th write of one process is lost, after its effect."""

    def __init__(self, inner: ObjectStore, at: int) -> None:
        super().__init__(inner)
        self._at = at
        self.writes = 0

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        info = self.inner.put_if_absent(key, body)
        self.writes += 1
        if self.writes == self._at + 1:
            raise StoreTimeout("no reply")
        return info


@pytest.mark.parametrize("type_", ["RuntimeError", "ChannelAltered"])
def test_fault_24_the_reply_of_any_write_of_a_failover_is_lost(type_):
    at = 0
    while loses_reply(at, type_, SINK if type_ == "RuntimeError" else SINGLE):
        at += 1
    assert at >= 2


def loses_reply(at: int, type_: str, strategy: object) -> bool:
    world = StreamingWorld(strategy=strategy)  # type: ignore[arg-type]
    stores: list[LosesReplies] = []

    def lossy(store: ObjectStore) -> ObjectStore:
        stores.append(LosesReplies(store, at))
        return stores[-1]

    def retries() -> None:
        world.fail("b", type_)
        world.between_process_and_journal = lossy
        world.go("b")
        world.between_process_and_journal = lambda store: store

    world.together("a", "c", meanwhile=retries)
    world.until_green()
    expected = {("a", 1), ("b", 1), ("c", 1)} if strategy is SINK else {("b", 1)}
    assert world.resets() == expected
    assert world.attempts("b") == 2
    return any(store.writes > at for store in stores)


def test_fault_24_control_an_unknown_reply_that_is_taken_for_a_refusal_ends_the_retry():
    """Who takes no reply for "somebody else was first" gives up an attempt that is its own."""
    world = StreamingWorld(strategy=SINK)
    world.fail("b")

    class Refuses(LosesReplies):
        def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
            info = self.inner.put_if_absent(key, body)
            if key.endswith("2.claim"):
                raise AttemptLost("taken for a refusal")
            return info

    world.between_process_and_journal = lambda store: Refuses(store, 0)
    with pytest.raises(AttemptLost):
        world.go("b")


def test_a_region_that_ends_while_all_starts_over_is_overtaken_and_not_green():
    world = StreamingWorld(strategy=SINK)

    def b_starts_over() -> None:
        world.fail("b")
        world.go("b")

    process = Process()
    world.together("a", meanwhile=lambda: ended_beside(world, process, b_starts_over))
    assert world.airflow.state("c") != "success"
    world.until_green()
    assert world.pins("c", world.current("c")) == {"b": 2}


def ended_beside(world: StreamingWorld, process: Process, meanwhile: Callable[[], object]) -> None:
    with suppress(Overtaken, NotMine, AttemptLost, RegionFailed, Killed):
        world.go("c", process=process, on_finished=meanwhile)
