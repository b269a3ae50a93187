"""Before a claim, and before rows are committed again: whose rows a sink's target holds (docs/protocol.md#owners)."""

from __future__ import annotations

import shlex
from contextlib import suppress

from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.commit import recovery_command, token_of, token_of_finish
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, SinkRefused, SinkSuperseded, SinkUnavailable
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.records import FenceCause
from airflow_recovery.sinks.committer import Committer, CommitToken, KnowsOwners, Probe, RemembersAttempts


def check_owner(run: Run, region: str, state: RunState) -> None:
    """Raise `SinkRefused` if ``region`` would delete the rows of another task or run, or add its own a second time.

    A task that was renamed adds them a second time: the journal or the target knows its old name. A target that gives
    no answer stops no Spark: its commit checks again.
    """
    spec = run.regions[region].commit
    if spec is None:
        return
    token, committer = token_of(run.journal.identity, region, 0), run.open_committer(spec)
    try:
        owners = committer.others(token) if isinstance(committer, KnowsOwners) else ()
        removed = [token.key._replace(region=old) for old in _removed_regions(run, spec, state)]
        for key in removed:
            _end_attempts(run, token.key, key)
        beside = [owner.key for owner in owners if owner.key is not None and owner.key.run_key == token.run_key]
        if not (removed or beside) or _has_committed(committer, token, state):
            return
        old_names = [key for key in removed if _holds(run, committer, key.region)]
        old_names += [key for key in beside if _is_old_name(run, token, key)]
        if old_names:
            raise _renamed(token.key, old_names[0], committer)
    except SinkSuperseded as superseded:
        run.log.warning("%s: its sink has newer rows, and will not take these: %s.", region, superseded)
    except SinkUnavailable as error:
        run.log.warning("Who has rows in the sink of %s could not be asked before the attempt: %s", region, error)


def _end_attempts(run: Run, new: RegionKey, old: RegionKey) -> None:
    """A task that today's DAG does not have commits no more: its open attempt is fenced.

    Raises `SinkRefused` if it has finished one that may not be committed yet: that can be committed at any moment.
    """
    region = run.journal.load(run.journal.list([old.region])).of(old.region)
    if region.open_attempt is not None:
        number, why = region.open_attempt.number, f"its task is not in the DAG any more; {new.region} commits there"
        with suppress(AttemptLost):
            run.journal.fence(fenced(run, old.region, number, FenceCause.SUPERSEDED, why))
        region = run.journal.load(run.journal.list([old.region])).of(old.region)
    prepared = region.prepared_attempt
    if prepared is not None:
        raise SinkRefused(
            f"{new.text}: expected that no task of an old name may commit to its target, found {old.text}, which is "
            f"not in the DAG any more: attempt {prepared.number} of it has finished, and may be committed at any "
            f"moment. Nothing was run. Give it up: {recovery_command('abandon', old)}. Then clear this task.",
            code="old-name-may-commit",
        )


def _has_committed(committer: Committer, token: CommitToken, state: RunState) -> bool:
    """Whether the region has rows there under today's name, so that it is no other one's new name."""
    if isinstance(committer, RemembersAttempts):
        return committer.held(token) is not None
    return bool(state.of(token.region).attempts)


def _removed_regions(run: Run, spec: CommitSpec, state: RunState) -> list[str]:
    """The regions of earlier plans of this run with a sink in the same place, which today's DAG does not have."""
    earlier = (run.journal.read_plan(plan) for plan in sorted(state.plans - {run.plan_hash}))
    committing = {
        planned.name
        for plan in earlier
        for planned in plan.regions
        if planned.commit is not None and planned.commit.has_same_place(spec)
    }
    key = RegionKey.of(run.journal.identity, "")
    return sorted(name for name in committing if not _is_in_dag(run, key._replace(region=name)))


def _holds(run: Run, committer: Committer, region: str) -> bool:
    """Whether the target has taken an attempt of ``region`` of this run."""
    if isinstance(committer, RemembersAttempts):
        return committer.held(token_of(run.journal.identity, region, 0)) is not None
    attempts = run.journal.load(run.journal.list([region])).of(region).attempts.values()
    finishes = [attempt.outcome for attempt in attempts if attempt.is_prepared or attempt.committed is not None]
    tokens = [token_of_finish(run.journal.identity, finish) for finish in finishes if finish is not None]
    return any(committer.probe(token) is Probe.APPLIED for token in tokens)


def _is_old_name(run: Run, token: CommitToken, key: RegionKey) -> bool:
    """Whether ``key``, of the same run, can be the token's region under an old name: it is not in Airflow any more."""
    if key.dag_id == token.dag_id:
        return not _is_in_dag(run, key)
    if (key.group_id, key.region) != (token.group_id, token.region):
        return False
    has_dag = run.has_dag(key.dag_id)
    if has_dag is None:
        run.log.warning(
            "%s: the DAG %s has rows of the same run and task in its target, and Airflow could not be asked whether it "
            "still has that DAG. If %s is its new name, its rows are there twice.",
            token.region,
            key.dag_id,
            token.dag_id,
        )
    return has_dag is False


def _is_in_dag(run: Run, key: RegionKey) -> bool:
    if key.group_id == run.journal.identity.group_id and key.region in run.regions:
        return True
    if run.dag_tasks:
        return key.task_id in run.dag_tasks
    return key.group_id != run.journal.identity.group_id


def _renamed(new: RegionKey, old: RegionKey, committer: Committer) -> SinkRefused:
    gone = f"the DAG {old.dag_id}" if old.dag_id != new.dag_id else f"the task {old.task_id}"
    names = (old.dag_id, new.dag_id) if old.dag_id != new.dag_id else (old.name, new.name)
    way_out = (
        f"If it is the old name of this one: {shlex.join(('airflow', 'recovery', 'adopt', *names))}. If"
        if isinstance(committer, KnowsOwners)
        else "Remove its rows, so that is_applied() finds none; if"
    )
    return SinkRefused(
        f"{new.text}: the target holds rows of {old.text} for this run, and Airflow does not have {gone} any more. "
        f"If {new.text} adds its rows, they may be there twice, so nothing was run. {way_out} it was another task, "
        "remove its rows and its token from the target. Then clear this task.",
        code="rows-of-old-name",
    )
