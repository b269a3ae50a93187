"""Operator coordinators: what the subtasks of a source share, and how it outlives the process that held it (FLIP-383).

A coordinator lives beside the vertex that it belongs to, in the process of one attempt. When the attempt finishes, a
snapshot of it rides in the outcome; the coordinator of a later attempt is given the snapshots of all subtasks that
count then. So there is no snapshot that could be older or newer than the finishes (in Flink, finishes behind the last
snapshot are thrown away), and no clock says which one is the newest: they are folded.

One that takes no snapshots is *volatile*. What it had handed out is known to nobody once its process is gone, so its
vertex is restarted as a whole (`airflow_recovery.failover.coordinated`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from airflow_recovery.errors import JobDefinitionError, UserCodeError
from airflow_recovery.model.coordinator_snapshot import CoordinatorSnapshot

BATCH_CHECKPOINT_ID = -1
"""Flink's: a snapshot for batch recovery belongs to no checkpoint."""

MAX_SNAPSHOT_BYTES = 1024 * 1024
"""Of one coordinator: every attempt of its vertex reads those of all subtasks."""


@runtime_checkable
class OperatorCoordinator(Protocol):
    """What a source declares with ``coordinator=``: a class that is made without arguments, once an attempt."""

    supports_batch_snapshot: ClassVar[bool]
    """False: volatile. The other two are never called then."""

    def snapshot(self, checkpoint_id: int) -> bytes:
        """All that a later coordinator of this vertex must know of what this attempt has done."""
        ...

    def restore(self, checkpoint_id: int, snapshots: Mapping[str, bytes]) -> None:
        """Know what these say: the snapshot of each subtask that counts, by its region's name, in no order."""
        ...


def restored_coordinator(
    make: Callable[[], OperatorCoordinator], vertex: str, snapshots: Iterable[CoordinatorSnapshot]
) -> OperatorCoordinator:
    """The coordinator of one attempt of ``vertex``; of ``snapshots``, it is given those of its vertex.

    Raises what the user's class raises, and `UserCodeError` for a snapshot that is no base64.
    """
    coordinator = make()
    if coordinator.supports_batch_snapshot:
        own = {each.region: _decoded(each) for each in snapshots if each.vertex == vertex}
        coordinator.restore(BATCH_CHECKPOINT_ID, own)
    return coordinator


def snapshots_of(coordinators: Mapping[str, OperatorCoordinator]) -> tuple[tuple[str, str], ...]:
    """(vertex, snapshot as base64) of those that take snapshots. Raises `UserCodeError` for one that can't be kept."""
    found = []
    for vertex, each in coordinators.items():
        if not each.supports_batch_snapshot:
            continue
        body = each.snapshot(BATCH_CHECKPOINT_ID)
        if not isinstance(body, bytes) or len(body) > MAX_SNAPSHOT_BYTES:
            said = f"{len(body)} bytes" if isinstance(body, bytes) else repr(type(body).__name__)
            raise UserCodeError(
                f"the coordinator of {vertex!r}: expected a snapshot of at most {MAX_SNAPSHOT_BYTES} bytes, found "
                f"{said}: keep in it what later attempts must know, and nothing of the data"
            )
        found.append((vertex, base64.b64encode(body).decode()))
    return tuple(found)


def checked_coordinator(coordinator: Any, where: str) -> type[OperatorCoordinator] | None:
    """``coordinator`` itself. Raises `JobDefinitionError` for anything but such a class or `None`."""
    if coordinator is None:
        return None
    is_class = isinstance(coordinator, type)
    if not is_class or not isinstance(getattr(coordinator, "supports_batch_snapshot", None), bool):
        raise JobDefinitionError(
            f"{where}: expected coordinator= as a class with supports_batch_snapshot = True or False, found "
            f"{coordinator!r}: name the class, not an instance of it"
        )
    missing = [each for each in ("snapshot", "restore") if not callable(getattr(coordinator, each, None))]
    if coordinator.supports_batch_snapshot and missing:
        raise JobDefinitionError(
            f"{where}: expected coordinator={coordinator.__name__} to have the methods snapshot and restore, found no "
            f"{' and no '.join(missing)}: write them, or say supports_batch_snapshot = False"
        )
    return coordinator  # type: ignore[no-any-return]


def _decoded(snapshot: CoordinatorSnapshot) -> bytes:
    try:
        return base64.b64decode(snapshot.body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserCodeError(
            f"the coordinator of {snapshot.vertex!r}: the snapshot of {snapshot.region} is damaged ({error}): clear "
            f"the task of {snapshot.region} with a restart, so that it is made again"
        ) from error
