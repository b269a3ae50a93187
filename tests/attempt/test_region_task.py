"""One try of one region: kept, run, or failed over; and what becomes of attempts whose process died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from expected_errors import fails_with
from fakes import CHAIN, DIAMOND, FORK, PAIR, PUBLISH, FakeApplication, Hooks, InlineThread, Killed, Process, World

from airflow_recovery.attempt import attempt, region_task
from airflow_recovery.attempt.failed_attempt import FailedAttempt
from airflow_recovery.attempt.inputs_kept import ReleaseCheck
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.errors import (
    AttemptLost,
    ClearNotConfigured,
    InputLost,
    NotMine,
    RegionFailed,
)
from airflow_recovery.journal import codec, journal
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.groups import RegionGroup
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, ExternalObject, FenceCause, Outcome
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.prober import ResultProber


def killed(world: World, region: str, **hooks: object) -> Process:
    """A try whose process dies at a hook; Airflow notices by the missing heartbeat."""
    process = Process()
    kills: dict[str, Any] = dict.fromkeys(hooks, process.kill)
    with pytest.raises(Killed):
        world.go(region, process=process, **kills)
    world.airflow.lose_heartbeat(region)
    return process


# run and kept


def test_every_region_runs_once_and_reads_what_it_claimed():
    world = World(DIAMOND)
    world.go_all()
    publish = world.publish()
    assert world.ran == [("P", 1), ("C", 1), ("D", 1), ("E", 1)]
    assert world.state().of("E").current.outcome.inputs == (InputRef("C", 1), InputRef("D", 1))
    assert [(region.region, region.attempt) for region in publish.regions] == [("P", 1), ("C", 1), ("D", 1), ("E", 1)]


def test_every_attempt_has_a_tag_that_no_other_has_not_even_in_another_deployment_with_this_dag():
    worlds = World(PAIR), World(PAIR)
    worlds[1]._writers = 100  # a real one is random
    for world in worlds:
        world.go_all()
        world.new_airflow()
        world.fingerprints["P"] = "code 2"
        world.go("P")
    tags = [world.journal().read_claim(*claim).tag for world in worlds for claim in (("P", 1), ("C", 1), ("P", 2))]
    assert len({*tags}) == 6


def test_a_second_run_of_the_same_key_keeps_every_region_and_says_why():
    world = World(CHAIN)
    world.go_all()
    world.new_airflow()
    world.ran.clear()
    results = [world.go(region) for region in CHAIN]
    assert world.ran == []
    assert {result.decision for result in results} == {Decision.KEPT}
    assert [result.seconds_saved for result in results] == [10.0, 10.0, 10.0]
    # Only what somebody wants is looked at: nobody runs, so only the final result's file is checked.
    assert [result.files_checked for result in results] == [0, 0, 1]
    assert results[2].why == "attempt 1 is valid, 1 files are as registered"


def test_changed_code_runs_again_with_all_that_rests_on_it_and_nothing_else():
    world = World(DIAMOND)
    world.go_all()
    world.new_airflow()
    world.ran.clear()
    world.fingerprints["C"] = "code 2"
    world.until_green()
    assert world.ran == [("C", 2), ("E", 2)]


def test_a_changed_external_input_runs_its_region_again():
    world = World(PAIR)
    before, after = (ExternalObject("P", "s3://lake/a.csv", 1, etag) for etag in ("v1", "v2"))
    world.go("P", externals=(before,))
    world.go("C")
    world.new_airflow()
    assert world.go("P", externals=(before,)).decision is Decision.KEPT
    world.airflow.clear("P")
    assert world.go("P", externals=(after,)).attempt == 2
    assert world.current("C") == 1
    assert world.go("C").attempt == 2


def test_an_input_that_only_its_reader_wants_is_made_again_on_its_report():
    """Only C's own process knows that C's external input changed; P looks because C has reported what it misses."""
    world = World(PAIR)
    before, after = (ExternalObject("C", "s3://lake/a.csv", 1, etag) for etag in ("v1", "v2"))
    world.go("P")
    world.go("C", externals=(before,))
    world.new_airflow()
    world.delete_results("P", 1)
    assert world.go("P").decision is Decision.KEPT
    with pytest.raises(InputLost):
        world.go("C", externals=(after,))
    assert world.go("P").attempt == 2
    assert world.go("C", externals=(after,)).attempt == 2


def test_control_without_the_report_as_demand_its_reader_is_stuck(monkeypatch):
    monkeypatch.setattr("airflow_recovery.planning.evaluation.Evaluation._wanted", lambda self, *of: ())
    world = World(PAIR)
    before, after = (ExternalObject("C", "s3://lake/a.csv", 1, etag) for etag in ("v1", "v2"))
    world.go("P")
    world.go("C", externals=(before,))
    world.new_airflow()
    world.delete_results("P", 1)
    world.go("P")
    with pytest.raises(InputLost):
        world.go("C", externals=(after,))
    assert world.go("P").decision is Decision.KEPT  # its data is gone, and nobody seems to want it


def test_fault_50_a_legitimately_empty_result_is_a_result():
    world = World(PAIR)
    world.go("P", rows=0)
    assert world.go("C").attempt == 1
    world.new_airflow()
    assert world.go("P").decision is Decision.KEPT
    assert world.go("C").decision is Decision.KEPT


# dead processes


def test_an_attempt_left_open_by_a_killed_try_is_fenced_and_its_application_stopped():
    world = World(PAIR)
    killed(world, "P", on_start=...)
    assert world.state().of("P").open_attempt.number == 1
    result = world.go("P")
    assert (result.decision, result.attempt) == (Decision.RAN, 2)
    first = world.state().of("P").attempts[1].outcome
    # Its process died by itself, so it is a failure of the region; after a clear it would be "superseded".
    assert (first.state, first.cause) == (AttemptState.FENCED, FenceCause.OWN_FAILURE)
    assert world.orphans_stopped == [("P", 1)]


def test_fault_4_outputs_without_an_outcome_are_nothing():
    world = World(PAIR)
    killed(world, "P", on_written=...)
    assert list(world.results.list()) != []
    assert world.go("P").attempt == 2
    world.go("C")
    assert world.state().of("C").current.outcome.inputs == (InputRef("P", 2),)


def test_fault_4_control_where_a_listing_decides_a_dead_attempt_becomes_a_result(monkeypatch):
    def adopt_what_is_listed(self: region_task.RegionTask, state: RunState, opened: Attempt) -> None:
        journal = world.journal()
        where = f"{world.data_of('P', 1)}/out"
        objects = tuple(ResultObject("part-0", info.size, info.etag) for info in world.results.list(where))
        outputs = (PartitionManifest("P", f"{world.results.base_uri}/{where}", objects),)
        journal.finish(Outcome("P", 1, AttemptState.FINISHED, "test", "now", fingerprint="code 1", outputs=outputs))

    world = World(PAIR)
    killed(world, "P", on_written=...)
    monkeypatch.setattr(region_task.RegionTask, "_fence_previous_attempt", adopt_what_is_listed)
    assert world.go("P").attempt == 1


@pytest.mark.parametrize("fault", [5, 6])
def test_fault_5_6_a_finish_of_a_dead_try_is_adopted_without_spark(fault):
    # The manifest and the finish are one object, the outcome, so 5 and 6 are one fault at two moments.
    world = World(PAIR)
    killed(world, "P", on_finished=...)
    assert world.ran == [("P", 1)]
    result = world.go("P")
    assert (result.decision, result.attempt) == (Decision.KEPT, 1)
    assert world.ran == [("P", 1)]


def test_fault_5_6_control_without_the_journal_it_runs_again(monkeypatch):
    world = World(PAIR)
    killed(world, "P", on_finished=...)
    monkeypatch.setattr(RegionState, "current", property(lambda self: None))
    monkeypatch.setattr(RegionState, "was_reset", property(lambda self: False))
    monkeypatch.setattr(region_task, "final_check", lambda *args: None)
    assert world.go("P").decision is Decision.RAN
    assert world.ran == [("P", 1), ("P", 2)]


def test_fault_13_two_drivers_of_one_region_one_outcome_wins():
    """P's first driver goes on as a zombie while the next try fences it and finishes."""
    world = World(PAIR)

    def second_try() -> None:
        world.airflow.lose_heartbeat("P")
        assert world.go("P").attempt == 2

    with fails_with("fenced-while-running", region="P", attempt=1):
        world.go("P", on_written=second_try)
    attempts = world.state().of("P").attempts
    assert [attempts[n].outcome.state for n in (1, 2)] == [AttemptState.FENCED, AttemptState.FINISHED]
    assert world.airflow.state("P") == "success"
    world.go("C")
    assert world.state().of("C").current.outcome.inputs == (InputRef("P", 2),)


