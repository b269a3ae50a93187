"""Operator coordinators: what the subtasks of a source share, and how it outlives the process that held it (FLIP-383).

A coordinator lives beside the vertex that it belongs to, in the process of one attempt: an instance of the user's own
class, made without arguments. When the attempt finishes, its state (`SupportsBatchSnapshot`) is written with the
outcome; the coordinator of a later attempt is given the states of all subtasks that count then. In Flink, finishes
behind the last snapshot are thrown away; here no state is older or newer than its finish.

A class without the two methods is *volatile*. What it had handed out is known to nobody once its process is gone, so
its vertex is restarted as a whole (`airflow_recovery.planning.coordinators`).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_recovery.errors import JobDefinitionError, UserCodeError
from airflow_recovery.job.batch_snapshot import missing_methods, state_text, takes_snapshots
from airflow_recovery.model.records import CoordinatorSnapshot


def restored_coordinator(make: Callable[[], Any], vertex: str, snapshots: Iterable[CoordinatorSnapshot]) -> Any:
    """A new coordinator for one attempt of ``vertex``, restored from those of ``snapshots`` that are of this vertex.

    Raises what the user's class raises, and `UserCodeError` for a damaged snapshot.
    """
    coordinator = make()
    states = {snapshot.region: _state_of(snapshot) for snapshot in snapshots if snapshot.vertex == vertex}
    if states and takes_snapshots(coordinator):
        coordinator.restore(states)
    return coordinator


def snapshots_of(coordinators: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """(vertex, state as JSON in base64) of those that take snapshots.

    Raises what the user's class raises, and `UserCodeError` for a state that can't be kept.
    """
    return tuple(
        (vertex, base64.b64encode(_text_of(vertex, coordinator).encode()).decode())
        for vertex, coordinator in coordinators.items()
        if takes_snapshots(coordinator)
    )


def checked_coordinator(coordinator: Any, where: str) -> type[Any] | None:
    """``coordinator`` itself. Raises `JobDefinitionError` for anything but a class, with both methods or neither."""
    if coordinator is None:
        return None
    if not isinstance(coordinator, type):
        raise JobDefinitionError(
            f"{where}: expected coordinator= as a class, found {coordinator!r}: name the class, not an instance of it",
            code="coordinator-no-class",
        )
    missing = missing_methods(coordinator)
    if len(missing) == 1:
        raise JobDefinitionError(
            f"{where}: expected coordinator={coordinator.__name__} to have both snapshot_state() and restore(), or "
            f"neither, found no {missing[0]}: write it; or leave the other one out, and all subtasks restart together",
            code="coordinator-half-stateful",
            found=missing[0],
        )
    return coordinator


def _text_of(vertex: str, coordinator: Any) -> str:
    return state_text(coordinator.snapshot_state(), f"the coordinator of {vertex!r}", UserCodeError)


def _state_of(snapshot: CoordinatorSnapshot) -> Any:
    try:
        return json.loads(base64.b64decode(snapshot.body, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UserCodeError(
            f"the coordinator of {snapshot.vertex!r}: the snapshot of {snapshot.region} is damaged ({error}): clear "
            f"the task of {snapshot.region} with a restart, so that it is made again",
            code="snapshot-damaged",
            vertex=snapshot.vertex,
            region=snapshot.region,
        ) from error
