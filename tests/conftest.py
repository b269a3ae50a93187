"""Shared fixtures: S3 servers and stores. No test knows which server it talks to.

All tests, and all processes that they start, run the installed wheel of this checkout (`scripts.wheel`).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).parents[1]))
from scripts.wheel import use_wheel

use_wheel()

# ruff: noqa: E402
from cloud_servers import CLOUD_SERVERS, CloudServer, installed_cloud_servers
from costs import Costs
from last_results import LastResults
from suites import OF_REAL_PROCESSES, Until, is_fast, mark_controls

from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task.class_archive import SHORT_LIVED, NoArchive, SparkInstallation, find_archive, java_options
from airflow_recovery.testing import SERVERS, S3Server, find_versitygw
from airflow_recovery.testing.local_airflow.postgres import PostgresDatabase
from airflow_recovery.testing.local_airflow.processes import Processes
from airflow_recovery.testing.patience import HANG_S, NEVER_S

NO_UI = "-Dspark.ui.enabled=false"
"""Nobody looks at it, and its web server is a tenth of a short application. An application that says else has one."""
PATIENT_SPARK = f"-Dspark.network.timeout={HANG_S:.0f}s -Dspark.python.authenticate.socketTimeout={HANG_S:.0f}s"
"""No part of a Spark counts as lost because it is slow."""


def jvm_options(prefix: Path) -> str:
    """For the hundreds of JVMs that the tests start: with an archive of Spark's classes, where `setup.sh` has made one.

    A variable of the user's own, so that no task of a test makes or uses another one.
    """
    environment = {**os.environ, "PATH": f"{prefix / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    try:
        archive = find_archive(SparkInstallation.locate(environment), prefix / "spark-classes")
    except (NoArchive, OSError):
        return f"{SHORT_LIVED} {NO_UI} {PATIENT_SPARK}"
    return f"{SHORT_LIVED} {NO_UI} {PATIENT_SPARK} {java_options(archive)}"


os.environ.setdefault("JDK_JAVA_OPTIONS", jvm_options(Path(sys.prefix)))
# In processes of Airflow that tests start without a `LocalAirflow`, which sets all such limits.
os.environ.setdefault("AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT", str(NEVER_S))
# One profile for all: how long an example takes says nothing on a machine that is busy with other tests.
settings.register_profile(
    "airflow-recovery", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("airflow-recovery")

pytest_plugins = ("airflow_tables", "shared_airflow", "spark_fixtures", "task_fixtures")
BUCKET = "recovery-tests"
KILLS = Path(__file__).parent / "kills"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--s3-server",
        choices=["all", *SERVERS],
        default="all",
        help="S3 servers to test against; all = moto, and versitygw where it is installed (required where CI is set)",
    )
    parser.addoption(
        "--suite",
        choices=["fast", "rest", "all"],
        default="all",
        help="fast = what `make test` runs, rest = what only `make test-all` runs (docs/testing.md)",
    )
    parser.addoption(
        "--until", type=float, metavar="EPOCH_S", help="start no test after this time, and list the others"
    )
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test makes the run fail")
    parser.addoption("--drill", type=int, metavar="N", help="run tests of kills at N seeded moments each, not at one")
    parser.addoption("--screenshots", metavar="DIR", help="keep the pictures of the Recovery tab: docs/screenshots")
    parser.addoption(
        "--costs", metavar="DIR", help="write there what each test costs (tests/support/costs.py reads it)"
    )
    parser.addoption("--times", type=int, metavar="N", help="run each test so often, to see one that fails seldom")
    parser.addoption("--seed", type=int, default=1, metavar="S", help="the first of these seeds; test ids show theirs")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Runs in which everything is killed belong to `make drill`: tests/integration/test_kills.py kills single parts."""
    is_kill = collection_path.parent == KILLS and collection_path.name.startswith("test_")
    return True if is_kill and not config.getoption("--drill") else None


