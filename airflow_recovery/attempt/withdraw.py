"""Take published results from readers outside the run, and give them back (docs/protocol.md#withdrawals)."""

from __future__ import annotations

from airflow_recovery.errors import AttemptLost, NothingRecorded, Refused
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Publish, Withdrawal


def withdraw(
    journal: Journal, name: str | None, who: str, reason: str, *, withdrawn: bool = True
) -> tuple[Withdrawal, ...]:
    """Withdraw what the newest publish names of a region, a task or a result; of all regions for `None`.

    Readers outside the run get `NotPublished` with the reason, until a publish names a newer attempt. ``withdrawn``
    False gives the results back. An attempt that is as it was asked for stays as it is, and its record is returned.

    Raises `NothingRecorded` if nothing is published, or nothing of that name, and `Refused` if somebody else withdraws
    or gives back at the same time.
    """
    number = journal.list(()).state.newest_publish
    where = f"{journal.identity.dag_id} / {journal.identity.run_key} / {journal.identity.group_id}"
    if not number:
        raise NothingRecorded(f"{where}: expected a publish, found none: no reader outside this run is given anything.")
    named = _named(journal.read_publish(number), name)
    if not named:
        known = sorted(
            {of for region in journal.read_publish(number).regions for of in (region.region, *region.results)}
        )
        raise NothingRecorded(
            f"{where}: expected a region or a result that publish {number} names, found {name!r}. It names "
            f"{', '.join(known)}."
        )
    state = journal.list(region for region, _ in named).state
    turns = []
    for region, attempt in named:
        turn = state.of(region).attempts[attempt].withdrawn_turn
        if (turn % 2 == 1) != withdrawn:
            turns.append(_write(journal, Withdrawal(region, attempt, turn + 1, who, reason)))
        elif turn:
            turns.append(journal.read_withdrawal(region, attempt, turn))
    return tuple(turns)


def withdrawals(journal: Journal, state: RunState, publish: Publish | None) -> tuple[Withdrawal, ...]:
    """The records of what was withdrawn of the newest publish: readers outside the run are not given it."""
    return tuple(
        journal.read_withdrawal(region.region, region.attempt, attempt.withdrawn_turn)
        for region in (publish.regions if publish is not None else ())
        if (attempt := state.of(region.region).attempts.get(region.attempt)) is not None and attempt.is_withdrawn
    )


def _named(publish: Publish, name: str | None) -> list[tuple[str, int]]:
    """The regions that are meant, with their attempts. The name of a parallel region means all its subtasks."""
    return [
        (region.region, region.attempt)
        for region in publish.regions
        if name is None or name in (region.region, region.region.partition("[")[0], *region.results)
    ]


def _write(journal: Journal, turn: Withdrawal) -> Withdrawal:
    try:
        journal.withdraw(turn)
    except AttemptLost as error:
        raise Refused(
            f"Somebody else has just withdrawn {turn.region}@{turn.attempt}, or given it back: look again."
        ) from error
    return turn
