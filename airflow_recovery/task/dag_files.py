"""The DAG files of one version of a bundle, imported in this process: no database is asked, and no task is run."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow_recovery.airflow_compat import DagBag, get_importer_registry
from airflow_recovery.job.templates import names_used
from airflow_recovery.model.components import bundle_version, fingerprint_of
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.dag_operators import drop_ins_of
from airflow_recovery.task.operator_components import names_from_context

if TYPE_CHECKING:
    import pendulum

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class ImportFailure:
    """A file of the bundle, with the line where that is known, and what it has raised."""

    where: str
    message: str


@dataclass
class DagFiles:
    """By DAG id, every file that defines it, with the DAG; and the files that can't be imported."""

    dags: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    failures: list[ImportFailure] = field(default_factory=list)


def import_dag_files(folder: Path, root: Path) -> DagFiles:
    """Import every DAG file below ``folder``, as the DAG processor would. Files are named as seen from ``root``."""
    found = DagFiles()
    for path in sorted(get_importer_registry().list_dag_files(folder)):
        # One bag a file: in a common one the second DAG of a name would be gone.
        bag: Any = DagBag(dag_folder=folder, collect_dags=False, bundle_path=root)
        for dag in bag.process_file(path, only_if_updated=False):
            found.dags.setdefault(dag.dag_id, []).append((str(Path(path).relative_to(root)), dag))
        found.failures += [failure_of(text, str(root), file) for file, text in bag.import_errors.items()]
    return found


def failure_of(text: str, root: str, file: str) -> ImportFailure:
    """What a traceback, or a message without one, says: the last place in it that is below ``root``."""
    places = [(path, line) for path, line in _FRAME.findall(text) if path.startswith(root)]
    path, line = places[-1] if places else (file, "")
    lines = [each for each in text.strip().splitlines() if each.strip()]
    where = path.removeprefix(root).lstrip("/") + (f":{line}" if line else "")
    said = lines[-1].strip() if lines else "no message"
    return ImportFailure(where, re.sub(r"^airflow_recovery\.errors\.\w+: ", "", said))


def jobs_of(dag: Any) -> dict[str, str]:
    """The declared jobs of a DAG: the reference of each task group's, by the group's id."""
    regions = (task for task in dag.tasks if getattr(task, "region", None) and getattr(task, "job", None))
    return {str(task.group_id): str(task.job) for task in regions}


def has_operators(dag: Any) -> bool:
    """Whether any of its tasks is a recoverable operator."""
    return bool(drop_ins_of(dag))


def described_operators(
    dag: Any, roots: Sequence[str] = (), code_version: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each recoverable operator as `airflow_recovery.job.vertex_changes.describe_vertex` has a vertex.

    ``fingerprint`` is what its task takes of it. It is `None` if that task alone renders a template in it, or if its
    code is not on this machine: no store is asked here. ``code_version`` is in it. ``declared``: what other tasks
    compare of it, for each of ``roots``, the folders that may be that of the bundle in Airflow.
    """
    for task_id in drop_ins_of(dag):
        operator = dag.task_dict[task_id]
        code = ApplicationCode(operator)
        document = operator.computes(code)
        fields = {name: getattr(operator, name, None) for name in operator.template_fields}
        unknown = sorted(_template_names(fields) | _taken(operator)) or (
            ["a template file"] if _reads_file(operator, fields) else []
        )
        unknown += [f"the content of {uri}" for uri in code.unread]
        yield (
            task_id,
            {
                "document": document,
                "unknown": unknown,
                "function": task_id,
                "units": [],
                "fingerprint": None if unknown else _fingerprint(operator, document, code_version),
                "declared": [digest for root in roots if (digest := operator.declared(root)) is not None],
            },
        )


def rendered_operators(dag: Any, logical_date: str, code_version: str = "") -> tuple[dict[str, str], dict[str, str]]:
    """What each recoverable operator's task takes of it in a run of that date (ISO 8601), by task id; and why not.

    Of those alone whose templates name nothing but that date; a function of the user's own may stand in none. The
    second: what those have raised here.
    """
    from pendulum import parse

    moment = cast("pendulum.DateTime", parse(logical_date))
    names = {
        "ds": moment.strftime("%Y-%m-%d"),
        "ds_nodash": moment.strftime("%Y%m%d"),
        "logical_date": moment,
        "ts": moment.isoformat(),
    }
    fingerprints: dict[str, str] = {}
    errors: dict[str, str] = {}
    for task_id in drop_ins_of(dag):
        operator = copy.copy(dag.task_dict[task_id])
        fields = {name: getattr(operator, name, None) for name in operator.template_fields}
        if _taken(operator) or _reads_file(operator, fields) or not _template_names(fields) <= names.keys():
            continue
        try:
            operator.render_template_fields(names)
            code = ApplicationCode(operator)
            fingerprint = _fingerprint(operator, operator.computes(code), code_version)
            if not code.unread:
                fingerprints[task_id] = fingerprint
        except Exception as error:  # what can't be rendered here is not known here
            errors[task_id] = f"{type(error).__name__}: {error}"
    return fingerprints, errors


def _fingerprint(operator: Any, document: dict[str, Any], code_version: str) -> str:
    return fingerprint_of((*operator.components_of(document), *bundle_version(code_version)))


def _taken(operator: Any) -> set[str]:
    """What its function takes from the context of a run."""
    return set(names_from_context(operator))


def _template_names(fields: dict[str, Any]) -> set[str]:
    names: set[str] = set()
    for value in fields.values():
        with suppress(TypeError, ValueError):
            names |= names_used({"value": value})
    return names


def _reads_file(operator: Any, fields: dict[str, Any]) -> bool:
    endings = tuple(operator.template_ext or ())
    return bool(endings) and any(isinstance(value, str) and value.endswith(endings) for value in fields.values())
