"""The sweeper over the journals of real region tasks: what it deletes, what it keeps, and what it says."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from clocked import DAY_S, HOUR_S, MINUTE_S, Clock, ClockedStore, clocked_world, has_data, sweep, told
from expected_errors import fails_with
from fakes import CHAIN, PAIR, InlineThread, Killed, Process, ProcessStore, World

from airflow_recovery.attempt import attempt
from airflow_recovery.attempt.inputs_kept import ReleaseCheck
from airflow_recovery.attempt.manual_release import look_at_release, release_by_hand
from airflow_recovery.errors import NotMine, RegionFailed
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, shared_identity
from airflow_recovery.journal.published import published_result
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, RunIdentity
from airflow_recovery.model.retention import Retention
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Why
from airflow_recovery.results import readers, release, sweep_found
from airflow_recovery.results.release_rule import ReleaseRule
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.results.swept_run import SweptRun
from airflow_recovery.store.probe import RACED
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb


@pytest.fixture
def clock() -> Clock:
    return Clock()


def evaluation(world: World) -> Evaluation:
    own = world.airflow.now("C")
    return world.run(own, Process(), "w").evaluate(world.state())


def killed(world: World, region: str) -> None:
    """A try that dies with its data written; Airflow notices."""
    process = Process()
    with pytest.raises(Killed):
        world.go(region, process=process, on_written=process.kill)
    world.airflow.lose_heartbeat(region)


# attempts that do not count


def test_a_fenced_attempts_data_goes_after_the_grace_time(clock):
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    world.go("P")
    clock.passes(30 * MINUTE_S)
    assert told(sweep(world))["P@1"].endswith("29m ago, grace time 1h")
    clock.passes(HOUR_S)
    report = sweep(world)
    assert re.fullmatch(r"deleted: fenced \(.*\) 89m ago", told(report)["P@1"])
    assert report.deleted_bytes == len(b"P of []")
    assert not has_data(world, "P", 1)
    assert has_data(world, "P", 2)
    assert world.state().of("P").attempts[1].is_released


def test_what_a_killed_release_has_left_is_deleted_though_it_is_a_final_result(clock):
    """Its marker is there: nobody may read it any more."""
    world = clocked_world(PAIR, clock)
    world.go_all()
    hand = look_at_release(world.journal(), world.plan, world.state(), "C", None)
    process = Process(gate=lambda request: process.kill() if request == "DELETE" else None)
    with pytest.raises(Killed):
        release_by_hand(world.journal(), ProcessStore(world.results, process), hand, "ann", force=True)
    assert has_data(world, "C", 1)
    report = sweep(world)
    assert told(report)["C@1"] == "deleted: it was released before"
    assert not has_data(world, "C", 1)
    assert has_data(world, "P", 1)


def test_an_open_attempts_data_is_never_touched(clock):
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    clock.passes(100 * DAY_S)
    assert told(sweep(world)) == {"P@1": "kept: it is open"}
    assert has_data(world, "P", 1)


def test_a_superseded_attempt_goes_and_the_current_one_stays(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    world.restart("P")
    world.until_green()
    clock.passes(2 * HOUR_S)
    found = told(sweep(world))
    assert found["P@1"] == "deleted: superseded by attempt 2 119m ago"
    assert found["C@1"].startswith("deleted: superseded by attempt 2")
    assert found["P@2"].startswith("kept: the run has been silent for")
    assert found["C@2"] == "kept: publish 1 names it"
    world.new_airflow()
    world.ran.clear()
    world.go_all()
    assert world.ran == []


def test_what_the_newest_publish_names_is_pinned(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    world.publish()
    world.restart("C")
    world.go("C")
    clock.passes(10 * DAY_S)
    assert told(sweep(world))["C@1"] == "kept: publish 1 names it"
    world.airflow.clear("publish")
    world.publish()
    clock.passes(10 * DAY_S)
    assert told(sweep(world))["C@1"].startswith("deleted: superseded")
    assert published_result(world.journal(), "C").attempt == 2


def test_control_without_the_pin_the_published_data_goes(clock, monkeypatch):
    monkeypatch.setattr(ReleaseRule, "_is_pinned", lambda self, region, number: False)
    world = clocked_world(PAIR, clock)
    world.go_all()
    world.publish()
    world.restart("C")
    world.go("C")
    clock.passes(10 * DAY_S)
    sweep(world)
    assert not has_data(world, "C", 1)
    assert [region.attempt for region in world.journal().read_publish(1).regions if region.region == "C"] == [1]


def test_data_of_an_attempt_that_was_never_claimed_goes_after_the_grace_time(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    stray = f"{world.journal().layout.data_of_number('P', 7)}/out/part-0"
    world.results.put(stray, b"who wrote this?")
    clock.passes(30 * MINUTE_S)
    assert told(sweep(world))["P@7"].startswith("kept: it was never claimed")
    clock.passes(HOUR_S)
    assert told(sweep(world))["P@7"].startswith("deleted: it was never claimed")
    assert stray not in world.results.objects


def test_data_of_a_run_that_has_no_journal_here_is_another_deployments(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    other = JournalLayout(RunIdentity("dag", "date 2026-01-02", "flights")).data_of_number("P", 1) + "/out/part-0"
    world.results.put(other, b"theirs")
    clock.passes(100 * DAY_S)
    sweep(world, retention=Retention.keep(), purge_older_than_s=DAY_S)
    assert other in world.results.objects


def test_objects_that_are_no_attempts_are_told_and_kept(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    world.results.put(f"{world.journal().layout.data}notes.txt", b"by hand")
    clock.passes(100 * DAY_S)
    assert [entry.why for entry in sweep(world).entries if "notes.txt" in entry.what] == ["it is no attempt's"]


# retention


@pytest.mark.parametrize(("days", "kept"), [(6, True), (8, False)])
def test_keep_an_inner_result_stays_for_the_retention_time(clock, days, kept):
    world = clocked_world(CHAIN, clock)
    world.go_all()
    world.publish()
    clock.passes(days * DAY_S)
    found = told(sweep(world))
    assert has_data(world, "P", 1) is kept
    assert found["E@1"] == "kept: publish 1 names it"
    if not kept:
        assert found["P@1"] == "deleted: the run has been silent for 7d"


def test_an_inner_result_stays_while_a_consumer_does_not_stand(clock):
    """A run that failed in its last step, and waits for somebody to fix it."""
    world = clocked_world(CHAIN, clock)
    world.go_all("PC")
    clock.passes(100 * DAY_S)
    found = told(sweep(world))
    assert found["C@1"] == "kept: E still needs it"
    assert found["P@1"].startswith("deleted")


def test_fault_49_a_released_result_that_is_wanted_after_all_is_made_again(clock):
    world = clocked_world(CHAIN, clock)
    world.go_all()
    world.publish()
    clock.passes(8 * DAY_S)
    sweep(world)
    with fails_with("publish-released"):
        published_result(world.journal(), "P")
    world.ran.clear()
    world.new_airflow()
    world.go_all()
    assert world.ran == []  # nobody wants it
    world.restart("E")
    world.until_green()
    assert world.ran == [("P", 2), ("C", 2), ("E", 2)]


def test_fault_49_control_without_the_marker_a_released_result_looks_as_if_it_were_empty(clock, monkeypatch):
    """An empty result has no objects to miss: only the marker tells it from one that was released."""
    world = clocked_world(PAIR, clock, finals=("C",))
    world.go("P", rows=0)
    world.go("C")
    clock.passes(8 * DAY_S)
    world.release("P", 1)
    assert evaluation(world).why_not_available("P", ["P"]).why is Why.OUTPUT_RELEASED
    for key in [key for key in world.journal_store.objects if key.endswith(".released")]:
        world.journal_store.delete([key])
    assert evaluation(world).why_not_available("P", ["P"]) is None


@pytest.mark.parametrize("hours", [-2.0, 2.0])
def test_fault_33_a_sweepers_own_clock_decides_nothing(clock, monkeypatch, hours):
    import time

    monkeypatch.setattr(time, "time", lambda: clock.now_s + hours * HOUR_S)
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    world.go("P")
    clock.passes(50 * MINUTE_S)
    assert told(sweep(world))["P@1"].startswith("kept: fenced")
    clock.passes(20 * MINUTE_S)
    assert told(sweep(world))["P@1"].startswith("deleted: fenced")


def test_fault_33_control_with_the_own_clock_data_goes_within_the_grace_time(clock, monkeypatch):
    monkeypatch.setattr("airflow_recovery.results.sweep.store_now_s", lambda store: clock.now_s + 2 * HOUR_S)
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    world.go("P")
    sweep(world)
    assert not has_data(world, "P", 1)


# dry run


def test_a_dry_run_deletes_nothing_and_says_the_same(clock):
    world = clocked_world(CHAIN, clock)
    killed(world, "P")
    world.go_all()
    world.restart("C")
    world.until_green()
    clock.passes(8 * DAY_S)
    before = (dict(world.journal_store.objects), dict(world.results.objects))
    dry = sweep(world, dry_run=True)
    assert (world.journal_store.objects, world.results.objects) == before
    wet = sweep(world)
    assert dry.entries == wet.entries
    assert dry.deleted_bytes == wet.deleted_bytes > 0
    assert world.results.objects != before[1]
    assert "Dry run: nothing was deleted." in dry.text()
    assert "5 deleted, 1 kept" in wet.text()


def test_a_dry_run_lists_the_data_once_and_looks_for_no_readers_again(clock):
    world = clocked_world(CHAIN, clock)
    world.go_all()
    clock.passes(8 * DAY_S)
    plain = world.journal_store, world.results
    listings = {}
    for is_dry in (True, False):
        world.journal_store, world.results = counted = tuple(map(CountingStore, plain))
        assert sweep(world, dry_run=is_dry).deleted_bytes
        listings[is_dry] = [store.count(Verb.LIST) for store in counted]
    assert listings[True][1] == 1 + 2, "the data, and what was left below _probe/ and _gc/"
    assert listings[True][0] == listings[False][0] - 1


def test_a_run_that_cannot_be_read_is_left_as_it_is_and_the_others_are_swept(clock):
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    world.go("P")
    broken = Journal(world.journal_store, RunIdentity("dag", "date 2025", "flights"), writer="w")
    broken.put_plan(world.plan)
    world.journal_store.put(broken.layout.attempt("P", 1, "outcome"), b"{")
    clock.passes(2 * HOUR_S)
    report = sweep(world)
    assert len(report.unread) == 1
    assert "dag / date 2025 was left as it is: RecordInvalid" in report.unread[0]
    assert told(report)["P@1"].startswith("deleted")


def test_one_dag_alone_is_swept(clock):
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    world.go("P")
    clock.passes(2 * HOUR_S)
    assert sweep(world, dag_id="other").entries == []
    assert sweep(world, dag_id="dag").of(Action.DELETED)


def test_the_listing_of_runs_passes_over_streams_and_results(clock):
    store = ClockedStore("memory://journal", clock)
    for key in ("_results/x", "_streams/dag/run/g/w/1", "Dag/run/g/plan/00", "dag/run/g/plan/00", "~5Fdag/r/g/plan/0"):
        store.put(key, b"")
    listed = list(sweep_found._keys_of_runs(store, ""))
    assert listed == ["Dag/run/g/plan/00", "dag/run/g/plan/00", "~5Fdag/r/g/plan/0"]


# purge


def purge(world: World, days: float = 30) -> dict[str, str]:
    report = sweep(world, purge_older_than_s=days * DAY_S)
    return {entry.action.value: entry.why for entry in report.entries}


def test_a_run_that_was_silent_for_long_is_closed_then_purged_and_can_run_again_above(clock):
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    world.go_all()
    world.publish()
    world.journal_store.put(f"{world.journal().layout.streams}w/1", b"events")
    clock.passes(20 * DAY_S)
    assert "closed" not in purge(world)
    clock.passes(20 * DAY_S)
    assert purge(world) == {"closed": "silent for 39d; its data goes at a sweep 1h later"}
    assert has_data(world, "C", 1)
    assert purge(world) == {"kept": "closed 0s ago, grace time 1h"}
    clock.passes(2 * HOUR_S)
    assert purge(world) == {"deleted": "closed 119m ago"}
    assert world.results.objects == {}
    assert list(world.journal_store.objects) == [world.journal().layout.closed]
    assert purge(world) == {}

    world.new_airflow()
    world.ran.clear()
    world.until_green()
    assert world.ran == [("P", 3), ("C", 2)]
    assert world.journal().read_publish(1).number == 1


def test_a_run_that_came_back_is_purged_again_above(clock):
    world = clocked_world(PAIR, clock)
    for _ in range(3):
        world.new_airflow()
        world.until_green()
        clock.passes(31 * DAY_S)
        purge(world)
        clock.passes(DAY_S)
        purge(world)
    assert world.ran[::2] == [("P", 1), ("P", 2), ("P", 3)]
    layout = world.journal().layout
    assert sorted(world.journal_store.objects) == [layout.tombstone(1), layout.tombstone(2), layout.tombstone(3)]
    assert world.results.objects == {}


def test_a_run_that_comes_back_before_its_data_is_gone_does_not_rest_on_it(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    clock.passes(31 * DAY_S)
    purge(world)
    world.new_airflow()
    world.ran.clear()
    world.until_green()
    assert world.ran == [("P", 2), ("C", 2)]
    clock.passes(DAY_S)
    found = told(sweep(world))
    assert found["P@1"].startswith("deleted: superseded")
    assert has_data(world, "P", 2)


def test_an_attempt_that_its_dead_process_left_open_is_fenced_before_the_purge(clock):
    world = clocked_world(PAIR, clock)
    killed(world, "P")
    clock.passes(31 * DAY_S)
    purge(world)
    outcome = world.journal().read_outcome("P", 1)
    assert (outcome.state, outcome.cause) == (AttemptState.FENCED, FenceCause.SUPERSEDED)
    clock.passes(DAY_S)
    purge(world)
    assert world.results.objects == {}


def test_case_17_what_a_zombie_of_a_purged_run_finishes_does_not_count(clock):
    world = clocked_world(PAIR, clock)

    def purged() -> None:
        clock.passes(31 * DAY_S)
        purge(world)
        clock.passes(DAY_S)
        purge(world)

    # It finishes in the store, since its fence went with the purge; below the tombstone that counts for nobody.
    world.go("P", process=Process(), on_start=purged)
    assert world.state().of("P").current is None
    world.new_airflow()
    world.go("P")
    assert world.current("P") == 2


def test_case_17_control_without_the_tombstone_the_numbers_start_again(clock, monkeypatch):
    world = clocked_world(PAIR, clock)
    world.go_all()
    clock.passes(31 * DAY_S)
    purge(world)
    clock.passes(DAY_S)
    purge(world)
    world.journal_store.delete([world.journal().layout.closed])
    world.new_airflow()
    world.go("P")
    assert world.current("P") == 1


def test_an_interrupted_purge_is_finished_by_any_later_sweep(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    clock.passes(31 * DAY_S)
    purge(world)
    clock.passes(DAY_S)
    layout = world.journal().layout
    t = [key for key in world.journal_store.objects if key.startswith(f"{layout.prefix}t/")]
    world.journal_store.delete(t)  # it died here, data deleted in part
    sweep(world)
    assert list(world.journal_store.objects) == [layout.closed]
    assert world.results.objects == {}


# crash case 12, fault 81: the sweeper lists, a reader claims, the sweeper deletes


def sweep_while_c_reads(world: World, clock: Clock, seen: dict[str, str]) -> None:
    """C@1 has claimed P@1. Now P@2 supersedes it, and the sweeper comes."""

    def after_claim() -> None:
        world.restart("P")
        own = world.airflow.start("P")
        world.region_task(own, Process()).execute()
        clock.passes(2 * HOUR_S)
        seen.update(told(sweep(world)))

    world.go("C", on_start=after_claim)


def test_fault_81_case_12_the_reader_claims_first_and_its_input_stays_until_it_has_ended(clock):
    world = clocked_world(PAIR, clock)
    world.go("P")
    seen: dict[str, str] = {}
    with pytest.raises(NotMine):
        sweep_while_c_reads(world, clock, seen)
    assert seen["P@1"] == "kept: superseded by attempt 2 119m ago, but C@1 reads it"
    assert world.journal().read_outcome("C", 1).state is AttemptState.FINISHED
    assert told(sweep(world))["P@1"].startswith("deleted: superseded by attempt 2")


def test_fault_81_control_without_the_second_look_the_reader_loses_its_input(clock, monkeypatch):
    monkeypatch.setattr(readers.Readers, "of", lambda self, region, number: [])
    world = clocked_world(PAIR, clock)
    world.go("P")
    with pytest.raises(RegionFailed, match="is not there"):
        sweep_while_c_reads(world, clock, {})


def claim_while_the_sweeper_deletes(world: World, clock: Clock) -> None:
    """C has evaluated, and is about to claim P@1, when the sweeper marks it, sees no claim, and deletes."""
    world.go_all()
    clock.passes(8 * DAY_S)
    own = world.airflow
    own.clear("C")
    world.fingerprints["C"] = "code 2"

    def gate(request: str) -> None:
        if request.startswith("PUT") and request.endswith("C/00000002.claim"):
            world.fingerprints["C"] = "code 1"
            assert told(sweep(world, retention=Retention.as_consumed()))["P@1"].startswith("deleted")

    world.go("C", process=Process(gate=gate))


def test_fault_81_case_12_the_sweeper_marks_first_and_the_reader_sees_it_before_it_reads(clock, monkeypatch):
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))
    world = clocked_world(PAIR, clock)
    with fails_with("input-cleared", lost={"P": "OUTPUT_RELEASED"}):
        claim_while_the_sweeper_deletes(world, clock)
    fenced = world.journal().read_outcome("C", 2)
    assert (fenced.cause, fenced.detail) == (FenceCause.LOST_INPUT, "P@1 was released")
    world.fingerprints["C"] = "code 2"
    world.until_green()
    assert (world.current("P"), world.current("C")) == (2, 3)


def test_fault_81_control_without_the_look_at_the_marker_the_reader_reads_what_is_being_deleted(clock, monkeypatch):
    monkeypatch.setattr(ReleaseCheck, "look", lambda check: None)
    world = clocked_world(PAIR, clock)
    with fails_with("input-cleared"):
        claim_while_the_sweeper_deletes(world, clock)
    assert "is not there" in world.journal().read_outcome("C", 2).detail


# many attempts


def test_many_attempts_are_let_go_by_one_look_for_their_readers(clock, monkeypatch):
    monkeypatch.setattr(release, "CONNECTIONS", 2)
    many = [f"P{number}" for number in range(8)]
    world = clocked_world({**dict.fromkeys(many, ()), "C": tuple(many)}, clock)
    world.go_all()
    clock.passes(8 * DAY_S)
    journal, results = CountingStore(world.journal_store), CountingStore(world.results)
    world.journal_store, world.results = journal, results
    found = told(sweep(world, retention=Retention.as_consumed()))
    assert all(found[f"{region}@1"].startswith("deleted") for region in many)
    assert [key for verb, key in results.requests if verb is Verb.LIST][-2:] == ["_probe/", "_gc/"]
    assert results.count(Verb.LIST) == 2 + 2, "what the run has, and what goes"
    below = world.journal().layout.prefix
    listings = [key for verb, key in journal.requests if verb is Verb.LIST and key.startswith(below)]
    assert listings == [below, f"{below}t/"], "the run, and one look for readers"
    assert not any(has_data(world, region, 1) for region in many)
    assert has_data(world, "C", 1)


def test_a_region_that_is_read_keeps_its_data_among_many(clock, monkeypatch):
    monkeypatch.setattr(release, "CONNECTIONS", 1)
    many = [f"P{number}" for number in range(4)]
    world = clocked_world({**dict.fromkeys(many, ()), "C": tuple(many)}, clock)
    world.go_all()
    clock.passes(8 * DAY_S)
    reading = (InputRef("P2", 1),)
    world.journal().claim(Claim("X", 1, "w", "0a", reading, "run", 1, "ti", "tag", "now"))
    found = told(sweep(world, retention=Retention.as_consumed()))
    assert "X@1 reads it" in found["P2@1"]
    assert [has_data(world, region, 1) for region in many] == [False, False, True, False]


def test_subtasks_that_fared_alike_are_one_line():
    report = SweepReport(is_dry_run=False)
    for number in range(12):
        report.add(f"run / by_month[{number}]@1", Action.KEPT, "a final result", 2, 10)
    report.add("run / raw@1", Action.DELETED, "superseded", 1, 5)
    lines = report.text().splitlines()
    assert lines[0] == "kept     run / by_month[0]@1 and 11 more subtasks (24 objects, 120 B): a final result"
    assert lines[1].startswith("deleted  run / raw@1 (1 objects")
    assert len(report.to_json()["entries"]) == 13


def test_a_run_with_more_keys_than_a_page_hides_no_other(clock, monkeypatch):
    monkeypatch.setattr(sweep_found, "PAGE_KEYS", 2)
    world = clocked_world(PAIR, clock)
    world.go_all()
    for number in range(9):
        world.journal_store.put(world.journal().layout.heartbeat("P", number), b"{}")
    store = world.journal_store
    other = RunIdentity("other dag", "run", "group")
    Journal(store, other, writer="w").put_plan(world.plan)
    runs, unread = sweep_found.find_runs(store)
    assert unread == []
    assert [run.dag_id for run in runs] == [world.journal().identity.dag_id, "other dag"]


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (RunIdentity("flights", "date-2026", "flights"), "flights / date-2026 / flights"),  # the README's
        (shared_identity("raw-0a"), "shared raw-0a"),
    ],
)
def test_a_group_with_the_name_of_its_dag_is_not_called_shared(identity, said):
    unread: Any = None
    journal: Any = SimpleNamespace(identity=identity)
    assert SweptRun(journal, state=unread, plan=unread, names={}, ages=unread, data=unread).where == said


# what killed processes have left of their questions to a store


def test_what_killed_probes_have_left_goes_when_it_is_a_day_old_by_the_stores_time(clock):
    world = clocked_world(PAIR, clock)
    left = ["_gc/0a", "_probe/0a", "_probe/0a-race-2"]
    for store in (world.journal_store, world.results):
        for key in (*left, RACED):
            store.put(key, b"")
    clock.passes(DAY_S)  # the clocks of one store's servers differ
    sweep(world)
    assert [info.key for info in world.results.list("_")] == [*left, RACED]
    clock.passes(2 * MINUTE_S)
    world.results.put("_probe/0b", b"")  # one at work
    dry = sweep(world, dry_run=True)
    assert [info.key for info in world.results.list("_")] == [*left, "_probe/0b", RACED]
    assert dry.entries == sweep(world).entries
    assert [info.key for info in world.results.list("_")] == ["_probe/0b", RACED]
    assert [info.key for info in world.journal_store.list("_")] == [RACED]


def test_probes_that_may_not_be_listed_are_named_and_left_as_they_are(clock):
    world = clocked_world(PAIR, clock)
    world.go_all()
    world.results = FaultyStore(world.results, [Fault(Verb.LIST, FaultKind.DENIED, "_probe/")])
    report = sweep(world)
    assert report.unread == ["old probes were left as they are: " + report.unread[0].partition(": ")[2]]
    assert told(report)["C@1"] == "kept: it is a final result"
