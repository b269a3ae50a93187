"""What a shared result is found by besides its fingerprint: whose code makes it, and what is shipped with that code.

A result of a run is compared with earlier attempts of its own region. A shared result is found by its key alone, in all
DAGs of a deployment. So its key must also hold what tells the code of two teams apart if both have the same names.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import Any

from airflow_recovery.driver.code_archive import files_of
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.job import Job
from airflow_recovery.model.codec import digest_of

_PYC_HEADER = 16
"""Bytes before the code of a ``.pyc``: with the time of its source, which differs between two builds of one source."""


def shared_fingerprint(job: Job, vertex: str, fingerprint: str) -> str:
    """Return 32 hex digits: ``fingerprint``, whose code the vertex is, and what is shipped with it and has no source.

    In it: the distribution that installed the vertex's module (empty in a DAGs folder), the module, the content of
    compiled modules and data files of its package and of the job's ``packages``, and the vertex's ``spark_conf``. Not
    in it: the DAG, the task group and the job, so that DAGs share what the same code makes.
    """
    declared = job.vertex_named(vertex)
    module = inspect.unwrap(declared.function).__module__
    package = module.partition(".")[0]
    document: dict[str, Any] = {
        "fingerprint": fingerprint,
        "distribution": _distribution(package),
        "module": module,
        "files": sorted({*_unparsed(package), *(file for name in job.packages for file in _unparsed(name))}),
        "spark_conf": sorted(declared.spark_conf.items()),
    }
    return digest_of(document)[:32]


def _unparsed(package: str) -> Iterator[tuple[str, str]]:
    """Each file of a package that is no Python source, with the hash of its content. Source is followed."""
    spec = _spec(package)
    if spec is None:
        return
    try:
        files = dict(files_of(package))
    except ConfigurationError:  # a single compiled module
        files = {Path(spec.origin).name: Path(spec.origin)} if spec.origin and Path(spec.origin).is_file() else {}
    for folder in map(Path, spec.submodule_search_locations or ()):
        compiled = (path for path in folder.rglob("*.pyc") if path.parent.name != "__pycache__")
        files |= {f"{package}/{path.relative_to(folder).as_posix()}": path for path in compiled}
    for name, path in files.items():
        if path.suffix not in (".py", ".pyi"):
            content = path.read_bytes()[_PYC_HEADER if path.suffix == ".pyc" else 0 :]
            yield name, hashlib.sha256(content).hexdigest()


def _spec(package: str) -> ModuleSpec | None:
    return None if package == "__main__" else importlib.util.find_spec(package)


@lru_cache(maxsize=64)
def _distribution(package: str) -> str:
    """The name of the distribution that installed a top-level package; empty if none did."""
    spec = _spec(package)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]
    for installed in distributions(path=[str(folder)]):
        names = (installed.read_text("top_level.txt") or "").split()
        names = names or [PurePosixPath(file).parts[0].partition(".")[0] for file in installed.files or ()]
        if package in names:
            return str(installed.metadata["Name"])
    return ""
