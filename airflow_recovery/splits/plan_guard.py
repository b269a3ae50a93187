"""The guard of ``commit="split"``: refuses what gives other rows in batches than at once.

See docs/splits.md#when-it-is-right.

Batches may be read one by one where a vertex treats every row of the splits by itself: then the rows of all batches
together are those of one pass. The guard walks the *analysed* plan of every vertex, in each batch. The optimised plan
hides some of it: a cached frame is a leaf there, and constants may be folded away.

A plan has no part that Spark has computed already. So the guard also looks on while a vertex is called, and refuses an
action on rows of the splits: its result would be that of one batch, and stands in the next plan as a constant. It also
refuses rows whose plan it can't see and that it has not seen made. It proves nothing of what a Python function does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.splits.watched_calls import WRITES, watched

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

_OF_PARTITIONS = frozenset({"MapInArrow", "MapInPandas", "MapPartitions"})
"""They hand a function one partition. Which rows are in it the job decides if it has arranged them before."""

_STORED = frozenset({"DataSourceV2Relation", "DataSourceV2ScanRelation", "HiveTableRelation", "LogicalRelation"})
"""Leaves that are read from files or tables."""

_OF_A_PLAN = ("SQLExecutionRDD", "FileScanRDD", "DataSourceRDD", "JDBCRDD")
"""RDDs that Spark has made of a plan, which the lineage of an RDD does not show."""

_NEEDS_ALL = "it needs the rows of all splits at once"
_PICKS = "the rows that it takes are not fixed, so each batch would take different rows"
_COMES_AGAIN = "every batch would add these rows again"
_OF_A_BATCH = "its result covers the rows of one batch only, and recovery can't see how the code uses it"
_UNSEEN = "Spark does not show what these rows were made of"
_OF_THE_ROW = "make such a value of the row itself, for example with xxhash64 of its columns"

_STABLE = frozenset({"input_file_name"})
"""Expressions that Spark calls not deterministic, and that are always the same for one split."""


class RowLocalGuard:
    """Looks at the frames of one batch. Classic sessions only: over Spark Connect there is no plan to look at.

    ``seen_cuts``: the ids of the RDDs behind checkpoints that were seen made of side inputs alone. The batches of a
    loop share it, since a job may keep such a frame.
    """

    def __init__(self, seen_cuts: set[int] | None = None) -> None:
        self._leaves: list[Any] = []
        self._named: dict[int, bool] = {}
        self._seen_cuts = set[int]() if seen_cuts is None else seen_cuts
        self._given: list[Any] = []
        self._acts: list[tuple[str, list[Any]]] = []
        self._written = ""

    def mark(self, frame: DataFrame) -> None:
        """Note that all that ``frame`` reads depends on the splits: the source or this batch has made it."""
        self._leaves += _leaves(_plan(frame))

    @contextmanager
    def calling(self, where: str, inputs: Iterable[DataFrame], *, is_source: bool) -> Iterator[None]:
        """Look on while the vertex that ``where`` names is called with ``inputs``.

        Raises `JobDefinitionError` in the line of the refused call. If the vertex catches that error, raises it again
        at the end. The leaves that a source reads are known only after it has returned, so `check` refuses its calls.
        """
        thread, refused = threading.get_ident(), list[JobDefinitionError]()
        for frame in inputs:
            self._given += _leaves(_plan(frame))

        def look(frame: DataFrame | None, name: str) -> None:
            # A call in another thread may belong to another batch. Without a frame, or in a source, this is unknown.
            if (is_source or frame is None) and thread != threading.get_ident():
                return
            try:
                self._look(frame, name, where, is_source=is_source)
            except JobDefinitionError as error:
                refused.append(error)
                raise

        with watched(look, self._note_cut):
            yield
        if refused:
            raise refused[0]

    def _look(self, frame: DataFrame | None, name: str, where: str, *, is_source: bool) -> None:
        if frame is None:
            raise _refused(where, f"{name}()", _OF_A_BATCH, _INSTEAD_OF_ACTIONS)
        plan = _plan(frame)
        if is_source:
            self._acts.append((name, _all_leaves(plan)))
            return
        if not self._depends(plan):
            return
        command = plan.getClass().getSimpleName()
        if name not in WRITES or (name == "sql" and not command.startswith(_WRITING)):
            raise _refused(where, f"{_called(name)} on rows of the splits", _OF_A_BATCH, _INSTEAD_OF_ACTIONS)
        for query in _queries(plan) if name == "sql" else (plan,):
            if self._depends(query):
                self._check(query, where)
        self._written = self._written or where

    def _note_cut(self, frame: DataFrame) -> None:
        """``frame`` is behind a cut that was allowed: it was made of side inputs."""
        self._seen_cuts |= {leaf.rdd().id() for leaf in _leaves(_plan(frame)) if _is_rdd(leaf)}

    def _depends(self, plan: Any) -> bool:
        return any(_reads_the_same(leaf, mine) for leaf in _all_leaves(plan) for mine in self._leaves)

    def check(self, frame: DataFrame, where: str, *, is_result: bool) -> None:
        """Raise `JobDefinitionError` where ``frame`` can't be made batch by batch. ``where`` names its vertex."""
        plan = _plan(frame)
        self._check_acts(plan, where)
        if not self._check(plan, where) and is_result:
            raise JobDefinitionError(
                f"{where}: expected a result that is made of the splits, found one that reads none of them: it would "
                "be written once for every batch. Declare it in a vertex without commit='split'"
            )

    def _check_acts(self, plan: Any, where: str) -> None:
        """What a source did before anything showed what it reads."""
        acts, self._acts = self._acts, []
        leaves = _all_leaves(plan)
        is_cut = any(leaf.getClass().getSimpleName() not in _STORED for leaf in leaves)
        for name, read in acts:
            if is_cut or any(_reads_the_same(leaf, mine) for leaf in read for mine in leaves):
                what = "in a source whose rows come from the driver" if is_cut else "on rows of the splits"
                raise _refused(where, f"{_called(name)} {what}", _OF_A_BATCH, _INSTEAD_OF_ACTIONS)

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
            return self._check_leaf(node, where)
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
        else:
            _check_node(name, children, where)
        return True

    def _check_leaf(self, leaf: Any, where: str) -> bool:
        is_of_splits = any(_reads_the_same(mine, leaf) for mine in self._leaves)
        if _is_rdd(leaf) and leaf.rdd().id() not in self._seen_cuts:
            if cut := _cut(leaf.rdd(), is_of_splits=is_of_splits):
                raise _refused(where, f"rows behind {cut}", _UNSEEN, _INSTEAD_OF_CUTS)
            self._seen_cuts.add(leaf.rdd().id())
        is_stored = leaf.getClass().getSimpleName() in _STORED
        if (
            self._written
            and is_stored
            and not is_of_splits
            and not any(_reads_the_same(on, leaf) for on in self._given)
        ):
            text = f"files or tables that are no input, read after {self._written} has written rows of the splits"
            raise _refused(where, text, _UNSEEN, _INSTEAD_OF_CUTS)
        return is_of_splits


