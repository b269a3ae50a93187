"""New code under the same name, on a real S3 server: it runs when its task is cleared, and unchanged code is kept.

By a real spark-submit and by a server of Livy's API. `tests/task/test_kubernetes.py` has it in a pod.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from job_servers import LivyServer
from tries import run_try, state_in, task_context

from airflow_recovery.errors import CodeReplaced, RegionFailed
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.model.components import Component
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import FenceCause
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.store.allowed import place_of
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.code_places import Place
from airflow_recovery.task.drop_in import DropInApplication, DropInSubmission, _rests_on
from airflow_recovery.testing import S3Server
from scripts.jars import class_path_variables

BUCKET = "recovery-tests"
PROGRAM = """
import os, pathlib, sys, time
{begin}
out = pathlib.Path(sys.argv[1].removeprefix("file:"))
out.mkdir(parents=True)
(out / "part-0").write_text({rows!r})
"""
SPARK = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
WAITS = "while not os.path.exists({gate!r}): time.sleep(0.05)\n"


class CodeOnS3:
    """The application of a deployment, at one name on a real server."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.server, self.name = server, name
        self.uri = f"s3://{BUCKET}/{name}"
        self.store = S3Store(self.uri, endpoint_url=server.endpoint_url, session=server.session())

    def deploy(self, rows: str, begin: str = "", *, name: str = "clean.py") -> None:
        """Replace it by a program that writes ``rows``; what is deployed first is an old one."""
        is_first = not any(self.store.list(name))
        self.store.put(name, PROGRAM.format(rows=rows, begin=begin).encode())
        if is_first:
            # A second is the finest time that S3 gives: what is put back later is later by more.
            os.utime(self.server.folder / "buckets" / BUCKET / self.name / name, (1, 1))

    def fetched(self, folder: Path) -> Callable[[str], str]:
        def fetch(uri: str) -> str:
            path = folder / "fetched.py"
            path.write_bytes(self.store.get(uri.rpartition("/")[2]).body)
            return str(path)

        return fetch


class Way:
    """One way to run the code: an operator, and how often it has run."""

    def __init__(self, code: CodeOnS3, folder: Path) -> None:
        self.code, self.folder = code, folder
        self.begin = ""
        """What the program does first, so that it is known to be loaded."""
        self.loads: Any = None
        """The class and the method that is called before the program is loaded."""

    def operator(self, **given: Any) -> Any:
        raise NotImplementedError

    def run(self, try_number: int = 1, **given: Any) -> tuple[str, str]:
        """The decision, and the rows that count."""
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            task = self.operator(**given)
        answer = run_try(task, task_context("t", try_number=try_number))
        location = answer["results"]["t.out"]["location"]
        return answer["decision"], Path(location.removeprefix("file://"), "part-0").read_text()

    def attempt(self, number: int) -> Any:
        return state_in(self.folder, OPERATORS_GROUP, "t").of("t").attempts[number]

    @contextmanager
    def replacing(self, bad: Callable[[], None], good: Callable[[], None]) -> Iterator[None]:
        """Deploy ``bad`` after the fingerprint is taken, and ``good`` again as soon as the bad program is loaded."""
        owner, name = self.loads
        loads, looks = getattr(owner, name), DropInApplication.look_at_code

        def load(*args: Any, **kwargs: Any) -> Any:
            bad()
            return loads(*args, **kwargs)

        def look(self: DropInApplication, *, has_loaded: bool) -> None:
            if self._look is None:
                good()
            looks(self, has_loaded=has_loaded)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, load)
            patch.setattr(DropInApplication, "look_at_code", look)
            yield


class BySparkSubmit(Way):
    """A real spark-submit, with the application at ``s3a://``."""

    def __init__(self, code: CodeOnS3, folder: Path) -> None:
        super().__init__(code, folder)
        self.begin, self.loads = SPARK, (DropInSubmission, "submit")

    def operator(self, **given: Any) -> Any:
        s3a = {
            "endpoint": self.code.server.endpoint_url,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
        }
        return RecoverableSparkSubmitOperator(
            task_id="t",
            application=f"{self.code.uri.replace('s3:', 's3a:')}/clean.py",
            outputs=["out"],
            application_args=["{output:out}"],
            conf={f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()},
            **given,
        )


class ByLivy(Way):
    """A server of Livy's API, which fetches the program when a batch is submitted."""

    def __init__(self, code: CodeOnS3, folder: Path, server: LivyServer) -> None:
        super().__init__(code, folder)
        self.server = server
        server.fetch = code.fetched(folder)
        self.loads = (server, "fetch")

    def operator(self, **given: Any) -> Any:
        from airflow.providers.apache.livy.operators.livy import LivyOperator

        return recoverable(LivyOperator)(
            task_id="t",
            file=f"{self.code.uri}/clean.py",
            args=["{output:out}"],
            outputs=["out"],
            polling_interval=0.05,
            **given,
        )


