"""Results that outlive a run: made once, whatever happens to whoever makes them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from backfill import Backfill, SharedWorld, go
from clocked import DAY_S, HOUR_S, sweep, told
from expected_errors import fails_with
from fakes import InlineThread, Killed, Process

from airflow_recovery.attempt import attempt, shared
from airflow_recovery.attempt.builder import Builder
from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.attempt.shared import SharedApplication, shared_key
from airflow_recovery.driver.heartbeat import Heartbeat
from airflow_recovery.errors import InputLost
from airflow_recovery.journal import journal as journal_module
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import SHARED, shared_identity
from airflow_recovery.model.build_in_progress import BuiltElsewhere
from airflow_recovery.model.location import key_below
from airflow_recovery.model.records import AttemptState, Claim, ExternalObject, RunAttempt, SharedRef
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.readers import end_reading, reader_name
from airflow_recovery.results.sweep_purge import Purge
from airflow_recovery.testing.simulation.memory import Clock, MemoryStore


@pytest.fixture(autouse=True)
def one_thread_a_process(monkeypatch):
    """The helpers' threads run inline, so that the seed alone decides the order."""
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))
    monkeypatch.setattr(Heartbeat, "_run", lambda self: None)
    monkeypatch.setattr(journal_module, "get_many", lambda store, keys: {key: store.get(key) for key in keys})


def made(backfill: Backfill) -> list[tuple[str, int]]:
    return [each for each in backfill.ran if each[0] == "S"]


@pytest.mark.parametrize("seed", range(4))
def test_fault_70_fifty_backfill_dates_make_a_shared_result_once(seed):
    backfill = Backfill(50, seed)
    backfill.run()
    assert made(backfill) == [("S", 1)]
    assert len([each for each in backfill.ran if each[0] == "C"]) == 50
    assert backfill.pins() == 50
    for world in backfill.worlds:
        outcome = world.journal().read_outcome("S", 1)
        assert outcome.shared.attempt == 1
        assert "/_shared/" in outcome.outputs[0].location
        assert world.content("C") == "C of ['S of []']"


