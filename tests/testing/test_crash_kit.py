"""Real processes, killed by SIGKILL at named points (docs/promises.md#tests)."""

from __future__ import annotations

import os
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_recovery.attempt import previous_attempt as previous_attempt
from airflow_recovery.attempt import region_task
from airflow_recovery.attempt.commit import commit_own
from airflow_recovery.attempt.region_task import Decision, RegionResult, RegionTask
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.crash_kit import (
    CrashLoop,
    CrashPoint,
    Harm,
    JobSetup,
    Scenario,
    Step,
    Victim,
    Violation,
    When,
    crash_test,
    distinct,
)
from airflow_recovery.testing.crash_kit.cli import main
from airflow_recovery.testing.crash_kit.crasher import Crasher
from airflow_recovery.testing.crash_kit.kit import EXAMPLE

RELAY, LEDGERS, DAILIES = "crash_jobs:relay", "crash_jobs:ledgers", "crash_jobs:dailies"
FENCED_TWICE = ("task of baton try 1, after claim 1", "task of baton try 2, before fence 1")


@pytest.fixture
def setup(tmp_path: Path) -> Callable[..., JobSetup]:
    def new(job: str = RELAY, scenario: Scenario = Scenario.RUN, root: str | None = None) -> JobSetup:
        return JobSetup(job, root or f"file://{tmp_path}/root", tmp_path / "logs").for_scenario(scenario)

    return new


def at(*texts: str) -> tuple[CrashPoint, ...]:
    return tuple(map(CrashPoint.parse, texts))


def test_what_a_sink_has_taken_over_is_not_lost_to_anybody(setup):
    assert setup(RELAY).scenarios == (Scenario.RUN, Scenario.LOSS)
    assert setup(LEDGERS).scenarios == (Scenario.RUN,)
    with pytest.raises(ConfigurationError, match="a final result that no sink takes over"):
        setup(LEDGERS, scenario=Scenario.LOSS)


def test_points_have_names_that_are_read_back():
    point = CrashPoint("a.b, c", 2, Victim.DRIVER, When.AFTER, Step.RESULT, 3)
    assert point.text == "driver of a.b, c try 2, after result 3"
    assert CrashPoint.parse(point.text) == point
    with pytest.raises(ConfigurationError, match="expected a crash point such as"):
        CrashPoint.parse("task of C try 1, during claim 1")


@contextmanager
def busy_crasher(folder: Path) -> Iterator[Crasher]:
    """Another thread passes points all the time, as those of a task do that was frozen and has woken."""
    crasher = Crasher("a", 1, record=folder / "points", armed={}, announce=lambda: None)
    done = threading.Event()

    def pass_points() -> None:
        while not done.is_set():
            crasher.passes(When.AFTER, Step.TRY)

    thread = threading.Thread(target=pass_points)
    thread.start()
    try:
        yield crasher
    finally:
        done.set()
        thread.join()


def hangs(crasher: Crasher, fork: Callable[[], int]) -> bool:
    """Whether one of many drivers has hung at its first point."""
    for _ in range(50):
        pid = fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # and not pytest's
            signal.alarm(8)
            crasher.passes(When.AFTER, Step.SUBMIT)
            os._exit(0)
        if os.waitpid(pid, 0)[1] != 0:
            return True
    return False


@pytest.mark.slow
def test_a_driver_that_is_forked_while_another_thread_is_at_a_point_goes_on(tmp_path: Path) -> None:
    with busy_crasher(tmp_path) as crasher:
        assert not hangs(crasher, crasher.fork)


@pytest.mark.slow
def test_control_a_plain_fork_copies_the_lock_that_nobody_lets_go(tmp_path: Path) -> None:
    with busy_crasher(tmp_path) as crasher:
        assert hangs(crasher, os.fork)


def test_a_run_and_a_failover_pass_every_named_point(setup):
    """Those of a run, and those of a failover; a fence is passed after a crash."""
    found = {
        (point.point.when.value, point.point.step)
        for scenario in Scenario
        for point in CrashLoop(setup(scenario=scenario)).points()
    }
    both = {Step.PLAN, Step.CLAIM, Step.RESULT, Step.FINISH, Step.FINAL_CHECK, Step.DECISION, Step.LOST, Step.CLEAR}
    both |= {Step.RELEASE, Step.DELETE, Step.PUBLISH, Step.FLUSH, Step.REPORT, Step.SUBMIT}
    assert found >= {(when.value, step) for when in When for step in both}
    assert found >= {("after", Step.TRY), ("after", Step.APPLICATION), ("before", Step.PROBE)}


@pytest.mark.slow
def test_fault_1_to_7_a_kill_at_every_point_that_leaves_another_state(setup):
    loop = CrashLoop(setup())
    points = distinct(loop.points())
    loop.crash_all((point,) for point in points)
    assert loop.tally.crashes == len(points) > 30