def test_fault_13_two_tasks_claim_at_once_one_goes_on():
    world = World(PAIR)
    first, second = Process(), Process()
    before_claim: list[Any] = []

    def overtake(request: str) -> None:
        if "00000001.claim" in request and not before_claim:
            before_claim.append(request)
            world.airflow.lose_heartbeat("P")
            world.go("P", process=second)

    first.gate = overtake
    with pytest.raises(AttemptLost):
        world.go("P", process=first)
    assert world.ran == [("P", 1)]


def test_fault_13_control_without_conditional_writes_both_finish(monkeypatch):
    world = World(PAIR)
    monkeypatch.setattr(type(world.journal_store), "put_if_absent", type(world.journal_store).put)

    def second_try() -> None:
        world.airflow.lose_heartbeat("P")
        world.go("P")

    world.go("P", on_written=second_try)
    states = [candidate.outcome.state for candidate in world.state().of("P").attempts.values()]
    assert states == [AttemptState.FINISHED, AttemptState.FINISHED]


def test_fault_14_an_old_attempt_that_finishes_after_the_new_one_committed_is_rejected():
    world = World(PAIR)

    def everything_else_first() -> None:
        world.airflow.lose_heartbeat("P")
        world.go_all("PC")
        world.publish()

    with fails_with("fenced-while-running", region="P", attempt=1):
        world.go("P", on_written=everything_else_first)
    assert world.current("P") == 2
    assert world.airflow.is_green
    assert world.state().of("C").current.outcome.inputs == (InputRef("P", 2),)


