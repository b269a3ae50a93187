"""Result types (FLIP-1, `ResultPartitionType` in Flink): a registered object each, which answers three questions.

1. When can a consumer run? Only if it *must* run together with its producer, they are one region.
2. Who keeps its rows? Files in the store of results, or a keeper (`airflow_recovery.results.keeper`).
3. Does it outlive the run?
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import scheme_at


class Consume(str, Enum):
    """When a consumer can run, as seen from its producer."""

    AFTER_FINISH = "after the producer has finished"
    MAY_RUN_TOGETHER = "may run together"
    MUST_RUN_TOGETHER = "must run together"


@dataclass(frozen=True)
class ResultType:
    """The type of an intermediate result. Only the answers decide, never the names.

    ``consume``: when a consumer can run. ``is_runnable``: a job can be declared with it. ``persistent``: it outlives
    the run, and goes only on request. ``kept_by``: who keeps its rows, as ``"module:name"`` of a
    `airflow_recovery.results.keeper.ResultKeeper`, which is imported if a result of the type is written, read, looked
    for or deleted; empty for files in the store of results. ``scheme``: what the locations of such results begin with.
    ``is_cached``: a live Spark application keeps it, and it is lost with that application.

    A type of your own: make one, `register` it in the module that the job's module takes it from, and declare
    ``result=`` with it. Processes that don't import that module don't know the type: the API server takes its results
    to be there, and ``airflow recovery gc`` leaves them.
    """

    name: str
    consume: Consume
    is_runnable: bool = False
    persistent: bool = False
    kept_by: str = ""
    scheme: str = ""
    is_cached: bool = False

    PIPELINED: ClassVar[ResultType]
    """A lazy DataFrame inside one Spark application: producer and consumers form one region."""

    PIPELINED_BOUNDED: ClassVar[ResultType]
    """Pipelined with a bounded buffer."""

    PIPELINED_APPROXIMATE: ClassVar[ResultType]
    """A channel between two applications that run at the same time; it can be connected again, at a loss (FLIP-135)."""

    BLOCKING: ClassVar[ResultType]
    """Written, registered in the journal and read again: recovery never goes back past it while it is registered."""

    BLOCKING_PERSISTENT: ClassVar[ResultType]
    """Blocking, and outlives the run: shared between runs, and let go only on request."""

    HYBRID_FULL: ClassVar[ResultType]
    """Can be read while it is made, and again afterwards."""

    HYBRID_SELECTIVE: ClassVar[ResultType]
    """Can be read while it is made, and once: what was read is not kept."""

    CACHED: ClassVar[ResultType]
    """Kept by a live Spark application, on its disks if need be: a barrier while that application lives (FLIP-1)."""

    CACHED_MEMORY_ONLY: ClassVar[ResultType]
    """Kept by a live Spark application in memory alone: eviction is a loss, too."""

    def __post_init__(self) -> None:
        check_arguments(ResultType.__init__, vars(self), "ResultType", error=ConfigurationError)

    def __repr__(self) -> str:
        return f"<ResultType {self.name}>"

    @property
    def must_run_together(self) -> bool:
        """Producer and consumer are one unit of restart: the one thing that glues a region."""
        return self.consume is Consume.MUST_RUN_TOGETHER


RESULT_TYPES: dict[str, ResultType] = {}
"""Every registered type by its name."""

_KEPT_BY: dict[str, str] = {}
"""Who keeps the results of a scheme."""


def register(result_type: ResultType) -> ResultType:
    """Add ``result_type`` to `RESULT_TYPES`, and return it.

    Raises `ConfigurationError` if another type has its name, or if another keeper or a store has its scheme.
    """
    scheme, other = result_type.scheme, RESULT_TYPES.get(result_type.name, result_type)
    keeper = _KEPT_BY.get(scheme, result_type.kept_by)
    is_of_store = bool(scheme) and scheme_at(f"{scheme}://bucket/folder") is not None
    if other != result_type or keeper != result_type.kept_by or is_of_store:
        found = f"the store {scheme}://" if is_of_store else f"{scheme!r} kept by {keeper!r}"
        raise ConfigurationError(
            f"result type {result_type.name}: expected a name that no other type has, and a scheme that no keeper and "
            f"no store has, found {found}, and the types {', '.join(RESULT_TYPES)}: choose others",
            code="result-type-taken",
        )
    return _add(result_type)


def _add(result_type: ResultType) -> ResultType:
    RESULT_TYPES[result_type.name] = result_type
    if result_type.scheme:
        _KEPT_BY[result_type.scheme] = result_type.kept_by
    return result_type


def kept_by(location: str) -> str:
    """Who keeps a result with this location, as `ResultType.kept_by`; empty for files in a store, and for a table."""
    return _KEPT_BY.get(location.partition("://")[0], "")


_AFTER, _TOGETHER, _MAY = Consume.AFTER_FINISH, Consume.MUST_RUN_TOGETHER, Consume.MAY_RUN_TOGETHER
_SERVER, SPARK_CONNECT = "airflow_recovery.driver.cached:KEEPER", "spark-connect"

PIPELINED = ResultType.PIPELINED = _add(ResultType("PIPELINED", _TOGETHER, is_runnable=True))
ResultType.PIPELINED_BOUNDED = _add(ResultType("PIPELINED_BOUNDED", _TOGETHER))
PIPELINED_APPROXIMATE = ResultType.PIPELINED_APPROXIMATE = _add(ResultType("PIPELINED_APPROXIMATE", _MAY))
BLOCKING = ResultType.BLOCKING = _add(ResultType("BLOCKING", _AFTER, is_runnable=True))
BLOCKING_PERSISTENT = ResultType.BLOCKING_PERSISTENT = _add(
    ResultType("BLOCKING_PERSISTENT", _AFTER, is_runnable=True, persistent=True)
)
ResultType.HYBRID_FULL = _add(ResultType("HYBRID_FULL", _MAY))
ResultType.HYBRID_SELECTIVE = _add(ResultType("HYBRID_SELECTIVE", _MAY))
CACHED = ResultType.CACHED = _add(
    ResultType("CACHED", _AFTER, is_runnable=True, is_cached=True, kept_by=_SERVER, scheme=SPARK_CONNECT)
)
CACHED_MEMORY_ONLY = ResultType.CACHED_MEMORY_ONLY = _add(
    ResultType("CACHED_MEMORY_ONLY", _AFTER, is_runnable=True, is_cached=True, kept_by=_SERVER, scheme=SPARK_CONNECT)
)