@pytest.mark.slow
def test_fault_46_a_kill_at_every_point_of_a_failover_s_decision(setup):
    """A report, the wake-up, the moment before and after; and at some points of what the failover has run again."""
    loop = CrashLoop(setup(scenario=Scenario.LOSS))
    points = distinct(loop.points())
    deciding = [point for point in points if (point.task, point.try_number) == ("goal", 2)]
    assert {point.step for point in deciding} >= {Step.LOST, Step.CLEAR}
    loop.crash_all((point,) for point in deciding)
    again = [point for point in points if point not in deciding]
    loop.crash_all((point,) for point in again[::4])
    assert loop.tally.crashes == len(deciding) + len(again[::4])


@pytest.mark.slow
def test_a_kill_and_a_freeze_at_every_step_of_a_commit(setup):
    """A token sink is rolled forward; where a probe-only one is in doubt, a person makes sure, and confirms."""
    loop = CrashLoop(setup(LEDGERS))
    points = [each for each in distinct(loop.points()) if each.step in (Step.COMMIT, Step.COMMITTED)]
    assert {point.task for point in points} == {"replaced", "probed"}
    loop.crash_all((point,) for point in points)
    loop.crash_all(((point,) for point in points), harm=Harm.FREEZE)
    doubtful = loop.crash(*at("task of probed try 1, before commit 1"))
    assert "ann confirms that epoch 1 of probed@1 is dead" in doubtful.events


@pytest.mark.slow
def test_fault_56_a_kill_around_every_commit_of_a_batch_once_and_twice(setup):
    """Whatever was committed counts once, and nothing is missing: the checker's I14, and the published rows."""
    loop = CrashLoop(setup(DAILIES))
    points = [each for each in distinct(loop.points()) if (each.task, each.victim) == ("days", Victim.TASK)]
    batches = [point for point in points if point.step is Step.BATCH]
    assert batches
    assert {point.step for point in points} >= {Step.CLAIM, Step.RESULT, Step.BATCH, Step.FINISH}
    loop.crash_all((point,) for point in points if point.step in (Step.BATCH, Step.FINISH))
    loop.crash(*at(batches[0].text, batches[0].text.replace("try 1", "try 2")))
    loop.crash(batches[-1], harm=Harm.FREEZE)


@pytest.mark.slow
def test_splits_that_are_committed_are_not_read_again(setup):
    course = CrashLoop(setup(DAILIES)).crash(*at("task of days try 1, after batch 2"))
    again = [each.point for each in course.passed if (each.point.task, each.point.try_number) == ("days", 2)]
    assert {point.count for point in again if point.step is Step.BATCH} == {1}
    assert course.started == {"days": 2, "months": 1}


@pytest.mark.slow
@pytest.mark.s3
def test_fault_7_fault_11_with_journal_and_results_behind_http(start_s3_server, s3_server_names, monkeypatch):
    server: S3Server = start_s3_server(s3_server_names[-1])
    server.create_bucket("crashes")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint_url)
    root = f"s3://crashes/{uuid.uuid4().hex}"
    tally = crash_test(RELAY, root=root, scenarios=[Scenario.LOSS], singles=2, frozen=1, pairs=0, seed=4)
    assert tally.crashes == 3


@pytest.mark.drill
def test_fault_8_a_second_kill_while_recovering_from_the_first(tmp_path):
    tally = crash_test(EXAMPLE, root=f"file://{tmp_path}", singles=0, frozen=0, pairs=4, seed=1)
    assert tally.crashes >= 16


@pytest.mark.slow
def test_fault_11_fault_14_a_frozen_task_wakes_when_all_is_green(setup):
    """Wherever it stood: what it still wants to write, or to report, is refused. The drill has all points."""
    loop = CrashLoop(setup())
    points = [each for each in distinct(loop.points()) if each.victim is Victim.TASK][::2]
    loop.crash_all(((point,) for point in points), harm=Harm.FREEZE)
    assert loop.tally.crashes == len(points) > 10


@pytest.mark.slow
def test_fault_6_what_was_finished_is_not_started_again(setup):
    course = CrashLoop(setup()).crash(*at("task of baton try 1, before report 1"))
    assert course.started == {"baton": 1, "goal": 1}


@pytest.mark.slow
def test_fault_3_a_task_whose_driver_has_finished_is_not_started_again(setup):
    course = CrashLoop(setup()).crash(*at("task of baton try 1, after finish 1"))
    assert course.started == {"baton": 1, "goal": 1}


@pytest.mark.slow
def test_fault_4_results_without_a_finish_are_made_again(setup):
    course = CrashLoop(setup()).crash(*at("task of baton try 1, before finish 1"))
    assert course.started == {"baton": 2, "goal": 1}
    assert course.finished == {"baton": 1, "goal": 1}


# with a protection off, the loop finds it


