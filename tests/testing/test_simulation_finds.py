"""Negative controls: with one protection switched off, the simulation finds the bug, and says which.

The numbers are those of docs/protocol.md#crash-cases. Not here: the heartbeats of 10, see `test_simulated_drivers`; and
11, since no schedule was found in which that rule alone matters: a process asks Airflow before it claims, and fences
what it finds open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from scripted import Scripted, before_a_listing, to_its_end
from simulated_controls import MOST, SAFE, as_if_new, finds

from airflow_recovery.attempt import clear_producers as wake
from airflow_recovery.attempt import commit, region_task
from airflow_recovery.attempt import final_check as final_check
from airflow_recovery.attempt.region_task import Decision, RegionResult, RegionTask
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, StoreTimeout, StoreUnavailable
from airflow_recovery.journal import journal as journal_module
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.records import AttemptState, Reset
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Why
from airflow_recovery.results import readers
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.store.write_once import Written, write_once
from airflow_recovery.testing.fake_airflow import FakeClearClient
from airflow_recovery.testing.simulation import (
    TOPOLOGIES,
    Settings,
    Trouble,
    Violation,
    job_of,
    simulate,
    visitors,
)
from airflow_recovery.testing.simulation.jobs import IDENTITY, with_sinks
from airflow_recovery.testing.simulation.memory import SimulatedJournal
from airflow_recovery.testing.simulation.schedule import Schedule

SOLO: dict[str, tuple[str, ...]] = {"P": ()}
PAIR, CHAIN, FAN_OUT = TOPOLOGIES["pair"], TOPOLOGIES["chain"], TOPOLOGIES["fan-out"]


@pytest.fixture
def broken(monkeypatch):
    """``broken(settings, what, (owner, name, value)...)``: green with the protection, `finds` without it."""

    def check(
        settings: Settings, what: str, *off: tuple[object, str, object], most: int = MOST, start: int = 0
    ) -> None:
        for seed in range(SAFE):
            simulate(seed, settings)
        for owner, name, value in off:
            monkeypatch.setattr(owner, name, value)
        finds(settings, what, most, start=start)

    return check


def alone(upstream: dict[str, tuple[str, ...]], troubles: dict[Trouble, int], **given: object) -> Settings:
    """Without a publish, which would repair what the regions get wrong."""
    return Settings(job_of(upstream), troubles, publishes=False, **given)  # type: ignore[arg-type]


# A process asks Airflow before it claims: that alone keeps most zombies out, and hides what else does.
NO_LIVE_CHECK = (FakeClearClient, "live_check", lambda self: self._gate("live check"))


def no_final_check(run: Run, region: str, attempt: int) -> None:
    pass


def test_1_without_the_final_check_green_is_false(broken):
    broken(alone(PAIR, {Trouble.RESTART: 1}), "false green", (region_task, "final_check", no_final_check))


@pytest.mark.slow
def test_2_where_the_final_check_spares_running_tasks_green_is_false(broken):
    two_restarts = alone(PAIR, {Trouble.RESTART: 2})
    broken(two_restarts, "false green", (final_check, "RUNNING_STATES", frozenset()), start=600)


def case_3() -> Scripted:
    """C is green on P@1. A zombie of it, which waited before its first listing, claims C@2 on P@2 and stalls."""

    def restarts_p(schedule: Schedule) -> None:
        world = schedule.world
        journal = SimulatedJournal(world.journal_store, IDENTITY, writer="user", listener=world.listener())
        journal.reset(Reset("P", 1, "user", "asked for"))
        world.airflow.clear("P")
        schedule.was_promised("P", 1)

    def p_checks(request: str) -> bool:
        return script.world.ledger.regions["P"].has_finished(2) and before_a_listing(request)

    def c_is_claimed(request: str) -> bool:
        return 2 in script.world.ledger.regions["C"].claims

    script = Scripted(
        alone(PAIR, {}, detached_share=0.0),
        *("P", ("P try 1", to_its_end), "C", ("C try 1", before_a_listing)),
        lambda schedule: schedule.world.airflow.lose_heartbeat("C"),
        *("C", ("C try 2", to_its_end), restarts_p, "P", ("P try 2", p_checks)),
        *(("C try 1", c_is_claimed), ("P try 2", to_its_end)),
    )
    return script


def test_3_where_a_zombies_open_claim_is_taken_for_the_tasks_own(monkeypatch):
    """Too rare to wait for: the schedule's beginning is the one that the model of the protocol has found."""
    monkeypatch.setattr(*NO_LIVE_CHECK)
    case_3().run()
    basis = Evaluation.basis
    monkeypatch.setattr(Evaluation, "basis", lambda self, region, ti_id: basis(self, region, None))
    with pytest.raises(Violation, match="false green: the results rest on P@1, which was reset"):
        case_3().run()


