"""The SDK of S3 that travels with a driver: a stock Spark image has no botocore in its Python.

A driver puts its outcome into the journal by itself, also when its task is long dead. So it needs a client of S3
wherever it runs. The packages of this worker that make one are pure Python: they go along in an archive of their own,
which the driver looks at only where its Python has none that will do. Executors need none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from airflow_recovery.driver.code_archive import build_from_files, files_of, unpacked
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.store.s3_clients import SERVICES

OLDEST = (1, 40)
"""Of botocore: as this package asks for it. Versions before 1.35 know no conditional write."""

_PACKAGES = ("botocore", "urllib3", "jmespath", "dateutil", "six")
_ARCHIVE = "airflow-recovery-s3-sdk-"


def is_on_s3(spec: RegionSpec) -> bool:
    """Whether a driver of ``spec`` talks to S3 by itself, besides what Spark reads and writes."""
    return any(store.uri.startswith(("s3://", "s3a://")) for store in (spec.journal, spec.results))


def build_sdk_archive() -> Path:
    """The archive of this environment's SDK, some 1.2 MB; made once a machine, as `code_archive.build_archive`'s."""
    return build_from_files(_ARCHIVE, dict(_files()))


def provide_sdk(archive: Path) -> None:
    """Let this process import the SDK from ``archive``, where its Python has none, or one older than `OLDEST`.

    One that is missing is put at the end of the path, so that whatever this Python has by itself (urllib3, six) stays
    as it is. One that is too old is replaced.
    """
    found = _installed()
    if found is None:
        sys.path.append(str(unpacked(archive)))
    elif found < OLDEST:
        sys.path.insert(0, str(unpacked(archive)))


def _installed() -> tuple[int, ...] | None:
    if find_spec("botocore") is None:
        return None
    try:
        return tuple(int(number) for number in version("botocore").split(".")[:2])
    except (PackageNotFoundError, ValueError):  # there, but not by pip: whoever did that knows
        return OLDEST


def _files() -> Iterator[tuple[str, Path]]:
    """Of the SDK's descriptions of 400 services, those of `SERVICES` alone."""
    for package in _PACKAGES:
        for name, path in files_of(package):
            folders = name.split("/")
            is_service = folders[:2] == ["botocore", "data"] and len(folders) > 3
            if not is_service or folders[2] in SERVICES:
                yield name, path