def finds(loop: CrashLoop, what: str, *crashes: str, harm: Harm = Harm.KILL) -> None:
    assert loop.undisturbed.finished, "without a crash nobody notices"
    with pytest.raises(Violation, match=what) as error:
        loop.crash(*at(*crashes), harm=harm)
    assert re.search("Again: python -m airflow_recovery.testing.crash_kit .* --crash 'task of ", str(error.value))


@pytest.mark.slow
def test_without_the_fence_an_attempt_is_claimed_beside_an_open_one(setup, monkeypatch):
    monkeypatch.setattr(RegionState, "open_attempt", property(lambda self: None))
    finds(CrashLoop(setup()), "I2 is violated", "task of baton try 1, after claim 1")


@pytest.mark.slow
def test_adopted_blindly_a_dead_attempt_passes_for_a_result(setup, monkeypatch):
    def adopts(self, state, externals):
        opened = state.of(self._region).open_attempt
        if opened is None:
            return act_on(self, state, externals)
        return RegionResult(self._region, Decision.KEPT, opened.number, "its files are there", None)

    act_on = RegionTask._act_on
    monkeypatch.setattr(RegionTask, "_act_on", adopts)
    finds(CrashLoop(setup()), "storm|stuck|is open", "task of goal try 1, after result 2")


@pytest.mark.slow
def test_without_conditional_writes_a_zombie_finishes_what_was_fenced(setup, monkeypatch):
    monkeypatch.setattr(LocalStore, "put_if_absent", LocalStore.put)
    monkeypatch.setattr("airflow_recovery.testing.crash_kit.task_process.probe", lambda store: None)
    finds(CrashLoop(setup()), "I[1-7]", "task of baton try 1, before finish 1", harm=Harm.FREEZE)


@pytest.mark.slow
def test_fault_8_a_fence_of_the_last_try_alone_survives_one_crash_and_not_two(setup, monkeypatch):
    """Whoever looks back by one try only misses the attempt whose fence was killed, too."""

    def of_the_last_try(self):
        opened = open_attempt(self)
        is_older = opened is not None and opened.claim is not None and opened.claim.try_number < present[-1] - 1
        return None if is_older else opened

    def execute(self):
        present.append(self._run.task.try_number)
        return real_execute(self)

    present = [0]
    open_attempt, real_execute = cast(Any, RegionState.open_attempt).func, RegionTask.execute
    monkeypatch.setattr(RegionState, "open_attempt", property(of_the_last_try))
    monkeypatch.setattr(RegionTask, "execute", execute)
    loop = CrashLoop(setup())
    loop.crash(*at(FENCED_TWICE[0]))
    finds(loop, "I2 is violated", *FENCED_TWICE)


@pytest.mark.slow
def test_where_finished_regions_are_not_looked_for_they_run_again(setup, monkeypatch):
    evaluate = region_task.RegionTask._act_on

    def never_keeps(self, state, externals):
        mine = state.of(self._region)
        if mine.current is None or self._run.task.try_number == 1:
            return evaluate(self, state, externals)
        return self._run_attempt(state, {}, externals)

    monkeypatch.setattr(RegionTask, "_act_on", never_keeps)
    finds(CrashLoop(setup()), "I7", "task of baton try 1, before report 1")


@pytest.mark.slow
def test_where_who_finds_a_dead_attempt_dies_of_it_the_run_never_ends(setup, monkeypatch):
    def refuses(*args):
        raise previous_attempt.AttemptLost("somebody else's")

    monkeypatch.setattr(region_task, "fence_previous_attempt", refuses)
    finds(CrashLoop(setup()), "storm", "task of baton try 1, after claim 1")


@pytest.mark.slow
def test_rolled_forward_without_a_probe_a_sink_is_committed_twice(setup, monkeypatch):
    monkeypatch.setattr(region_task, "roll_forward", lambda run, prepared, *more: commit_own(run, prepared.outcome))
    finds(CrashLoop(setup(LEDGERS)), "I10", "task of probed try 1, after commit 1")


# the command line


@pytest.mark.slow
def test_the_command_line_lists_points_and_replays_one(capsys):
    assert main([RELAY, "--list"]) == 0
    listed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert FENCED_TWICE[0] in listed
    assert main([RELAY, *(word for each in FENCED_TWICE for word in ("--crash", each))]) == 0
    assert "baton try 2 is dead" in capsys.readouterr().out
    assert main([RELAY, "--singles", "1", "--frozen", "0", "--pairs", "0", "--scenario", "run"]) == 0
    assert "2 runs with 1 crashes without a violation" in capsys.readouterr().out
    assert main(["crash_jobs:no_such_job"]) == 2


@pytest.mark.slow
def test_the_command_line_tells_of_a_violation(capsys, monkeypatch):
    monkeypatch.setattr(RegionState, "open_attempt", property(lambda self: None))
    assert main([RELAY, "--crash", FENCED_TWICE[0]]) == 1
    assert "VIOLATION, " in capsys.readouterr().err
