"""Loading a job by its reference ``package.module:name``, as a DAG file and the Spark driver name it."""

from __future__ import annotations

import importlib
import re

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.declaration import Job
from airflow_recovery.topology.graph import did_you_mean

_REFERENCE = re.compile(r"(?P<module>\w+(\.\w+)*):(?P<name>\w+)")


def load_job(reference: str) -> Job:
    """Import the module and return its job. Raises `JobDefinitionError` that says which part of the reference is wrong.

    What the module itself raises when it is imported passes through.
    """
    parts = _REFERENCE.fullmatch(reference)
    if parts is None:
        raise JobDefinitionError(f"expected a job as 'package.module:name', found {reference!r}: write it like that")
    module_name, name = parts["module"], parts["name"]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the job's module imports is another matter: that error says what to do by itself.
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise JobDefinitionError(
            f"job {reference!r}: there is no module {error.name!r} on this machine's Python path: correct the name, or "
            "put the folder that holds it on PYTHONPATH (Airflow's DAGs folder is on it)"
        ) from error
    found = getattr(module, name, None)
    if not isinstance(found, Job):
        jobs = [each for each, value in vars(module).items() if isinstance(value, Job)]
        what = f"a {type(found).__name__}" if hasattr(module, name) else "nothing"
        there = (
            f"its jobs are {', '.join(jobs)}{did_you_mean(name, jobs)}" if jobs else "the module holds no job at all"
        )
        raise JobDefinitionError(f"job {reference!r}: expected a Job named {name!r}, found {what}; {there}")
    found.module_ref = found.module_ref or reference
    return found