def test_4_where_a_consumers_report_resets_its_producer(broken):
    def with_authority(run, evaluation, caller, lost, observation):
        for region in lost:
            current = evaluation.current(region)
            if current is not None:
                run.journal.reset(Reset(region, current.number, caller, "lost"))
        return clear_producers(run, evaluation, caller, lost, observation)

    clear_producers = wake.clear_producers
    broken(alone(PAIR, {Trouble.DELETE: 1}), "I5: P@1 was reset by C", (wake, "clear_producers", with_authority))


@pytest.mark.slow
def test_5_where_the_try_is_that_of_the_finish_record_nobody_is_ever_woken(broken):
    def of_the_record(self, observation):
        state = self.journal.load(self.list())
        found = tries(self, observation)
        for region, each in found.items():
            current = state.of(region).current
            if current is not None:
                found[region] = replace(each, ti_id=self.journal.read_claim(region, current.number).ti_id)
        return found

    tries = Run.tries
    broken(alone(CHAIN, {Trouble.CLEAR_ALL: 1, Trouble.DELETE: 1}), "storm", (Run, "tries", of_the_record))


def test_6_where_wanted_is_not_recursive_a_released_input_is_never_made(broken):
    def not_recursive(self, name, is_read):
        is_wanted = self._regions[name].final or any(
            self.invalid_because(consumer) is not None for consumer in self.edges.readers(name)
        )
        return self._regions[name].results if is_wanted else ()

    broken(
        Settings(job_of(CHAIN), {Trouble.SWEEP: 1, Trouble.DELETE: 1}),
        "does not see the result of P@1",
        (Evaluation, "_wanted", not_recursive),
    )


def test_7_where_kept_needs_all_its_outputs_a_release_makes_them_again(broken):
    settings = alone(PAIR, {Trouble.SWEEP: 1}, max_attempts={"P": 1})
    broken(settings, "waste: P", (Evaluation, "_wanted", lambda self, name, is_read: self._regions[name].results))


@pytest.mark.slow
def test_8_where_a_finish_found_while_fencing_is_adopted_blindly(broken):
    def adopts(self, state, externals):
        opened = state.of(self._region).open_attempt
        if opened is None:
            return act_on(self, state, externals)
        self._fence_previous_attempt(state, opened)
        outcome = self._run.journal.read_outcome(self._region, opened.number)
        if outcome.state is AttemptState.FENCED:
            return None
        return RegionResult(self._region, Decision.KEPT, opened.number, "found", outcome)

    act_on = RegionTask._act_on
    # The final check alone would catch it.
    off = (region_task, "final_check", no_final_check), (RegionTask, "_act_on", adopts)
    broken(alone(SOLO, {Trouble.RESTART: 1, Trouble.HEARTBEAT: 1}), "was not done", *off, start=900)


@pytest.mark.slow
def test_9_without_comparing_tries_the_producer_runs_more_than_once():
    settings = Settings(job_of(FAN_OUT), {Trouble.DELETE: 1}, max_attempts={"P": 2})
    for seed in range(SAFE):
        simulate(seed, settings)
    finds(replace(settings, compares=False), "waste: P")


@pytest.mark.slow
def test_10_where_a_loser_of_a_claim_fights_back(broken):
    def fights(self, state, *others):
        try:
            return claim(self, state, *others)
        except AttemptLost:
            opened = self._run.journal.load(self._run.list()).of(self._region).open_attempt
            if opened is not None:
                self._fence_previous_attempt(state, opened)
            return fights(self, self._run.journal.load(self._run.list()), *others)

    claim = RegionTask._claim
    off = NO_LIVE_CHECK, (RegionTask, "_claim", fights)
    broken(alone(SOLO, {Trouble.HEARTBEAT: 1}), "I7: P@2 was claimed without a cause", *off)


@pytest.mark.slow
def test_12_without_the_sweepers_second_look_a_reader_loses_its_input(broken):
    settings = Settings(job_of(PAIR), {Trouble.SWEEP: 2, Trouble.DELETE: 1, Trouble.CLEAR_ALL: 1})
    broken(settings, "I8", (readers.Readers, "of", lambda self, region, *numbers: []))


@pytest.mark.slow
def test_13_where_a_users_restart_clears_only_what_has_finished(broken):
    def if_finished(schedule: Schedule, regions: Iterable[str]) -> None:
        for name in regions:
            if schedule.world.airflow.state(name) == "success":
                schedule.world.airflow.clear(name)

    broken(alone(SOLO, {Trouble.RESTART: 1}), "was not done", (visitors, "clear_for_restart", if_finished))


