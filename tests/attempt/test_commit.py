"""Sinks, killed before every request that a try makes, with the old process dead or alive.

See docs/protocol.md#commits.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from expected_errors import fails_with
from fakes import PAIR, Hooks, Killed, Process
from sink_world import SINK, SinkWorld, Steps, sink_world

from airflow_recovery.attempt import commit, region_task
from airflow_recovery.attempt.rebuild import finished_tasks
from airflow_recovery.errors import (
    AppendedAlready,
    AttemptLost,
    Overtaken,
    SinkInDoubt,
    SinkNotApplied,
    SinkRefused,
    SinkUnavailable,
    SinkUnreadable,
    kind_of,
)
from airflow_recovery.journal.events import RegionKept
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.replay import EventFold, differences
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import CommitEnd, CommitterEpoch
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import Action, Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.sinks.committer import FoundRows, Rows
from airflow_recovery.testing.fake_sink import FakeTarget

TOKEN, PROBE_ONLY = CommitKind.TOKEN, CommitKind.PROBE_ONLY
APPEND, REPLACE = CommitMode.APPEND, CommitMode.REPLACE
KINDS = [(TOKEN, APPEND), (TOKEN, REPLACE), (PROBE_ONLY, APPEND), (PROBE_ONLY, REPLACE)]
every_kind = pytest.mark.parametrize(("kind", "mode"), KINDS)


def requests_of_a_try(kind: CommitKind, mode: CommitMode) -> list[str]:
    world, steps = sink_world(kind, mode), Steps(0, lambda: None)
    assert world.try_sink(Process(steps)) is None
    return steps.seen


def committed(world: SinkWorld, number: int) -> CommitEnd | None:
    found = world.state().of(SINK).attempts[number].committed
    return found.end if found is not None else None


def planned(world: SinkWorld) -> Plan:
    return plan(world.plan, world.state(), lambda *asked: None)


# undisturbed


@every_kind
def test_success_needs_committed(kind, mode):
    world = sink_world(kind, mode)
    assert world.try_sink() is None
    assert world.target.applied == [(SINK, 1)]
    assert committed(world, 1) is CommitEnd.COMMITTED
    assert world.airflow.state(SINK) == "success"


def test_the_commit_comes_after_the_finish_and_before_success():
    seen = requests_of_a_try(TOKEN, APPEND)
    kinds = [request.rpartition(".")[2] for request in seen if request.startswith("PUT") and "/t/" in request]
    assert kinds == ["claim", "outcome", "committed"]
    at = next(n for n, each in enumerate(seen) if each.startswith("sink: commit"))
    assert seen[at - 1].endswith(".outcome")


@every_kind
def test_what_is_committed_is_kept_and_not_committed_twice(kind, mode):
    world = sink_world(kind, mode)
    world.try_sink()
    world.airflow.clear(SINK)
    assert world.try_sink() is None
    assert world.target.applied == [(SINK, 1)]
    assert world.attempts(SINK) == 1


# killed before each request


@every_kind
def test_fault_12_killed_before_every_request_it_is_committed_once(kind, mode):
    for at in range(1, len(requests_of_a_try(kind, mode)) + 1):
        world, process = sink_world(kind, mode), Process()
        process.gate = Steps(at, process.kill)
        assert isinstance(world.try_sink(process), Killed)
        world.until_committed()
        assert len(world.visible) == 1, f"step {at}: {world.target.applied}"
        assert world.target.applied.count((SINK, world.visible[0])) == 1
        assert committed(world, world.current(SINK)) is CommitEnd.COMMITTED


@every_kind
def test_case_14_with_the_zombie_alive_at_every_request_it_is_committed_once(kind, mode):
    """The old process stands before its k-th request while its successor does all it may, and then goes on."""
    for at in range(1, len(requests_of_a_try(kind, mode)) + 1):
        world = sink_world(kind, mode)

        def successor(world=world):
            if world.airflow.state(SINK) == "running":
                world.airflow.lose_heartbeat(SINK)
                error = world.try_sink()
                assert error is None or (kind is PROBE_ONLY and isinstance(error, SinkInDoubt)), error

        world.try_sink(Process(Steps(at, successor)))
        # The zombie has gone on to its end. Nobody has confirmed anything that was not so.
        world.until_committed() if world.airflow.state(SINK) != "success" else None
        assert len(world.visible) == 1, f"step {at}: {world.target.applied}"
        assert world.target.applied.count((SINK, world.visible[0])) == 1
        assert committed(world, world.current(SINK)) is CommitEnd.COMMITTED


@pytest.mark.parametrize("mode", [APPEND, REPLACE])
def test_case_15_not_applied_while_the_old_process_may_live_is_in_doubt(mode):
    world, process = sink_world(PROBE_ONLY, mode), Process()
    error: list[object] = []

    def meanwhile(request: str) -> None:
        if request.startswith("sink: commit"):
            world.airflow.lose_heartbeat(SINK)
            error.append(world.try_sink())

    process.gate = meanwhile
    world.try_sink(process)
    assert isinstance(error[0], SinkInDoubt)
    assert kind_of(error[0]).is_final
    for said in ("C@1", "NOT_APPLIED", "airflow recovery confirm dag", "may still commit"):
        assert said in str(error[0])
    # Here it did live, and has done it; the next try only has to ask.
    assert world.until_committed() == ["NoneType"]
    assert world.target.applied == [(SINK, 1)]


def test_case_15_control_without_the_doubt_both_commit(monkeypatch):
    monkeypatch.setattr(commit._Commit, "_is_dead", True)
    world = sink_world(PROBE_ONLY)

    def meanwhile(request: str) -> None:
        if request.startswith("sink: commit") and not world.target.applied:
            world.airflow.lose_heartbeat(SINK)
            assert world.try_sink() is None

    zombie = Process(meanwhile)
    world.try_sink(zombie)
    assert world.target.applied == [(SINK, 1), (SINK, 1)]


def test_case_14_control_where_a_finish_is_not_rolled_forward_a_second_attempt_commits_too(monkeypatch):
    """A user resets a prepared attempt while its process stands before the commit."""

    def drive() -> SinkWorld:
        world = sink_world(TOKEN, APPEND)
        world.target.refuses = False

        def meanwhile(request: str) -> None:
            if request.startswith("sink: commit C@1") and world.airflow.state(SINK) == "running":
                world.restart(SINK)
                world.try_sink()

        world.try_sink(Process(meanwhile))
        return world

    assert drive().target.applied == [(SINK, 1)]
    monkeypatch.setattr(RegionState, "prepared_attempt", None)
    assert drive().target.applied == [(SINK, 2), (SINK, 1)]


# a person confirms


def killed_before(world: SinkWorld, what: str) -> None:
    process = Process()
    process.gate = lambda request: process.kill() if request.startswith(what) else None
    assert isinstance(world.try_sink(process), Killed)


def test_after_a_confirmation_one_process_goes_on_without_spark():
    world = sink_world(PROBE_ONLY)
    killed_before(world, "sink: commit")
    assert world.until_committed() == ["SinkInDoubt", "NoneType"]
    assert world.ran.count((SINK, 1)) == 1
    assert world.target.applied == [(SINK, 1)]


def test_a_confirmation_is_used_up_by_the_one_who_takes_the_commit():
    world = sink_world(PROBE_ONLY)
    killed_before(world, "sink: commit")
    assert isinstance(world.try_sink(), SinkInDoubt)
    world.confirm()
    killed_before(world, "sink: commit")  # the second one as well
    assert isinstance(world.try_sink(), SinkInDoubt)
    assert "epoch 2" in str(world.try_sink())
    assert world.until_committed() == ["SinkInDoubt", "NoneType"]
    assert world.state().of(SINK).attempts[1].committer_epoch == 3
    assert world.target.applied == [(SINK, 1)]


def test_of_two_that_see_one_confirmation_one_takes_the_commit():
    world = sink_world(PROBE_ONLY)
    killed_before(world, "sink: commit")
    world.confirm()
    seen = world.state()
    world.journal(writer="other").take_commit(CommitterEpoch(SINK, 1, 2, "other"))
    run = world.run(world.airflow.start(SINK), Process(), "late")
    with fails_with("written-first"):
        commit.roll_forward(run, seen.of(SINK).prepared_attempt, seen.of(SINK), lambda: None)
    assert world.target.applied == []


def after_a_confirmation_two_go_on() -> SinkWorld:
    """The first of them stands before its commit while the second does all it may."""
    world = sink_world(PROBE_ONLY)
    killed_before(world, "sink: commit")
    world.confirm()
    second: list[object] = []

    def meanwhile(request: str) -> None:
        if request.startswith("sink: commit") and not second:
            world.airflow.lose_heartbeat(SINK)
            second.append(world.try_sink())

    world.try_sink(Process(meanwhile))
    return world


def test_case_15_a_confirmation_is_of_one_process_alone(monkeypatch):
    assert after_a_confirmation_two_go_on().target.applied == [(SINK, 1)]
    # The control: without epochs both take it for theirs.
    monkeypatch.setattr(Journal, "take_commit", lambda self, epoch: None)
    assert after_a_confirmation_two_go_on().target.applied == [(SINK, 1), (SINK, 1)]


def test_there_is_nothing_to_confirm_where_nothing_is_prepared():
    world = sink_world(PROBE_ONLY)
    with fails_with("nothing-to-confirm"):
        world.confirm()


def test_a_commit_that_certainly_did_nothing_is_tried_again_by_itself(monkeypatch):
    world = sink_world(PROBE_ONLY)
    apply = FakeTarget.apply
    failures = [SinkNotApplied("refused at once")]

    def refuses(self, token, spec):
        if failures:
            raise failures.pop()
        apply(self, token, spec)

    monkeypatch.setattr(FakeTarget, "apply", refuses)
    assert isinstance(world.try_sink(), SinkNotApplied)
    assert world.try_sink() is None
    assert world.target.applied == [(SINK, 1)]


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_without_an_answer_is_decided_by_the_probe(monkeypatch, happened):
    world = sink_world(PROBE_ONLY)
    apply = FakeTarget.apply

    def without_answer(self, token, spec):
        if happened:
            apply(self, token, spec)
        raise SinkUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(FakeTarget, "apply", without_answer)
        assert isinstance(world.try_sink(), SinkUnavailable)
    error = world.try_sink()
    assert error is None if happened else isinstance(error, SinkInDoubt)


# again


def test_a_sink_that_appends_never_runs_again_once_it_has_committed():
    world = sink_world(TOKEN, APPEND)
    world.try_sink()
    world.restart(SINK)
    error = world.try_sink()
    assert isinstance(error, AppendedAlready)
    assert kind_of(error).is_final
    assert "attempt 1" in str(error)
    assert "its sink appends and holds attempt 1, unless its rows were removed (not asked)" in plan_text(planned(world))
    assert world.attempts(SINK) == 1
    # A person has removed the rows and the token.
    world.target.undo(SINK)
    assert world.try_sink() is None
    assert world.visible == [2]


def rows_undone_for_code_that_then_fails_and_is_rolled_back(kind: CommitKind) -> SinkWorld:
    """Code 2 would append twice; a person removes the rows, as is asked for; code 2 fails; code 1 comes back."""
    world = sink_world(kind, APPEND)
    world.try_sink()
    world.fingerprints[SINK] = "code 2"
    world.airflow.clear(SINK)
    assert isinstance(world.try_sink(), AppendedAlready)
    world.target.undo(SINK)
    process = Process()
    process.gate = lambda request: process.kill() if request.endswith("00000002.outcome") else None
    assert isinstance(world.try_sink(process), Killed)
    assert world.visible == []
    world.fingerprints[SINK] = "code 1"
    world.airflow.clear(SINK)
    assert world.try_sink() is None
    return world


@pytest.mark.parametrize("kind", [TOKEN, PROBE_ONLY])
def test_fault_176_rows_that_a_person_removed_count_no_more_when_their_code_comes_back(kind):
    world = rows_undone_for_code_that_then_fails_and_is_rolled_back(kind)
    assert world.visible == [3]


@pytest.mark.parametrize("kind", [TOKEN, PROBE_ONLY])
def test_fault_176_control_where_the_removal_is_not_recorded_the_region_is_green_and_its_sink_empty(kind, monkeypatch):
    monkeypatch.setattr(commit, "_record_removal", lambda *given: None)
    monkeypatch.setattr(region_task, "check_not_appended", lambda *given: commit.check_not_appended(*given) and False)
    monkeypatch.setattr(region_task, "keep_rows", lambda *given: "")
    world = rows_undone_for_code_that_then_fails_and_is_rolled_back(kind)
    assert world.visible == []
    assert world.airflow.state(SINK) == "success"


def committed_after_the_listing() -> tuple[SinkWorld, BaseException | None]:
    world = sink_world(TOKEN, APPEND)
    seen: list[str] = []

    def commits_meanwhile(request: str) -> None:
        if request.startswith("sink: held") and not seen:
            seen.append(request)
            world.airflow.lose_heartbeat(SINK)
            assert world.try_sink() is None

    error = world.try_sink(Process(gate=commits_meanwhile))
    assert seen
    assert world.visible == [1]
    return world, error


def test_what_was_committed_after_the_listing_is_not_told_of_as_another_journals():
    """Else a person is asked to remove rows that count, and that nothing would write again."""
    world, error = committed_after_the_listing()
    assert isinstance(error, Overtaken)
    assert not kind_of(error).is_final
    assert world.airflow.state(SINK) == "success"


def test_control_where_the_journal_is_not_listed_again_a_person_is_asked_to_remove_what_counts(monkeypatch):
    monkeypatch.setattr(commit, "_check_as_listed", lambda run, region, mine: None)
    _, error = committed_after_the_listing()
    assert isinstance(error, AppendedAlready)
    assert "which this journal does not know" in str(error)


def test_control_without_the_check_the_rows_are_there_twice(monkeypatch):
    monkeypatch.setattr(region_task, "check_not_appended", lambda run, region, state: None)
    world = sink_world(TOKEN, APPEND)
    world.target.refuses = False
    world.try_sink()
    world.restart(SINK)
    assert world.try_sink() is None
    assert world.visible == [1, 2]


def test_an_input_that_was_made_again_stops_a_sink_that_has_appended():
    world = sink_world(TOKEN, APPEND)
    world.try_sink()
    world.restart("P")
    with pytest.raises(AppendedAlready):
        world.go("P"), world.go(SINK)


def test_a_sink_that_replaces_commits_the_next_attempt_over_the_first():
    world = sink_world(TOKEN, REPLACE)
    world.try_sink()
    world.restart(SINK)
    assert world.try_sink() is None
    assert world.target.applied == [(SINK, 1), (SINK, 2)]
    assert world.visible == [2]


def test_the_target_refuses_a_lower_attempt():
    world = sink_world(TOKEN, REPLACE)
    world.try_sink()
    first = world.state().of(SINK).current
    world.restart(SINK)
    world.try_sink()
    world.target.applied.remove((SINK, 1))  # a zombie that never came to it
    run = world.run(world.airflow.now(SINK), Process(), "zombie")
    late = replace(first, is_committed=False, committed=None)
    with fails_with("written-first"):
        commit.roll_forward(run, late, world.state().of(SINK), lambda: None)
    assert world.visible == [2]


@pytest.mark.parametrize("mode", [APPEND, REPLACE])
def test_a_target_that_gives_no_answer_before_the_claim_stops_no_spark(monkeypatch, mode):
    world, held = sink_world(TOKEN, mode), FakeTarget.held
    silent = [SinkUnavailable("no answer"), SinkUnavailable("no answer")]

    def asked(self, token):
        if silent:
            raise silent.pop()
        return held(self, token)

    monkeypatch.setattr(FakeTarget, "held", asked)
    world.try_sink()
    world.until_committed()
    assert world.target.applied == [(SINK, 1)]
    assert world.ran.count((SINK, 1)) == 1


# rows that were removed from the target


def emptied(kind: CommitKind, mode: CommitMode, *, loses_results: bool = False) -> SinkWorld:
    """A green run whose target somebody has emptied since, and which is cleared."""
    world = sink_world(kind, mode)
    world.try_sink()
    world.target.empty(SINK)
    if loses_results:
        world.delete_results(SINK, 1)
    world.airflow.clear(SINK)
    return world


@pytest.mark.parametrize(("kind", "mode"), [kind for kind in KINDS if kind != (PROBE_ONLY, APPEND)])
def test_fault_210_rows_that_were_removed_are_committed_again_without_spark(kind, mode):
    world = emptied(kind, mode)
    assert world.visible == []
    assert world.try_sink() is None
    assert world.visible == [1]
    assert world.attempts(SINK) == 1
    kept = [event for event in world.events if isinstance(event, RegionKept) and event.region == SINK]
    assert kept[-1].why.endswith("; its sink had lost the rows, which were committed again")


@every_kind
def test_fault_210_control_where_the_rows_are_not_asked_for_the_task_is_green_and_its_target_empty(
    kind, mode, monkeypatch
):
    monkeypatch.setattr(region_task, "keep_rows", lambda *given: "")
    world = emptied(kind, mode)
    assert world.try_sink() is None
    assert world.visible == []


def test_fault_210_two_functions_do_not_prove_that_rows_were_removed():
    world = emptied(PROBE_ONLY, APPEND)
    error = world.try_sink()
    assert isinstance(error, AppendedAlready)
    for said in ("C@1", "not applied", "In doubt", "airflow recovery restart dag"):
        assert said in str(error)
    # A person says that they are gone.
    world.restart(SINK)
    assert world.try_sink() is None
    assert world.visible == [2]


@pytest.mark.parametrize(("kind", "mode"), [kind for kind in KINDS if kind != (PROBE_ONLY, APPEND)])
def test_fault_210_where_what_was_prepared_is_gone_too_the_region_runs(kind, mode):
    world = emptied(kind, mode, loses_results=True)
    assert world.try_sink() is None
    assert world.visible == [2]
    assert world.state().of(SINK).attempts[1].is_reset


@pytest.mark.parametrize("mode", [APPEND, REPLACE])
def test_fault_210_killed_before_every_request_of_that_the_rows_are_there_once(mode):
    for loses_results in (False, True):
        steps = Steps(0, lambda: None)
        emptied(TOKEN, mode, loses_results=loses_results).try_sink(Process(steps))
        for at in range(1, len(steps.seen) + 1):
            world, process = emptied(TOKEN, mode, loses_results=loses_results), Process()
            process.gate = Steps(at, process.kill)
            assert isinstance(world.try_sink(process), Killed)
            world.until_committed()
            assert len(world.visible) == 1, f"step {at}: {world.target.applied}"


@pytest.mark.parametrize("mode", [APPEND, REPLACE])
def test_fault_210_of_two_that_commit_again_at_once_the_rows_are_there_once(mode):
    """The first one stands before its k-th request while the second does all it may."""
    steps = Steps(0, lambda: None)
    emptied(TOKEN, mode).try_sink(Process(steps))
    for at in range(1, len(steps.seen) + 1):
        world = emptied(TOKEN, mode)

        def second(world=world):
            if world.airflow.state(SINK) == "running":
                world.airflow.lose_heartbeat(SINK)
                assert world.try_sink() is None

        world.try_sink(Process(Steps(at, second)))
        assert world.visible == [1], f"step {at}: {world.target.applied}"


def test_fault_210_a_probe_only_sink_commits_again_in_a_turn_of_its_own():
    world = emptied(PROBE_ONLY, REPLACE)
    killed_before(world, "sink: commit")
    # The killed process might still commit.
    assert world.until_committed() == ["SinkInDoubt", "NoneType"]
    assert world.target.applied.count((SINK, 1)) == 2
    for _ in range(2):  # whoever has committed again has said that it commits no more
        world.target.empty(SINK)
        world.airflow.clear(SINK)
        assert world.try_sink() is None
        assert world.visible == [1]


@pytest.mark.parametrize("mode", [APPEND, REPLACE])
def test_fault_211_what_somebody_else_has_written_since_is_never_overwritten(mode):
    world = sink_world(TOKEN, mode)
    world.try_sink()
    world.target.overwrite(SINK)
    world.airflow.clear(SINK)
    error = world.try_sink()
    assert isinstance(error, SinkRefused)
    assert kind_of(error).is_final
    for said in ("C@1", "rows of somebody else", "nothing was changed", "airflow recovery restart dag"):
        assert said in str(error)
    assert world.visible == []
    assert SINK in world.target.overwritten


def test_fault_211_control_where_it_is_not_asked_whose_rows_these_are_they_are_overwritten(monkeypatch):
    monkeypatch.setattr(FakeTarget, "rows", lambda self, token: FoundRows(Rows.REMOVED, "it is empty"))
    world = sink_world(TOKEN, REPLACE)
    world.try_sink()
    world.target.overwrite(SINK)
    world.airflow.clear(SINK)
    assert world.try_sink() is None
    assert world.visible == [1]


def test_fault_212_a_target_that_gives_no_answer_keeps_the_task_with_a_warning(monkeypatch, caplog):
    world = emptied(TOKEN, REPLACE)

    def silent(self, token):
        raise SinkUnavailable("no route to the database")

    monkeypatch.setattr(FakeTarget, "rows", silent)
    assert world.try_sink() is None
    assert "C is kept, but its sink could not be asked for its rows: no route to the database" in caplog.text


def unreadable_rows(monkeypatch, error):
    def rows(self, token):
        raise error("its log is damaged")

    world = emptied(TOKEN, REPLACE)
    monkeypatch.setattr(FakeTarget, "rows", rows)
    return world.try_sink()


def test_fault_331_a_target_that_can_not_be_read_keeps_a_valid_task(monkeypatch, caplog):
    assert unreadable_rows(monkeypatch, SinkUnreadable) is None
    assert "could not be asked for its rows: its log is damaged" in caplog.text


@pytest.mark.control
def test_fault_331_control_as_a_refusal_a_valid_task_would_fail(monkeypatch):
    assert isinstance(unreadable_rows(monkeypatch, SinkRefused), SinkRefused)


@pytest.mark.parametrize("error", [SinkUnavailable, SinkUnreadable])
def test_fault_333_a_target_without_an_answer_names_the_command_that_gives_it_up(monkeypatch, error):
    world = sink_world(TOKEN, APPEND)

    def silent(self, token, *given):
        raise error("no answer")

    monkeypatch.setattr(FakeTarget, "apply", silent)
    assert "airflow recovery abandon" in str(world.try_sink())
    monkeypatch.setattr("airflow_recovery.testing.fake_sink._FakeCommitter.probe", silent)
    assert "--not-applied" in str(world.try_sink())


@pytest.mark.parametrize(("kind", "asked"), [(TOKEN, ["sink: rows C@1"]), (PROBE_ONLY, ["sink: probe C@1"])])
def test_a_kept_sink_costs_one_question_and_a_kept_task_without_a_sink_none(kind, asked):
    world = sink_world(kind, APPEND)
    world.try_sink()
    seen = {}
    for task in ("P", SINK):
        steps = Steps(0, lambda: None)
        world.airflow.clear(task)
        own = world.airflow.start(task)
        world.region_task(own, Process(steps), Hooks()).execute()
        world.airflow.end(own, "success")
        seen[task] = steps.seen
    assert [request for request in seen[SINK] if request.startswith("sink")] == asked
    assert not [request for request in seen["P"] if request.startswith("sink")]


def test_rows_that_were_removed_before_changed_code_runs_do_not_stop_a_sink_that_appends():
    world = sink_world(TOKEN, APPEND)
    world.try_sink()
    world.target.empty(SINK)
    world.fingerprints[SINK] = "code 2"
    world.airflow.clear(SINK)
    assert world.try_sink() is None
    assert world.visible == [2]


def test_where_the_target_can_not_tell_of_its_rows_a_sink_that_appends_stops(monkeypatch):
    world = sink_world(TOKEN, APPEND)
    world.try_sink()
    world.restart(SINK)

    def silent(self, token):
        raise SinkUnavailable("its log was cleaned up")

    monkeypatch.setattr(FakeTarget, "rows", silent)
    assert isinstance(world.try_sink(), AppendedAlready)
    assert world.visible == [1]


# what was prepared is gone


def test_in_mode_replace_what_was_prepared_and_is_gone_is_abandoned_and_made_again():
    world = sink_world(TOKEN, REPLACE)
    killed_before(world, "sink: commit")
    world.delete_results(SINK, 1)
    assert world.try_sink() is None
    assert committed(world, 1) is CommitEnd.ABANDONED
    assert world.visible == [2]


def reset_before_its_commit() -> tuple[SinkWorld, object]:
    """The process stands before its commit while a person resets the attempt, and the next try does all it may."""
    world = sink_world(TOKEN, REPLACE)

    def meanwhile(request: str) -> None:
        if request.startswith("sink: commit C@1") and world.airflow.state(SINK) == "running" and world.current(SINK):
            world.restart(SINK)
            assert world.try_sink() is None

    return world, world.try_sink(Process(meanwhile))


def test_in_mode_replace_what_was_prepared_and_reset_is_abandoned_and_a_late_one_is_refused():
    world, late = reset_before_its_commit()
    assert isinstance(late, Overtaken)
    assert committed(world, 1) is CommitEnd.ABANDONED
    assert committed(world, 2) is CommitEnd.COMMITTED
    assert world.target.applied == [(SINK, 2)]


def test_control_a_target_that_does_not_refuse_takes_the_late_one(monkeypatch):
    monkeypatch.setattr(FakeTarget, "held", lambda self, token: None)
    world, late = reset_before_its_commit()
    assert isinstance(late, AttemptLost)
    assert world.target.applied == [(SINK, 2), (SINK, 1)]


@pytest.mark.parametrize(("kind", "mode"), [kind for kind in KINDS if kind != (TOKEN, REPLACE)])
def test_where_the_target_can_not_refuse_a_late_one_it_is_in_doubt_first(kind, mode):
    world = sink_world(kind, mode)
    killed_before(world, "sink: commit")
    world.delete_results(SINK, 1)
    error = world.try_sink()
    assert isinstance(error, SinkInDoubt)
    assert "what it had prepared is gone" in str(error)
    world.confirm()
    assert world.try_sink() is None
    assert committed(world, 1) is CommitEnd.ABANDONED
    assert world.visible == [2]


def test_what_is_committed_needs_its_files_no_more():
    world = sink_world(TOKEN, APPEND)
    world.try_sink()
    world.delete_results(SINK, 1)
    world.airflow.clear(SINK)
    assert world.try_sink() is None
    assert world.attempts(SINK) == 1


# plans, publishes, histories


def test_a_finish_without_its_commit_is_planned_as_commit():
    world = sink_world(TOKEN, APPEND)
    killed_before(world, "sink: commit")
    found = planned(world)
    assert found.of(SINK).action is Action.COMMIT
    assert Plan.from_json(found.to_json()) == found
    assert "1 commit (to its sink, without Spark)" in plan_text(found)
    world.until_committed()
    kept = planned(world).of(SINK)
    assert kept.action is Action.KEEP
    assert kept.detail.endswith("; target not asked")
    assert "target" not in planned(world).of("P").detail


@every_kind
def test_fault_214_a_rebuild_leaves_a_sink_to_its_own_task_which_asks_the_target(kind, mode):
    world = sink_world(kind, mode)
    world.try_sink()
    evaluation = Evaluation(world.plan, world.state(), available=lambda *asked: None)
    found = finished_tasks(evaluation, lambda region: region.name, "file:///journal")
    assert found.left[SINK] == "only its own task asks its sink whether the rows are still there"


def test_what_is_not_committed_is_not_published():
    world = sink_world(TOKEN, APPEND)
    killed_before(world, "sink: commit")
    world.airflow.mark(SINK, "success")  # by a person
    assert world.until_green()[:3] == ["publish", SINK, "publish"]
    assert world.target.applied == [(SINK, 1)]


def test_what_is_not_committed_and_was_skipped_since_is_left_out():
    world = sink_world(TOKEN, APPEND)
    killed_before(world, "sink: commit")
    world.airflow.mark(SINK, "skipped")
    world.airflow.upstream["publish"] = ()
    publish = world.publish()
    assert publish.skipped == (SINK,)
    assert SINK not in [name for region in publish.regions for name in region.results]


def test_a_result_in_files_beside_the_committed_one_is_made_again_where_it_is_gone():
    world = SinkWorld(PAIR, kind=TOKEN, commit_mode=REPLACE, makes={SINK: (SINK, "report")}, retries=100)
    world.until_green()
    for gone, ran in (("out", []), ("report", [(SINK, 2)])):  # "out" is what the sink has taken over
        before = len(world.ran)
        world.delete_results(SINK, 1, gone)
        world.airflow.clear("publish")
        world.until_green()
        assert world.ran[before:] == ran


def test_the_events_fold_to_the_same_state():
    world = sink_world(PROBE_ONLY)
    killed_before(world, "sink: commit")
    assert isinstance(world.try_sink(), SinkInDoubt)
    world.confirm()
    assert world.try_sink() is None
    fold = EventFold({})
    for event in world.events:
        fold.add(event)
    assert differences(world.state(), fold.state()) == ()
    assert fold.state().of(SINK).attempts[1].committer_epoch == 2


def test_a_judgement_without_a_sink_says_nothing_of_commits():
    world = sink_world()
    world.try_sink()
    assert Evaluation(world.plan, world.state(), available=lambda *asked: None).why_not_committed(SINK) is None
