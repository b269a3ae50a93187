"""Whose rows a target holds, and which of two owners may commit there (docs/protocol.md#owners)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone

from airflow_recovery.errors import Refused, SinkRefused, SinkSuperseded
from airflow_recovery.model.committing import Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.sinks.committer import CommitToken, Held, Owner

_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9]{2}):?([0-9]{2}):?([0-9]{2})(\.[0-9]+)?(?:Z|([+-][0-9]{2}:?[0-9]{2})|))?"
)
_CLEARING = (Replaces.ALL, Replaces.LATEST)


def date_of(run_key: str) -> datetime | None:
    """The date in a run key, in UTC: the logical date, or the first one in a partition or a run id. `None`: no date."""
    found = _DATE.search(run_key)
    if found is None:
        return None
    day, hour, minute, second, fraction, offset = found.groups()
    text = f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}{(fraction or '')[:7]}{offset or '+00:00'}"
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc)
    except ValueError:
        return None


def date_text(date: datetime) -> str:
    """A date for people: without a time at midnight."""
    return date.isoformat().removesuffix("+00:00").removesuffix("T00:00:00")


def is_same_task(key: RegionKey, token: CommitToken) -> bool:
    """Whether ``key`` is the token's region in any run."""
    return key._replace(run_key=token.run_key).path == token.lineage


def check_owners(token: CommitToken, target: str, replaces: Replaces, owners: Iterable[Owner], remove: str) -> None:
    """Raise `SinkRefused` if ``token`` and one of the ``owners`` would delete each other's rows.

    Raise `SinkSuperseded` if ``token`` replaces all rows, and a later date of its task has committed. ``remove``: how
    a user takes the token of an owner out of the target, as a sentence.
    """
    mine = date_of(token.run_key)
    if replaces is Replaces.LATEST and mine is None:
        raise SinkRefused(
            f"{token.text}: expected a run with a date, since its sink has keeps='latest', found {token.run_key!r}. "
            "Nothing was done. Trigger the run with a logical date, or declare run_column= in place of keeps=.",
            code="keeps-latest-without-date",
        )
    newest = mine
    for owner in owners:
        date = _other_date(owner, token)
        if replaces is Replaces.LATEST and newest is not None and date is not None:
            newest = max(newest, date)
        elif replaces in _CLEARING or owner.replaces in _CLEARING:
            raise SinkRefused(_clash(token, target, replaces, owner, remove), code="sinks-of-two-owners")
    if newest is not None and mine is not None and newest > mine:
        raise SinkSuperseded(f"superseded by {date_text(newest)}")


def check_adoptable(new: CommitToken, target: str, held: Held | None) -> None:
    """Raise `Refused` if the target holds an attempt of ``new`` by itself."""
    if held is not None:
        raise Refused(
            f"{new.text}: expected {target} to hold nothing of it, found {held.text}: both the old and the new owner "
            "have committed there, and their rows may be the same. Nothing was changed. Look at the table, remove the "
            "rows and the token of one of them, and give the command again.",
            code="both-owners-committed",
        )


def no_keys(token: CommitToken, target: str, column: str, held: Held) -> str:
    """The message for rows of ``token`` that a sink without ``run_column`` may have committed: how it begins."""
    return (
        f"{token.text}: expected its rows in {target} to have the key {token.lineage!r} in column {column}, found "
        f"{held.text} committed, no such row, and rows without a key. They may be its rows, from before the sink had "
        "run_column=, so nothing was done."
    )


def _other_date(owner: Owner, token: CommitToken) -> datetime | None:
    """The date of an owner that is another date of the token's task, and whose rows are not to stay beside others."""
    if owner.key is None or not is_same_task(owner.key, token) or owner.replaces in (Replaces.NOTHING, Replaces.RUN):
        return None
    date = date_of(owner.key.run_key)
    return None if date == date_of(token.run_key) else date


def _clash(token: CommitToken, target: str, replaces: Replaces, owner: Owner, remove: str) -> str:
    who = f"{token.text}: its sink replaces all rows of {target}, and" if replaces in _CLEARING else f"{token.text}:"
    what = "which replaces all rows" if owner.replaces in _CLEARING else "which has rows there"
    is_other_date = owner.key is not None and is_same_task(owner.key, token)
    adopt = (
        f" If it is the old name of this task: airflow recovery adopt {owner.key.name} {token.key.name}."
        if owner.key is not None and not is_other_date
        else ""
    )
    latest = (
        " Or declare keeps='latest', if the table is to have the rows of the newest date alone."
        if replaces is Replaces.ALL and is_other_date
        else ""
    )
    return (
        f"{who} expected no other task or run to commit to {target}, found {owner.text}, {what}. One would delete the "
        "rows of the other, so nothing was done. Declare run_column='<a text column of the table>' with mode='replace' "
        f"in each of these sinks: then each commit replaces its own rows only.{latest}{adopt} If the rows of the other "
        f"are not wanted any more, {remove}"
    )
