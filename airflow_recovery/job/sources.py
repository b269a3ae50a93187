"""Files outside the job that a source vertex reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from airflow_recovery.errors import JobDefinitionError


@dataclass(frozen=True)
class FilePattern:
    """Which files a source reads: a URI or absolute path of a file, of a folder, or a glob (`airflow_recovery.source`).

    It may be a template over the run, as parameters may.
    """

    pattern: str


def files(pattern: str) -> FilePattern:
    """Declare a source's files: ``@flights.source(splits=files("s3://lake/flights/{{ ds }}/*.csv"))``.

    The files are listed when the region is about to run; each one's key, size and etag belong to the trace, so that a
    file that came, went or changed means that the region runs again. Nothing is listed here.
    """
    if not isinstance(pattern, str) or not pattern.strip():
        raise JobDefinitionError(
            f"files(): expected a pattern such as 's3://lake/flights/*.csv', found {pattern!r}: name the files"
        )
    return FilePattern(pattern)


@dataclass(frozen=True)
class FileSplit:
    """One file: its absolute URI, its size in bytes, and the etag that it was listed with."""

    uri: str
    size: int
    etag: str


@dataclass(frozen=True)
class FileSplits(Sequence[FileSplit]):
    """The files of one source, in listing order, handed to a parameter named ``splits``.

    ``spark_paths`` are the same files as Spark reads them (``s3a://`` for ``s3://``), in the same order.
    """

    files: tuple[FileSplit, ...]
    spark_paths: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.files) != len(self.spark_paths):
            raise ValueError(f"expected one path a file, found {len(self.spark_paths)} for {len(self.files)}")

    @property
    def paths(self) -> list[str]:
        """What to hand to Spark: ``spark.read.csv(splits.paths)``."""
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
