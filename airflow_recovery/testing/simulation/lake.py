"""What the tables of a simulation have in common, whatever their format.

A lake is what a table's own readers and writers guarantee, and no more. It knows no regions and no attempts; of a
snapshot's rows it knows what they are, and files are not simulated where nobody asks for them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.results.tables import Tables
from airflow_recovery.testing.simulation.memory import Clock

SIZE = 7
"""Of every snapshot, in bytes."""
OF_OTHERS = "of others"
"""The rows of a commit that is nobody's of a run."""


class _Commit(Protocol):
    @property
    def table(self) -> str: ...


Change = TypeVar("Change", bound=_Commit)


@dataclass
class Lake(ABC, Generic[Change]):
    """All tables of one format in one simulation; a table is made when it is first asked for.

    At most ``faults`` requests get no reply, with probability ``rate`` each. ``in_flight`` are the commits whose sender
    has given up waiting. ``on_change(table)`` hears of every commit that was made. Snapshots have numbers.
    """

    refused: ClassVar[type[Exception]]
    """What its clients raise for a commit that was not made, since another one came between."""
    remembers: ClassVar[bool]
    """Whether a table knows the commits of an attempt when their rows are gone, and takes no older one's."""
    can_count_again: ClassVar[bool]
    """Whether what somebody has undone counts again after a `move` to it."""

    clock: Clock
    rng: random.Random
    rate: float = 0.0
    faults: int = 0
    on_change: Callable[[str], None] = lambda table: None
    in_flight: list[Change] = field(default_factory=list)

    # as a process sees it

    @abstractmethod
    def commit(self, tables: Tables, commit: TableCommit, rows: str, by: str) -> PartitionManifest:
        """As the driver of a declared region, by its own code. ``by`` is noted. Raises what that code raises."""

    @abstractmethod
    def overwrite(self, tables: Tables, location: TableLocation, token: str, rows: str, by: str) -> None:
        """As a job that is told a token, and looks for no commit of its own. Raises `refused`; any other: no answer."""

    def fails(self) -> bool:
        """Whether this request gets no reply."""
        if not self.faults or self.rng.random() >= self.rate:
            return False
        self.faults -= 1
        return True

    # what there is, asked of nobody

    @abstractmethod
    def names(self) -> Iterable[str]:
        """The tables that were asked for."""

    @abstractmethod
    def id_of(self, table: str) -> str:
        """The table's own id."""

    @abstractmethod
    def head(self, table: str) -> int | None:
        """Its newest snapshot."""

    @abstractmethod
    def line(self, table: str, number: int | None) -> list[int]:
        """That snapshot and all that it ever stood on, expired or not."""

    @abstractmethod
    def counting(self, table: str) -> set[int]:
        """The snapshots that nobody has undone, as far as the table can tell, and whose rows are there."""

    @abstractmethod
    def has(self, table: str, number: int) -> bool:
        """Whether the rows of that snapshot are there."""

    @abstractmethod
    def rows(self, table: str, number: int) -> str | None:
        """`None`: they are not there any more."""

    @abstractmethod
    def by(self, table: str, number: int) -> str | None:
        """What was noted of a snapshot; `None`: it is of others."""

    # what others do

    @abstractmethod
    def expire(self, table: str) -> object:
        """A maintenance job takes away what it may."""

    @abstractmethod
    def others_commit(self, table: str) -> None:
        """Somebody else puts rows in place of all that there are."""

    @abstractmethod
    def move(self, table: str, to: int) -> None:
        """Somebody has the table be what it was at that snapshot, whatever it was at."""

    # late commits

    @abstractmethod
    def make(self, change: Change) -> object:
        """Compare and swap. Raises `refused`."""

    def arrive(self, at: int) -> str:
        """One of the commits in flight arrives. Returns which, in words."""
        change = self.in_flight.pop(at)
        try:
            self.make(change)
        except self.refused:
            return f"{change.table}, refused"
        return change.table
