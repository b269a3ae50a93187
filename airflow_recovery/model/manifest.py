"""Manifests: which objects a result partition is made of. The manifest decides, never a listing or ``_SUCCESS``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ResultObject:
    """One object of a result partition, by its path below the partition's location."""

    path: str
    size: int
    etag: str


@dataclass(frozen=True)
class PartitionManifest:
    """One result partition as one attempt wrote it.

    ``location`` is an absolute URI without a slash at the end. ``rows`` and ``schema`` (Spark's JSON form) are unknown
    (`None`) for applications that are not run by our region runner. ``digest`` stands for the rows, whatever their
    order and files (`airflow_recovery.driver.digest`); it is there where the result is declared ``verify``.
    """

    result: str
    location: str
    objects: tuple[ResultObject, ...]
    rows: int | None = None
    schema: str | None = None
    managed: bool = True
    digest: str | None = None

    @property
    def size(self) -> int:
        """Bytes in all objects."""
        return sum(each.size for each in self.objects)

    def uris(self) -> list[str]:
        """Absolute URIs of the objects, in listing order."""
        return [f"{self.location}/{each.path}" for each in self.objects]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        found = {
            "result": self.result,
            "location": self.location,
            "objects": [[each.path, each.size, each.etag] for each in self.objects],
            "rows": self.rows,
            "schema": self.schema,
            "managed": self.managed,
        }
        # Not in the first version: without one, the bytes are as they were.
        return found if self.digest is None else {**found, "digest": self.digest}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PartitionManifest:
        """Inverse of `to_json`. Raises `KeyError`, `TypeError` or `ValueError` on anything else."""
        return cls(
            result=value["result"],
            location=value["location"],
            objects=tuple(ResultObject(str(path), int(size), str(etag)) for path, size, etag in value["objects"]),
            rows=value["rows"],
            schema=value["schema"],
            managed=bool(value["managed"]),
            digest=value.get("digest"),
        )
