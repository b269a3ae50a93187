"""What a vertex does with a frame while it is called: each action, and each step that takes rows out of Spark's plan.

Spark's plan shows only what is lazy. A number that ``count()`` has returned is a constant in the next plan, and a
checkpoint is a leaf. So the methods of PySpark that run a job or leave the plan report to a function while a vertex is
called. They do what they did before. Classic sessions only.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Look = Callable[["DataFrame | None", str], None]
"""Called with the frame and the name of the method, before the method runs. May raise. `None`: no frame is known."""
Cut = Callable[["DataFrame"], None]
"""Called with the frame that one of `CUTS` has returned."""

ACTIONS = (
    "approxQuantile",
    "checkpoint",
    "collect",
    "corr",
    "count",
    "cov",
    "crosstab",
    "describe",
    "first",
    "foreach",
    "foreachPartition",
    "freqItems",
    "head",
    "isEmpty",
    "localCheckpoint",
    "pandas_api",
    "rdd",
    "summary",
    "tail",
    "take",
    "toArrow",
    "toJSON",
    "toLocalIterator",
    "toPandas",
    "transpose",
)
"""Methods and properties of a DataFrame that return its rows, or values computed from them. ``show`` only prints."""

CUTS = frozenset({"checkpoint", "localCheckpoint"})
"""Those that return a frame without the plan that it was made by."""

WRITES = frozenset({"write", "writeTo", "mergeInto", "sql"})
"""What puts rows where Spark may read them again. ``sql``: a command of SQL, which is reported when it has run."""

_STATISTICS = ("approxQuantile", "corr", "cov", "crosstab", "freqItems")
_VIEWS = frozenset({"CacheTable", "CacheTableAsSelect", "CreateViewCommand", "ExplainCommand"})
"""Commands after which the plan of what they were given can still be seen."""
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"

_lock = threading.Lock()
_looks: list[tuple[Look, Cut]] = []
_originals: list[tuple[type, str, Any]] = []


@contextmanager
def watched(look: Look, cut: Cut) -> Iterator[None]:
    """Report to ``look`` and ``cut`` all that any thread does with a frame meanwhile."""
    mine = (look, cut)
    with _lock:
        if not _looks:
            _replace()
        _looks.append(mine)
    try:
        yield
    finally:
        with _lock:
            _looks.remove(mine)
            if not _looks:
                _restore()


def _report(frame: DataFrame | None, name: str) -> None:
    for look, _ in tuple(_looks):
        look(frame, name)


def _replace() -> None:
    from pyspark.sql import Observation, SparkSession

    try:
        from pyspark.sql.classic import dataframe as module
    except ImportError:  # Spark 3
        from pyspark.sql import dataframe as module  # type: ignore[no-redef]
    for name in (*ACTIONS, *sorted(WRITES - {"sql"})):
        if hasattr(module.DataFrame, name):
            _put(module.DataFrame, name, lambda frame: frame)
    for name in _STATISTICS:
        _put(module.DataFrameStatFunctions, name, lambda statistics: statistics.df)
    _put(Observation, "get", lambda observation: None)
    if ml := sys.modules.get("pyspark.ml.base"):
        _put(ml.Estimator, "fit", None)
    if evaluation := sys.modules.get("pyspark.ml.evaluation"):
        _put(evaluation.Evaluator, "evaluate", None)
    _put_sql(SparkSession)


def _put(owner: type, name: str, frame_of: Callable[[Any], Any] | None) -> None:
    """Replace a method or a property. ``frame_of``: where its frame is; `None`: it is the first argument."""
    original = getattr(owner, name)
    if isinstance(original, property | functools.cached_property):
        get = original.fget if isinstance(original, property) else original.func

        def reported(self: Any) -> Any:
            _report(frame_of(self) if frame_of else self, name)
            return get(self)  # type: ignore[misc]

        _set(owner, name, property(reported))
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = frame_of(self) if frame_of else (args[0] if args else kwargs.get("dataset"))
        _report(found, name)
        result = original(self, *args, **kwargs)
        if name in CUTS:
            for _, cut in tuple(_looks):
                cut(result)
        return result

    _set(owner, name, method)


def _put_sql(session: type) -> None:
    original = session.sql  # type: ignore[attr-defined]

    @functools.wraps(original)
    def sql(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        plan = made._jdf.queryExecution().analyzed()
        is_command = self._jvm.java.lang.Class.forName(_COMMAND).isInstance(plan)
        if is_command and plan.getClass().getSimpleName() not in _VIEWS:
            _report(made, "sql")
        return made

    _set(session, "sql", sql)


def _set(owner: type, name: str, value: Any) -> None:
    _originals.append((owner, name, owner.__dict__.get(name)))
    setattr(owner, name, value)


def _restore() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
