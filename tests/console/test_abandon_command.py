"""``abandon``: a commit that can't be completed is given up, never one that was or may still be done."""

from __future__ import annotations

import json
import shlex

import pytest
from expected_errors import fails_with
from fakes import Process
from sink_world import SinkWorld

from airflow_recovery.attempt.abandon import abandon, look_at_abandon
from airflow_recovery.attempt.commit import roll_forward
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import AttemptLost
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import CommitEnd

RUN = ("flights", "2026-01-01")
SINK = "busiest"


def end_of(world) -> CommitEnd | None:
    found = world.state().of(SINK).attempts[1].committed
    return found.end if found is not None else None


def test_fault_97_what_may_still_be_committed_is_abandoned_after_a_confirmation_alone(recorded, sink):
    world = sink(CommitKind.TOKEN)
    assert recorded.call("abandon", *RUN, SINK)[0] == ExitCode.REFUSED
    command = shlex.split(recorded.errors.partition("airflow recovery ")[2].partition(";")[0])
    assert end_of(world) is None
    recorded.call(command[0], *RUN, *command[3:])
    code, said = recorded.call("abandon", *RUN, SINK, "--dry-run")
    assert code == ExitCode.DONE
    assert "the target says: NOT_APPLIED" in said
    assert f"Would abandon {SINK}@1" in said
    assert end_of(world) is None
    code, said = recorded.call("abandon", *RUN, SINK, "--why", "its rows are wrong")
    assert code == ExitCode.CLEAR_BY_HAND  # there is no Airflow here
    assert "airflow tasks clear flights" in said
    assert end_of(world) is CommitEnd.ABANDONED
    assert "abandoned: NOT_APPLIED; its rows are wrong" in recorded.call("show", *RUN)[1]
    world.go(SINK)
    assert world.target.applied == [(SINK, 2)]
    assert recorded.call("verify", *RUN)[0] == ExitCode.DONE


def test_a_token_sink_that_replaces_needs_no_confirmation(recorded, sink):
    world = sink(CommitKind.TOKEN, CommitMode.REPLACE)
    code, said = recorded.call("abandon", *RUN, SINK, "--json")
    document = json.loads(said)
    assert code == ExitCode.CLEAR_BY_HAND
    assert (document["attempt"], document["target_says"], document["clear"]) == (1, "NOT_APPLIED", [f"flights.{SINK}"])
    world.go(SINK)
    assert world.target.applied == [(SINK, 2)]


def test_what_the_target_has_taken_is_not_abandoned(recorded, sink):
    world = sink(CommitKind.TOKEN, CommitMode.REPLACE)
    world.target.applied.append((SINK, 1))
    world.target.writers[SINK, 1] = world.state().of(SINK).attempts[1].outcome.writer
    assert recorded.call("abandon", *RUN, SINK)[0] == ExitCode.REFUSED
    assert "The target has taken busiest@1: there is nothing to abandon" in recorded.errors
    assert end_of(world) is None
    world.go(SINK)
    assert end_of(world) is CommitEnd.COMMITTED


def test_a_target_that_can_not_be_asked_takes_a_persons_word(recorded, sink, monkeypatch):
    world = sink(CommitKind.TOKEN, CommitMode.REPLACE)
    monkeypatch.undo()
    code, _ = recorded.call("abandon", *RUN, SINK)
    assert code == ExitCode.USAGE
    assert "--not-applied" in recorded.errors
    assert recorded.call("abandon", *RUN, SINK, "--not-applied")[0] == ExitCode.CLEAR_BY_HAND
    assert end_of(world) is CommitEnd.ABANDONED


@pytest.mark.parametrize(
    ("region", "said"), [("by_route", "there is nothing to abandon"), ("busyest", "did you mean 'busiest'")]
)
def test_what_waits_for_no_commit_is_not_found(recorded, sink, region, said):
    sink(CommitKind.TOKEN)
    assert recorded.call("abandon", *RUN, region)[0] == ExitCode.NOT_FOUND
    assert said in recorded.errors


def abandoned_while_a_try_goes_on(recorded, sink) -> SinkWorld:
    """Both have seen the confirmation; the person's command is the first to write."""
    world = sink(CommitKind.PROBE_ONLY)
    recorded.call("confirm", *RUN, SINK)
    state, journal = world.state(), world.journal(writer="ann")
    found = look_at_abandon(journal, state, SINK, lambda spec: world.target.committer(spec))
    abandon(journal, found, "ann", "given up")
    run = world.run(world.airflow.start(SINK), Process(), "a try")
    mine = state.of(SINK)
    with pytest.raises(AttemptLost):
        roll_forward(run, mine.prepared_attempt, mine, lambda: None)
    return world


def test_a_try_that_has_seen_the_confirmation_too_commits_nothing(recorded, sink):
    assert abandoned_while_a_try_goes_on(recorded, sink).target.applied == []


def test_control_without_its_turn_it_commits_what_was_abandoned(recorded, sink, monkeypatch):
    monkeypatch.setattr(Journal, "take_commit", lambda self, epoch: None)
    world = abandoned_while_a_try_goes_on(recorded, sink)
    assert world.target.applied == [(SINK, 1)]
    assert end_of(world) is CommitEnd.ABANDONED


def test_a_try_that_was_faster_is_not_overruled(recorded, sink):
    world = sink(CommitKind.TOKEN, CommitMode.REPLACE)
    found = look_at_abandon(world.journal(), world.state(), SINK, lambda spec: world.target.committer(spec))
    world.go(SINK)
    with fails_with("abandoned-too-late"):
        abandon(world.journal(writer="ann"), found, "ann", "given up")
    assert end_of(world) is CommitEnd.COMMITTED
