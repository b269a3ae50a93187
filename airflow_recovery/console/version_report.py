"""One version of a DAG bundle, imported in a process of its own: what its jobs are, and their plans for some runs.

`airflow_recovery.console.versions` starts it, so that two versions of one module never meet. It reads a request, and
writes its answer as JSON: see `report`.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import RecoveryError
from airflow_recovery.job import Job
from airflow_recovery.job.fingerprint import JobCode
from airflow_recovery.job.loading import load_job
from airflow_recovery.job.persistent import is_persistent
from airflow_recovery.job.vertex_changes import describe_vertex
from airflow_recovery.journal.layout import logical_date_of
from airflow_recovery.model.codec import to_json
from airflow_recovery.model.components import Component
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import PlanRecord


class Unrecorded(dict[str, Any]):
    """A run's conf, or a param, which no journal holds: each value in it is a text that says so."""

    def __init__(self, name: str, known: Mapping[str, Any] | None = None) -> None:
        super().__init__(known or {})
        self._name = name

    def __missing__(self, key: str) -> Unrecorded:
        return Unrecorded(f"{self._name}.{key}")

    def __str__(self) -> str:
        return f"{{{{ {self._name} }}}}"


@dataclass
class Declared:
    """A job of the version. ``why_not``: why it can't be told of."""

    dag_id: str
    group_id: str
    ref: str
    dag: Any = None
    job: Job | None = None
    why_not: str = ""
    is_defined: bool = True


def main() -> None:
    """``version_report REQUEST ANSWER``: the paths of two files."""
    request = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(report(request), default=str))


