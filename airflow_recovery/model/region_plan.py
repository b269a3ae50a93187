"""A region as one version of the code has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from airflow_recovery.model.codec import Id, flat, later
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.mode import BATCH, RegionMode, value_class


@dataclass(frozen=True)
class SubtaskPlan:
    """A region that is one subtask of region ``of``: its index, and the content key that names it."""

    of: str
    index: int
    key: str
    batch: int | None = later(None)
    """Which batch of subtasks it is in, where one task instance runs several (`airflow_recovery.job.chains`)."""

    @property
    def map_index(self) -> int:
        """The map index of its task instance in Airflow."""
        return self.index if self.batch is None else self.batch


@dataclass(frozen=True)
class CoordinatorPlan:
    """The vertex ``vertex`` has a coordinator (`airflow_recovery.job.coordinator`), which may be volatile."""

    vertex: str
    supports_batch_snapshot: bool


@dataclass(frozen=True)
class RegionPlan:
    """One region as one version of the code has it."""

    name: Id
    vertices: tuple[str, ...]
    results: tuple[Id, ...]
    inputs: Sequence[Id]
    final: bool
    fingerprint: str | None
    vertex_fingerprints: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = later(())
    """The results that it reads, of the regions in ``inputs``. Empty, as in older journals: all of theirs."""
    determinism: tuple[tuple[str, Determinism], ...] = later(())
    """(result, mode) of the own results that are not `Determinism.ALWAYS`."""
    subtask: SubtaskPlan | None = later(None)
    persistent: bool = later(False)
    """Its results outlive the run and are shared between runs (`airflow_recovery.attempt.shared`)."""
    commit: CommitSpec | None = later(None)
    """Of a sink whose finish is not yet its commit (docs/protocol.md#commits)."""
    coordinators: tuple[CoordinatorPlan, ...] = later(())
    fixed: tuple[tuple[str, str], ...] = later(())
    """(result, URI as it is declared, perhaps a template) of the results at locations of the user's own."""
    optional: tuple[Id, ...] = later(())
    """The regions in ``inputs`` that may be absent: a run that skips one of them runs this region without it."""
    finals: tuple[str, ...] = later(())
    """Of a final region, the results that are read outside the job. Empty, as in older journals: those that nobody
    reads in it, or else all."""
    mode: RegionMode = flat(BATCH, value_class)
    """How it runs."""

    @property
    def is_volatile(self) -> bool:
        """A coordinator of it takes no snapshots."""
        return bool(self.coordinators) and any(
            not coordinator.supports_batch_snapshot for coordinator in self.coordinators
        )

    @property
    def writes_elsewhere(self) -> bool:
        """What its job makes lies where nobody here can look: in a database to which that writes by itself."""
        return not self.results and bool(self.vertices) and self.mode.name == BATCH.name

    def reads_of(self, producer: RegionPlan) -> tuple[str, ...]:
        """The results of ``producer``, one of its inputs, that it reads. Where the plan does not tell: all of them."""
        return tuple(result for result in producer.results if result in self._reads) or producer.named_results

    @property
    def named_results(self) -> tuple[str, ...]:
        """`results`; where the plan names none, one without a name, which stands for all that the region makes."""
        return self.results or ("",)

    @cached_property
    def _reads(self) -> frozenset[str]:
        return frozenset(self.reads)
