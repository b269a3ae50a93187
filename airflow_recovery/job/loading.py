"""Loading a job by its reference ``package.module:name``, as a DAG file and the Spark driver name it."""

from __future__ import annotations

import importlib
import re
import sys

from airflow_recovery.checks import shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.declaration import Job
from airflow_recovery.planning.graph import did_you_mean

_REFERENCE = re.compile(r"(?P<module>\w+(\.\w+)*):(?P<name>\w+)")


def load_job(reference: str) -> Job:
    """Import the module and return its job. Raises `JobDefinitionError` that says which part of the reference is wrong.

    What the module itself raises when it is imported passes through.
    """
    parts = _REFERENCE.fullmatch(reference) if isinstance(reference, str) else None
    if parts is None:
        raise JobDefinitionError(
            f"expected a job as 'package.module:name', found {shown(reference)}: write it like that",
            code="job-reference-unfit",
        )
    module_name, name = parts["module"], parts["name"]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the job's module imports is another matter: that error says what to do by itself.
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise JobDefinitionError(
            f"job {reference!r}: there is no module {error.name!r} on this machine's Python path: correct the name, or "
            "put the folder that holds it on PYTHONPATH (Airflow's DAGs folder is on it)",
            code="job-module-missing",
        ) from error
    job = getattr(module, name, None)
    if not isinstance(job, Job):
        jobs = [known for known, value in vars(module).items() if isinstance(value, Job)]
        what = f"a {type(job).__name__}" if hasattr(module, name) else "nothing"
        there = (
            f"its jobs are {', '.join(jobs)}{did_you_mean(name, jobs)}" if jobs else "the module holds no job at all"
        )
        raise JobDefinitionError(
            f"job {reference!r}: expected a Job named {name!r}, found {what}; {there}", code="job-not-in-module"
        )
    job.module_ref = job.module_ref or reference
    return job


def job_reference(job: str | Job, where: str) -> str:
    """``package.module:name`` of ``job``, which may be that already.

    A `Job` is found where it was declared: one module, which any process can import by its name, has it and the
    functions of all its vertices. Raises `JobDefinitionError`, beginning with ``where``, for any other.
    """
    if isinstance(job, str):
        return job
    if not isinstance(job, Job):
        raise JobDefinitionError(
            f"{where}: expected job= as 'package.module:name', or the Job itself, found {shown(job)}: write the name"
        )
    if job.module_ref is not None:
        return job.module_ref
    modules = sorted({vertex.function.__module__ for vertex in job.vertices.values()})
    names = [
        f"{module}:{name}"
        for module in modules
        if _is_importable(module)
        for name, value in vars(sys.modules[module]).items()
        if value is job
    ]
    if len(modules) == 1 and names:
        return names[0]
    if names:
        raise JobDefinitionError(
            f"{where}: expected job= as 'package.module:name', found {job!r}, whose vertices are in "
            f"{', '.join(modules)}: Spark's driver imports one module, so name one that imports them all, such as "
            f"job={names[0]!r}",
            code="job-in-several-modules",
            found=modules,
        )
    raise JobDefinitionError(
        f"{where}: expected job= as 'package.module:name', found {job!r} of {', '.join(modules) or 'no module'}, where "
        "Spark's driver could not import it by a name: put the job at the top of a module of its own, such as "
        f"jobs/{job.name}.py, and write job='jobs.{job.name}:<the name that it has there>'",
        code="job-not-importable",
    )


def _is_importable(module: str) -> bool:
    """Whether another process can import the module by its name. It can't import a script, nor a DAG file, which
    Airflow imports under a name of its own.
    """
    top = module.partition(".")[0]
    return (
        module in sys.modules
        and top != "__main__"
        and any(
            find is not None and find(top, None) is not None
            for find in (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        )
    )
