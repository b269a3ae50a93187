"""A region over a real Spark Connect server, from client processes of its own (the Airflow task)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from paths import CODE
from runtime_specs import journal_of, outcome_of, region_spec, troubled, vertex, write_numbers

from airflow_recovery.driver import RegionSpec
from airflow_recovery.driver.connect_session import session_id_of, session_url
from airflow_recovery.driver.exit_report import read_failure, read_receipt
from airflow_recovery.driver.failure import is_missing_input, is_user_error
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome
from airflow_recovery.testing.patience import HANG_S, wait_until
from airflow_recovery.testing.spark_cluster import ConnectServer

USER = "airflow"

CLIENT = """
import logging, sys
from pathlib import Path
from airflow_recovery.driver import RegionSpec, connect
from airflow_recovery.driver.code_archive import build_archive
mask = lambda text: text.replace("hushhush", "***")
{before}
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
url = sys.stdin.readline().strip()
log = logging.getLogger("task")
specs = [RegionSpec.from_json(Path(each).read_text()) for each in sys.argv[1:]]
archive = build_archive(specs[0].job)
for spec in specs:
    try:
        connect.run_over_connect(url, spec, archive=archive, log=log, user_id="airflow", mask=mask)
    except BaseException as error:
        print("raised", type(error).__name__, flush=True)
    else:
        print("finished", flush=True)
