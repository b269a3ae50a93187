"""What a region runner is told: one JSON document without secrets, made by the region task after its claim."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from airflow_recovery.job.context import ONLY_SUBTASK, Subtask
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.committing import commit_spec_from_json
from airflow_recovery.model.coordinator_snapshot import CoordinatorSnapshot
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import (
    AdoptedParts,
    AttemptTrace,
    ChannelPin,
    ExternalObject,
    InputPin,
    RunIdentity,
)
from airflow_recovery.runtime.heartbeat import INTERVAL_S


def own_version() -> str:
    """The version of this very package."""
    from airflow_recovery import __version__

    return __version__


@dataclass(frozen=True)
class StoreSpec:
    """Where a store is and how to reach it. Credentials travel through the environment, never through here.

    ``encryption`` and ``kms_key_id`` are those of `airflow_recovery.storage.encryption.Encryption`.
    """

    uri: str
    endpoint_url: str | None = None
    region_name: str | None = None
    encryption: str | None = None
    kms_key_id: str | None = None
    has_own_credentials: bool = False
    """Other credentials than Spark's: they are in variables of their own (`airflow_recovery.runtime.stores`)."""


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
    """What parameters may be templates over; stays in the task, which renders them (`RunDates` is what is shipped)."""

    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None
    conf: dict[str, Any]
    params: dict[str, Any]

    @property
    def dates(self) -> RunDates:
        """The part of it that the driver is told."""
        return RunDates(self.logical_date, self.data_interval_start, self.data_interval_end)


@dataclass(frozen=True)
class VertexSpec:
    """One vertex of the region: its rendered parameters, and whether and how it is written."""

    name: str
    params: dict[str, Any]
    is_result: bool
    """Written to the attempt's prefix, or cached, and registered."""
    is_scratch: bool
    """Pipelined with several readers here that must see the same rows: written once to scratch, read back by all."""
    is_digested: bool = False
    """A result whose consumers compare rows (`Determinism.VERIFY`): its manifest gets a digest."""
    storage_level: str | None = None
    """A result that the Connect server keeps at this level, instead of its being written."""


@dataclass(frozen=True)
class SplitSpec:
    """How a region commits split by split. Which splits it was assigned is in the trace, as ``vertex``'s externals.

    ``base``: the parts of earlier attempts that it adopts. ``batch_bytes``: what one Spark job reads at most; one split
    at least. ``threads``: so many of them run at a time. ``loss_budget``: how many splits the result may do without.
    ``is_pulled``: assigned is only what the driver pulls from the source's log; the trace has what there is to pull.
    """

    vertex: str
    batch_bytes: int
    base: tuple[AdoptedParts, ...] = ()
    loss_budget: int = 0
    threads: int = 2
    is_pulled: bool = False


@dataclass(frozen=True)
class ChannelSpec:
    """One end of a channel. Options as in `airflow_recovery.job.ApproximateResult`.

    ``drained``: the generations before, in which a consumer's commits count as well.
    """

    result: str
    generation: int
    reconnect: Reconnect
    overflow: Overflow
    max_bytes: int
    block_timeout_s: float
    subpartitions: int
    partition_by: tuple[str, ...]
    budget: LossBudget
    restart_budget: LossBudget
    drained: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageSpec:
    """How a region at a channel runs. At least one of ``input`` and ``output`` is there; without ``output`` it is the
    last stage, and its one result is written when the input has ended. Options as in `airflow_recovery.job.Streaming`.

    ``earlier``: its attempts before, whose checkpoints count.
    """

    input: ChannelSpec | None
    output: ChannelSpec | None
    trigger_s: float
    max_rows: int | None
    output_mode: str
    run_for_s: float | None
    stateful: bool
    replays: bool
    allow_stateful_loss: bool
    earlier: tuple[int, ...] = ()


