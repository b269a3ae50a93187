"""``commit="split"``: what may be read batch by batch, and what is refused with advice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_recovery import BLOCKING, PIPELINED, Job, JobDefinitionError, dates, files, job, per_file, same_as
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.model.result_type import BLOCKING_PERSISTENT, CACHED
from airflow_recovery.sinks import PostgresTable
from airflow_recovery.splits.declaration import (
    MODE,
    SplitAssignment,
    SplitReading,
    is_split_wise,
    reading_of,
    split_source,
)

FILES = files("/lake/*.csv")


class Volatile:
    """A coordinator without snapshots."""


def declare(made: Job, name: str, *inputs: str, sink: bool = False, **options: Any) -> None:
    """Vertices whose functions are never called."""
    arguments = ", ".join([*(["splits"] if "splits" in options else []), *inputs])
    namespace: dict[str, Any] = {}
    exec(f"def {name}({arguments}): ...", namespace)
    kind = made.sink if sink else made.vertex if inputs else made.source
    kind(version="1", **options)(namespace[name])


def flights(**source: Any) -> Job:
    """raw ~ cleaned (blocking) --> delays"""
    made = job("flights")
    declare(made, "raw", splits=FILES, commit="split", **source)
    declare(made, "cleaned", "raw", commit="split", result=BLOCKING, parallelism=source.get("parallelism"))
    declare(made, "delays", "cleaned", sink=True)
    return made


def refused(made: Job) -> str:
    with pytest.raises(JobDefinitionError) as error:
        made.validate()
    return str(error.value)


def test_a_region_that_is_declared_throughout_commits_split_by_split() -> None:
    made = flights()
    assert split_source(made.regions().region("cleaned"), made.vertices) == "raw"
    assert split_source(made.regions().region("delays"), made.vertices) is None
    assert [is_split_wise(made.vertices[name]) for name in ("raw", "cleaned", "delays")] == [True, True, False]
    assert reading_of(made.vertices["raw"]) == SplitReading(SplitAssignment.STATIC, 256 * 1024 * 1024, 0)


def test_how_a_source_is_read_is_its_own_matter() -> None:
    made = flights(parallelism=4, assignment="dynamic", batch_bytes=1000, loss_budget=2)
    assert reading_of(made.vertices["raw"]) == SplitReading(SplitAssignment.DYNAMIC, 1000, 2)
    assert split_source(made.regions().region("cleaned"), made.vertices) == "raw"


def test_a_blocking_source_is_a_region_of_its_own() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split", result=BLOCKING)
    declare(made, "total", "raw", sink=True)
    assert split_source(made.regions().region("raw"), made.vertices) == "raw"


def test_a_side_input_of_another_region_is_read_as_one_attempt_left_it() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split")
    declare(made, "airports", result=BLOCKING)
    declare(made, "joined", "raw", "airports", commit="split", result=BLOCKING)
    declare(made, "total", "joined", sink=True)
    assert split_source(made.regions().region("joined"), made.vertices) == "raw"
    assert split_source(made.regions().region("airports"), made.vertices) is None


def test_fault_57_whether_it_is_declared_is_in_the_fingerprint_and_how_it_is_read_is_not() -> None:
    def fingerprint(**options: Any) -> str:
        made = job("j")
        declare(made, "raw", splits=FILES, **options)
        return vertex_fingerprint(made, "raw", {}, code=[])

    assert fingerprint() != fingerprint(commit="split")
    assert fingerprint(commit="split") == fingerprint(commit="split", batch_bytes=7, loss_budget=3)
    four = {"commit": "split", "parallelism": 4}
    assert fingerprint(**four) != fingerprint(**four, assignment="dynamic")


def test_a_vertex_between_that_is_not_declared_is_refused_with_advice() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split")
    declare(made, "cleaned", "raw")
    declare(made, "kept", "cleaned", commit="split", result=BLOCKING)
    declare(made, "total", "kept", sink=True)
    said = refused(made)
    assert said.startswith("job 'j', vertex 'cleaned': expected commit='split' on every vertex from 'raw'")
    assert "no aggregate, window, distinct, sort, limit or sample" in said
    assert "put a vertex with result=BLOCKING and commit='split' between 'raw' and it" in said


def test_a_sink_of_the_region_is_refused_with_advice() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split")
    declare(made, "total", "raw", sink=True)
    assert "vertex 'total'" in (said := refused(made))
    assert "Declare a vertex with result=BLOCKING and commit='split' before it" in said


def test_commit_split_is_no_target_of_a_sink() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split")
    with pytest.raises(JobDefinitionError, match=r"vertex 'total': a sink ends as a whole.*before it"):
        declare(made, "total", "raw", sink=True, commit="split")


def test_another_branch_that_is_not_declared_is_refused() -> None:
    #  raw ~ kept (blocking) --> total
    #    \~ counted (blocking, not declared) --> total
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split")
    declare(made, "kept", "raw", commit="split", result=BLOCKING)
    declare(made, "counted", "raw", result=BLOCKING)
    declare(made, "total", "kept", "counted", sink=True)
    assert "vertex 'counted': expected commit='split' on every vertex" in refused(made)


def test_what_every_batch_would_make_again_is_refused() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split")
    declare(made, "airports", result=PIPELINED)
    declare(made, "joined", "raw", "airports", commit="split", result=BLOCKING)
    declare(made, "total", "joined", sink=True)
    assert "vertex 'airports': is in the region of 'raw'" in (said := refused(made))
    assert "Declare it with result=BLOCKING" in said


def test_two_sources_in_one_region_are_refused() -> None:
    made = job("j")
    for name in ("a", "b"):
        declare(made, name, splits=FILES, commit="split")
    declare(made, "both", "a", "b", commit="split", result=BLOCKING)
    declare(made, "total", "both", sink=True)
    assert "vertex 'b': expected one source with commit='split' in a region, found 'a' as well" in refused(made)


def test_a_vertex_without_such_a_source_in_its_region_is_refused() -> None:
    made = job("j")
    declare(made, "raw", splits=FILES, commit="split", result=BLOCKING)
    declare(made, "cleaned", "raw", commit="split", result=BLOCKING)
    declare(made, "total", "cleaned", sink=True)
    assert "vertex 'cleaned': expected commit='split' together with a source" in (said := refused(made))
    assert "leave result=BLOCKING out between the two" in said


@pytest.mark.parametrize("result", [CACHED, BLOCKING_PERSISTENT])
def test_what_is_not_a_result_of_the_run_in_the_store_is_refused(result: Any) -> None:
    made = job("j", deterministic="assume")
    declare(made, "raw", splits=FILES, commit="split", result=result)
    declare(made, "total", "raw", sink=True)
    assert f"to make results with result=BLOCKING, found {result.name}" in refused(made)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"commit": "rows"}, "expected commit='split' or no commit=, found 'rows'.*for a @sink"),
        ({"commit": PostgresTable(table="t", conn_id="c")}, "a target to commit to is for a @sink"),
        ({"commit": "split", "splits": None}, "for a source that declares its splits"),
        ({"commit": "split", "coordinator": Volatile}, "either commit='split' or coordinator=, found both"),
        ({"batch_bytes": 7}, "declare commit='split' on it"),
        ({"loss_budget": 1}, "declare commit='split' on it"),
        ({"assignment": "dynamic", "parallelism": 2}, "declare commit='split' on it"),
        ({"commit": "split", "batch_bytes": 0}, "number of bytes from 1, found 0"),
        ({"commit": "split", "loss_budget": -1}, "number of splits from 0, found -1"),
        ({"commit": "split", "loss_budget": True}, "number of splits from 0, found True"),
        ({"commit": "split", "assignment": "random"}, "as 'static' or 'dynamic', found 'random'"),
        ({"commit": "split", "assignment": "dynamic"}, "with a number of subtasks.*parallelism=None"),
        ({"commit": "split", "assignment": "dynamic", "parallelism": per_file}, "with a number of subtasks"),
        (
            {
                "commit": "split",
                "assignment": "dynamic",
                "parallelism": 2,
                "splits": files("/lake/{{ subtask }}/*.csv"),
            },
            "and splits of each subtask's own",
        ),
        ({"splits": files("/lake", vanished="keep")}, "vanished='keep' of a source with commit='split'"),
        ({"splits": files("/lake", vanished="fail"), "parallelism": per_file}, "expected vanished='fail'.*leave"),
        (
            {"splits": dates("{{ subtask }}", vanished="keep"), "parallelism": ["2013-01-01"], "commit": "split"},
            "expected vanished='keep'.*leave",
        ),
    ],
)
def test_options_that_can_not_hold_are_refused_with_advice(options: dict[str, Any], said: str) -> None:
    made = job("j")
    given = {"splits": FILES, **options}
    if given["splits"] is None:
        del given["splits"]
    with pytest.raises(JobDefinitionError, match=rf"^job 'j', vertex 'raw': .*{said}"):
        declare(made, "raw", **given)


def test_parallel_sources_may_commit_split_by_split() -> None:
    for parallelism in (2, per_file):
        made = job("j")
        declare(made, "raw", splits=FILES, commit="split", parallelism=parallelism)
        declare(made, "kept", "raw", commit="split", parallelism=same_as("raw"), result=BLOCKING)
        declare(made, "total", "kept", sink=True)
        assert split_source(made.regions().region("kept"), made.vertices) == "raw"


def test_subtasks_that_pull_their_splits_need_recovery() -> None:
    made = flights(parallelism=4, assignment="dynamic")
    check = partial(MODE.check_dag, made.regions(), made.vertices, made.graph(), "group 'g'", max_active_tasks=None)
    check(recovers=True)
    with pytest.raises(JobDefinitionError, match="recovery is off, and the subtasks of 'raw' pull their splits"):
        check(recovers=False)