def test_16_where_an_unknown_outcome_of_a_write_is_taken_for_success(broken):
    def gives_up(store, key, body, **settings):
        try:
            return write_once(store, key, body, **{**settings, "deadline_s": -1.0})
        except (StoreTimeout, StoreUnavailable):
            return Written(ObjectInfo(key, len(body), ""), created=True)

    settings = alone(PAIR, {Trouble.HEARTBEAT: 1}, store_faults=6)
    broken(settings, "I", (journal_module, "write_once", gives_up))


def test_17_without_the_tombstone_attempts_begin_at_one_again(broken):
    settings = alone(CHAIN, {Trouble.PURGE: 1, Trouble.HEARTBEAT: 1})
    broken(settings, "", (Run, "list", lambda self: as_if_new(self.journal, self.regions)))


def test_without_the_fence_an_attempt_is_claimed_beside_an_open_one(broken):
    off = RegionState, "open_attempt", property(lambda self: None)
    broken(alone(PAIR, {Trouble.HEARTBEAT: 1}), "I2", off)


@pytest.mark.slow
def test_without_conditional_writes_an_outcome_is_overwritten():
    settings = replace(alone(PAIR, {Trouble.HEARTBEAT: 1}), is_conditional=False)
    finds(settings, "I1")


def test_fault_21_where_every_412_is_a_lost_race(broken):
    def never_mine(store, key, body, *, is_mine, **settings):
        return write_once(store, key, body, is_mine=lambda found: False, **settings)

    settings = Settings(job_of(PAIR), store_faults=10, max_attempts={"P": 1, "C": 1})
    broken(settings, "waste", (journal_module, "write_once", never_mine))


def test_fault_51_where_verify_takes_any_digest_for_equal(broken):
    job = job_of(PAIR, {"P": Determinism.VERIFY}, unstable="P")
    settings = Settings(job, {Trouble.RESTART: 1}, publishes=False)
    broken(settings, "false green", (Evaluation, "why_superseded", lambda self, consumer, pin: None))


@pytest.mark.slow
def test_fault_61_where_fingerprints_are_not_compared_old_code_stays(broken):
    def same_code(self, *given):
        reason = evaluate(self, *given)
        return None if reason is not None and reason.why is Why.CODE_CHANGED else reason

    evaluate = Evaluation._evaluate_alone
    settings = Settings(job_of(PAIR), {Trouble.DEPLOY: 1})
    broken(settings, "undisturbed run", (Evaluation, "_evaluate_alone", same_code))


def test_where_nobody_says_what_a_dead_process_has_left_the_history_has_a_hole(broken):
    settings = Settings(job_of(PAIR), {Trouble.HEARTBEAT: 1})
    broken(settings, "I11: the history is not the journal's", (Journal, "noticed", lambda self, record: None))


# sinks (docs/protocol.md#commits)


def sink(kind: CommitKind, mode: CommitMode, troubles: dict[Trouble, int]) -> Settings:
    return Settings(with_sinks(job_of(SOLO), {"P": (kind, mode)}), troubles, publishes=False)


@pytest.mark.slow
def test_14_where_a_finish_is_not_rolled_forward_two_attempts_commit(broken):
    def of_what_counts(self):
        return self.current if self.current is not None and self.current.is_prepared else None

    off = RegionState, "prepared_attempt", property(of_what_counts)
    settings = sink(CommitKind.PROBE_ONLY, CommitMode.APPEND, {Trouble.RESTART: 1, Trouble.HEARTBEAT: 1})
    broken(settings, "I10: P@2 was appended to its sink, which has P@1", off)


@pytest.mark.slow
def test_15_where_nothing_is_in_doubt_a_zombie_commits_too(broken):
    off = commit._Commit, "_is_dead", True
    settings = sink(CommitKind.PROBE_ONLY, CommitMode.APPEND, {Trouble.HEARTBEAT: 1})
    broken(settings, "I10: P@1 was committed to its sink twice", off)


def test_without_committed_success_is_reported_before_the_sink_holds_it(broken):
    off = (region_task, "commit_own", lambda run, outcome: None)
    broken(sink(CommitKind.TOKEN, CommitMode.REPLACE, {}), "nothing says that it was committed", off)


@pytest.mark.slow
def test_where_a_sink_that_appends_runs_again_its_rows_are_there_twice(broken):
    off = (region_task, "check_not_appended", lambda run, region, state: None)
    settings = sink(CommitKind.PROBE_ONLY, CommitMode.APPEND, {Trouble.RESTART: 1})
    broken(settings, "I10: P@2 was appended to its sink, which has P@1", off)
