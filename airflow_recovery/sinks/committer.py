"""The interface of a sink's target: commit what was prepared, and say whether that was done (FLIP-143)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol, runtime_checkable

from airflow_recovery.errors import HoldsOther, SinkRefused
from airflow_recovery.model.committing import CommitMode, Replaces
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.store.object_store import ObjectStore


@dataclass(frozen=True)
class CommitToken:
    """The name of one commit: attempt ``attempt`` of one region of one run. Every process makes the same one.

    ``writer`` is the random id of the process that finished the attempt. Another journal (the first one was lost, moved
    or emptied, or another deployment commits to the same target) counts its attempts from 1 as well: by the writer a
    target tells the two apart. `None`: the finish was written by an earlier version, or its run was purged.
    """

    dag_id: str
    run_key: str
    group_id: str
    region: str
    attempt: int
    writer: str | None = None

    @property
    def key(self) -> RegionKey:
        """The token without its attempt."""
        return RegionKey(self.dag_id, self.run_key, self.group_id, self.region)

    @property
    def lineage(self) -> str:
        """The token without its attempt, as text: a target holds at most one attempt of a lineage.

        It is also the key of the lineage's rows in a ``run_column``.
        """
        return self.key.path

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.region}@{self.attempt} of {self.dag_id} / {self.run_key}"


@dataclass(frozen=True)
class Held:
    """What a target holds of a lineage: the attempt, and the process that finished it, where that was written down."""

    attempt: int
    writer: str | None = None

    def is_of(self, token: CommitToken) -> bool:
        """Whether ``token`` is what was applied: the attempt and the writer are equal."""
        return (self.attempt, self.writer) == (token.attempt, token.writer)

    @property
    def text(self) -> str:
        """For people."""
        return f"attempt {self.attempt}" + (f" of process {self.writer}" if self.writer is not None else "")


@dataclass(frozen=True)
class Owner:
    """A region of a run that has committed rows to a target.

    ``key`` is `None` if the target knows only that there is one. ``replaces`` is `None` if a version wrote the token
    that did not write it down.
    """

    key: RegionKey | None
    replaces: Replaces | None = None

    @property
    def text(self) -> str:
        """For people: task, DAG and run."""
        return (
            self.key.text if self.key is not None else "another one, whose name the table's log does not have any more"
        )


@dataclass(frozen=True)
class Committable:
    """What an attempt has prepared for its sink: the objects of ``manifest``, to be committed as ``token``."""

    token: CommitToken
    manifest: PartitionManifest


class Probe(str, Enum):
    """A target's answer to "was this token applied?". Where it gives none, `Committer.probe` raises instead."""

    APPLIED = "APPLIED"
    NOT_APPLIED = "NOT_APPLIED"


class Committer(Protocol):
    """Commits to one target, and asks it. Made by `CommittingSink.open`.

    Both methods raise `SinkUnavailable` where the target gave no answer: of a commit, the outcome is then unknown.
    """

    def commit(self, committable: Committable) -> str:
        """Make what was prepared visible, all of it or nothing. Returns the target's own name of the commit.

        A token sink returns as well where the token was applied before. Raises `HoldsOther` where the target holds an
        attempt that this one must not follow, `SinkRefused` where it refuses these rows for good, and `SinkNotApplied`
        where it is certain that nothing was applied.
        """
        ...

    def probe(self, token: CommitToken) -> Probe:
        """Ask the target whether ``token`` was applied. Changes nothing."""
        ...


@runtime_checkable
class RemembersAttempts(Protocol):
    """What a token sink's committer may have as well: the journal then numbers the next attempt above the one held."""

    def held(self, token: CommitToken) -> Held | None:
        """What the target holds of the token's lineage. Raises as `Committer.probe` does."""
        ...


@runtime_checkable
class ForgetsAttempts(Protocol):
    """What the committer of a target has whose tokens do not stay for ever."""

    def remembers_since(self, token: CommitToken) -> datetime | None:
        """A token that was committed before then, and that nobody has taken out, may be missing. `None`: none is.

        Raises as `Committer.probe`.
        """
        ...


class Rows(str, Enum):
    """What became of the rows of a commit in its target."""

    THERE = "THERE"
    REMOVED = "REMOVED"
    """The target proves that none of them is there, and that the commit would delete no other rows."""
    PARTLY = "PARTLY"
    """Some of them are gone, and the rest is there; or, in mode append, the target can't prove which are gone."""
    OVERWRITTEN = "OVERWRITTEN"
    """They are gone, and in their place are rows that somebody else has written since."""


