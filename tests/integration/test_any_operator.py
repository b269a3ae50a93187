"""Of `dags/examples`, shell commands and jobs of two services, as written: neither Spark's tasks nor ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from emr_cluster import EmrServer
from job_servers import DatabricksServer, LivyServer
from pipeline import AFTER_THE_EXAMPLES_BEGIN, EXAMPLE_CODE, DagRun, Pipeline, empty_folder, fresh_day

from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

OPERATORS = "~28operators~29"
COUNT = "{ seen[$1]++ } END { for (word in seen) print word, seen[word] }"

WAITS = """
import argparse, os, pathlib, sys, time

parser = argparse.ArgumentParser()
for each in ("--day", "--in", "--out"):
    parser.add_argument(each)
given = {name: value and value.removeprefix("file://") for name, value in vars(parser.parse_args()).items()}
task = pathlib.Path(sys.argv[0]).stem
gate = pathlib.Path(os.environ["GATES"], task + "-holds")
while gate.exists():
    time.sleep(0.05)
failure = pathlib.Path(os.environ["GATES"], task + "-fails")
if failure.exists():
    failure.unlink()
    sys.exit("it was told to fail")
rows = "".join(file.read_text() for file in pathlib.Path(given["in"]).iterdir()) if given["in"] else given["day"]
pathlib.Path(given["out"]).mkdir(parents=True)
(pathlib.Path(given["out"]) / "part-0").write_text(rows)
"""
"""Both applications of the services' examples. A file in ``$GATES`` holds one, or makes it fail once.

A file beside the application would count as its code.
"""


@pytest.fixture
def code(pipeline: Pipeline) -> Path:
    return empty_folder(pipeline.folder / EXAMPLE_CODE)


def run_of(pipeline: Pipeline, dag_id: str) -> DagRun:
    run = pipeline.run(dag_id, day=fresh_day(AFTER_THE_EXAMPLES_BEGIN))
    run.group_id = OPERATORS
    return run


def text_of(journal: Any, result: str) -> str:
    (file,) = journal.files(result)
    return str(file.read_text())


def test_a_shell_command_that_fails_and_one_whose_result_is_lost_run_again_and_no_other(
    pipeline: Pipeline, code: Path
) -> None:
    (code / "words.txt").write_text("of\na\nword\nof\n")
    program = code / "count.awk"
    program.write_text("BEGIN { exit 3 }")
    run = run_of(pipeline, "any_operator")

    failed = run.start().ends("failed")
    assert run.states() == {"sort": "success", "count": "failed", "longest": "success", "publish": "upstream_failed"}
    assert failed.executions() == {"sort": 1, "count": 3, "longest": 1}
    assert "non-zero exit code 3" in run.log("count")

    # Its program is repaired.
    program.write_text(COUNT)
    run.clear(only_failed=True)
    first = run.ends()
    assert first.ran_since(failed) == {"count": 1}
    counts = ["a 1", "of 2", "word 1"]
    assert sorted(text_of(first, "count.counts").splitlines()) == counts
    assert text_of(first, "longest.longest") == "4\n"
    assert (run.tries("sort"), run.tries("longest")) == (1, 1)
    first.check()

    # What is lost is not made again for nobody.
    run.delete("sort.sorted")
    run.clear()
    assert run.ends().ran_since(first) == {}
    run.delete("count.counts")
    run.clear()
    second = run.ends()
    assert second.ran_since(first) == {"sort": 1, "count": 1}
    decisions = {task: run.said(task)["decision"] for task in ("sort", "count", "longest")}
    assert decisions == {"sort": "ran", "count": "ran", "longest": "kept"}
    assert sorted(text_of(second, "count.counts").splitlines()) == counts
    second.check()

    # Another program: nobody else has read it.
    program.write_text(COUNT.replace("print word, ", "print "))
    run.clear()
    third = run.ends()
    assert third.ran_since(second) == {"count": 1}
    assert sorted(text_of(third, "count.counts").splitlines()) == ["1", "1", "2"]
    third.check()


SERVICES: dict[str, Any] = {
    "livy": LivyServer,
    "databricks": DatabricksServer,
    "emr": EmrServer,
    "emr_steps": EmrServer,
}
"""By their examples."""


@dataclass(frozen=True)
class Example:
    """The DAG of a service, which runs."""

    dag_id: str
    service: Any
    pipeline: Pipeline

    def asked(self) -> int:
        return sum(request.startswith("GET") for request in self.service.requests)

    def codes(self) -> list[int | None]:
        return [job.code for job in self.service.jobs.values()]


IN_EVERY_RUN = ("livy", "databricks")
"""The others are a drill."""


@pytest.fixture(
    params=[
        each if each in IN_EVERY_RUN else pytest.param(each, marks=pytest.mark.drill)
        for each in (*SERVICES, "dataproc")
    ]
)
def example(request: pytest.FixtureRequest) -> Iterator[Example]:
    with ExitStack() as stack:
        if request.param == "dataproc":
            pipeline, server = request.getfixturevalue("dataproc")
        else:
            pipeline = request.getfixturevalue("pipeline")
            server = stack.enter_context(SERVICES[request.param]())
        place = json.loads(server.connection())
        connection_id = f"{place['conn_type'].removesuffix('_platform')}_default"
        pipeline.airflow.api("POST", "/connections", {**place, "connection_id": connection_id})
        yield Example(request.param, server, pipeline)
        pipeline.airflow.api("DELETE", f"/connections/{connection_id}")


def test_a_job_outlives_its_task_and_is_submitted_again_where_it_fails_or_its_result_is_lost(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATES", str(tmp_path))
    code = empty_folder(example.pipeline.folder / EXAMPLE_CODE)
    for name in ("clean.py", "report.py"):
        (code / name).write_text(WAITS)
    hold = tmp_path / "clean-holds"
    hold.touch()
    (tmp_path / "report-fails").touch()
    run = run_of(example.pipeline, example.dag_id).start()

    # The task is gone, and its job is not.
    run.wait(lambda: example.asked() > 3, "the task to follow its job, whose id is kept by now")
    found = run.airflow.task_processes(run.dag_id, run.run_id, "clean")
    assert found is not None
    kill_9(found.task)
    run.wait(lambda: run.tries("clean") == 2 and "waiting for it" in run.log("clean", 2), "the next try to follow it")
    assert example.codes() == [None]
    hold.unlink()

    first = run.ends()
    assert first.executions() == {"clean": 1, "report": 2}
    assert (run.tries("clean"), run.tries("report")) == (2, 2)
    assert text_of(first, "report.report") == run.day
    assert example.codes() == [0, 1, 0]
    found_again = run.xcoms("clean")

    # The code is on the service's machine, so it is unseen: it runs once after a clear, and comes to equal rows.
    run.clear("clean")
    cleared = run.ends()
    assert cleared.ran_since(first) == {"clean": 1}

    run.delete("clean.cleaned", "report.report")
    run.clear("report")
    second = run.ends()
    assert second.ran_since(cleared) == {"clean": 1, "report": 1}
    assert second.attempts["clean"][2].objects["lost"]["reporter"] == "report"
    assert text_of(second, "report.report") == run.day
    assert len(example.codes()) == 6
    assert run.xcoms("clean").keys() == found_again.keys() != set()