def test_fault_14_control_without_the_fence_the_old_attempt_finishes_late(monkeypatch):
    monkeypatch.setattr(RegionState, "open_attempt", property(lambda self: None))
    world = World(PAIR)

    def everything_else_first() -> None:
        world.airflow.lose_heartbeat("P")
        world.go_all("P")

    world.go("P", on_written=everything_else_first)
    assert [candidate.is_finished for candidate in world.state().of("P").attempts.values()] == [True, True]


def test_a_zombie_does_not_fence_the_present_try():
    world = World(PAIR)
    zombie = Process()

    def overtaken(request: str) -> None:
        if request.startswith("LIST") and not world.ran:
            world.airflow.lose_heartbeat("P")
            own = world.airflow.start("P")
            dying = Process()
            task = world.region_task(own, dying, Hooks(on_start=dying.kill))
            with pytest.raises(Killed):
                task.execute()

    zombie.gate = overtaken
    with pytest.raises(NotMine):
        world.go("P", process=zombie)
    assert world.state().of("P").open_attempt.number == 1
    assert world.orphans_stopped == []


def test_a_zombie_neither_claims_nor_wakes():
    world = World(PAIR)
    world.go("P")
    own = world.airflow.start("C")
    task = world.region_task(own, Process())
    world.airflow.lose_heartbeat("C")
    with pytest.raises(NotMine):
        task.execute()
    world.delete_results("P", 1)
    with pytest.raises(NotMine):
        world.region_task(own, Process()).execute()
    assert world.attempts("C") == 0
    assert world.airflow.state("P") == "success"