@dataclass(frozen=True)
class FoundRows:
    """The answer of `ChecksRows.rows`. ``text`` says for people what the target was found to hold."""

    rows: Rows
    text: str = ""

    def may_be_committed_again(self, mode: CommitMode) -> bool:
        """Whether another commit of the same rows doubles none of them, and deletes no rows of others."""
        return self.rows is Rows.REMOVED or (self.rows is Rows.PARTLY and mode is CommitMode.REPLACE)


@runtime_checkable
class ChecksRows(Protocol):
    """The methods of a token sink's committer that find rows which were removed after their commit.

    ``commit_id`` is what `Committer.commit` has returned, or any text if that is not known. Each method raises
    `SinkUnavailable` if the target gives no answer, or has no record that tells.
    """

    def rows(self, committable: Committable, commit_id: str) -> FoundRows:
        """Ask the target for the rows of a commit that it has applied. Changes nothing."""
        ...

    def commit_again(self, committable: Committable, commit_id: str) -> str:
        """Commit the same rows with the same token once more, if `rows` still allows it. Returns as `commit`.

        Two processes that do this at once leave the rows once. Raises `SinkRefused` if `rows` does not allow it.
        """
        ...

    def take_out(self, committable: Committable, commit_id: str) -> None:
        """Take the token out of the target, if its rows are REMOVED. Raises `SinkRefused` if they are not."""
        ...


@runtime_checkable
class KnowsOwners(Protocol):
    """What the committer of a target has that remembers every region of every run that has committed to it."""

    def others(self, token: CommitToken) -> Sequence[Owner]:
        """Look at the target before anything runs: return the owners of rows there, besides the token's lineage.

        Owners whose rows ``token`` can't meet may be left out. Raises `SinkRefused` if ``token`` must not commit there
        because of them, `SinkSuperseded` if it would commit nothing, `ConfigurationError` or `SinkRefused` if the
        target can't tell rows apart as the sink declares, and otherwise as `Committer.probe` does.
        """
        ...

    def adopt(self, old: CommitToken, new: CommitToken) -> None:
        """Make ``new`` the owner of what the lineage of ``old`` has in the target: its token, and the keys of its rows.

        Does nothing if the target holds nothing of ``old``. Raises `Refused` if it holds an attempt of ``new`` as well,
        and otherwise as `Committer.probe` does.
        """
        ...


@dataclass(frozen=True)
class DatabaseAddress:
    """Where a database is, and as whom to log in: the fields of an Airflow connection."""

    host: str | None
    port: int | None
    database: str | None
    user: str | None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The connection's extra, such as ``sslmode``, as (name, value); a committer takes only what its driver knows."""


class SinkResources(Protocol):
    """What committers need of the deployment. In Airflow: its connections, and the credentials of its stores."""

    def database(self, conn_id: str) -> DatabaseAddress:
        """The database that a connection names. Raises `ConfigurationError` where there is none."""
        ...

    def open_location(self, location: str) -> ObjectStore:
        """A store whose base holds ``location``, the URI of a folder."""
        ...

    def storage_options(self, location: str) -> dict[str, str]:
        """Options for delta-rs to reach ``location``, by its own names; empty: it takes them from the environment."""
        ...

    def catalog_properties(self, name: str) -> dict[str, str]:
        """Pyiceberg's properties of the catalog ``name``; empty: its own configuration has them."""
        ...


def refused(token: CommitToken, target: str, held: Held | None, mode: CommitMode, remove: str = "") -> HoldsOther:
    """The error for a target that holds another attempt of the lineage, which ``token`` must not follow.

    ``remove``: how a person takes the held token out of the target, as the end of a sentence.
    """
    if mode is CommitMode.REPLACE:
        advice = "There a newer attempt counts, or that of another journal: nothing was changed."
    else:
        advice = (
            "In mode append its rows would be there twice, so nothing was changed. Where it is not an earlier attempt "
            "of this journal, it is that of another one: this one was moved, emptied or lost since, or another "
            f"deployment commits there. Remove that attempt's rows, and then its token{remove}; and clear the task."
        )
    there = held.text if held is not None else "another attempt"
    mine = f" by process {token.writer}" if token.writer is not None else ""
    return HoldsOther(
        f"{token.text}: expected to commit it{mine} to {target}, found {there} of it there. {advice}",
        code="target-holds-other",
        found=there,
    )


def not_again(token: CommitToken, target: str, found: FoundRows) -> SinkRefused:
    """The error for a commit that must not be repeated, because of what the target was found to hold."""
    return SinkRefused(
        f"{token.text}: expected that its rows can be committed to {target} again, found {found.text}. Nothing was "
        "changed.",
        code="rows-cannot-be-committed-again",
    )
