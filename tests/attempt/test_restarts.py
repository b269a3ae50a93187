"""The restart budget, counted from the journal by the real protocol over a fake Airflow.

Airflow's retry policy is not asked in these tests, as it is not after a kill: what stops a region is its pre-check.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from expected_errors import fails_with
from fakes import CHAIN, PAIR, Killed, Process, World

from airflow_recovery.attempt import previous_attempt, restarts
from airflow_recovery.attempt.failed_attempt import FailedAttempt
from airflow_recovery.attempt.restarts import Restarts, decision_of
from airflow_recovery.attempt.run import RetryGrant
from airflow_recovery.errors import (
    Failure,
    InputLost,
    Kind,
    RecoveryError,
    RegionFailed,
    RestartsExhausted,
    StoreUnavailable,
    UserCodeError,
)
from airflow_recovery.model.records import FenceCause, Reset
from airflow_recovery.planning.plan import Action, Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.planning.restart_budget import RestartLimits
from airflow_recovery.planning.restart_strategy import FixedDelay, NoRestart
from airflow_recovery.planning.scenario import REBUILD, Request, RestartRegion
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.testing.fake_airflow import FakeAirflow

STAR = {"P": (), "A": ("P",), "B": ("P",), "C": ("P",)}


class Clocked(World):
    """A world in which a minute passes between any two tries, and a pause that is slept takes its time."""

    def __init__(self, upstream, limits: RestartLimits | None = None, **more) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.waited: list[float] = []
        super().__init__(upstream, limits=limits or RestartLimits.of(), **{"retries": 20, **more})
        self.now = lambda: self.at.isoformat()

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.at += timedelta(seconds=seconds)

    def go(self, region: str, **more):
        self.at += timedelta(minutes=1)
        return super().go(region, **more)

    def fail(self, region: str, error: Exception | None = None) -> BaseException:
        def fail() -> None:
            raise error or RegionFailed("boom")

        with pytest.raises(RecoveryError) as caught:
            self.go(region, on_start=fail)
        if isinstance(caught.value, RestartsExhausted):
            self.airflow.fail_for_good(region)  # it becomes an AirflowFailException
        return caught.value

    def kill(self, region: str) -> None:
        process = Process()
        with pytest.raises(Killed):
            self.go(region, process=process, on_start=process.kill)
        self.airflow.lose_heartbeat(region)

    def refused(self, region: str) -> str:
        """The next try is stopped by its pre-check, before any claim; what it said."""
        claimed = len(self.ran)
        with pytest.raises(RestartsExhausted) as caught:
            self.go(region)
        assert len(self.ran) == claimed
        self.airflow.mark(region, "failed")
        return str(caught.value)


# per region


def test_the_third_failure_ends_a_region_and_says_which_budget_and_what_to_do():
    world = Clocked(PAIR)
    assert [type(world.fail("P")) for _ in range(2)] == [RegionFailed, RegionFailed]
    said = str(world.fail("P"))
    assert said.startswith(
        "P has failed 3 times, and maximum-per-task-failures is 3: it is not restarted, although Airflow's own retries "
        "may not be used up. The last failure: RegionFailed: boom. Repair the cause, then clear this task"
    )
    assert world.ran == [("P", 1), ("P", 2), ("P", 3)]


def test_fault_72_a_kill_counts_though_airflow_asks_no_policy_after_it():
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=2))
    world.kill("P")
    world.fail("P")
    attempts = world.state().of("P").attempts
    assert [attempts[n].outcome.cause for n in (1, 2)] == [FenceCause.OWN_FAILURE, FenceCause.OWN_FAILURE]
    assert "died without a word" in attempts[1].outcome.detail
    assert dict(attempts[1].outcome.failure.labels)["class"] == "driver lost"
    assert world.airflow.state("P") == "failed"


class TimedOut(BaseException):
    """As Airflow's, at the end of ``execution_timeout``."""


def out_of_time(world: Clocked) -> None:
    def end() -> None:
        raise TimedOut("Timeout, PID: 7")

    with pytest.raises(TimedOut):
        world.go("P", on_start=end)
    world.airflow.lose_heartbeat("P")


def test_fault_338_the_pre_check_that_ends_a_region_names_what_its_last_try_has_ended_with():
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))
    out_of_time(world)
    assert "The last failure: TimedOut: Timeout, PID: 7." in world.refused("P")


@pytest.mark.control
def test_fault_338_control_where_the_journal_is_not_asked_no_cause_is_named(monkeypatch):
    monkeypatch.setattr(restarts, "_last_failure", lambda state, region: "")
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))
    out_of_time(world)
    assert "Timeout" not in world.refused("P")


