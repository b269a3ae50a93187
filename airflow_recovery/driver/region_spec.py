"""The specification of one attempt, for its driver: a JSON document without secrets, made after the claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from airflow_recovery.driver.heartbeat import INTERVAL_S
from airflow_recovery.job.context import ONLY_SUBTASK, Subtask
from airflow_recovery.model.codec import Tagged, Unlike, from_json, to_json
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.mode import RegionMode, answers_of
from airflow_recovery.model.records import AttemptTrace, CoordinatorSnapshot, RunIdentity
from airflow_recovery.store.scheme import StoreSpec


def own_version() -> str:
    """The version of the package that this process has imported."""
    from airflow_recovery.version import __version__

    return __version__


@dataclass(frozen=True)
class RunDates:
    """What a vertex may know of its run besides its parameters: the dates that the run's journal is named by.

    ISO 8601 in UTC. Not the run's conf and params: what a vertex reads of them without declaring it as a parameter
    would be in no fingerprint, and a result that they decide would be kept after they have changed.
    """

    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run that parameters may be templates over. They stay in the task; a driver gets `RunDates`."""

    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None
    conf: dict[str, Any]
    params: dict[str, Any]

    @property
    def dates(self) -> RunDates:
        """The part of the facts that a driver gets."""
        return RunDates(self.logical_date, self.data_interval_start, self.data_interval_end)


@dataclass(frozen=True)
class TableSpec:
    """A table by its location, and whether other regions read its snapshot, which must then not expire."""

    uri: str
    is_read: bool


@dataclass(frozen=True)
class VertexSpec:
    """One vertex of the region: its rendered parameters, and whether and how it is written."""

    name: str
    params: dict[str, Any]
    is_result: bool
    """Written to the attempt's prefix, or handed to a keeper, and registered."""
    is_scratch: bool
    """Pipelined with several readers here that must see the same rows: written once to scratch, read back by all."""
    is_digested: bool = False
    """A result whose consumers compare rows (`Determinism.VERIFY`): its manifest gets a digest."""
    kept_as: str | None = None
    """The name of its type, if a keeper has its rows (`airflow_recovery.results.keeper`); else they go to files."""
    table: TableSpec | None = None
    """The table whose snapshot the result is: the attempt overwrites it."""


@dataclass(frozen=True)
class ModeSpec(RegionMode):
    """What a mode tells its own code in the driver. Batch tells nothing.

    Another mode has a subclass, an empty instance of which is ``MODE`` in the module ``spec`` of its package.
    """

    spark_conf: ClassVar[Mapping[str, str]] = {}
    """Settings of the application that a driver of this mode makes."""
    oldest_spark: ClassVar[tuple[int, int]] = (3, 5)
    """The first Spark with all that a region of this mode needs."""
    is_adoptable: ClassVar[bool] = False
    """Whether a later attempt may take over what this one wrote: it is then not deleted when it is fenced."""

    @classmethod
    def of_mode(cls, name: str) -> type[ModeSpec]:
        """The class of that mode. Raises `KeyError` for a name that no mode has."""
        questions: Any = cls
        return type(answers_of(name, "spec", questions))


@dataclass(frozen=True)
class RegionSpec:
    """One attempt of one region.

    ``location`` is the attempt's data prefix (an absolute URI); result ``r`` goes to ``<location>/<r>``, scratch to
    ``<location>/_scratch/<vertex>``. Of an input with several subtasks, ``inputs`` has a manifest each. ``receipt`` is
    a path on the submitting machine where a driver that runs there says that the outcome object exists; a driver
    elsewhere ignores it. Every ``heartbeat_s`` the driver gives a heartbeat.
    """

    job: str
    identity: RunIdentity
    trace: AttemptTrace
    tag: str
    vertices: tuple[VertexSpec, ...]
    inputs: tuple[PartitionManifest, ...]
    run: RunDates
    location: str
    journal: StoreSpec
    results: StoreSpec
    receipt: str | None = None
    heartbeat_s: float = INTERVAL_S
    subtask: Subtask = ONLY_SUBTASK
    coordinators: tuple[CoordinatorSnapshot, ...] = ()
    catalogs: dict[str, Any] = field(default_factory=dict)
    """Of Iceberg's catalogs, by their names: pyiceberg's properties without those that may hold a secret."""
    mode: Annotated[ModeSpec, Tagged("name", ModeSpec.of_mode)] = field(default_factory=ModeSpec)
    version: str = field(default_factory=own_version)
    """The version of the package that made this: the driver's must be the same."""

    @property
    def region(self) -> str:
        """The name of the region that is to be run."""
        return self.trace.region

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.trace.attempt

    @property
    def folder(self) -> str | None:
        """`Claim.folder` of the attempt, which its ``location`` ends with."""
        name = self.location.rpartition("/")[2]
        return name if "-" in name else None

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse.

        Raises `ValueError` for a NaN or an infinity, and `TypeError` for a parameter that JSON does not know.
        """
        return json.dumps(to_json(self), allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RegionSpec:
        """Inverse of `to_json`. Raises `ValueError` on anything else."""
        document = json.loads(text)
        try:
            version = document.get("version", "one before 0.1.0") if isinstance(document, dict) else None
            if version != own_version():
                raise Unlike(f"expected version {own_version()}, found {version}")
            return from_json(cls, document, exact=True)
        except Unlike as error:
            raise ValueError(
                f"expected a region spec as this version of airflow_recovery ({own_version()}, read from "
                f"{Path(__file__).parents[1]}) writes it, found another document ({error}): use the same version in "
                "the task that submits and in the driver"
            ) from error