def test_a_finish_found_while_fencing_is_judged_again_not_adopted():
    """Hole 8: P@1 is open; a user resets it; P@1 finishes; the next try's fence loses and must not adopt it."""
    world = World(PAIR)
    next_try = Process()
    finished: list[Any] = []

    def finish_before_the_fence(request: str) -> None:
        if request.endswith("PUT " + world.journal().layout.attempt("P", 1, "outcome")) and not finished:
            finished.append(request)
            late = Outcome("P", 1, AttemptState.FINISHED, "writer-1", "now", fingerprint="code 1")
            world.journal(writer="writer-1").finish(late)

    def restart_and_retry() -> None:
        world.restart("P")
        next_try.gate = finish_before_the_fence
        assert world.go("P", process=next_try).attempt == 2

    zombie = world.go("P", on_written=restart_and_retry)  # its report of success is refused
    assert (zombie.attempt, finished != []) == (1, True)
    assert world.state().of("P").attempts[1].is_finished
    assert world.current("P") == 2


# failures


def test_a_user_exception_fences_the_attempt_and_the_retry_runs_the_next():
    world = World(PAIR)

    def fail() -> None:
        raise RegionFailed("boom")

    with pytest.raises(RegionFailed, match="boom"):
        world.go("P", on_read=fail)
    assert world.airflow.state("P") == "up_for_retry"
    outcome = world.state().of("P").attempts[1].outcome
    assert (outcome.cause, outcome.detail) == (FenceCause.OWN_FAILURE, "RegionFailed: boom")
    assert world.go("P").attempt == 2


@pytest.mark.parametrize("is_foreseen", [True, False])
def test_a_finish_that_is_too_large_to_be_read_fails_at_once_and_the_run_goes_on(monkeypatch, is_foreseen):
    world = World(PAIR)
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", 5_000)
    monkeypatch.setattr(journal, "_MANY_FILES", 50 if is_foreseen else 100)
    files = tuple(ExternalObject("P", f"s3://lake/{number:03}.csv", 1, "v1") for number in range(100))
    with fails_with("record-too-large-to-write") as error:
        world.go("P", externals=files)
    assert error.value.kind.is_final
    # Where the listing alone says so, nothing has run.
    assert world.ran == ([] if is_foreseen else [("P", 1)])
    assert world.state().of("P").open_attempt is None
    world.airflow.clear("P")
    assert world.go("P", externals=files[:50]).decision is Decision.RAN
    assert world.go("C").decision is Decision.RAN


def test_control_a_finish_that_is_too_large_is_written_and_nobody_can_go_on(monkeypatch):
    world = World(PAIR)
    monkeypatch.setattr(journal, "checked_record", codec.encode_record)
    files = tuple(ExternalObject("P", f"s3://lake/{number:03}.csv", 1, "v1") for number in range(100))
    world.go("P", externals=files)
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", 5_000)
    with fails_with("record-too-large"):
        world.go("C")


def test_an_application_that_ends_without_an_outcome_has_failed(monkeypatch):
    world = World(PAIR)
    monkeypatch.setattr(FakeApplication, "run", lambda self, attempt: None)
    with fails_with("application-without-outcome"):
        world.go("P")
    assert world.state().of("P").attempts[1].outcome.state is AttemptState.FENCED


def test_a_runner_that_knows_no_outcome_has_it_looked_for():
    world = World(PAIR)
    assert world.go("P", says_nothing=True).outcome.state is AttemptState.FINISHED


@pytest.mark.parametrize("error", [RegionFailed("status unknown"), TimeoutError("no answer"), KeyboardInterrupt()])
def test_fault_76_a_failed_status_proves_nothing_the_outcome_decides(error):
    world = World(PAIR)

    def unknown() -> None:
        raise error

    result = world.go("P", on_finished=unknown)
    assert (result.decision, result.attempt) == (Decision.RAN, 1)
    assert world.airflow.state("P") == "success"


def test_fault_76_control_without_looking_at_the_outcome_it_fails(monkeypatch):
    world = World(PAIR)

    def unknown() -> None:
        raise RegionFailed("status unknown")

    monkeypatch.setattr(Journal, "fence", lambda self, outcome: None)
    with pytest.raises(RegionFailed, match="status unknown"):
        world.go("P", on_finished=unknown)


# what it must not read