"""

NO_WATCHDOG = """
import contextlib
connect.guarding = lambda *_, **__: contextlib.nullcontext()
"""


def client(url: str, folder: Path, *specs: RegionSpec, before: str = "") -> subprocess.Popen[str]:
    """A task process that runs ``specs`` one after the other."""
    paths = []
    for spec in specs:
        path = folder / f"{spec.region}-{spec.attempt}.json"
        path.write_text(spec.to_json())
        paths.append(str(path))
    environment = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{CODE}"}
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT.format(before=before), *paths],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(url + "\n")
    process.stdin.flush()
    return process


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=HANG_S)[0]


@pytest.mark.spark
def test_regions_with_importing_udf_failures_and_a_second_attempt(connect: ConnectServer, tmp_path: Path) -> None:
    raw, doubled = vertex("raw"), vertex("doubled", is_result=True)
    first = region_spec(tmp_path, raw, doubled, externals=write_numbers(tmp_path / "in"), region="doubled")
    table = region_spec(tmp_path, *troubled("table"), region="table")
    udf = region_spec(tmp_path, *troubled("udf"), region="udf")
    gone = replace(first.trace.externals[0], uri=f"file://{tmp_path}/in/gone.csv")
    lost = region_spec(tmp_path, *first.vertices, externals=(gone,), region="lost")
    token = "hushhush"
    told = region_spec(tmp_path, *troubled("say", go=f"{token} was refused"), region="told")
    process = client(f"{connect.url}/;x-test={token}", tmp_path, first, table, udf, lost, told)
    text = said(process)

    assert [line for line in text.splitlines() if line.startswith(("finished", "raised"))] == [
        "finished",
        "raised AnalysisException",
        "raised PythonException",
        "raised AnalysisException",
        "raised RuntimeError",
    ], text
    outcome = outcome_of(first)
    assert outcome is not None
    assert outcome.state is AttemptState.FINISHED
    assert outcome.outputs[0].rows == 20
    assert (outcome.application_id or "").startswith("local-")
    assert read_receipt(first) is not None
    assert f"Spark Connect server: 127.0.0.1:{connect.port}" in text
    assert token not in text
    failure = read_failure(told)
    assert failure is not None
    assert failure.message == "*** was refused"
    failures = {each.region: read_failure(each) for each in (table, udf, lost)}
    assert {each: failure is not None and is_user_error(failure) for each, failure in failures.items()} == {
        "table": True,
        "udf": False,
        "lost": False,
    }
    assert failures["lost"] is not None
    assert is_missing_input(failures["lost"])
    assert failures["udf"] is not None
    assert (failures["udf"].type, failures["udf"].vertex) == ("PythonException", "checked")
    assert '"level": "ERROR"' not in text


@contextmanager
def hanging(
    connect: ConnectServer, folder: Path, before: str = ""
) -> Iterator[tuple[RegionSpec, subprocess.Popen[str], Path, Path]]:
    """A client whose operation runs on the server; yields the spec, the client, a file to let it go on, and its trace.

    The operation's tasks touch a file again and again: that is how a test sees, without Spark, whether they still run.
    """
    ready, go = folder / "ready", folder / "go"
    spec = region_spec(folder, *troubled("beat", ready=ready, go=go), region=f"hang-{uuid.uuid4().hex[:8]}")
    spec = replace(spec, heartbeat_s=0.2)
    process = client(connect.url, folder, spec, before=before)
    try:
        wait_until(ready.exists, "the operation runs")
        yield spec, process, go, ready
    finally:
        go.touch()
        process.kill()
        process.communicate()


def wait_beat(ready: Path) -> None:
    """Wait until a task touches the file."""
    before = ready.stat().st_mtime_ns
    wait_until(lambda: ready.stat().st_mtime_ns != before, "a beat")


def has_timed_out(ready: Path) -> bool:
    """Whether no task touches the file within two seconds; each of them does it ten times a second."""
    before = ready.stat().st_mtime_ns
    time.sleep(2)
    return ready.stat().st_mtime_ns == before


@pytest.mark.spark
def test_kill_of_the_client_ends_its_operation(connect: ConnectServer, tmp_path: Path) -> None:
    with hanging(connect, tmp_path) as (spec, process, _, ready):
        wait_beat(ready)
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: has_timed_out(ready), "the operation is interrupted")
        assert outcome_of(spec) is None


@pytest.mark.spark
def test_fault_11_a_client_whose_attempt_was_fenced_interrupts_its_operation(
    connect: ConnectServer, tmp_path: Path
) -> None:
    with hanging(connect, tmp_path) as (spec, process, _, _):
        fenced = Outcome(spec.region, spec.attempt, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE)
        journal_of(spec).fence(fenced)
        # Its main thread waits for the operation, which nobody lets go on.
        process.wait(HANG_S)
        assert process.stdout is not None
        assert "raised AttemptLost" in process.stdout.read()
    outcome = outcome_of(spec)
    assert outcome is not None
    assert outcome.state is AttemptState.FENCED


@pytest.mark.spark
def test_without_watchdog_the_operation_goes_on_until_it_is_interrupted(connect: ConnectServer, tmp_path: Path) -> None:
    with hanging(connect, tmp_path, NO_WATCHDOG) as (spec, process, _, ready):
        process.send_signal(signal.SIGKILL)
        process.wait()
        for _beat in range(3):
            wait_beat(ready)

        # The next attempt finds the orphan by the session of the old one.
        interrupt = (
            "import sys\nfrom airflow_recovery.driver.connect_session import interrupt_attempt\n"
            "url, session = sys.stdin.read().split()\n"
            "for _ in range(2):\n"
            "    print(len(interrupt_attempt(url, session_id=session, user_id='airflow')))\n"
        )
        session = session_id_of(spec.tag)
        done = subprocess.run(
            [sys.executable, "-c", interrupt],
            input=f"{connect.url} {session}",
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        assert done.stdout.split() == ["1", "0"]  # then the session is closed, and that is no error
        wait_until(lambda: has_timed_out(ready), "the operation is interrupted")


def test_session_of_an_attempt() -> None:
    ids = {session_id_of(tag) for tag in ("airflow-recovery-1", "airflow-recovery-2")}
    assert len(ids) == 2
    assert session_id_of("airflow-recovery-1") in ids
    assert all(str(uuid.UUID(candidate)) == candidate for candidate in ids)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sc://h:1", "sc://h:1/;session_id=S;user_id=U"),
        ("sc://h:1/", "sc://h:1/;session_id=S;user_id=U"),
        ("sc://h:1/;token=a=b;use_ssl=true", "sc://h:1/;token=a=b;use_ssl=true;session_id=S;user_id=U"),
        ("sc://h:1/;user_id=x;session_id=y;token=t;", "sc://h:1/;token=t;session_id=S;user_id=U"),
    ],
)
def test_session_url(url: str, expected: str) -> None:
    found = session_url(url, session_id="S", user_id="U")
    assert found == expected
    assert urlsplit(found).netloc == "h:1"
    assert session_url("sc://h", session_id="S", user_id="a b;c").endswith("user_id=a%20b%3Bc")


def test_other_urls_are_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        session_url("spark://h:7077/;token=hush", session_id="S", user_id=USER)
    assert "hush" not in str(caught.value)


@pytest.mark.slow
def test_importing_the_client_leaves_the_collector_as_it_was() -> None:
    code = (
        "import gc\nfrom airflow_recovery.driver.connect_session import import_client\n"
        "for enabled in (True, False):\n"
        "    (gc.enable if enabled else gc.disable)()\n"
        "    before = gc.get_freeze_count()\n"
        "    import_client()\n"
        "    print(gc.isenabled(), gc.get_freeze_count() > before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout.split() == ["True", "True", "False", "False"]  # the second finds it imported