@pytest.fixture
def code(one_s3_server: S3Server, recovery: Path, monkeypatch: pytest.MonkeyPatch) -> CodeOnS3:
    if one_s3_server.name != "versitygw":
        pytest.skip("expected versitygw, whose objects are files with a time that a test can set")
    found = one_s3_server.environment()
    extra = {"endpoint_url": one_s3_server.endpoint_url, "region_name": "us-east-1"}
    login = {"login": found["AWS_ACCESS_KEY_ID"], "password": found["AWS_SECRET_ACCESS_KEY"]}
    monkeypatch.setenv("AIRFLOW_CONN_RESULTS", json.dumps({"conn_type": "aws", "extra": extra, **login}))
    monkeypatch.setenv("AIRFLOW__RECOVERY__AWS_CONN_ID", "results")
    return CodeOnS3(one_s3_server, f"{recovery.name}-code")


@pytest.fixture(params=[pytest.param("spark-submit", marks=pytest.mark.spark), "livy"])
def way(
    request: pytest.FixtureRequest, code: CodeOnS3, recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Way]:
    if request.param == "spark-submit":
        for name, value in class_path_variables().items():
            monkeypatch.setenv(name, value)
        yield BySparkSubmit(code, recovery)
        return
    pytest.importorskip("airflow.providers.apache.livy.operators.livy")
    with LivyServer() as server:
        monkeypatch.setenv("AIRFLOW_CONN_LIVY_DEFAULT", server.connection())
        yield ByLivy(code, recovery, server)


def test_fault_270_new_code_under_the_same_name_runs_and_unchanged_code_is_kept(way: Way) -> None:
    way.code.deploy("one", way.begin)
    assert way.run() == ("ran", "one")
    assert way.run(2) == ("kept", "one")
    way.code.deploy("two", way.begin)
    assert way.run(3) == ("ran", "two")


def test_fault_270_control_known_by_its_name_new_code_is_kept(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApplicationCode, "components", lambda _, places: [Component(p.role, p.uri) for p in places])
    way.code.deploy("one", way.begin)
    assert way.run() == ("ran", "one")
    way.code.deploy("two", way.begin)
    assert way.run(2) == ("kept", "one")


@pytest.mark.slow
def test_fault_272_the_rows_of_a_bad_deploy_that_was_rolled_back_never_count(way: Way) -> None:
    """The bad program waits for ever: its attempt ends as soon as it is loaded, and not when it is over."""
    gate = str(way.folder / "gate")

    def deploy(rows: str, begin: str) -> Callable[[], None]:
        return lambda: way.code.deploy(rows, way.begin + begin)

    way.code.deploy("good", way.begin)
    with (
        way.replacing(deploy("bad", WAITS.format(gate=gate)), deploy("good", "")),
        pytest.raises(CodeReplaced, match=r"t@1: expected its code to stay as it was .*/clean.py was replaced since"),
    ):
        way.run()
    ended = way.attempt(1).outcome
    assert (ended.cause, ended.fingerprint) == (FenceCause.SUPERSEDED, None), "it is no failure of this code"
    assert way.run(2) == ("ran", "good")
    assert way.run(3) == ("kept", "good")


def test_fault_272_control_without_the_second_look_the_bad_rows_are_kept(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApplicationCode, "_now", lambda *_, **__: {})
    way.code.deploy("good", way.begin)
    with way.replacing(lambda: way.code.deploy("bad", way.begin), lambda: way.code.deploy("good", way.begin)):
        assert way.run() == ("ran", "bad")
    assert way.run(2) == ("kept", "bad")


@pytest.mark.slow
def test_fault_272_a_bad_program_that_fails_is_no_failure_of_the_good_one(way: Way) -> None:
    way.code.deploy("good", way.begin)
    with (
        way.replacing(
            lambda: way.code.deploy("bad", f"{way.begin}sys.exit(1)\n"), lambda: way.code.deploy("good", way.begin)
        ),
        pytest.raises(CodeReplaced) as raised,
    ):
        way.run()
    assert raised.value.__cause__ is None or not isinstance(raised.value.__cause__, RegionFailed)
    assert way.run(2) == ("ran", "good")


def test_each_file_is_asked_for_once_if_kept_and_few_times_if_run(
    way: Way, one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(S3Store, "read_version", _counted(asked, "read", S3Store.read_version))
    monkeypatch.setattr(S3Store, "version", _counted(asked, "version", S3Store.version))
    way.code.deploy("one", way.begin)
    way.run()
    # A service does not tell when it has loaded the code, so the end is looked at as well.
    looks = 1 if isinstance(way, BySparkSubmit) else 2
    assert asked == ["read", *["version"] * looks]
    asked.clear()
    way.run(2)
    assert asked == ["read"]


def _counted(asked: list[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        asked.append(name)
        return call(*args, **kwargs)

    return counted


def test_fault_272_a_job_that_outlived_its_worker_is_not_waited_for_if_its_code_was_replaced(
    code: CodeOnS3,
) -> None:
    """The versions of code in stores are kept with the attempt, so another process finds them."""
    code.deploy("one")

    def rests_on() -> str:
        named = {place_of(code.uri).root}
        found = ApplicationCode(None, open_stores(RecoverySettings.load(), written=lambda: named))
        found.components([Place("application", f"{code.uri}/clean.py")])
        return _rests_on("f", (), found)

    before = rests_on()
    assert rests_on() == before
    code.deploy("two")
    code.deploy("one")
    assert rests_on() != before
