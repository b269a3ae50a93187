"""Manifests: which objects a result partition is made of. The manifest decides, never a listing or ``_SUCCESS``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from airflow_recovery.model.codec import ROW, Check, later, needed


def _stays(path: str) -> bool:
    if "\0" in path:
        return False
    return ("/." not in path and path[:1] != ".") or not {".", ".."} & set(path.split("/"))


Path = Annotated[str, Check("a path that stays where it begins", _stays)]
"""What is read, and one day deleted, must be what it says (docs/faults.md, fault 86)."""


FILES_DIGEST, ORDERED_DIGEST = "files1", "ordered1"
"""What digests of files, and of rows in their order, begin with. Digests of two kinds are never equal."""


def is_of_rows(digest: str) -> bool:
    """Whether results with other digests than this one may be said to have other rows."""
    return not digest.startswith((FILES_DIGEST, ORDERED_DIGEST))


@dataclass(frozen=True)
class ResultObject:
    """One object of a result partition, by its path below the partition's location."""

    path: Path
    size: int
    etag: str


@dataclass(frozen=True)
class PartitionManifest:
    """One result partition as one attempt wrote it.

    ``location`` is an absolute URI without a slash at the end. ``rows`` and ``schema`` (Spark's JSON form) are unknown
    (`None`) for applications that are not run by our region runner. ``digest`` stands for the rows; it is there where
    the result is declared ``verify`` (`airflow_recovery.driver.digest`; `airflow_recovery.results.output_digest` for
    a user's own application).
    """

    result: str
    location: Path
    objects: tuple[Annotated[ResultObject, ROW], ...]
    rows: int | None = needed(None)
    schema: str | None = needed(None)
    managed: bool = needed(True)
    digest: str | None = later(None)

    @property
    def size(self) -> int:
        """How many bytes the objects have together."""
        return sum(file.size for file in self.objects)

    def uris(self) -> list[str]:
        """Absolute URIs of the objects, in listing order."""
        return [f"{self.location}/{file.path}" for file in self.objects]