def test_fault_70_control_without_the_conditional_claim_it_is_made_more_than_once(monkeypatch):
    monkeypatch.setattr(shared, "shared_key", lambda plan, externals, inputs: f"{id(inputs):x}")
    backfill = Backfill(5)
    backfill.run()
    assert len(made(backfill)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_whoever_makes_it_may_die_at_any_moment(seed):
    backfill = Backfill(6, seed, kills=4)
    backfill.run()
    shared_state = backfill.journal().load(backfill.journal().list(["S"])).of("S")
    assert shared_state.current is not None
    finished = [n for n, each in shared_state.attempts.items() if each.is_finished]
    assert len(finished) == 1, backfill.trace
    assert {world.journal().read_outcome("C", world.current("C")).state for world in backfill.worlds} == {
        AttemptState.FINISHED
    }
    sweep(backfill.worlds[0])
    assert backfill.pins() == 6


# waiting and taking over


def dead_maker() -> Backfill:
    """The first date has claimed, and died; its Airflow does not know it."""
    backfill = Backfill(2)
    process = Process()
    with pytest.raises(Killed):
        backfill.worlds[0].go("S", process=process, on_start=process.kill)
    return backfill


def test_a_run_finds_out_whom_it_would_wait_for_before_it_claims_anything():
    backfill = dead_maker()
    second = backfill.worlds[1]
    own = second.airflow.start("S")
    build = second.shared_application(own, Process()).find_build()
    assert (build.region, build.attempt, build.owner.run_key) == ("S", 1, "date 000")
    assert second.state().of("S").latest_attempt == 0
    # It was watched for long enough: now it may be taken over.
    assert second.shared_application(own, Process(), silent=build).find_build() is None


def test_an_attempt_that_gives_signs_of_life_is_never_ended():
    backfill = dead_maker()
    second = backfill.worlds[1]
    own = second.airflow.start("S")
    build = second.shared_application(own, Process()).find_build()
    beats = backfill.journal()
    backfill.journal_store.put(beats.layout.heartbeat("S", 1), b"1")
    found = second.shared_application(own, Process(), silent=build).find_build()
    assert found == replace(build, beat=found.beat)
    assert found.beat is not None


def test_a_silent_maker_is_fenced_and_the_result_made_by_another():
    backfill = dead_maker()
    assert backfill.worlds[1].go("S").decision is Decision.RAN
    outcomes = [backfill.journal().read_outcome("S", n).state for n in (1, 2)]
    assert outcomes == [AttemptState.FENCED, AttemptState.FINISHED]


def test_the_makers_own_next_try_does_not_wait():
    backfill = dead_maker()
    world = backfill.worlds[0]
    world.airflow.lose_heartbeat("S")
    before = backfill.clock.now_s
    world.go("S")
    assert backfill.clock.now_s == before
    assert made(backfill) == [("S", 1), ("S", 2)]


def test_a_maker_that_was_taken_for_dead_adopts_what_the_other_has_made():
    backfill = Backfill(2)
    first, second = backfill.worlds

    def taken_over() -> None:
        second.go("S")

    assert first.go("S", on_written=taken_over).decision is Decision.RAN
    assert [first.journal().read_outcome("S", 1).shared.attempt, made(backfill)] == [2, [("S", 1), ("S", 2)]]


@pytest.mark.slow
def test_control_without_the_owner_every_waiting_run_ends_the_attempt_of_a_living_one(monkeypatch):
    monkeypatch.setattr(Builder, "takes_over", lambda self, run, region, opened: False)
    most = 0
    for seed in range(10):
        backfill = Backfill(10, seed)
        backfill.run()
        most = max(most, len(made(backfill)))
    assert most > 1


def test_silence_is_counted_by_the_own_clock_from_the_last_change():
    now = [0.0]
    watch = HeartbeatWatch(30, lambda: now[0])
    assert not watch.has_timed_out(1, None)
    now[0] = 29
    assert not watch.has_timed_out(1, "a")
    now[0] = 58
    assert not watch.has_timed_out(1, "a")
    now[0] = 59
    assert watch.has_timed_out(1, "a")
    assert not watch.has_timed_out(2, "a")


# what it is made of


def test_other_code_other_files_or_another_input_is_another_result():
    backfill = Backfill(1)
    region = backfill.worlds[0].plan.regions[0]
    file = ExternalObject("S", "s3://lake/a.csv", 1, "e1")
    keys = [
        shared_key(region, (), {}),
        shared_key(replace(region, fingerprint="code 2"), (), {}),
        shared_key(replace(region, name="S[2]"), (), {}),
        shared_key(region, (file,), {}),
        shared_key(region, (replace(file, etag="e2"),), {}),
    ]
    assert len(set(keys)) == 5
    # Neither the run nor the job, nor whether it is final, has a part in it.
    assert shared_key(replace(region, final=True), (), {}) == keys[0]


def test_a_shared_result_of_a_shared_result_follows_what_it_reads():
    backfill = Backfill(2, upstream={"S": (), "T": ("S",), "C": ("T",)}, shared=("S", "T"))
    backfill.run()
    assert sorted(backfill.ran) == [("C", 1), ("C", 1), ("S", 1), ("T", 1)]
    first = backfill.worlds[0]
    shared_s = first.journal().read_outcome("S", 1).shared
    results = backfill.results
    results.delete([each.key for each in results.list(f"_shared/{shared_s.key}/")])
    first.restart("T")
    first.until_green()
    # S was made again for it; T has read another attempt of S, and is another result now.
    assert first.journal().read_outcome("S", 2).shared == replace(shared_s, attempt=2)
    keys = {first.journal().read_outcome("T", n).shared.key for n in (1, first.current("T"))}
    assert len(keys) == 2


# reference counting


def test_fault_70_the_shared_result_stays_until_its_last_run_has_let_go_and_somebody_asks():
    backfill = Backfill(3)
    backfill.run()
    world = backfill.worlds[0]
    assert backfill.pins() == 3
    backfill.clock.passes(8 * DAY_S)
    report = sweep(world)
    assert [entry.why for entry in report.entries if entry.what.startswith("shared")] == ["it outlives runs: --purge"]
    assert backfill.pins() == 0
    assert made(backfill) == [("S", 1)]
    # A later run adopts it.
    fresh = SharedWorld(backfill, "later", backfill.upstream, backfill.shared)
    fresh.until_green()
    assert made(backfill) == [("S", 1)]
    assert backfill.pins() == 1
    backfill.clock.passes(31 * DAY_S)
    options = {"purge_older_than_s": 30 * DAY_S, "retention": Retention.keep(), "grace_s": HOUR_S}
    sweep(world, **options)
    backfill.clock.passes(31 * DAY_S)
    for _ in range(3):
        sweep(world, **options)
        backfill.clock.passes(31 * DAY_S)
    assert backfill.results.objects == {}
    assert {key.rpartition("/")[2] for key in backfill.journal_store.objects} == {"closed"}


def test_fault_81_a_shared_result_that_a_run_holds_is_never_purged():
    backfill = Backfill(2)
    first, second = backfill.worlds
    first.go("S")
    backfill.clock.passes(100 * DAY_S)
    entries = sweep(second, purge_older_than_s=200 * DAY_S).entries
    assert not [entry for entry in entries if entry.action.value != "kept"]
    # Old enough now; but the first date waits for its C, and holds it.
    for _ in range(3):
        backfill.clock.passes(300 * DAY_S)
        first.journal_store.put(f"{first.journal().layout.prefix}plan/{'0' * 32}", _same_plan(first))
        sweep(second, purge_older_than_s=200 * DAY_S)
    assert backfill.pins() == 1
    first.go("C")
    assert first.content("C") == "C of ['S of []']"


def _same_plan(world) -> bytes:
    (key,) = [key for key in world.journal_store.objects if key.startswith(f"{world.journal().layout.prefix}plan/")][:1]
    return world.journal_store.objects[key]


def test_fault_81_control_without_the_pins_it_goes_under_a_run_that_holds_it(monkeypatch):
    monkeypatch.setattr(journal_module.Journal, "open_claims", lambda self: ())
    backfill = Backfill(2)
    first, second = backfill.worlds
    first.go("S")
    for _ in range(3):
        backfill.clock.passes(300 * DAY_S)
        first.journal_store.put(f"{first.journal().layout.prefix}plan/{'0' * 32}", _same_plan(first))
        sweep(second, purge_older_than_s=200 * DAY_S)
    assert backfill.results.objects == {}


def test_a_try_that_died_holds_nothing_once_it_is_fenced():
    backfill = Backfill(2)
    first, second = backfill.worlds
    process = Process(
        gate=lambda request: process.kill() if "outcome" in request and "_shared" not in request else None
    )
    with pytest.raises(Killed):
        first.go("S", process=process)  # it has pinned, and not finished
    assert backfill.pins() == 1
    sweep(second)
    assert backfill.pins() == 1  # its attempt is open: it may go on
    first.airflow.lose_heartbeat("S")
    first.go("S")
    assert backfill.pins() == 2
    sweep(second)
    assert backfill.pins() == 1


PURGE = {"purge_older_than_s": 30 * DAY_S}


def whose_reader_was_purged() -> Backfill:
    """Of two dates the first has made the shared result, and was purged long ago. A purge would close that now."""
    backfill = Backfill(2)
    first, _ = backfill.worlds
    first.until_green()
    backfill.clock.passes(40 * DAY_S)
    sweep(first, **PURGE)
    assert backfill.pins() == 0
    backfill.clock.passes(40 * DAY_S)
    return backfill


def test_case_12_an_adopter_that_comes_while_the_shared_result_is_purged_sees_it():
    backfill = whose_reader_was_purged()
    first, second = backfill.worlds

    def closed_meanwhile(request: str) -> None:
        # The second date has evaluated the shared result and is about to pin it.
        if request.startswith("PUT _shared/") and request.endswith(".claim") and not seen:
            seen.append(request)
            assert "closed" in {entry.action.value for entry in sweep(first, **PURGE).entries}

    seen: list[str] = []
    with fails_with("shared-released"):
        second.go("S", process=Process(gate=closed_meanwhile))
    assert second.go("S").outcome.shared.attempt == 2


def while_it_is_released(backfill: Backfill) -> Process:
    """The second date's: when it has chosen S@1 and is about to claim it, that is superseded, and let go of by `gc`."""
    first, _ = backfill.worlds
    first.until_green()
    (data,) = [key for key in backfill.results.objects if key.startswith("_shared/")]
    done: list[str] = []

    def meanwhile(request: str) -> None:
        if request.startswith("PUT _shared/") and request.endswith(".claim") and not done:
            done.append(request)
            backfill.results.put(data, b"altered")
            first.restart("C")
            first.new_airflow()
            first.until_green()
            assert made(backfill) == [("S", 1), ("S", 2)]
            backfill.clock.passes(2 * HOUR_S)
            assert told(sweep(first))["S@1"].startswith("deleted: superseded")

    return Process(gate=meanwhile)


def test_an_adopter_that_comes_while_the_shared_result_is_released_sees_it():
    backfill = Backfill(2)
    second = backfill.worlds[1]
    with fails_with("shared-released"):
        second.go("S", process=while_it_is_released(backfill))
    assert second.go("S").outcome.shared.attempt == 2


def test_control_where_an_adopter_does_not_look_it_is_green_on_nothing(monkeypatch):
    monkeypatch.setattr(SharedApplication, "_ensure_kept", lambda self, ref, owner: None)
    backfill = Backfill(2)
    result = backfill.worlds[1].go("S", process=while_it_is_released(backfill))
    assert result.outcome.shared.attempt == 1
    (output,) = result.outcome.outputs
    assert list(backfill.results.list(key_below(backfill.results.base_uri, output.location))) == []


def adopted_while_it_is_closed(monkeypatch) -> tuple[Backfill, SharedWorld]:
    """A second date claims the shared result when `gc` has looked for claims, and sees no tombstone yet."""
    backfill = whose_reader_was_purged()
    first, second = backfill.worlds
    close = Journal.close

    def late(journal, *given):
        if journal.identity.dag_id == SHARED and backfill.pins() == 0:
            second.go("S")
        return close(journal, *given)

    monkeypatch.setattr(Journal, "close", late)
    assert "closed" in {entry.action.value for entry in sweep(first, **PURGE).entries}
    assert (backfill.pins(), made(backfill)) == (1, [("S", 1)])
    backfill.clock.passes(2 * HOUR_S)
    sweep(first, **PURGE)
    return backfill, second


def test_fault_81_a_shared_result_that_was_adopted_while_it_was_closed_is_kept_while_it_is_held(monkeypatch):
    backfill, second = adopted_while_it_is_closed(monkeypatch)
    second.go("C")
    assert (second.content("C"), made(backfill)) == ("C of ['S of []']", [("S", 1)])


def test_fault_81_control_without_a_purges_second_look_it_goes_under_a_run_that_holds_it(monkeypatch):
    monkeypatch.setattr(Purge, "_look_again", lambda self: (set(), False))
    _, second = adopted_while_it_is_closed(monkeypatch)
    with pytest.raises(InputLost):
        second.go("C")


def test_as_consumed_lets_go_of_the_reference_and_not_of_the_data():
    backfill = Backfill(2)
    for world in backfill.worlds:
        go(world, "S", Retention.as_consumed())
        go(world, "C", Retention.as_consumed())
    assert backfill.pins() == 0
    assert any(key.startswith("_shared/") for key in backfill.results.objects)
    backfill.worlds[0].restart("C")
    backfill.worlds[0].until_green()
    assert made(backfill) == [("S", 1)]


def letting_go_after_a_purge() -> list[str]:
    """A run lets go, its shared result is purged with all that had read it, and the run lets go once more."""
    store = MemoryStore("memory://journal", Clock())
    journal = Journal(store, shared_identity("k"), writer="gc")
    owner, held = RunAttempt("d", "date 1", "g", "S", 1), SharedRef("k", "S", 1)
    reading = Claim(reader_name(owner), 1, "w", "plan", (), "run", 1, "ti", "tag", "now")
    journal.claim(reading)
    end_reading(journal, held, owner, "gc")
    store.delete([info.key for info in store.list()])
    end_reading(journal, held, owner, "gc")
    return [info.key for info in store.list()]


def test_who_lets_go_of_a_purged_shared_result_leaves_no_record_behind():
    assert letting_go_after_a_purge() == []


def test_control_where_the_claim_is_not_looked_for_a_record_of_nobody_is_left(monkeypatch):
    monkeypatch.setattr(Journal, "read_claim", lambda *given: None)
    assert len(letting_go_after_a_purge()) == 1


def test_losing_the_shared_data_is_an_ordinary_loss_and_it_is_made_once_again():
    backfill = Backfill(5)
    backfill.run()
    backfill.results.delete([each.key for each in backfill.results.list("_shared/")])
    for world in backfill.worlds:
        world.restart("C")
    backfill.run()
    assert made(backfill) == [("S", 1), ("S", 2)]


def test_somebody_elses_attempt_is_told_by_name():
    backfill = dead_maker()
    second = backfill.worlds[1]
    own = second.airflow.start("S")
    runner = second.shared_application(own, Process())
    build = runner.find_build()
    assert "is being made by dag / date 000" in str(BuiltElsewhere(build.text(), build))