def test_fault_46_input_deleted_between_check_and_read_wakes_the_producer():
    world = World(PAIR)
    world.go("P")
    with fails_with("input-cleared", lost={"P": "OUTPUT_MISSING"}):
        world.go("C", on_start=lambda: world.delete_results("P", 1))
    # C is not the one to be retried for ever: P is woken, and C waits for it.
    assert world.airflow.ready() == ["P"]
    assert world.until_green() == ["P", "C", PUBLISH]
    assert world.ran == [("P", 1), ("C", 1), ("P", 2), ("C", 2)]


@pytest.mark.parametrize("forgets", [False, True])
def test_after_a_failure_a_try_evaluates_what_has_changed_since_its_pre_check(monkeypatch, forgets):
    """... and what rests on that. Control: a process that keeps nothing evaluates all its ancestors again."""
    world = World(CHAIN)
    world.go_all()
    world.restart("E")
    evaluated: list[str] = []
    evaluate_region = Evaluation._evaluate_region

    def spy(self: Evaluation, name: str, group: RegionGroup, index: int) -> None:
        evaluated.append(name)
        evaluate_region(self, name, group, index)

    def lose() -> None:
        world.delete_results("C", 1)
        assert set(evaluated) == {"P", "C", "E"}
        evaluated.clear()

    monkeypatch.setattr(Evaluation, "_evaluate_region", spy)
    if forgets:
        monkeypatch.setattr(Evaluation, "_take_over", lambda self, before: None)
    with fails_with("input-cleared", lost={"C": "OUTPUT_MISSING"}):
        world.go("E", on_start=lose)
    assert set(evaluated) == ({"P", "C", "E"} if forgets else {"E"})


def test_fault_46_control_without_looking_the_consumer_only_fails(monkeypatch):
    monkeypatch.setattr(FailedAttempt, "_look_at_inputs", lambda self, error: None)
    world = World(PAIR)
    world.go("P")
    with pytest.raises(RegionFailed, match="is not there"):
        world.go("C", on_start=lambda: world.delete_results("P", 1))
    assert world.airflow.ready() == ["C"]


def test_a_read_error_with_every_input_there_restarts_nobody():
    world = World(PAIR)
    world.go("P")

    def fail() -> None:
        raise RegionFailed("executor lost")

    with pytest.raises(RegionFailed, match="executor lost"):
        world.go("C", on_read=fail)
    assert world.airflow.ready() == ["C"]


def test_fault_49_a_released_input_restarts_its_producer_and_is_never_read():
    world = World(PAIR)
    world.go("P")
    world.release("P", 1)
    with fails_with("input-cleared", lost={"P": "OUTPUT_RELEASED"}):
        world.go("C")
    world.until_green()
    assert world.ran == [("P", 1), ("P", 2), ("C", 1)]
    assert world.content("C") == "C of ['P of []']"


def test_fault_49_a_release_after_the_claim_stops_the_attempt(monkeypatch):
    """The reader claims, then looks for markers; the sweeper marks, then looks for claims: one sees the other."""
    world = World(PAIR)
    world.go("P")
    process = Process()

    def release_in_between(request: str) -> None:
        if request.endswith("C/00000001.claim"):
            world.release("P", 1)

    process.gate = release_in_between
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))
    with fails_with("input-cleared", lost={"P": "OUTPUT_RELEASED"}):
        world.go("C", process=process)
    outcome = world.state().of("C").attempts[1].outcome
    assert (outcome.state, outcome.cause) == (AttemptState.FENCED, FenceCause.LOST_INPUT)
    world.until_green()
    assert world.state().of("C").current.outcome.inputs == (InputRef("P", 2),)


def test_fault_49_control_without_the_marker_an_emptied_result_reads_as_empty(monkeypatch):
    world = World(PAIR)
    world.go("P")
    world.release("P", 1)
    world.delete_results("P", 1)
    # A reader that goes by a listing, and nobody who looks at markers or manifests.
    monkeypatch.setattr(ResultProber, "__call__", lambda self, region, attempt, result: None)
    monkeypatch.setattr("airflow_recovery.attempt.first_attempt.is_untouched", lambda state, plan: True)
    monkeypatch.setattr(ReleaseCheck, "look", lambda check: None)
    monkeypatch.setattr(FakeApplication, "_read", lambda self, manifest: "")
    world.go("C")
    assert world.content("C") == "C of ['']"


