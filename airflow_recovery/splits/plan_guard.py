"""The guard of ``commit="split"``: refuses what gives other rows in batches than at once.

See docs/splits.md#when-it-is-right.

Batches may be read one by one where a vertex treats every row of the splits by itself: then the rows of all batches
together are those of one pass. The guard walks the *analysed* plan of every vertex, in each batch. The optimised plan
hides some of it: a cached frame is a leaf there, and constants may be folded away.

It proves nothing of what it can't see: what a Python function does, and rows that the driver has collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_BY_ROW = frozenset(
    {
        "CollectMetrics",
        "DeserializeToObject",
        "Expand",
        "Filter",
        "Generate",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SerializeFromObject",
        "SubqueryAlias",
        "TypedFilter",
        "View",
    }
)
"""Nodes of Spark's plan with one child that treat every row by itself, or hand Python the rows. All others are refused:
a node that a later Spark invents is not sound because nobody has thought of it."""

_WHOLE = {
    "Aggregate": "an aggregate (groupBy, agg, count, dropDuplicates or distinct)",
    "Deduplicate": "dropDuplicates",
    "Distinct": "distinct",
    "Except": "subtract",
    "FlatMapCoGroupsInArrow": "cogroup",
    "FlatMapCoGroupsInPandas": "cogroup",
    "FlatMapGroupsInArrow": "an aggregate (applyInArrow)",
    "FlatMapGroupsInPandas": "an aggregate (applyInPandas)",
    "GlobalLimit": "limit",
    "Intersect": "intersect",
    "LocalLimit": "limit",
    "Offset": "offset",
    "Sample": "sample",
    "Sort": "a sort (orderBy)",
    "Tail": "tail",
    "Window": "a window function",
}
"""Node -> what the user has written, for messages."""

_PICKS_ROWS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Sample", "Tail"})
"""They take rows in no certain order, so that every batch would take others, of a side input as well."""

_KEPT_SIDES = {
    "INNER": (True, True),
    "CROSS": (True, True),
    "LEFT OUTER": (True, False),
    "LEFT SEMI": (True, False),
    "LEFT ANTI": (True, False),
    "RIGHT OUTER": (False, True),
}
"""Join type -> may the rows of the splits stand (left, right)? The rows of the other side must not come by themselves,
since they would once in every batch."""

_NEEDS_ALL = "it needs the rows of all splits at once"
_PICKS = "which rows it takes is up to the moment, and every batch would take its own"
_COMES_AGAIN = "those would come once in every batch"
_OF_THE_ROW = "make such a value of the row itself, for example with xxhash64 of its columns"

_STABLE = frozenset({"input_file_name"})
"""Expressions that Spark calls not deterministic, and that are always the same for one split."""


class RowLocalGuard:
    """Looks at the frames of one batch. Classic sessions only: over Spark Connect there is no plan to look at."""

    def __init__(self) -> None:
        self._leaves: list[Any] = []
        self._named: dict[int, bool] = {}

    def mark(self, frame: DataFrame) -> None:
        """Note that all that ``frame`` reads depends on the splits: the source or this batch has made it."""
        self._leaves += _leaves(_plan(frame))

    def check(self, frame: DataFrame, where: str, *, is_result: bool) -> None:
        """Raise `JobDefinitionError` where ``frame`` can't be made batch by batch. ``where`` names its vertex."""
        plan = _plan(frame)
        if not self._check(plan, where) and is_result:
            raise JobDefinitionError(
                f"{where}: expected a result that is made of the splits, found one that reads none of them: it would "
                "be written once for every batch. Declare it in a vertex without commit='split'"
            )

    def _check(self, node: Any, where: str) -> bool:
        """Whether the rows of ``node`` depend on the splits. Raises where they do so in another way than row by row."""
        name = node.getClass().getSimpleName()
        if name == "WithCTE":
            for definition in _seq(node.cteDefs()):
                self._named[definition.id()] = self._check(definition.child(), where)
            return self._check(node.plan(), where)
        if name == "CTERelationRef":
            return self._named[node.cteId()]
        children = list(_seq(node.children()))
        if not children:
            return any(_reads_the_same(leaf, node) for leaf in self._leaves)
        hangs = [self._check(child, where) for child in children]
        inner = [self._check(subquery, where) for subquery in _seq(node.subqueries())]  # all of them
        if any(inner):
            raise _refused(where, "a subquery over the splits", _NEEDS_ALL)
        if name in _PICKS_ROWS:
            raise _refused(where, _WHOLE[name], _PICKS)
        _check_deterministic(node, where)
        if not any(hangs):
            return False
        if name == "Join":
            _check_join(node.joinType().sql(), hangs, where)
        elif name == "Union":
            if not all(hangs):
                raise _refused(where, "a union with rows that are not of the splits", _COMES_AGAIN)
        elif name not in _ROW_BY_ROW:
            raise _refused(where, _WHOLE.get(name, f"Spark's {name}"), _NEEDS_ALL)
        return True


def _check_join(kind: str, hangs: list[bool], where: str) -> None:
    if all(hangs):
        raise _refused(where, "a join of the splits with themselves", _NEEDS_ALL)
    is_allowed = _KEPT_SIDES.get(kind, (False, False))[hangs.index(True)]
    if not is_allowed:
        join = f"a {kind.lower()} join that keeps rows of the other side"
        raise _refused(where, join, _COMES_AGAIN)


def _check_deterministic(node: Any, where: str) -> None:
    for expression in _seq(node.expressions()):
        for text in _undetermined(expression):
            raise _refused(where, f"{text}(), which gives other values in another batch or attempt", _OF_THE_ROW)


def _undetermined(expression: Any) -> Iterator[str]:
    """The names of the innermost expressions that make it undetermined."""
    if expression.deterministic():
        return
    inner = [name for child in _seq(expression.children()) for name in _undetermined(child)]
    yield from inner
    if inner or any(not child.deterministic() for child in _seq(expression.children())):
        return
    is_python = expression.getClass().getSimpleName() == "PythonUDF"
    name = str(expression.name() if is_python else expression.prettyName()).lower()
    if name not in _STABLE:
        yield name


def _refused(where: str, text: str, why: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"{where}: expected with commit='split' that every row is treated by itself, found {text}: {why}. Leave "
        "commit='split' away here, and give the vertices before it a result=BLOCKING of their own: these are then "
        "committed split by split, and this one runs on all their rows"
    )


def _reads_the_same(leaf: Any, other: Any) -> bool:
    kind = leaf.getClass().getSimpleName()
    if kind != other.getClass().getSimpleName():
        return False
    # With hidden columns asked for (`_metadata`), a relation has more output than without.
    for name, of_kind in (("relation", "LogicalRelation"), ("table", "DataSourceV2Relation")):
        if kind == of_kind:
            return bool(getattr(leaf, name)().equals(getattr(other, name)()))
    return bool(leaf.sameResult(other))


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _leaves(node: Any) -> Iterator[Any]:
    yield from _seq(node.collectLeaves())


def _seq(sequence: Any) -> Iterator[Any]:
    """A Scala sequence."""
    for at in range(sequence.size()):
        yield sequence.apply(at)