def report(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the version says.

    ``request``: ``root``, ``dags`` (a folder below it), ``version`` (what ``[recovery] code_version`` adds to the
    fingerprints; empty if it adds nothing) and ``runs``, each ``dag_id``, ``group_id``, ``run_key``, ``job`` and
    ``keys`` (the subtasks that it has recorded). The answer has
    ``failures``, files that can't be imported; ``jobs``, each with its vertices and regions, or why not; and ``plans``,
    one for each of ``runs``, with the fingerprints of operators that are ``rendered`` for it, and what those raise that
    are ``not_rendered``.
    ``code_version`` is the request's ``version``.
    """
    root = str(Path(request["root"]))
    code_version = str(request["version"])
    answer: dict[str, Any] = {"failures": [], "jobs": [], "plans": [], "code_version": code_version}
    declared: dict[tuple[str, str], Declared] = {}
    has_dags = False
    if find_spec("airflow") is not None and _may_have_dags(Path(request["dags"])):
        from airflow_recovery.task.dag_files import import_dag_files

        files = import_dag_files(Path(request["dags"]), Path(root))
        has_dags = bool(files.dags or files.failures)
        answer["failures"] = [vars(failure) for failure in files.failures]
        for dag_id, defined in files.dags.items():
            for each in _of_dag(dag_id, defined):
                declared[each.dag_id, each.group_id] = each
    for run in request["runs"]:
        key = (run["dag_id"], run["group_id"])
        if key not in declared:
            why_not = "" if not has_dags else "no DAG file of this version that can be imported defines it"
            if run["group_id"] == OPERATORS_GROUP and not has_dags:
                why_not = "its operators stand in DAG files, and there are none that could be imported"
            declared[key] = Declared(*key, run["job"], why_not=why_not, is_defined=not why_not or not has_dags)
    for each in declared.values():
        answer["jobs"].append(_describe(each, root, str(Path(request["dags"])), code_version))
    answer["plans"] = [_plan(declared[run["dag_id"], run["group_id"]], run, code_version) for run in request["runs"]]
    text = json.dumps(answer, default=str)
    described: dict[str, Any] = json.loads(text.replace(json.dumps(f"{root}/")[1:-1], ""))
    return described


def _may_have_dags(folder: Path) -> bool:
    """By Airflow's own rule for what is a DAG file; where there is none, its seconds of import are saved."""
    for path in folder.rglob("*"):
        if path.suffix == ".zip":
            return True
        if path.suffix == ".py" and path.is_file():
            content = path.read_bytes().lower()
            if b"dag" in content and b"airflow" in content:
                return True
    return False


def _of_dag(dag_id: str, defined: list[tuple[str, Any]]) -> Iterator[Declared]:
    from airflow_recovery.task.dag_files import has_operators, jobs_of

    names = sorted({file for file, _ in defined})
    why_not = "" if len(defined) == 1 else f"two DAGs have this name, in {' and '.join(names)}: rename one of them"
    for _, dag in defined:
        for group_id, ref in jobs_of(dag).items():
            yield Declared(dag_id, group_id, ref, dag, why_not=why_not)
        if has_operators(dag):
            yield Declared(dag_id, OPERATORS_GROUP, f"operators of {dag_id}", dag, why_not=why_not)


def _describe(declared: Declared, root: str, dags: str, code_version: str) -> dict[str, Any]:
    """The job's vertices and regions; and the job itself is left in ``declared`` for its plans."""
    found: dict[str, Any] = {
        "dag_id": declared.dag_id,
        "group_id": declared.group_id,
        "job": declared.ref,
        "vertices": {},
        "regions": [],
    }
    if not declared.why_not:
        try:
            if declared.group_id == OPERATORS_GROUP:
                from airflow_recovery.task.dag_files import described_operators
                from airflow_recovery.task.dag_operators import plan_of_dag

                found["vertices"] = dict(described_operators(declared.dag, (root, dags), code_version))
                planned = plan_of_dag(declared.dag).regions
                found["regions"] = [[region.name, list(region.vertices), list(region.results)] for region in planned]
            else:
                declared.job = job = load_job(declared.ref)
                code = JobCode(job)
                lines: dict[str, Any] = {}
                found["vertices"] = {name: describe_vertex(job, name, code, lines) for name in job.vertices}
                found["lines"] = lines
                found["regions"] = [
                    [region.name, list(region.vertices), list(region.results)] for region in job.regions().regions
                ]
                if declared.dag is not None:
                    from airflow_recovery.task.group_components import arguments_of_group

                    given = json.loads(json.dumps(arguments_of_group(declared.dag, declared.group_id), default=str))
                    for described in found["vertices"].values():
                        described["document"].update((f"{key} of the task group", given[key]) for key in given)
            for name in found["vertices"].keys() - _shared(declared.job) if code_version else ():
                found["vertices"][name]["document"]["bundle version"] = code_version
        except (Exception, SystemExit) as error:
            declared.why_not = _said(error, root)
    return {**found, "why_not": declared.why_not, "is_defined": declared.is_defined}


def _shared(job: Job | None) -> set[str]:
    """The vertices whose fingerprints hold no version of the bundle."""
    regions = () if job is None else job.regions().regions
    return {name for region in regions if job and is_persistent(region, job.vertices) for name in region.vertices}


def _plan(declared: Declared, run: Mapping[str, Any], code_version: str) -> dict[str, Any]:
    if declared.why_not:
        return {"plan": None, "why_not": declared.why_not}
    try:
        rendered, not_rendered = _rendered(declared, run, code_version)
        plan = to_json(_plan_of(declared, run, code_version))
        return {"plan": plan, "why_not": "", "rendered": rendered, "not_rendered": not_rendered}
    except RecoveryError as error:
        return {"plan": None, "why_not": str(error)}


def _rendered(declared: Declared, run: Mapping[str, Any], code_version: str) -> tuple[dict[str, str], dict[str, str]]:
    """The fingerprints of operators that the run's date decides; and what has been raised for them."""
    moment = logical_date_of(run["run_key"])
    if declared.job is not None or moment is None:
        return {}, {}
    from airflow_recovery.task.dag_files import rendered_operators

    return rendered_operators(declared.dag, moment, code_version)


def _plan_of(declared: Declared, run: Mapping[str, Any], code_version: str) -> PlanRecord:
    if declared.job is None:
        from airflow_recovery.task.dag_operators import plan_of_dag

        return plan_of_dag(declared.dag)
    moment = logical_date_of(run["run_key"])
    defaults: dict[str, Any] = {}
    with suppress(Exception):  # of params without a default, say: they are as unknown as those that a run is given
        defaults = declared.dag.params.dump() if declared.dag is not None else {}
    facts = RunFacts(moment, moment, moment, Unrecorded("conf"), Unrecorded("params", defaults))
    subtasks = {name: tuple(keys) for name, keys in run["keys"].items()}
    group: tuple[Component, ...] = ()
    if declared.dag is not None:
        from airflow_recovery.task.group_components import group_components

        group = group_components(declared.dag, declared.group_id, facts)
    record = plan_job(declared.job, declared.ref, facts, subtasks, code_version=code_version, of_group=group).record
    if declared.dag is None:
        return record
    from airflow_recovery.task.dag_operators import retention_of, strategy_of

    retention, strategy = retention_of(declared.dag, declared.group_id), strategy_of(declared.dag, declared.group_id)
    return replace(
        record,
        retention=record.retention if retention is None else retention,
        failover_strategy=record.failover_strategy if strategy is None else strategy,
    )


def _said(error: BaseException, root: str) -> str:
    """What it is, and the last place of the version's own code that it comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename.removeprefix(f'{root}/')}:{error.lineno}: SyntaxError: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(root)]
    where = f"{frames[-1].filename.removeprefix(f'{root}/')}:{frames[-1].lineno}: " if frames else ""
    kind = "" if isinstance(error, RecoveryError) else f"{type(error).__name__}: "
    return f"{where}{kind}{error}"