def test_a_chain_of_losses_is_seen_in_one_decision():
    """P -> C -> E, both intermediate results gone: E wakes both at once."""
    world = World(CHAIN)
    world.go_all("PC")
    world.delete_results("P", 1)
    world.delete_results("C", 1)
    with pytest.raises(InputLost):
        world.go("E")
    assert world.airflow.cleared == ["P", "C"]
    assert world.until_green() == ["P", "C", "E", PUBLISH]
    assert world.ran == [("P", 1), ("C", 1), ("P", 2), ("C", 2), ("E", 1)]


def test_a_loss_that_nobody_needs_restarts_nobody():
    world = World(CHAIN)
    world.go_all("PC")
    world.delete_results("P", 1)
    assert world.go("E").attempt == 1
    assert world.airflow.cleared == []


def test_a_side_branch_that_has_nothing_to_do_with_a_loss_is_kept():
    world = World({"P": (), "S": (), "C": ("P",), "T": ("S",)})
    world.go_all(["P", "S", "T"])
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("C")
    world.until_green()
    assert ("S", 2) not in world.ran
    assert ("T", 2) not in world.ran


def test_without_a_clear_client_a_lost_input_fails_and_names_both_settings():
    world = World(PAIR, can_clear=False)
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(ClearNotConfigured) as failed:
        world.go("C")
    assert "[state_store] backend" in str(failed.value)
    assert "[recovery] api_conn_id" in str(failed.value)


def a_loss_without_a_clear_client() -> World:
    """P's result is gone when E, which must run, looks; D is green on it."""
    world = World({"P": (), "D": ("P",), "E": ("P",)}, can_clear=False, retries=0)
    world.go_all("PD")
    world.delete_results("P", 1)
    with fails_with("no-way-to-clear", lost={"P": "OUTPUT_MISSING"}):
        world.go("E")
    return world


def test_without_a_clear_client_clearing_the_producer_by_hand_ends_green():
    world = a_loss_without_a_clear_client()
    world.airflow.clear("P", downstream=True)
    assert world.until_green() == ["P", "D", "E", PUBLISH]
    assert world.ran == [("P", 1), ("D", 1), ("P", 2), ("D", 2), ("E", 1)]


def test_without_a_clear_client_a_loss_is_reported_so_that_a_producer_that_is_cleared_looks_at_its_data():
    """Why E must run is known to E alone (its external input): nobody else would want P's data."""
    world = World(PAIR, can_clear=False, retries=0)
    before, after = (ExternalObject("C", "s3://lake/a.csv", 1, etag) for etag in ("before", "after"))
    world.go("P")
    world.go("C", externals=(before,))
    world.delete_results("P", 1)
    world.airflow.clear("C")
    with pytest.raises(ClearNotConfigured):
        world.go("C", externals=(after,))
    world.airflow.clear("P", downstream=True)
    world.go("P")
    assert world.go("C", externals=(after,)).attempt == 2
    assert world.ran == [("P", 1), ("C", 1), ("P", 2), ("C", 2)]


def test_control_without_that_report_the_producer_is_kept_without_its_data(monkeypatch):
    monkeypatch.setattr("airflow_recovery.attempt.clear_producers._report", lambda *args: ())
    world = World(PAIR, can_clear=False, retries=0)
    before, after = (ExternalObject("C", "s3://lake/a.csv", 1, etag) for etag in ("before", "after"))
    world.go("P")
    world.go("C", externals=(before,))
    world.delete_results("P", 1)
    for _ in range(2):
        world.airflow.clear("P", downstream=True)
        world.go("P")
        with pytest.raises(ClearNotConfigured):
            world.go("C", externals=(after,))


def test_without_a_clear_client_a_regions_own_retry_works():
    world = World(FORK, can_clear=False)

    def fail() -> None:
        raise RegionFailed("boom")

    with pytest.raises(RegionFailed):
        world.go("P", on_read=fail)
    world.go_all()
    assert world.ran == [("P", 1), ("P", 2), ("C", 1), ("D", 1)]