def test_fault_72_killed_every_time_the_pre_check_alone_ends_it():
    world = Clocked(PAIR)
    for _ in range(3):
        world.kill("P")
    assert "maximum-per-task-failures is 3" in world.refused("P")
    assert world.ran == [("P", 1), ("P", 2), ("P", 3)]


def test_fault_72_control_without_the_pre_check_only_airflows_retries_end_it(monkeypatch):
    monkeypatch.setattr(Restarts, "waited", lambda self, state, why: False)
    world = Clocked(PAIR, retries=6)
    while world.airflow.state("P") != "failed":
        world.kill("P")
    assert len(world.ran) == 7


def test_fault_57_a_poison_split_ends_with_the_regions_budget():
    """What always fails inside a task of Spark is told as Spark's own exception, which may depend on the moment."""
    poison = RegionFailed("split 7", Failure("PythonException", "bad split", chain=("PythonException: bad",)))
    world = Clocked(PAIR, retries=1000)
    tries = 0
    while world.airflow.state("P") != "failed":
        world.fail("P", poison)
        tries += 1
    assert (tries, len(world.ran)) == (3, 3)


def test_fault_57_control_without_a_budget_it_goes_on_as_long_as_airflow_lets_it():
    world = Clocked(PAIR, retries=25)
    world.limits = None
    tries = 0
    while world.airflow.state("P") != "failed":
        world.fail("P")
        tries += 1
    assert tries == 26


def test_fault_78_an_error_of_the_code_touches_no_budget():
    wrong = UserCodeError("no such table", Failure("AnalysisException", "no t", "TABLE_OR_VIEW_NOT_FOUND", "42P01"))
    world = Clocked(PAIR)
    for _ in range(5):
        assert world.fail("P", wrong) is wrong
    assert decision_of(world.fail("P")).counted == 1


def test_fault_78_control_without_the_label_it_would_use_up_the_budget(monkeypatch):
    monkeypatch.setattr(UserCodeError, "kind", Kind.RETRY)
    wrong = UserCodeError("no such table", Failure("AnalysisException", "no t", "TABLE_OR_VIEW_NOT_FOUND", "42P01"))
    world = Clocked(PAIR)
    monkeypatch.setattr("airflow_recovery.attempt.restarts.label_of", lambda failure, key: "yes")
    found = [type(world.fail("P", wrong)) for _ in range(3)]
    assert found[-1] is RestartsExhausted


def test_none_never_restarts_and_a_lost_result_is_made_again_all_the_same():
    world = Clocked(PAIR, RestartLimits.of(NoRestart()))
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("C")
    assert world.go("P").attempt == 2
    assert "restart-strategy is none" in str(world.fail("C"))


# what does not count


def test_waiting_for_a_producer_is_no_failure():
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("C")
    world.go("P")
    assert world.go("C").attempt == 1


def test_an_attempt_whose_input_was_lost_while_it_ran_is_no_failure():
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))
    world.go("P")
    with pytest.raises(InputLost):
        world.go("C", on_start=lambda: world.delete_results("P", 1))
    assert world.state().of("C").attempts[1].outcome.cause is FenceCause.LOST_INPUT
    world.go("P")
    assert world.go("C").attempt == 2


def test_control_taken_for_a_failure_the_loss_would_end_the_consumer(monkeypatch):
    monkeypatch.setattr(FailedAttempt, "_look_at_inputs", lambda self, error: None)
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))
    world.go("P")
    with pytest.raises(RestartsExhausted):
        world.go("C", on_start=lambda: world.delete_results("P", 1))


def test_a_running_attempt_that_recovery_cleared_is_no_failure():
    """C is running on P@1 when D finds P@1 lost: C is cancelled forward, and killed."""
    world = Clocked({"P": (), "C": ("P",), "D": ("P",)}, RestartLimits.of(maximum_per_task_failures=1))
    world.go("P")
    process = Process()

    def lose_and_die() -> None:
        world.delete_results("P", 1)
        with pytest.raises(InputLost):
            world.go("D")
        process.kill()

    with pytest.raises(Killed):
        world.go("C", process=process, on_start=lose_and_die)
    assert world.airflow.state("C") == "restarting"
    world.go("P")
    assert world.go("C").attempt == 2
    assert world.state().of("C").attempts[1].outcome.cause is FenceCause.SUPERSEDED


def test_a_store_that_is_away_is_no_failure_of_the_region():
    """Outside an attempt nothing is recorded; Airflow's retries are what ends it."""
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))

    class Away:
        def __init__(self, inner) -> None:
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def list(self, prefix="", *, start_after=""):
            raise StoreUnavailable("503")

    world.between_process_and_journal = Away
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            world.go("P")
    world.between_process_and_journal = lambda store: store
    assert world.go("P").attempt == 1


# a fresh budget


def exhausted(limits: RestartLimits | None = None) -> Clocked:
    world = Clocked(PAIR, limits)
    while world.airflow.state("P") != "failed":
        world.fail("P")
    return world


