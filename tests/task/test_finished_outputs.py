"""Jobs that end with exit code 0 in the middle of a write: what an operator registers, and what it refuses."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from tries import run_try, state_in

from airflow_recovery.errors import RegionFailed, UserCodeError
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.results.finished_write import Leftovers
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task import finished_output
from airflow_recovery.task.finished_output import FinishedOutputs
from airflow_recovery.task.references import DropIn
from airflow_recovery.testing import S3Server
from scripts.s3_proxy import Answer, S3Proxy, S3Request

PART = "part-00000-d9ea8b07-e9ec-4c79-96ad-5573948cb2c6-c000.snappy.parquet"
HALF = ["part-0", "_temporary/0/_temporary/attempt_1/part-1"]
APPLICATION = """
import os, pathlib, sys
out = pathlib.Path(sys.argv[1].removeprefix("file://"))
for name in sys.argv[2:]:
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(parents=True) if name.endswith("/") else path.write_text(name)
os._exit(0)
print("{said}")
"""
"""It writes what its arguments name, and leaves with exit code 0 in the middle of it."""


def task_that_writes(recovery: Path, names: list[str], *, out: Path | None = None, said: str = "", **given: Any) -> Any:
    application = recovery / "code" / "application.py"
    application.parent.mkdir(exist_ok=True)
    application.write_text(APPLICATION.format(said=said))
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            task_id="t",
            application=str(application),
            outputs=["o"] if out is None else {"o": f"file://{out}"},
            application_args=["{output:o}", *names],
            **given,
        )


def registered(recovery: Path) -> list[str]:
    attempts = state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts.values()
    (output,) = next(each.outcome.outputs for each in attempts if each.is_finished and each.outcome is not None)
    return [file.path for file in output.objects]


# --- the work of an unfinished write ----------------------------------------------------------------------------------


def test_fault_320_half_a_write_is_refused_and_the_next_try_writes_elsewhere(recovery: Path, submitted: Path) -> None:
    with pytest.raises(RegionFailed) as caught:
        run_try(task_that_writes(recovery, HALF))
    for said in (
        "t@1: the application ended without an error, and its write to output 'o' at ",
        "is not finished: expected no temporary files of a writer there, found _temporary/ (a file output committer",
        "as in _temporary/0/_temporary/attempt_1/part-1. Nothing was registered.",
        "The next try writes again",
    ):
        assert said in str(caught.value)
    assert not state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1].is_finished
    assert run_try(task_that_writes(recovery, ["part-0", "part-1"]), try_number=2)["attempt"] == 2
    assert registered(recovery) == ["part-0", "part-1"]


@pytest.mark.parametrize("names", [["_temporary/0/part-0"], ["part-0", "_temporary/0/_temporary/"]])
def test_fault_320_work_alone_and_an_empty_folder_of_work(recovery: Path, submitted: Path, names: list[str]) -> None:
    with fails_with("output-has-temporary-files"):
        run_try(task_that_writes(recovery, names))


def test_fault_320_control_without_the_look_for_work_half_of_the_rows_are_a_result(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_output, "leftovers", lambda *_: Leftovers())
    assert run_try(task_that_writes(recovery, HALF))["results"]["t.o"]["files"] == 1
    assert registered(recovery) == ["part-0"]


def test_fault_320_a_pipe_that_hides_the_exit_code(recovery: Path) -> None:
    command = (
        "(mkdir -p $OUT/_temporary/0 && echo 1 > $OUT/part-0 && echo 2 > $OUT/_temporary/0/part-1; kill -9 $BASHPID)"
    )
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        task = recoverable(BashOperator, paths="plain")(
            task_id="t", bash_command=f"{command} | tee log", outputs=["o"], env={"OUT": "{output:o}"}, append_env=True
        )
    with fails_with("output-has-temporary-files"):
        run_try(task)


def test_what_is_accepted_is_registered_with_a_warning(
    recovery: Path, submitted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run_try(task_that_writes(recovery, HALF, on_unfinished="accept"))
    assert registered(recovery) == ["part-0"]
    assert "found _temporary/ (a file output committer or the manifest committer of Hadoop), as in" in caplog.text


def test_an_unknown_choice_is_refused_where_the_dag_is_parsed(tmp_path: Path) -> None:
    with fails_with("option-unfit", option="on_unfinished"):
        task_that_writes(tmp_path, [], on_unfinished="ignore")
    with fails_with("argument-unfit", argument="require_success_file"):
        task_that_writes(tmp_path, [], require_success_file="yes")


# --- a fixed location -------------------------------------------------------------------------------------------------


def test_fault_321_what_an_earlier_attempt_has_left_does_not_stop_one_that_writes(
    recovery: Path, submitted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = recovery / "lake"
    with fails_with("output-has-temporary-files"):
        run_try(task_that_writes(recovery, HALF, out=lake))
    with caplog.at_level(logging.WARNING):
        run_try(task_that_writes(recovery, ["part-0", "part-1"], out=lake), try_number=2)
    assert registered(recovery) == ["part-0", "part-1"]
    assert "lake/_temporary/ was there before attempt 2, left by a file output committer" in caplog.text


def test_fault_321_an_attempt_that_finds_the_folder_and_writes_nothing_is_refused(
    recovery: Path, submitted: Path
) -> None:
    """As with ``mode("ignore")``: what is there may be half of the rows."""
    lake = recovery / "lake"
    with fails_with("output-has-temporary-files"):
        run_try(task_that_writes(recovery, HALF, out=lake))
    idle = task_that_writes(recovery, [], out=lake)
    with fails_with("output-has-temporary-files"):
        run_try(idle, try_number=2)


def test_fault_321_control_without_what_lay_there_before_no_attempt_ever_finishes(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_output.FinishedOutputs, "look_before", lambda self: None)
    lake = recovery / "lake"
    for number in (1, 2):
        with fails_with("output-has-temporary-files"):
            run_try(task_that_writes(recovery, HALF if number == 1 else ["part-0"], out=lake), try_number=number)


# --- the marker -------------------------------------------------------------------------------------------------------


def test_fault_323_a_folder_without_a_marker_is_refused_where_it_is_required(recovery: Path, submitted: Path) -> None:
    with fails_with("output-without-success-file"):
        run_try(task_that_writes(recovery, ["part-0"], require_success_file=True))
    run_try(task_that_writes(recovery, ["part-0", "_SUCCESS"], require_success_file=True), try_number=2)
    assert registered(recovery) == ["part-0"]


def test_fault_323_a_marker_of_an_earlier_attempt_does_not_count(recovery: Path, submitted: Path) -> None:
    lake = recovery / "lake"
    lake.mkdir()
    (lake / "_SUCCESS").touch()
    with fails_with("output-without-success-file"):
        run_try(task_that_writes(recovery, ["part-0"], out=lake, require_success_file=True))


def test_fault_323_files_of_spark_without_a_marker_are_refused_unasked(recovery: Path, submitted: Path) -> None:
    with fails_with("output-without-success-file"):
        run_try(task_that_writes(recovery, [PART]))


@pytest.mark.parametrize(
    "given",
    [
        {"require_success_file": False},
        {"conf": {"spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}},
        {"said": ".option('mapreduce.fileoutputcommitter.marksuccessfuljobs', 'false')"},
        {"names": ["rows.parquet"]},
    ],
)
def test_without_such_knowledge_a_marker_is_not_required(
    recovery: Path, submitted: Path, given: dict[str, Any]
) -> None:
    names = given.pop("names", [PART])
    run_try(task_that_writes(recovery, names, **given))
    assert registered(recovery) == names


def test_files_that_were_there_before_want_no_marker_unless_asked(recovery: Path, submitted: Path) -> None:
    """The job sees that its result is there, and writes nothing."""
    lake = recovery / "lake"
    lake.mkdir()
    (lake / PART).write_text("rows")
    run_try(task_that_writes(recovery, [], out=lake))
    assert registered(recovery) == [PART]
    with fails_with("output-without-success-file"):
        run_try(task_that_writes(recovery, [], out=lake, require_success_file=True, said="another"), try_number=2)


def test_a_marker_that_is_switched_off_for_all_jobs_of_this_machine_is_not_required(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(recovery / "hadoop"))
    (recovery / "hadoop").mkdir()
    (recovery / "hadoop" / "core-site.xml").write_text("mapreduce.fileoutputcommitter.marksuccessfuljobs")
    run_try(task_that_writes(recovery, [PART]))


def test_fault_323_control_where_no_marker_is_known_to_come_half_of_the_rows_are_a_result(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_output, "writes_success", lambda *_, **__: False)
    run_try(task_that_writes(recovery, [PART]))
    assert registered(recovery) == [PART]


# --- one file in place of a folder ------------------------------------------------------------------------------------


def task_that_writes_a_file(recovery: Path) -> Any:
    task = task_that_writes(recovery, [])
    Path(task.application).write_text(
        "import pathlib, sys\nout = pathlib.Path(sys.argv[1].removeprefix('file://'))\n"
        "out.parent.mkdir(parents=True)\nout.write_text('rows')\n"
    )
    return task


def test_fault_324_one_file_in_place_of_a_folder_is_named(recovery: Path, submitted: Path) -> None:
    with pytest.raises(AirflowFailException) as caught:
        run_try(task_that_writes_a_file(recovery))
    assert isinstance(caught.value.__cause__, UserCodeError)
    for said in ("wrote one file at ", "expected a folder as output 'o'", "for example to {output:o}/rows.parquet"):
        assert said in str(caught.value.__cause__)


def test_fault_324_control_without_a_look_beside_it_nothing_was_written(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_output, "_is_object", lambda *_: False)
    with fails_with("output-not-written", output="o"):
        run_try(task_that_writes_a_file(recovery))


@pytest.mark.parametrize("names", [["folder/"], [".hidden"]])
def test_what_holds_no_data_and_no_marker_is_nothing(recovery: Path, submitted: Path, names: list[str]) -> None:
    with fails_with("output-not-written", output="o"):
        run_try(task_that_writes(recovery, names))


# --- uploads in S3 ----------------------------------------------------------------------------------------------------


class Lake:
    """A folder in S3 with one file, an upload that nobody will complete, and the output of a task there."""

    def __init__(self, server: S3Server, *, endpoint_url: str | None = None, fixed: bool) -> None:
        self.uri = f"s3://lake/{uuid.uuid4().hex}/out"
        at = S3Store(self.uri, endpoint_url=server.endpoint_url, session=server.session())
        self.key = f"{self.uri.removeprefix('s3://lake/')}/part-1"
        self._clients = at._clients
        self.store = S3Store(self.uri, endpoint_url=endpoint_url or server.endpoint_url, session=server.session())
        at.put("part-0", b"rows")
        stores: Any = SimpleNamespace(open_external=lambda uri: self.store)
        drop_in = DropIn("t", {"o": self.uri if fixed else None}, {}, {"o": None})
        self.outputs = FinishedOutputs(drop_in, stores, lambda paths, managed: False, logging.getLogger("test"))

    def begin_upload(self) -> None:
        self._clients.sending(1).create_multipart_upload(Bucket="lake", Key=self.key)

    def check(self) -> None:
        claim: Any = SimpleNamespace(region="t", attempt=1, claimed_at="2026-11-28T07:00:00Z")
        self.outputs.check(claim, "o", self.uri, list(self.store.list()), ["part-0"])


@pytest.fixture(scope="module")
def server(start_s3_server: Callable[[str], S3Server], s3_server_names: list[str]) -> S3Server:
    started = start_s3_server(s3_server_names[-1])
    started.create_bucket("lake")
    return started


@pytest.mark.s3
def test_fault_322_a_folder_in_s3_with_an_upload_is_refused(server: S3Server) -> None:
    lake = Lake(server, fixed=False)
    lake.check()
    lake.begin_upload()
    with fails_with("output-has-temporary-files"):
        lake.check()


@pytest.mark.s3
def test_fault_322_an_upload_that_was_begun_before_the_job_is_passed_over(server: S3Server) -> None:
    lake = Lake(server, fixed=True)
    lake.begin_upload()
    lake.store.delete(["part-0"])
    lake.outputs.look_before()
    lake.store.put("part-0", b"of this attempt")
    lake.check()


@pytest.mark.s3
def test_uploads_that_may_not_be_listed_are_not_seen(server: S3Server) -> None:
    def denied(request: S3Request) -> Answer | None:
        return Answer(403, "AccessDenied") if "uploads" in request.query else None

    with S3Proxy(server, denied) as proxy:
        lake = Lake(server, endpoint_url=proxy.endpoint_url, fixed=False)
        lake.begin_upload()
        lake.check()
        assert any("uploads" in request.query for request in proxy.requests)
