"""What the arguments of a task group add to the fingerprints of its declared job: settings of Spark, and code.

They are equal for all regions, whichever task plans the job. So a template is rendered only if it uses nothing but the
run, as in ``params=``; any other counts as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import FingerprintError
from airflow_recovery.job.row_settings import IMAGES, declared_settings, row_settings
from airflow_recovery.job.templates import ALLOWED, names_used, render
from airflow_recovery.model.components import Component, components_of
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.code_places import PROPERTIES_FILE, PlaceKind, places_of_submit

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.job.context import RunLike

_OF_SUBMIT = ("archives", "conf", "driver_class_path", "files", "jars", "packages", "properties_file", "py_files")
_OF_PACKAGES = ("exclude_packages", "repositories")


def group_components(dag: Any, group_id: str, facts: RunLike, stores: Stores | None = None) -> tuple[Component, ...]:
    """Return the components of the arguments that all regions of a task group are given; none without a group.

    Without ``stores``, raises `FingerprintError` if an argument names code that only a store has. An image is shown,
    and does not decide: a vertex's code travels to it.
    """
    given = _rendered(arguments_of_group(dag, group_id), facts, f"SparkJobTaskGroup {group_id!r}")
    if not given:
        return ()
    operator = SimpleNamespace(**given)
    conf = declared_settings(operator)
    settings = {name: value for name, value in row_settings(conf).items() if name not in IMAGES}
    parts = [(f"setting {name}", value) for name, value in settings.items()]
    parts += [(f"argument {name}", given[name]) for name in _OF_PACKAGES if given.get(name)]
    places = places_of_submit(given, conf)
    code = ApplicationCode(operator, stores)
    found = code.components(place for place in places if place.kind is not PlaceKind.IMAGE)
    if code.unread:
        raise FingerprintError(
            f"{group_id}: expected to read the code that its arguments name, found no way to read "
            f"{', '.join(code.unread)} here: only a task can"
        )
    images = code.components(place for place in places if place.kind is PlaceKind.IMAGE)
    return (
        *components_of(parts),
        *(each for each in found if not (each.seen and each.name.startswith(f"{PROPERTIES_FILE} "))),
        *(replace(each, decides=False) for each in images),
    )


def arguments_of_group(dag: Any, group_id: str) -> dict[str, Any]:
    """Return the arguments of spark-submit that count, as they are written. All regions of a group have the same."""
    tasks = [task for task in getattr(dag, "tasks", ()) if getattr(task, "group_id", None) == group_id]
    regions = sorted((task for task in tasks if hasattr(task, "region")), key=lambda task: str(task.task_id))
    given: Mapping[str, Any] = getattr(regions[0], "_BaseOperator__init_kwargs", {}) if regions else {}
    return {name: given[name] for name in (*_OF_SUBMIT, *_OF_PACKAGES) if given.get(name)}


def _rendered(given: Mapping[str, Any], facts: RunLike, where: str) -> dict[str, Any]:
    of_run = {name: value for name, value in given.items() if names_used({name: value}) <= {*ALLOWED}}
    settings = {name: _rendered(value, facts, where) for name, value in given.items() if isinstance(value, Mapping)}
    return {**given, **settings, **render(of_run, facts, where=where)}
