"""Who keeps the rows of a result that is no files in a store: written, read, looked for and deleted by one object.

A result type names its keeper (`airflow_recovery.model.result_type.ResultType.kept_by`), and the location of a result
leads to it by its scheme. `airflow_recovery.driver.cached` has the keeper of ``CACHED`` results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from logging import Logger
from typing import TYPE_CHECKING, ClassVar

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.result_type import RESULT_TYPES, ResultType, kept_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ResultPlace:
    """Where one result of one attempt goes.

    ``journal``: the base URI of the store of journals, which tells deployments apart. ``folder``: the URI of a folder
    that no other attempt has, below the store of results. ``server``: the Spark Connect server that runs the region,
    `None` for an application of its own. ``where`` names the vertex in errors. ``is_digested``: readers compare rows,
    so that the manifest needs a digest of them.
    """

    type: ResultType
    result: str
    identity: RunIdentity
    region: str
    attempt: int
    journal: str
    folder: str
    server: str | None
    where: str
    is_digested: bool = False


AskServer = Callable[[PartitionManifest], "str | None"]
"""Asks the Spark Connect server of a result: `None` if the server has it, else why not."""


class ResultKeeper:
    """What must be known of a way to keep results. Spark is at hand in `write`, `read` and `after_failure` alone."""

    is_made_again: ClassVar[bool] = False
    """Whether what is lost of it is made again without a word, from the files that its region has read."""

    def write(self, spark: SparkSession, frame: DataFrame, place: ResultPlace) -> PartitionManifest:
        """Keep the rows of ``frame``, and return the manifest of the result. Its location has the type's scheme.

        The location must be one that no other attempt has had. An attempt may be killed at any point of this.
        """
        raise NotImplementedError

    def read(self, spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
        """A lazy frame over the rows. Raises `PartitionMissing` if they are gone."""
        raise NotImplementedError

    def why_lost(self, manifest: PartitionManifest, ask_server: AskServer) -> str | None:
        """`None` if the rows are there as they were written, else why not. Asked in the task, without Spark.

        Raises an error of `airflow_recovery.errors` if there is no answer, which never means that a result is gone.
        """
        raise NotImplementedError

    def folders(self, below: str) -> Iterable[str]:
        """Every `ResultPlace.folder` that begins with ``below`` and of which something is kept.

        Also of attempts that ended in the middle of `write`. By default none: then `delete` is not called.
        """
        return ()

    def delete(self, folder: str) -> None:
        """Let all go that was written for this `ResultPlace.folder`. That it is gone already is no error."""

    def after_failure(
        self, error: Exception, spark: SparkSession, inputs: Sequence[PartitionManifest], log: Logger
    ) -> None:
        """After ``error`` of a region that read ``inputs``, raise `PartitionMissing` if one of them is lost."""


def keeper_of(location: str) -> ResultKeeper | None:
    """The keeper of a result at ``location``; `None` for files in a store, and for a table."""
    name = kept_by(location)
    return keeper(name) if name else None


@cache
def keeper(name: str) -> ResultKeeper:
    """The keeper ``"module:name"``. Raises `ConfigurationError` if there is none."""
    module, _, attribute = name.partition(":")
    found: object = getattr(import_module(module), attribute, None)
    if not isinstance(found, ResultKeeper):
        raise ConfigurationError(
            f"kept_by={name!r}: expected a ResultKeeper there, found {found!r}: name another one", code="keeper-unfit"
        )
    return found


def kept_below(prefix: str) -> Iterator[tuple[ResultKeeper, str]]:
    """Every keeper of a registered type, with each folder below the URI ``prefix`` of which it keeps something."""
    for name in dict.fromkeys(result_type.kept_by for result_type in RESULT_TYPES.values() if result_type.kept_by):
        for folder in keeper(name).folders(prefix):
            yield keeper(name), folder
