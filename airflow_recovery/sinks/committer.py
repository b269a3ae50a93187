"""What the protocol asks of a sink's target: commit what was prepared, and say whether it was done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from airflow_recovery.errors import SinkRefused
from airflow_recovery.shuffle.manifest import PartitionManifest
from airflow_recovery.storage.names import encode
from airflow_recovery.storage.object_store import ObjectStore
from airflow_recovery.topology.committing import CommitMode


@dataclass(frozen=True)
class CommitToken:
    """The name of one commit: attempt ``attempt`` of one region of one run. It is the same in whatever process."""

    dag_id: str
    run_key: str
    group_id: str
    region: str
    attempt: int

    @property
    def lineage(self) -> str:
        """The token without its attempt: of one lineage, a target holds one attempt."""
        return "/".join(encode(each) for each in (self.dag_id, self.run_key, self.group_id, self.region))

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.region}@{self.attempt} of {self.dag_id} / {self.run_key}"


@dataclass(frozen=True)
class Committable:
    """What an attempt has prepared for its sink: the objects of ``manifest``, to be committed as ``token``."""

    token: CommitToken
    manifest: PartitionManifest


class Probe(str, Enum):
    """What a target says of a token."""

    APPLIED = "APPLIED"
    NOT_APPLIED = "NOT_APPLIED"


class Committer(Protocol):
    """The way to one target.

    Both raise `SinkUnavailable` where the target gave no answer: of a commit, the outcome is then unknown.
    """

    def commit(self, committable: Committable) -> str:
        """Make what was prepared visible, all of it or nothing. Returns the target's own name of the commit.

        A token sink returns as well where the token was applied before. Raises `SinkRefused` where the target holds an
        attempt that this one must not follow, and `SinkNotApplied` where it is certain that nothing was applied.
        """
        ...

    def probe(self, token: CommitToken) -> Probe:
        """Was this token applied?"""
        ...


@dataclass(frozen=True)
class DatabaseAddress:
    """Where a database is, and who asks."""

    host: str | None
    port: int | None
    database: str | None
    user: str | None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()
    """Further parameters of the driver, such as ``sslmode``."""


class SinkResources(Protocol):
    """What a deployment lends to committers. In Airflow: its connections, and its stores' credentials."""

    def database(self, conn_id: str) -> DatabaseAddress:
        """The database that a connection names. Raises `ConfigurationError` where there is none."""
        ...

    def open_location(self, location: str) -> ObjectStore:
        """A store that holds ``location``."""
        ...

    def storage_options(self, location: str) -> dict[str, str]:
        """How a table format reaches ``location``, as delta-rs names the options; empty: by the environment."""
        ...


def refused(token: CommitToken, target: str, held: int | None, mode: CommitMode) -> SinkRefused:
    """The target holds another attempt of the lineage, which ``token`` must not follow."""
    if mode is CommitMode.REPLACE:
        advice = "This process is late: a newer attempt counts, and nothing was changed."
    else:
        advice = (
            "In mode append its rows would be there twice, so nothing was changed. Remove that attempt's rows and its "
            "token from the target, and clear the task; or declare mode='replace'."
        )
    return SinkRefused(f"{token.text}: expected to commit to {target}, found attempt {held} of it there. {advice}")
