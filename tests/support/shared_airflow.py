"""One Airflow, with one Connect server and one S3 server, for all tests that change nothing of it but their own runs.

One worker of pytest-xdist runs these tests one after the other: `SHARE_THE_AIRFLOW` in `tests/conftest.py`. The Airflow
stops after the last of them.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import forty_steps
import pytest
from folder_end import is_last_of
from metrics_listener import MetricsListener
from paths import CODE
from pipeline import FLIGHTS, DagRun, Pipeline, environment, small_connect_server
from readme_blocks import write_dags

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import SECRET_KEY

HERE = Path(__file__).parents[1] / "integration"
EXAMPLES = HERE.parents[1] / "dags"
OTHER_OPERATORS = ("any_operator", "livy", "databricks", "emr", "emr_steps", "spark_operators", "tables")
"""Of the examples, those of `test_any_operator.py`, `test_spark_provider.py` and `test_table_example.py`."""
PER_RUN_BACKEND = {
    "AIRFLOW__STATE_STORE__BACKEND": "weakened.PerRunBackend",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE / "backends"), os.environ.get("PYTHONPATH")])),
}


NOT_BY_SCHEDULE = """
import pendulum

__all__ = ["dag_policy"]

def dag_policy(dag):
    if not getattr(dag.timetable, "asset_condition", None):
        dag.end_date = pendulum.datetime(2020, 1, 1)
"""
"""Content of `airflow_local_settings.py`. It ends each schedule in 2020, so that the scheduler starts no run. Backfills
of earlier dates work, and an asset still triggers its DAGs."""

SHARED = pytest.StashKey[ExitStack]()


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> Iterator[ExitStack]:
    """What is stopped behind the last of these tests."""
    with ExitStack() as stack:
        pytestconfig.stash[SHARED] = stack
        yield stack


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if SHARED in item.config.stash and is_last_of(sharing(item), item, nextitem):
        item.config.stash[SHARED].close()


def sharing(item: pytest.Item) -> tuple[Path, ...]:
    """Return the folders and files whose tests share the Airflow."""
    conftest = item.config.pluginmanager.get_plugin(str(HERE.parent / "conftest.py"))
    return tuple(HERE.parents[1] / name for name in conftest.SHARE_THE_AIRFLOW)


@pytest.fixture(scope="session")
def connect_url(shared: ExitStack) -> str:
    return shared.enter_context(small_connect_server()).url


@pytest.fixture(scope="session")
def metrics(shared: ExitStack) -> MetricsListener:
    """Hears what the processes of `pipeline` tell StatsD."""
    return shared.enter_context(closing(MetricsListener()))


@pytest.fixture(scope="session")
def pipeline(
    shared: ExitStack,
    metrics: MetricsListener,
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
    connect_url: str,
) -> Pipeline:
    """A full installation on the last S3 server. A run can ask for a weaker back end (`backends/weakened.py`)."""
    server = start_s3_server(s3_server_names[-1])
    return shared.enter_context(
        open_pipeline(tmp_path_factory.mktemp("pipeline"), server, connect_url, metrics.environment())
    )


@pytest.fixture(scope="session")
def two_runs(pipeline: Pipeline) -> dict[str, DagRun]:
    """Two runs of `diamond` side by side, in which nothing happens."""
    runs = {name: pipeline.run("diamond", name=name).start() for name in ("undisturbed", "finished")}
    for run in runs.values():
        journal = run.ends()
        journal.check()
        assert set(journal.executions().values()) == {1}
    return runs


@pytest.fixture(scope="session")
def undisturbed(two_runs: dict[str, DagRun]) -> DagRun:
    """No test changes this run."""
    return two_runs["undisturbed"]


@pytest.fixture(scope="session")
def finished(two_runs: dict[str, DagRun]) -> DagRun:
    """A test may damage this run after its end, and must repair it. It compares the states before and after."""
    return two_runs["finished"]


@contextmanager
def open_pipeline(
    folder: Path, server: S3Server, connect_url: str, extra: dict[str, str], examples: Sequence[str] = ()
) -> Iterator[Pipeline]:
    """``extra``: variables; ``examples``: those that not every Airflow can import."""
    bucket = f"integration-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    env = environment(folder, bucket, connect_url) | PER_RUN_BACKEND | extra
    dags = copy_dags(folder, examples)
    # On SQLite, a backfill fails if another process writes, and the scheduler crashes if a run is deleted.
    airflow = LocalAirflow(folder / "airflow", dags, database="postgresql", env=env)
    # Tasks must get their AWS credentials from the Airflow connection only.
    for name in [each for each in airflow.env if each.startswith("AWS_") and each != "AWS_EC2_METADATA_DISABLED"]:
        del airflow.env[name]
    settings = airflow.home / "config" / "airflow_local_settings.py"
    settings.parent.mkdir(parents=True)
    settings.write_text(NOT_BY_SCHEDULE)
    with airflow:
        pipeline = Pipeline(airflow, server, bucket, folder)
        pipeline.set_aws_password(SECRET_KEY)
        yield pipeline


def copy_dags(folder: Path, more: Sequence[str]) -> Path:
    """Copy the DAGs of these tests, those of the README, and the examples that these tests use."""
    dags = folder / "dags"
    write_dags(dags, f"file://{folder}/{FLIGHTS}")
    shutil.copytree(HERE / "dags", dags, dirs_exist_ok=True)
    shutil.copytree(CODE / "existing", dags / "existing")
    forty_steps.write(dags)
    examples = dags / "examples"
    shutil.copytree(EXAMPLES / "applications", examples / "applications")
    for name in ("drop_in.py", "wait_for_delays.py", *(f"examples/{each}.py" for each in (*OTHER_OPERATORS, *more))):
        shutil.copy(EXAMPLES / name, examples)
    return dags