def test_a_clear_by_hand_starts_the_count_anew():
    world = exhausted()
    world.airflow.clear("P")
    assert [type(world.fail("P")) for _ in range(3)] == [RegionFailed, RegionFailed, RestartsExhausted]
    world.airflow.clear("P")
    assert world.go("P").attempt == 7


def test_a_clear_by_recovery_does_not():
    """P failed twice, then finished, then was lost: woken, it has one failure left before its budget ends."""
    world = Clocked(PAIR)
    world.fail("P")
    world.fail("P")
    world.go("P")
    world.delete_results("P", 3)
    with pytest.raises(InputLost):
        world.go("C")
    assert world.airflow.cleared == ["P"]
    assert isinstance(world.fail("P"), RestartsExhausted)


def test_control_taken_for_a_persons_clear_it_would(monkeypatch):
    monkeypatch.setattr(FakeAirflow, "grant", lambda self, task: RetryGrant(self._max_tries[task], is_renewed=True))
    world = Clocked(PAIR)
    world.fail("P")
    world.fail("P")
    world.go("P")
    world.delete_results("P", 3)
    with pytest.raises(InputLost):
        world.go("C")
    assert isinstance(world.fail("P"), RegionFailed)


def test_changed_code_starts_the_count_anew():
    world = Clocked(PAIR)
    world.fail("P")
    world.fail("P")
    world.fingerprints["P"] = "code 2"
    assert [type(world.fail("P")) for _ in range(3)] == [RegionFailed, RegionFailed, RestartsExhausted]


def test_a_users_restart_starts_the_count_anew():
    world = exhausted()
    world.restart("P")
    assert decision_of(world.fail("P")).counted == 1


def test_a_reset_by_a_strategy_that_restarts_more_than_the_region_forgives_nothing():
    world = Clocked(PAIR)
    for _ in range(2):
        world.fail("P")
        world.journal().reset(Reset("P", world.attempts("P"), "failover", "full", failover=True))
    assert isinstance(world.fail("P"), RestartsExhausted)


def test_another_run_of_the_same_key_starts_the_count_anew():
    world = exhausted()
    world.run_id = "manual"
    world.new_airflow()
    assert decision_of(world.fail("P")).counted == 1


# per run


def test_the_runs_budget_ends_the_regions_that_have_failed_and_leaves_the_others():
    world = Clocked(STAR, RestartLimits.of(maximum_total_task_failures=3))
    world.go("P")
    world.fail("A")
    world.fail("B")
    said = str(world.fail("A"))
    assert "the regions of this run have failed 3 times together, and maximum-total-task-failures is 3" in said
    assert "maximum-total-task-failures is 3" in world.refused("B")
    assert world.go("C").attempt == 1


def test_a_clear_by_hand_starts_the_runs_count_anew_for_the_cleared_region():
    world = Clocked(STAR, RestartLimits.of(maximum_total_task_failures=3))
    world.go("P")
    world.fail("A")
    world.fail("B")
    world.fail("A")
    world.airflow.clear("A")
    assert isinstance(world.fail("A"), RegionFailed)
    assert world.go("A").attempt == 4


def test_regions_that_fail_in_one_moment_count_once_for_the_run():
    world = Clocked(STAR, RestartLimits.of(FixedDelay(attempts=9, delay_s=600), None, 2))
    world.go("P")
    for region in ("A", "B", "C"):
        assert isinstance(world.fail(region), RegionFailed)


# pauses


def test_the_exception_carries_the_pause_for_the_policy():
    world = Clocked(PAIR, RestartLimits.of(FixedDelay(attempts=3, delay_s=20)))
    decision = decision_of(world.fail("P"))
    assert (decision.delay_s, decision.reason) == (20, "P is restarted after failure 1, fixed-delay: in 20.0 s")
    assert world.waited == []


def test_a_short_pause_is_slept_and_a_long_one_is_given_back_to_airflow():
    world = Clocked(PAIR, RestartLimits.of(FixedDelay(attempts=3, delay_s=8)))
    world.kill("P")
    world.go("P")
    assert world.waited == [8]
    world = Clocked(PAIR, RestartLimits.of(FixedDelay(attempts=3, delay_s=180)))
    world.kill("P")
    with fails_with("restart-pauses") as caught:
        world.go("P")
    assert caught.value.delay_s == 180
    world.at += timedelta(minutes=3)
    assert (world.go("P").attempt, world.waited) == (2, [])


# losses


def lose(world: Clocked) -> None:
    world.delete_results("P", world.current("P"))
    with pytest.raises(InputLost):
        world.go("C")


