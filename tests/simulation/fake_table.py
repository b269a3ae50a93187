"""One table in memory to which several tasks, dates and DAGs commit: rows with their owners, and a token for each.

It keeps to what `airflow_recovery.sinks.postgres` does in its transactions, with the same rule of owners.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec, Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.sinks.committer import (
    Committable,
    CommitToken,
    FoundRows,
    Held,
    Owner,
    Probe,
    Rows,
    not_again,
    refused,
)
from airflow_recovery.sinks.owners import check_adoptable, check_owners, date_of, is_same_task

TABLE = "fake:Table"
NAME = "the fake table"
Gate = Callable[[str], None]


def table_commit(result: str, replaces: Replaces) -> CommitSpec:
    """How a plan names a sink that commits to the table."""
    mode = CommitMode.APPEND if replaces is Replaces.NOTHING else CommitMode.REPLACE
    config: dict[str, str] = {"mode": mode.value}
    if replaces is Replaces.RUN:
        config["run_column"] = "owner"
    if replaces is Replaces.LATEST:
        config["keeps"] = "latest"
    return CommitSpec(result, CommitKind.TOKEN, mode, TABLE, canonical_json(config))


def replaced_by(spec: CommitSpec) -> Replaces:
    """Which rows a commit of ``spec`` deletes."""
    config = json.loads(spec.config)
    if spec.mode is CommitMode.APPEND:
        return Replaces.NOTHING
    return Replaces.RUN if "run_column" in config else Replaces.LATEST if "keeps" in config else Replaces.ALL


@dataclass(frozen=True)
class Taken:
    """A token that was applied."""

    held: Held
    replaces: Replaces


class FakeTable:
    """``rows``: (owner, attempt, writer) of all that a reader sees; ``tokens``: what each owner has committed last.

    ``wrong`` takes what no commit may do: delete rows of others, or those of a later date.
    """

    def __init__(self, wrong: list[str]) -> None:
        self.rows: list[tuple[RegionKey, Held]] = []
        self.tokens: dict[RegionKey, Taken] = {}
        self._wrong = wrong

    def committer(self, spec: CommitSpec, gate: Gate = lambda request: None) -> _TableCommitter:
        """One process's way to it; ``gate`` is called before each request, and before each answer to a commit."""
        return _TableCommitter(self, spec, gate)

    def of(self, key: RegionKey) -> list[Held]:
        """The attempts of one owner whose rows are there."""
        return [held for owner, held in self.rows if owner == key]

    def remove(self, key: RegionKey) -> None:
        """A person removes the rows of an owner, and its token."""
        self.rows = [row for row in self.rows if row[0] != key]
        self.tokens.pop(key, None)

    def put(self, token: CommitToken, replaces: Replaces) -> None:
        """Make the rows of ``token`` visible, in place of those that it replaces."""
        for owner, held in self.rows:
            if replaces is Replaces.LATEST and is_same_task(owner, token):
                before, now = date_of(owner.run_key), date_of(token.run_key)
                if before is not None and now is not None and before > now:
                    self._wrong.append(f"T: {token.text} replaces rows of a later date, {owner.text}")
            elif replaces in (Replaces.ALL, Replaces.LATEST) and owner != token.key:
                self._wrong.append(f"T: {token.text} deletes rows of {owner.text}, {held.text}")
        if replaces is Replaces.RUN:
            self.rows = [row for row in self.rows if row[0] != token.key]
        elif replaces is not Replaces.NOTHING:
            self.rows = []
        held = Held(token.attempt, token.writer)
        self.rows.append((token.key, held))
        self.tokens[token.key] = Taken(held, replaces)


class _TableCommitter:
    """A committer, with all that a token sink's may have but for tokens that expire."""

    def __init__(self, table: FakeTable, spec: CommitSpec, gate: Gate) -> None:
        self._table = table
        self._spec = spec
        self._replaces = replaced_by(spec)
        self._gate = gate

    def commit(self, committable: Committable) -> str:
        self._gate(f"table: commit {committable.token.text}")
        self._apply(committable.token, again=False)
        self._gate("table: its answer")
        return "committed"

    def probe(self, token: CommitToken) -> Probe:
        held = self.held(token)
        return Probe.APPLIED if held is not None and held.is_of(token) else Probe.NOT_APPLIED

    def held(self, token: CommitToken) -> Held | None:
        self._gate(f"table: held {token.region}")
        return self._held(token)

    def rows(self, committable: Committable, commit_id: str) -> FoundRows:
        self._gate(f"table: rows {committable.token.text}")
        return self._found(committable.token)

    def commit_again(self, committable: Committable, commit_id: str) -> str:
        self._gate(f"table: commit again {committable.token.text}")
        self._apply(committable.token, again=True)
        self._gate("table: its answer")
        return "committed again"

    def take_out(self, committable: Committable, commit_id: str) -> None:
        self._gate(f"table: take out {committable.token.text}")
        found = self._found(committable.token)
        if found.rows is not Rows.REMOVED:
            raise not_again(committable.token, NAME, found)
        self._table.tokens.pop(committable.token.key, None)

    def others(self, token: CommitToken) -> list[Owner]:
        self._gate(f"table: others than {token.text}")
        return self._check_owners(token)

    def adopt(self, old: CommitToken, new: CommitToken) -> None:
        self._gate(f"table: adopt {old.text}")
        if self._held(old) is None:
            return
        check_adoptable(new, NAME, self._held(new))
        self._table.tokens[new.key] = self._table.tokens.pop(old.key)
        self._table.rows = [(new.key if owner == old.key else owner, held) for owner, held in self._table.rows]

    def _held(self, token: CommitToken) -> Held | None:
        taken = self._table.tokens.get(token.key)
        return None if taken is None else taken.held

    def _check_owners(self, token: CommitToken) -> list[Owner]:
        owners = [Owner(key, taken.replaces) for key, taken in self._table.tokens.items() if key != token.key]
        check_owners(token, NAME, self._replaces, owners, "remove its rows, and its token.")
        return owners

    def _found(self, token: CommitToken) -> FoundRows:
        if self._replaces is Replaces.LATEST:
            self._check_owners(token)
        held = self._held(token)
        if held is not None and not held.is_of(token):
            return FoundRows(Rows.OVERWRITTEN, f"it holds {held.text}")
        is_replaced = self._spec.mode is CommitMode.REPLACE
        counted = self._table.of(token.key) if self._replaces is Replaces.RUN else self._table.rows
        if not counted:
            return FoundRows(Rows.REMOVED, "it has no rows")
        if held is None:
            return FoundRows(Rows.OVERWRITTEN if is_replaced else Rows.PARTLY, "it has rows, and the token is gone")
        if held in self._table.of(token.key):
            return FoundRows(Rows.THERE)
        return FoundRows(Rows.OVERWRITTEN if is_replaced else Rows.REMOVED, "it has rows of others alone")

    def _apply(self, token: CommitToken, *, again: bool) -> None:
        held = self._held(token)
        is_held = held is not None and held.is_of(token)
        if is_held and not again:
            return
        self._check_owners(token)
        if is_held:
            found = self._found(token)
            if found.rows is Rows.THERE:
                return
            if not found.may_be_committed_again(self._spec.mode):
                raise not_again(token, NAME, found)
        elif held is not None and held.attempt >= (token.attempt if self._spec.mode is CommitMode.REPLACE else 0):
            raise refused(token, NAME, held, self._spec.mode)
        self._table.put(token, self._replaces)
