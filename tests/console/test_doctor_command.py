"""``doctor`` as a command: over real stores, and what a script and a bundle get of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_recovery.console import doctor
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.doctor.checking import Check
from airflow_recovery.doctor.result import CheckResult, ok, wrong
from airflow_recovery.store import open_store
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import REGION

SECRET = "postgresql://ann:hunter2@db/x"


@pytest.fixture
def stores_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what this machine has installed."""
    monkeypatch.setattr("airflow_recovery.doctor.versions.check_versions", lambda in_airflow: ())
    monkeypatch.setattr("airflow_recovery.doctor.versions.check_archive", lambda environment, stores: ())
    monkeypatch.setattr("airflow_recovery.doctor.spark.check_submission", lambda name, environment, stores: ())


@pytest.mark.usefixtures("stores_only")
def test_over_a_folder(recorded, tmp_path: Path) -> None:
    code, said = recorded.call("doctor")
    assert code == ExitCode.DONE, said
    assert said.startswith("ok    journal and results: file://")
    assert said.endswith(" ok, 0 warning, 0 not checked, 0 wrong.\n")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "raced"] == []
    code, said = recorded.call("doctor", "--json")
    document = json.loads(said)
    assert (code, document["ok"]) == (ExitCode.DONE, True)
    assert {load["status"] for load in document["results"]} == {"ok"}


@pytest.mark.usefixtures("stores_only")
def test_over_s3(recorded_in, capsys, s3_server) -> None:
    bucket = f"s3://recovery-tests/doctor-{time.time_ns()}"
    options = ("--endpoint-url", s3_server.endpoint_url, "--s3-region", REGION)
    code, said = recorded_in(bucket, capsys, options).call("doctor")
    assert (code, "0 wrong." in said) == (ExitCode.DONE, True), said
    assert "abort uploads" in said
    left = open_store(bucket, endpoint_url=s3_server.endpoint_url, region_name=REGION).list()
    assert [each.key for each in left if not each.key.endswith("_probe/raced")] == []
    with s3_server.refusing_strangers(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        code, said = recorded_in(bucket, capsys, options).call("doctor")
    assert code == ExitCode.UNFIT, said
    assert "WRONG rights on the journal: expected to list, put, get below s3://" in said
    assert "WRONG rights on the results: expected" in said  # the second is looked at as well
    assert "docs/s3.md" in said


@pytest.mark.usefixtures("stores_only")
def test_a_place_that_is_no_store(recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("a file")
    code, said = recorded.call("doctor")
    assert (code, "WRONG rights on the journal" in said) == (ExitCode.UNFIT, True), said


def test_what_is_wrong_is_an_exit_code_and_a_secret_is_not_printed(recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def checks(args: object, *, is_for_bundle: bool) -> Iterator[Check]:
        found = [wrong("a", expected="b", found=f"no way to {SECRET}", next_step="Do c."), ok("d", SECRET)]
        yield Check("a", lambda: found)

    monkeypatch.setattr(doctor, "standalone_checks", checks)
    for form in ((), ("--json",)):
        code, said = recorded.call("doctor", *form)
        assert code == ExitCode.UNFIT
        assert "hunter2" not in said
        assert "postgresql://***@db/x" in said
    assert json.loads(said)["ok"] is False


def test_a_region_needs_airflow(recorded) -> None:
    assert recorded.call("doctor", "--spark")[0] == ExitCode.USAGE
    assert "airflow recovery doctor --spark" in recorded.errors


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan"])
def test_a_time_that_is_none(recorded, capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    with pytest.raises(SystemExit):
        recorded.call("doctor", f"--timeout={seconds}")
    assert "expected seconds above 0" in capsys.readouterr().err


def test_without_a_journal_the_rest_is_looked_at(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    from airflow_recovery.console.main import main

    monkeypatch.delenv("AIRFLOW__RECOVERY__JOURNAL", raising=False)
    assert main(["doctor", "--component", "scheduler"]) == ExitCode.UNFIT
    said = capsys.readouterr().out
    assert "ok    Python: " in said
    assert "WRONG journal: " in said


@pytest.mark.slow
def test_a_store_that_does_not_answer_does_not_hold_the_process(tmp_path: Path) -> None:
    """A server that takes connections and says nothing, and boto3, which would wait for two minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "airflow_recovery", "doctor", "--component", "triggerer", "--timeout", "1"]
        env = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        done = subprocess.run(
            [*command, "--journal", "s3://b/j", "--endpoint-url", endpoint, "--s3-region", REGION],
            env=env,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
    assert done.returncode == ExitCode.UNFIT, done.stderr
    assert "WRONG the journal: expected an answer within 1 s, found none." in done.stdout
    assert "WRONG the results: expected an answer within 1 s, found none." in done.stdout


HELD = """
import sys, threading
from airflow_recovery.console.main import leave
threading.Thread(target=threading.Event().wait, name=sys.argv[1]).start()
leave(9)
"""


@pytest.mark.slow
def test_a_check_that_is_left_behind_does_not_hold_the_process() -> None:
    """As Spark's client does, with threads for which Python waits."""
    held = [sys.executable, "-c", HELD]
    assert subprocess.run([*held, "doctor: a region"], timeout=HANG_S, check=False).returncode == ExitCode.UNFIT
    with pytest.raises(subprocess.TimeoutExpired):  # control: any other command's thread is waited for
        subprocess.run([*held, "another"], timeout=5, check=False)


# In a bundle


@pytest.fixture
def bundles_with_doctor(bundles_without_doctor: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.console.export.results_for_bundle", doctor.results_for_bundle)


def bundled(recorded, folder: Path) -> list[dict[str, str]]:
    path = folder / "bundle.zip"
    assert recorded.call("export", "flights", "2026-01-01", "--out", str(path))[0] == ExitCode.DONE
    with zipfile.ZipFile(path) as file:
        found: list[dict[str, str]] = json.loads(file.read("doctor.json"))
    return found


@pytest.mark.usefixtures("stores_only", "bundles_with_doctor")
def test_a_bundle_holds_it_and_nothing_is_written_for_that(recorded, tmp_path: Path) -> None:
    world = recorded.world()
    world.until_green()
    before = sorted((each.key, each.etag) for each in world.journal_store.list())
    found = {each["check"]: each for each in bundled(recorded, tmp_path)}
    assert found["rights on the journal"]["found"].startswith("list, get below file://")
    assert sorted((each.key, each.etag) for each in world.journal_store.list()) == before


@pytest.mark.usefixtures("bundles_with_doctor")
def test_in_a_bundle_it_is_bounded_and_scrubbed(recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.world().until_green()
    world = [wrong("a", expected="b", found=f"{SECRET} {'x' * 100_000}", next_step="c")] * 1000

    def endless() -> Iterator[CheckResult]:
        yield from world

    monkeypatch.setattr(doctor, "standalone_checks", lambda args, *, is_for_bundle: [Check("a", endless)])
    found = bundled(recorded, tmp_path)
    assert len(json.dumps(found)) < 500_000
    assert "hunter2" not in json.dumps(found)


@pytest.mark.usefixtures("bundles_with_doctor")
def test_a_bundle_is_made_where_it_can_not_be_looked(recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.world().until_green()

    def broken(args: object, *, is_for_bundle: bool) -> Iterator[Check]:
        raise OSError("no")
        yield

    monkeypatch.setattr(doctor, "standalone_checks", broken)
    (found,) = bundled(recorded, tmp_path)
    assert (found["status"], found["found"]) == ("not checked", "OSError: no")
