"""The driver process: real spark-submit of the region runner, on a local master and on a real standalone cluster."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
from process_life import is_alive
from runtime_specs import journal_of, outcome_of, region_spec, troubled, vertex, write_numbers

from airflow_recovery.driver import RegionSpec, StoreSpec, driver
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.exit_report import forget_failure, read_failure, read_receipt
from airflow_recovery.driver.failure import is_user_error
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.spark_version import check_one_version
from airflow_recovery.driver.start_advice import keep_output, relevant, start_failure
from airflow_recovery.driver.submit import APPLICATION, QUIET_CONF, submit_environment
from airflow_recovery.errors import Failure, NotSetUp, RegionFailed, kind_of
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome, ReadMetrics
from airflow_recovery.task.region_program import region_failed
from airflow_recovery.testing.patience import HANG_S, wait_until
from airflow_recovery.testing.spark_cluster import StandaloneCluster

pytestmark = pytest.mark.spark


def command(
    spec: RegionSpec, folder: Path, master: str = "local[2]", *, is_by_files: bool = False, archive: str = ""
) -> list[str]:
    """What the operator's hook runs; with ``is_by_files`` the driver finds the spec in its working folder."""
    path = folder / f"{spec.region}-{spec.attempt}.json"
    path.write_text(spec.to_json())
    conf = {
        **QUIET_CONF,
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
    }
    conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings = [each for key, value in conf.items() for each in ("--conf", f"{key}={value}")]
    archive = archive or str(build_archive(spec.job))
    given = f"/nowhere/{path.name}" if is_by_files else str(path)
    return ["spark-submit", "--master", master, "--py-files", archive, *settings, APPLICATION, given]


def environment() -> dict[str, str]:
    # Without the checkout and the job's folder: all code comes in the archive.
    base = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    return submit_environment({**base, "PATH": os.defpath})