def _check_node(name: str, children: list[Any], where: str) -> None:
    if name not in _ROW_BY_ROW:
        raise _refused(where, _WHOLE.get(name, f"Spark's {name}"), _NEEDS_ALL)
    if name in _OF_PARTITIONS and (arranged := _arranged(children[0])):
        raise _refused(where, f"a function over whole partitions after {arranged}", _NEEDS_ALL)


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


_INSTEAD = (
    "Leave commit='split' away here, and give the vertices before it a result=BLOCKING of their own: these are then "
    "committed split by split, and this one runs on all their rows"
)
_INSTEAD_OF_ACTIONS = (
    "To log a count, use context.accumulators, or the number of rows in the attempt's finish record. To use a schema, "
    f"declare it. If a row depends on the result: {_INSTEAD[0].lower()}{_INSTEAD[1:]}"
)
_INSTEAD_OF_CUTS = (
    "If they are made of a side input, make them in this vertex and without RDDs, or in a vertex without "
    f"commit='split'. Otherwise: {_INSTEAD[0].lower()}{_INSTEAD[1:]}"
)
_WRITING = ("Insert", "Create", "Append", "Overwrite", "Replace", "Save")
"""How the commands are called that write the rows of a query as they are."""


def _refused(where: str, text: str, why: str, instead: str = _INSTEAD) -> JobDefinitionError:
    return JobDefinitionError(
        f"{where}: expected with commit='split' that every row is treated by itself, found {text}: {why}. {instead}"
    )


def _called(name: str) -> str:
    return {"rdd": "the property rdd", "sql": "a command of SQL"}.get(name, f"{name}()")


def _arranged(node: Any) -> str:
    """How the job has decided below ``node`` which rows are in one partition; empty if it has not."""
    name = node.getClass().getSimpleName()
    if name == "Repartition":
        return "coalesce(1) or repartition(1)" if node.numPartitions() == 1 else ""
    if name in ("RepartitionByExpression", "RebalancePartitions"):
        return "repartition by columns" if not node.partitionExpressions().isEmpty() else ""
    children = list(_seq(node.children()))
    return _arranged(children[0]) if len(children) == 1 else ""


def _is_rdd(leaf: Any) -> bool:
    return leaf.getClass().getSimpleName() in ("LogicalRDD", "ExternalRDD")


def _cut(rdd: Any, *, is_of_splits: bool) -> str:
    """What hides how an RDD was made; empty if nothing does. An RDD of splits may not bring rows together either."""
    if rdd.isCheckpointed() or rdd.isLocallyCheckpointed() or rdd.checkpointData().isDefined():
        return "a checkpoint"
    if rdd.getClass().getSimpleName() in _OF_A_PLAN:
        return "an RDD that was made of a frame"
    for dependency in _seq(rdd.dependencies()):
        if is_of_splits and dependency.getClass().getSimpleName() == "ShuffleDependency":
            return "an RDD that brings rows together (a shuffle)"
        if cut := _cut(dependency.rdd(), is_of_splits=is_of_splits):
            return cut
    return ""


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


def _all_leaves(plan: Any) -> list[Any]:
    """With those of subqueries, and of what a command of SQL was given."""
    plans = [plan, *_seq(plan.subqueriesAll()), *_queries(plan)]
    return [leaf for each in plans for leaf in _leaves(each)]


def _queries(command: Any) -> list[Any]:
    """The queries of a command of SQL; of a plan, its children."""
    return [*_seq(command.children()), *_seq(command.innerChildren())]


def _seq(sequence: Any) -> Iterator[Any]:
    """A Scala sequence."""
    for at in range(sequence.size()):
        yield sequence.apply(at)