def server_names(config: pytest.Config) -> list[str]:
    chosen = config.getoption("--s3-server")
    if chosen == "moto" or (chosen == "all" and find_versitygw() is None and not os.environ.get("CI")):
        return ["moto"]
    if find_versitygw() is None:
        raise pytest.UsageError(
            "versitygw is not installed: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0"
        )
    return ["versitygw"] if chosen == "versitygw" else ["moto", "versitygw"]


def cloud_names(config: pytest.Config) -> list[str]:
    """Azurite and fake-gcs-server, where they and the library are installed (both where CI is set, and all is run)."""
    if config.getoption("--s3-server") != "all" or config.getoption("--suite") == "fast":
        return []
    if find_spec("obstore") is None and not os.environ.get("CI"):
        return []
    names = installed_cloud_servers()
    if os.environ.get("CI") and names != [*CLOUD_SERVERS]:
        raise pytest.UsageError(f"of {', '.join(CLOUD_SERVERS)} not all are installed: run scripts/setup.sh --all")
    return names


def pytest_configure(config: pytest.Config) -> None:
    # py4j says good-bye when the interpreter ends, to a stream that pytest has closed by then; and the garbage of one
    # test, of a Spark that has gone, is none of the log of another.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    config.stash[NAMES] = server_names(config)
    config.stash[CLOUDS] = cloud_names(config)
    if until := config.getoption("--until"):
        config.pluginmanager.register(Until(config, until), "until")
    if folder := config.getoption("--costs"):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        if worker != "main" or not config.getoption("numprocesses", None):
            config.pluginmanager.register(Costs(Path(folder), worker), "costs")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LastResults(config), "last_results")


NAMES = pytest.StashKey[list[str]]()
CLOUDS = pytest.StashKey[list[str]]()
ON_EACH_SERVER = ("store", "testing/test_s3_server.py")
"""These run on each S3 server, and show that one is as the other. What all other tests ask of a server is shown there:
they run on the last one, a real one; `make drill` runs them on moto."""


