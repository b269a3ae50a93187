"""What a source's function is handed as ``splits``: which part of its input it reads in this call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar, overload

from airflow_recovery.model.split import Split

S = TypeVar("S", bound=Sequence[Any])


@dataclass(frozen=True)
class FileSplit:
    """One file: its absolute URI, its size in bytes, and the etag that it was listed with."""

    uri: str
    size: int
    etag: str


@dataclass(frozen=True)
class FileSplits(Sequence[FileSplit]):
    """The files of one source, in listing order, handed to a parameter named ``splits``.

    ``spark_paths`` are the same files as Spark reads them, in the same order: ``s3a://`` for ``s3://``, and a backslash
    before what Spark would take for a glob. Another reader takes ``uri``.
    """

    files: tuple[FileSplit, ...]
    spark_paths: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.files) != len(self.spark_paths):
            raise ValueError(f"expected one path a file, found {len(self.spark_paths)} for {len(self.files)}")

    @property
    def paths(self) -> list[str]:
        """The paths for Spark, in listing order: ``spark.read.csv(splits.paths)``."""
        return list(self.spark_paths)

    @overload
    def __getitem__(self, index: int) -> FileSplit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FileSplit]: ...
    def __getitem__(self, index: int | slice) -> FileSplit | Sequence[FileSplit]:
        return self.files[index]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[FileSplit]:
        return iter(self.files)


@dataclass(frozen=True)
class Splits(Sequence[Split]):
    """The splits of one source that are no files: ``[split.payload for split in splits]`` says what to read."""

    splits: tuple[Split, ...]

    @property
    def payloads(self) -> list[Any]:
        """The splits' payloads, as their enumerator gave them, in order."""
        return [split.payload for split in self.splits]

    @overload
    def __getitem__(self, index: int) -> Split: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Split]: ...
    def __getitem__(self, index: int | slice) -> Split | Sequence[Split]:
        return self.splits[index]

    def __len__(self) -> int:
        return len(self.splits)

    def __iter__(self) -> Iterator[Split]:
        return iter(self.splits)


@dataclass(frozen=True)
class KeyRangeSplits(Splits):
    """Key ranges of a table; ``payload`` is ``{"lower": 0, "upper": 1000, "predicate": "id >= 0 AND id < 1000"}``."""

    @property
    def predicates(self) -> list[str]:
        """The ranges as conditions in SQL: ``spark.read.jdbc(url, "flights", predicates=splits.predicates)``."""
        return [payload["predicate"] for payload in self.payloads]


@dataclass(frozen=True)
class DateSplits(Splits):
    """Days; ``payload`` is the day as a text, ``"2013-01-31"``."""

    @property
    def days(self) -> list[date]:
        """The payloads as dates, in order."""
        return [date.fromisoformat(payload) for payload in self.payloads]


def files_handed(splits: Sequence[Split], spark_path: Callable[[str], str]) -> FileSplits:
    """Files as they are handed over. ``spark_path`` makes a URI one that Spark reads."""
    return FileSplits(
        tuple(FileSplit(split.uri, split.size, split.etag) for split in splits),
        tuple(spark_path(split.uri) for split in splits),
    )