@dataclass(frozen=True)
class RegionSpec:
    """One attempt of one region.

    ``location`` is the attempt's data prefix (an absolute URI); result ``r`` goes to ``<location>/<r>``, scratch to
    ``<location>/_scratch/<vertex>``. Of an input with several subtasks, ``inputs`` has a manifest each. ``receipt`` is
    a path on the submitting machine where a driver that runs there says that the outcome object exists; a driver
    elsewhere ignores it. Every ``heartbeat_s`` the driver gives a sign of life.
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
    splits: SplitSpec | None = None
    stage: StageSpec | None = None
    version: str = field(default_factory=own_version)
    """Of the package that made it: the driver's must be the same."""

    @property
    def region(self) -> str:
        """The region's name."""
        return self.trace.region

    @property
    def attempt(self) -> int:
        """The attempt's number."""
        return self.trace.attempt

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse.

        Raises `ValueError` for a NaN or an infinity, and `TypeError` for a parameter that JSON does not know.
        """
        document = asdict(self)
        document["inputs"] = [each.to_json() for each in self.inputs]
        return json.dumps(document, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RegionSpec:
        """Inverse of `to_json`. Raises `ValueError` on anything else."""
        try:
            found = json.loads(text)
            if found.get("version", "one before 0.1.0") != own_version():
                raise TypeError(f"version {found.get('version')} for {own_version()}")
            return _record(
                cls,
                found,
                identity=_record(RunIdentity, found["identity"]),
                trace=_trace(found["trace"]),
                vertices=tuple(_record(VertexSpec, each) for each in found["vertices"]),
                inputs=tuple(PartitionManifest.from_json(each) for each in found["inputs"]),
                run=_record(RunDates, found["run"]),
                journal=_record(StoreSpec, found["journal"]),
                results=_record(StoreSpec, found["results"]),
                subtask=_record(Subtask, found["subtask"]),
                coordinators=tuple(_record(CoordinatorSnapshot, each) for each in found["coordinators"]),
                splits=None if found["splits"] is None else _splits(found["splits"]),
                stage=None if found["stage"] is None else _stage(found["stage"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"expected a region spec as this version of airflow_recovery ({own_version()}, read from "
                f"{Path(__file__).parents[1]}) writes it, found a document with {error!r}: use the same version in the "
                "task that submits and in the driver"
            ) from error


R = TypeVar("R")


def _trace(found: dict[str, Any]) -> AttemptTrace:
    return _record(
        AttemptTrace,
        found,
        inputs=tuple(
            _record(InputPin, each, digests=tuple((result, digest) for result, digest in each["digests"]))
            for each in found["inputs"]
        ),
        externals=tuple(_record(ExternalObject, each) for each in found["externals"]),
        commit=None if found["commit"] is None else commit_spec_from_json(found["commit"]),
        channels=tuple(_record(ChannelPin, each) for each in found["channels"]),
    )


def _splits(found: dict[str, Any]) -> SplitSpec:
    base = (_record(AdoptedParts, each, dropped=tuple(each["dropped"])) for each in found["base"])
    return _record(SplitSpec, found, base=tuple(base))


def _stage(found: dict[str, Any]) -> StageSpec:
    return _record(
        StageSpec,
        found,
        input=None if found["input"] is None else _channel(found["input"]),
        output=None if found["output"] is None else _channel(found["output"]),
        earlier=tuple(found["earlier"]),
    )


def _channel(found: dict[str, Any]) -> ChannelSpec:
    return _record(
        ChannelSpec,
        found,
        reconnect=Reconnect(found["reconnect"]),
        overflow=Overflow(found["overflow"]),
        partition_by=tuple(found["partition_by"]),
        budget=_record(LossBudget, found["budget"]),
        restart_budget=_record(LossBudget, found["restart_budget"]),
        drained=tuple(found["drained"]),
    )


def _record(kind: type[R], found: dict[str, Any], **read: Any) -> R:
    """A dataclass from a JSON object with exactly its fields; ``read`` holds those that are not plain JSON."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if found.keys() != names:
        raise TypeError(f"{kind.__name__} with the fields {sorted(found.keys() ^ names)}")
    return kind(**{**found, **read})