def servers_for(file: Path, names: list[str]) -> list[str]:
    """Of the servers ``names``, those on which the tests of ``file`` run."""
    folder = Path(__file__).parent
    return names if any(file.is_relative_to(folder / name) for name in ON_EACH_SERVER) else names[-1:]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if times := metafunc.config.getoption("--times"):
        metafunc.fixturenames.append("time")
        metafunc.parametrize("time", range(times))
    names = servers_for(metafunc.definition.path, metafunc.config.stash[NAMES])
    if "s3_server" in metafunc.fixturenames:
        metafunc.parametrize("s3_server", names, indirect=True, scope="session")
    if "store" in metafunc.fixturenames:
        clouds = metafunc.config.stash[CLOUDS] if len(names) > 1 else []
        metafunc.parametrize("store", ["local", *names, *clouds], indirect=True)
    if "cloud_server" in metafunc.fixturenames:
        metafunc.parametrize("cloud_server", metafunc.config.stash[CLOUDS], indirect=True, scope="session")
    if "azurite" in metafunc.fixturenames:
        there = [name for name in metafunc.config.stash[CLOUDS] if name == "azurite"]
        metafunc.parametrize("azurite", there, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays, so the garbage collector need not look through it again and again.

    That takes a third of the time off which each worker needs for it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


SERVER_FIXTURES = {"s3_server", "one_s3_server", "cloud_server", "azurite"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        fixtures = SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if fixtures or parameters.get("store", "local") != "local":
            item.add_marker(pytest.mark.s3)
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)
    mark_controls(items)
    suite, servers = config.getoption("--suite"), config.stash[NAMES]
    chosen = [
        item
        for item in items
        if (config.getoption("--drill") or not item.get_closest_marker("drill"))
        and (suite == "all" or (suite == "fast") == is_fast(item, servers))
    ]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen
    if hasattr(config, "workerinput"):  # pytest-xdist hands units out in this order
        real = {work_unit(item.nodeid) for item in items if any(map(item.get_closest_marker, OF_REAL_PROCESSES))}
        items.sort(key=lambda item: rank(work_unit(item.nodeid), real))


SHARE_A_SPARK = (
    "tests/driver/",
    "tests/doctor/test_doctor_over_connect.py",
    "tests/job/test_key_ranges.py",
    "tests/job/test_local_run.py",
    "tests/operators/test_iceberg_on_spark.py",
    "tests/project/test_demo_approximate.py",
    "tests/project/test_demo_job.py",
    "tests/project/test_readme.py",
    "tests/results/test_toy_result_type.py",
    "tests/results/test_types_apart.py",
    "tests/sinks/test_spark_rows_in_sinks.py",
    "tests/sinks/test_value_matrix.py",
    "tests/splits/test_plan_guard.py",
    "tests/splits/test_split_drivers.py",
    "tests/splits/test_split_loop.py",
    "tests/splits/test_split_lost_replies.py",
    "tests/splits/test_split_pull_spark.py",
    "tests/streaming/test_streaming_region.py",
    "tests/task/test_hadoop_globs.py",
    "tests/task/test_run_spark.py",
)
"""These ask for a Spark of the session (`tests/support/spark_fixtures.py`): one worker starts each of those once."""
SHARE_AN_AIRFLOW = (
    "tests/testing_airflow/test_clear_without_backend_airflow.py",
    "tests/testing_airflow/test_killed_scheduler.py",
    "tests/testing_airflow/test_local_airflow.py",
    "tests/testing_airflow/test_other_dags.py",
    "tests/testing_airflow/test_code_behind_names.py",
)
"""These share one of `tests/testing_airflow/conftest.py`, and are a unit with the name of the first."""
SHARE_THE_AIRFLOW = ("tests/integration", "tests/tab/test_tab_repairs.py")
"""These share the Airflow of the session (`tests/support/shared_airflow.py`): one worker has them for its own, and the
others help when they have nothing else left to do."""


ONE_SPARK = "one Spark"
FORK_OFTEN = ("tests/testing/test_crash_kit.py",)
"""These fork the worker some thousand times. A fork copies the page table, so it takes longer the more the worker has
in memory: they run while it is small."""
LONG = (
    "tests/integration/test_airflows_features.py",
    "tests/integration/test_examples.py",
    "tests/integration/test_failures_and_losses.py",
    "tests/integration/test_kills.py",
    "tests/integration/test_parallel.py",
    "tests/integration/test_splits.py",
    "tests/integration/test_streams.py",
    "tests/machines/test_two_workers.py",
    "tests/project/test_tutorial.py",
    "tests/streaming/test_streaming_processes.py",
    "tests/tab/test_tab_in_airflow.py",
    "tests/task/test_kubernetes.py",
    "tests/task/test_out_of_memory.py",
    "tests/testing/test_channel_simulation.py",
    "tests/testing/test_simulated_schedules.py",
    "tests/testing_airflow/test_clear_clients_airflow.py",
    SHARE_AN_AIRFLOW[0],
    "tests/yarn/test_yarn.py",
)
"""These take more than half a minute of processor time each."""


def work_unit(nodeid: str) -> str:
    """What one worker of pytest-xdist runs as a whole."""
    file = nodeid.partition("::")[0]
    if file in SHARE_AN_AIRFLOW:
        return SHARE_AN_AIRFLOW[0]
    return ONE_SPARK if file.startswith(SHARE_A_SPARK) else file


def rank(unit: str, real: set[str]) -> int:
    """When a unit's turn comes: a long one at the end would leave a core idle. ``real`` are those of real processes."""
    order = (unit in FORK_OFTEN, unit == ONE_SPARK, unit in LONG, unit in real, True)
    return order.index(True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByWorkUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return work_unit(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            is_first = node is self.nodes[0]
            for unit in self.workqueue:
                if unit.startswith(SHARE_THE_AIRFLOW) == is_first:
                    self.workqueue.move_to_end(unit, last=False)
                    break
            super()._assign_work_unit(node)

    # Units are handed out in the order of `rank`.
    config.option.loadscopereorder = False
    return ByWorkUnit(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return  # The controller knows of the tests of all workers.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--fail-on-skip") and reporter.stats.get("skipped") and session.exitstatus == 0:
        reporter.write_line("\nfailed: a test was skipped, and --fail-on-skip was given", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def s3_server_names(pytestconfig: pytest.Config) -> list[str]:
    """The S3 servers that were asked for: moto first, versitygw last."""
    return pytestconfig.stash[NAMES]


@pytest.fixture(scope="session")
def start_s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], S3Server]]:
    """Servers by name, each started once a session; the environment holds the credentials of all of them."""
    servers: dict[str, S3Server] = {}

    def start(name: str) -> S3Server:
        if name not in servers:
            server = SERVERS[name](tmp_path_factory.mktemp(name)).start()
            servers[name] = server
            server.create_bucket(BUCKET)
            for variable, value in server.environment().items():
                patch.setenv(variable, value)
        return servers[name]

    with pytest.MonkeyPatch.context() as patch:
        for variable in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            patch.delenv(variable, raising=False)
        try:
            yield start
        finally:
            for server in servers.values():
                server.stop()


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest, start_s3_server: Callable[[str], S3Server]) -> S3Server:
    """A running S3 server with a bucket `BUCKET`; the test runs once for each of `servers_for` its file."""
    return start_s3_server(request.param)


@pytest.fixture(scope="session")
def start_cloud_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], CloudServer]]:
    """Azurite and fake-gcs-server by name, each started once a session. Nothing of them is in the environment."""
    servers: dict[str, CloudServer] = {}

    def start(name: str) -> CloudServer:
        if name not in servers:
            servers[name] = CLOUD_SERVERS[name](tmp_path_factory.mktemp(name)).start()
        return servers[name]

    try:
        yield start
    finally:
        for server in servers.values():
            server.stop()