def submit(
    spec: RegionSpec,
    folder: Path,
    master: str = "local[2]",
    *,
    is_by_files: bool = False,
    archive: str = "",
    **variables: Any,
) -> tuple[int, str]:
    done = subprocess.run(
        command(spec, folder, master, is_by_files=is_by_files, archive=archive),
        cwd=folder,
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.returncode, done.stdout


def test_region_with_an_importing_udf_on_a_standalone_cluster(cluster: StandaloneCluster, tmp_path: Path) -> None:
    spec = region_spec(
        tmp_path,
        vertex("raw"),
        vertex("doubled", is_result=True),
        externals=write_numbers(tmp_path / "in"),
        region="doubled",
        attempt=2,
    )
    code, said = submit(spec, tmp_path, cluster.master_url, is_by_files=True)

    assert code == driver.FINISHED, said
    outcome = outcome_of(spec)
    assert outcome is not None
    assert outcome.state is AttemptState.FINISHED
    assert (outcome.fingerprint, outcome.writer, outcome.externals) == ("f1", "writer-2", spec.trace.externals)
    assert [(output.result, output.rows) for output in outcome.outputs] == [("doubled", 20)]
    assert (outcome.read, outcome.worker) == (ReadMetrics(2, 50, None), socket.gethostname())
    assert outcome.accumulators == (("calls", 1), ("rows seen", 20))
    assert outcome.application_id is not None
    assert outcome.application_id.startswith("app-")  # the cluster's name for it: not a local session
    assert read_receipt(spec) == outcome
    for line in (
        "Region doubled attempt 2 of job regionjobs.numbers:numbers runs: raw, doubled",
        "raw reads 2 external files, 50 bytes",
        "doubled wrote 20 rows",
        "doubled asks for spark.executor.memory=3g, which can't be changed",
        "Spark UI: off",
    ):
        assert line in said


def test_fault_78_and_119_failing_driver_leaves_its_failure_without_its_secrets(tmp_path: Path) -> None:
    spec = region_spec(tmp_path, *troubled("secret"))
    code, said = submit(spec, tmp_path)

    assert code == driver.FAILED, said
    assert outcome_of(spec) is None
    assert read_receipt(spec) is None
    for seen in (spec, replace(spec, receipt=None)):  # beside the receipt, and in the store for a driver elsewhere
        failure = read_failure(seen)
        assert isinstance(failure, Failure)
        assert (failure.condition, failure.sql_state) == ("TABLE_OR_VIEW_NOT_FOUND", "42P01")
        assert failure.vertex == "troubled"
        assert "AnalysisException" in failure.chain[0]
        assert is_user_error(failure)
        assert "PGPASSWORD=***" in failure.message
    assert any("PGPASSWORD=***" in each for each in held(tmp_path))
    assert not any(SECRET in each for each in held(tmp_path))
    forget_failure(spec, driver.driver_log())
    assert [read_failure(seen) for seen in (spec, replace(spec, receipt=None))] == [None, None]
    assert '"level": "ERROR"' not in said  # Spark's own report of the same, a JVM stack as one line of JSON


def submission_failed(spec: RegionSpec, folder: Path, *, archive: str = "", **variables: Any) -> RegionFailed:
    """What the task ends with, of a real spark-submit."""
    code, output = submit(spec, folder, archive=archive, **variables)
    error = RuntimeError(f"Cannot execute: spark-submit. Error code is: {code}.")
    keep_output(error, relevant(output.splitlines()))
    return region_failed(spec, read_failure(spec) or start_failure(error), error)


def test_fault_122_to_123_a_driver_that_cannot_start_says_so_once(tmp_path: Path) -> None:
    spec = region_spec(tmp_path, *troubled("none"))
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(build_archive(spec.job)) as whole, zipfile.ZipFile(archive, "w") as part:
        for name in whole.namelist():
            if not name.startswith("airflow_recovery/journal/"):
                part.writestr(name, whole.read(name))
    found = submission_failed(spec, tmp_path, archive=str(archive))
    assert isinstance(found, NotSetUp)
    assert "expected the archive of --py-files to hold airflow_recovery.journal" in str(found)

    spec = region_spec(tmp_path, *troubled("none"), attempt=2)
    # Without a JVM, and from one.
    for given, told in (
        ({"PYSPARK_DRIVER_PYTHON": "/no/such/python"}, "/no/such/python: No such file or directory"),
        ({"SPARK_CONF_DIR": str(tmp_path)}, 'Cannot run program "/no/such/python"'),
    ):
        (tmp_path / "spark-defaults.conf").write_text("spark.pyspark.driver.python /no/such/python\n")
        found = submission_failed(spec, tmp_path, **given)
        assert isinstance(found, NotSetUp)
        assert told in str(found)
        assert "PYSPARK_PYTHON, or spark.pyspark.python" in str(found)
        assert kind_of(found).is_final


def test_fault_123_a_pyspark_of_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = region_spec(tmp_path, *troubled("none"))
    without_spark(monkeypatch, lambda *_, **__: AttemptResult((), 0.1, None))
    monkeypatch.setattr(_NoSpark._Session, "version", "3.5.1")
    assert driver.drive(spec) == driver.FAILED
    found = region_failed(spec, read_failure(spec), RuntimeError("Error code is: 1."))
    assert isinstance(found, NotSetUp)
    assert f"expected pyspark and Spark of one version, found pyspark {pyspark.__version__}" in str(found)
    assert "and Spark 3.5.1." in str(found)


def test_fault_123_control_a_third_number_and_a_vendors_suffix_may_differ() -> None:
    major, minor, *_ = pyspark.__version__.split(".")
    check_one_version(f"{major}.{minor}.99-amzn-1")


SECRET = "hunter2-of-the-driver"


def held(folder: Path) -> list[str]:
    """All that journal and results hold, and what lies beside the receipt."""
    files = [file for name in ("journal", "data", "receipts") for file in (folder / name).rglob("*") if file.is_file()]
    return [candidate.read_text(errors="replace") for candidate in files]


def test_fault_119_control_without_its_mask_a_driver_says_it_in_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> AttemptResult:
        raise RuntimeError(f"no way to jdbc:postgresql://etl:{SECRET}@db/warehouse")

    without_spark(monkeypatch, fail)
    spec = region_spec(tmp_path, *troubled("none"))
    assert driver.drive(spec) == driver.FAILED
    assert not any(SECRET in each for each in held(tmp_path))
    monkeypatch.setattr("airflow_recovery.driver.exit_report.masked", lambda failure, mask: failure)
    assert driver.drive(spec) == driver.FAILED
    assert len([each for each in held(tmp_path) if SECRET in each]) == 2


def test_vertex_that_exits_with_0_has_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = region_spec(tmp_path, *troubled("none"))

    def leave(*_: object, progress: Progress, **__: object) -> AttemptResult:
        progress.vertex = "troubled"
        raise SystemExit(0)

    without_spark(monkeypatch, leave)
    assert driver.drive(spec) == driver.FAILED
    assert outcome_of(spec) is None
    failure = read_failure(spec)
    assert failure is not None
    assert (failure.type, failure.vertex) == ("SystemExit", "troubled")


def test_fenced_attempt_ends_with_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt is fenced while it runs: what it wrote is nobody's."""
    spec = region_spec(tmp_path, *troubled("none"))
    fenced = Outcome("r", 1, AttemptState.FENCED, "other", "2026-01-01", cause=FenceCause.SUPERSEDED)
    journal_of(spec).fence(fenced)
    without_spark(monkeypatch, lambda *_, **__: AttemptResult((), 0.1, None))

    assert driver.drive(spec) == driver.FENCED
    assert outcome_of(spec) == fenced
    assert read_receipt(spec) is None
    assert read_failure(spec) is None


def test_failure_to_put_the_outcome_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = region_spec(tmp_path, *troubled("none"))
    (tmp_path / "journal").write_text("in the way")
    without_spark(monkeypatch, lambda *_, **__: AttemptResult((), 0.1, None))

    assert driver.drive(spec) == driver.FAILED
    assert read_receipt(spec) is None
    failure = read_failure(spec)
    assert failure is not None
    assert failure.type == "StoreMisconfigured"


def test_receipt_is_left_out_where_its_folder_is_not(tmp_path: Path) -> None:
    spec = replace(region_spec(tmp_path), receipt=str(tmp_path / "elsewhere" / "receipt"))
    finish_attempt(spec, AttemptResult((), 0.1, None), driver.driver_log())
    assert outcome_of(spec) is not None
    assert read_receipt(spec) is None
    assert not (tmp_path / "elsewhere").exists()


def test_unreachable_store_of_failures_does_not_hide_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    spec = region_spec(tmp_path, *troubled("none"))
    spec = replace(spec, results=StoreSpec(f"file://{tmp_path}/file"), location=f"file://{tmp_path}/file/r/1")

    def fail(*_: object, **__: object) -> AttemptResult:
        raise RuntimeError("the weather")

    without_spark(monkeypatch, fail)
    assert driver.drive(spec) == driver.FAILED
    assert "RuntimeError: the weather" in capfd.readouterr().err
    failure = read_failure(spec)  # the one beside the receipt
    assert failure is not None
    assert failure.message == "the weather"


def without_spark(monkeypatch: pytest.MonkeyPatch, run_region: Callable[..., AttemptResult]) -> None:
    monkeypatch.setattr(driver, "run_region", run_region)
    monkeypatch.setattr(driver, "_stop", lambda *_: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", _NoSpark())


class _NoSpark:
    """Stands for the builder of a session that nothing asks."""

    class _Session:
        version = pyspark.__version__

        class sparkContext:
            uiWebUrl = None
            applicationId = "app-1"

    def getOrCreate(self) -> object:
        return self._Session()


@contextmanager
def submitted_by_a_parent(
    spec: RegionSpec, folder: Path, *, is_protected: bool
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A task process that runs spark-submit; yields it and the JVM's pid."""
    protection = "die_with_parent" if is_protected else "None"
    program = (
        "import subprocess\n"
        "from airflow_recovery.driver.process import die_with_parent\n"
        f"log = open({str(folder / 'log')!r}, 'w')\n"
        f"how = dict(env={environment()!r}, cwd={str(folder)!r}, preexec_fn={protection}, stdout=log, stderr=log)\n"
        f"child = subprocess.Popen({command(spec, folder)!r}, **how)\n"
        "print(child.pid, flush=True)\nchild.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    jvm = int(parent.stdout.readline())
    try:
        yield parent, jvm
    finally:
        for pid in (parent.pid, *descendants(jvm), jvm):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
    numbers = list(children.get(pid, []))
    for each in numbers:
        numbers.extend(children.get(each, []))
    return numbers


@pytest.mark.parametrize("where", ["beat", "python"])
def test_kill_of_the_task_process_ends_jvm_and_driver(tmp_path: Path, where: str) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    spec = region_spec(tmp_path, *troubled(where, ready=ready, go=go))
    with submitted_by_a_parent(spec, tmp_path, is_protected=True) as (parent, jvm):
        wait_until(ready.exists, "the vertex runs")
        family = [jvm, *descendants(jvm)]
        assert len(family) >= 2
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not any(is_alive(descendant) for descendant in family), "all are dead")
    go.touch()
    assert outcome_of(spec) is None


def test_fault_11_a_driver_that_was_fenced_stops_spark_in_the_middle_of_a_job(tmp_path: Path) -> None:
    """The control, a driver that does not look, is in tests/attempt/test_outliving_drivers.py."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    spec = replace(region_spec(tmp_path, *troubled("beat", ready=ready, go=go)), heartbeat_s=0.2)
    with submitted_by_a_parent(spec, tmp_path, is_protected=True) as (parent, jvm):
        wait_until(ready.exists, "the vertex runs")
        fenced = Outcome(spec.region, spec.attempt, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE)
        journal_of(spec).fence(fenced)
        wait_until(lambda: not is_alive(jvm), "the application has ended")
        parent.wait()
    assert "This attempt was fenced, a later one counts: its Spark job is stopped." in (tmp_path / "log").read_text()
    assert not list((tmp_path / "data").rglob("*.*"))
    outcome = outcome_of(spec)
    assert outcome is not None
    assert outcome.state is AttemptState.FENCED


def test_without_protection_an_orphan_finishes(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    spec = region_spec(tmp_path, *troubled("python", ready=ready, go=go))
    with submitted_by_a_parent(spec, tmp_path, is_protected=False) as (parent, jvm):
        wait_until(ready.exists, "the vertex runs")
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        go.touch()
        wait_until(lambda: outcome_of(spec) is not None, "the orphan has finished")
        wait_until(lambda: not is_alive(jvm), "and is gone")


def test_the_wheels_spark_submit_is_found() -> None:
    assert shutil.which("spark-submit", path=environment()["PATH"]) is not None