def test_an_endless_loss_ends_and_says_so():
    world = Clocked(CHAIN, retries=1000)
    world.go("P")
    lose(world)
    world.go("P")
    lose(world)
    world.go("P")
    lose(world)
    said = world.refused("P")
    assert "the result of P was made and lost 3 times" in said
    assert "something deletes or overwrites it" in said


def test_after_an_endless_loss_a_clear_by_hand_makes_it_again():
    world = Clocked(CHAIN, retries=1000)
    world.go("P")
    for _ in range(2):
        lose(world)
        world.go("P")
    lose(world)
    world.refused("P")
    world.airflow.clear("P")
    assert world.go("P").attempt == 4


def test_control_without_counting_losses_there_is_no_end(monkeypatch):
    monkeypatch.setattr(Restarts, "_losses", lambda self, state: 0)
    world = Clocked(CHAIN, retries=1000)
    world.go("P")
    for _ in range(20):
        lose(world)
        world.go("P")
    assert world.attempts("P") == 21


# infrastructure


def test_infrastructure_that_fails_is_a_failure_of_the_region_and_labelled():
    world = Clocked(PAIR, RestartLimits.of(maximum_per_task_failures=1))
    lost = Failure("Py4JJavaError", "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)")
    assert isinstance(world.fail("P", RegionFailed("stage failed 4 times", lost)), RestartsExhausted)
    assert dict(world.state().of("P").attempts[1].outcome.failure.labels)["class"] == "executor lost"


# the plan


def planned(world: World, request: Request = REBUILD) -> Plan:
    return plan(world.plan, world.state(), ResultProber(lambda location: world.results), request)


@pytest.mark.parametrize("end", [Clocked.fail, Clocked.kill], ids=["failed", "killed"])
def test_a_plan_says_that_a_budget_has_ended_with_which_attempt_and_when(end):
    world = Clocked(PAIR)
    for _ in range(3):
        end(world, "P")
    ended_at = world.now()
    if end is Clocked.kill:
        world.refused("P")  # says so for the process that could not
        ended_at = world.now()
    region = planned(world).of("P")
    assert region.action is Action.REFUSED
    assert region.told == (
        f"failed (attempt 3 at {ended_at}: P has failed 3 times, and maximum-per-task-failures is 3)"
    )
    assert (planned(world).running, planned(world).of("C").action) == ((), Action.BLOCKED)
    assert planned(world).of("C").after == ("P",)
    text = plan_text(planned(world))
    assert "1 refused (a restart budget has ended: repair the cause, then clear the task)" in text
    assert Plan.from_json(planned(world).to_json()) == planned(world)


def test_what_has_not_ended_its_budget_is_planned_to_run():
    world = Clocked(PAIR)
    for _ in range(2):
        world.fail("P")
    assert planned(world).running == ("P", "C")


def test_a_budget_that_a_restart_or_other_code_renews_refuses_nothing():
    world = Clocked(PAIR)
    for _ in range(3):
        world.fail("P")
    assert planned(world, RestartRegion("P")).running == ("P", "C")
    world.fingerprints["P"] = "code 2"
    assert planned(world).running == ("P", "C")


def test_control_without_the_record_a_plan_runs_what_its_next_try_refuses(monkeypatch):
    world = Clocked(PAIR)
    monkeypatch.setattr(FailedAttempt, "_decide", lambda *given: None)
    for _ in range(3):
        world.fail("P")
    assert planned(world).running == ("P", "C")
    world.refused("P")


def test_control_without_the_record_of_a_kill_a_plan_runs_what_has_ended_its_budget(monkeypatch):
    world = Clocked(PAIR)
    monkeypatch.setattr(previous_attempt, "with_budget_ended", lambda ended, decision: ended)
    for _ in range(3):
        world.kill("P")
    world.refused("P")
    assert planned(world).running == ("P", "C")


def test_fault_243_a_run_that_was_deleted_and_made_again_starts_with_a_budget_of_its_own():
    """It has the run id, and each of its tries the number, of the run before it."""
    world = Clocked(PAIR)
    for _ in range(2):
        world.fail("P")
    world.airflow.lose_database()
    assert isinstance(world.fail("P"), RegionFailed)
    assert isinstance(world.fail("P"), RegionFailed)
    assert isinstance(world.fail("P"), RestartsExhausted)


@pytest.mark.control
def test_fault_243_control_by_run_id_and_retries_alone_it_starts_with_the_old_one(monkeypatch):
    def by_run_id(self: Restarts, attempt: int) -> bool:
        claim = self._claim(self._region, attempt)
        return claim is not None and claim.airflow_run_id == self._run.task.airflow_run_id

    monkeypatch.setattr(Restarts, "_is_mine", by_run_id)
    world = Clocked(PAIR)
    for _ in range(2):
        world.fail("P")
    world.airflow.lose_database()
    assert isinstance(world.fail("P"), RestartsExhausted)