@pytest.fixture(scope="session")
def cloud_server(request: pytest.FixtureRequest, start_cloud_server: Callable[[str], CloudServer]) -> CloudServer:
    """A running server of Azure's or Google's API; the test runs once for each."""
    return start_cloud_server(request.param)


@pytest.fixture(scope="session")
def azurite(request: pytest.FixtureRequest, start_cloud_server: Callable[[str], CloudServer]) -> CloudServer:
    """The server of Azure's API, for what the other one has nothing of."""
    return start_cloud_server(request.param)


@pytest.fixture(scope="session")
def one_s3_server(start_s3_server: Callable[[str], S3Server], s3_server_names: list[str]) -> S3Server:
    """For what takes long, and asks no more of a server than `tests/store` asks of each: the last one, a real one."""
    return start_s3_server(s3_server_names[-1])


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | int]]:
    """The address of a PostgreSQL server, as psycopg2 takes it."""
    server, processes = PostgresDatabase(), Processes(tmp_path_factory.mktemp("postgres"))
    processes.guard(server.make_folder())
    try:
        server.start(processes)
        yield server.address
    finally:
        processes.stop()
        server.remove()


@pytest.fixture
def s3_store(s3_server: S3Server) -> S3Store:
    """An empty store on an S3 server."""
    return _store_on(s3_server)


@pytest.fixture
def local_store(tmp_path: Path) -> LocalStore:
    """An empty store in a folder that does not exist yet."""
    return LocalStore(f"file://{tmp_path}/store")


@pytest.fixture
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_s3_server: Callable[[str], S3Server],
    start_cloud_server: Callable[[str], CloudServer],
) -> ObjectStore:
    """An empty store; the test runs once for each kind of store."""
    if request.param == "local":
        return LocalStore(f"file://{tmp_path}/store")
    if request.param in CLOUD_SERVERS:
        server = start_cloud_server(request.param)
        return server.open(f"{server.create_bucket(BUCKET)}/{uuid.uuid4().hex}")
    return _store_on(start_s3_server(request.param))


def _store_on(server: S3Server) -> S3Store:
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return S3Store(uri, endpoint_url=server.endpoint_url, session=server.session())
