"""Every combination of an executor, a way to reach a Spark, and a Spark, with the test that tries it.

Then what is no such combination (`OPERATORS`, `STORES`): services that run jobs, and stores, each tried by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scripts.sparks import NEWEST

EXECUTORS = ("LocalExecutor", "CeleryExecutor")
ON_THIS_SPARK = "4.2"
"""The series that the package's extra installs: tests without a parameter run on it."""

NO_CONNECT = "expected Spark 4.0 or later for regions over Spark Connect"
NO_STREAMS = "expected Spark 4.2 or later for regions of the mode 'streaming'"
NO_FOLDERS = "Use a bucket, or an Azure account without a hierarchical namespace."
NO_DEFERRING = "expected deferrable=False of a recoverable"
NO_CLUSTER_MODE = "deploy-mode cluster, in which a standalone cluster takes no Python application"


@dataclass(frozen=True)
class Way:
    """A way to reach a Spark.

    ``tests``: by executor, the test of a recovery; ``{series}`` in it stands for the Spark, without it the test is of
    `ON_THIS_SPARK` alone. Without a test it should work, since an executor or a Spark that was tried elsewhere makes no
    difference to it. ``refused``: by series, the words; ``refusals``: by executor, the test that hears them.
    """

    name: str
    title: str
    tests: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One combination. ``test`` is a pytest node, or empty; ``refused`` the words which that is to hear, or empty.

    Without a ``series`` it is an operator or a store, which has no Spark of its own here.
    """

    executor: str
    way: Way
    series: str
    test: str = ""
    refused: str = ""

    @property
    def name(self) -> str:
        """Its result's file, and its name on the command line."""
        return ".".join(part for part in (self.executor, self.way.name, self.series) if part)


def _of_each(
    test: str, *parameters: str, executors: Sequence[str] = EXECUTORS, everywhere: bool = False
) -> dict[str, str]:
    """A test of `tests/matrix/test_recoveries.py`, which takes the executor, the Spark, and ``parameters``.

    With CeleryExecutor on `ON_THIS_SPARK` alone, unless ``everywhere``: which worker starts a Spark makes no difference
    to that Spark, and LocalExecutor has tried each.
    """
    series = {
        executor: "{series}" if everywhere or executor == EXECUTORS[0] else ON_THIS_SPARK for executor in executors
    }
    node = f"tests/matrix/test_recoveries.py::{test}"
    return {executor: f"{node}[{'-'.join((executor, series[executor], *parameters))}]" for executor in executors}


def _before(first: str, words: str) -> dict[str, str]:
    series = list(NEWEST)
    return dict.fromkeys(series[: series.index(first)], words)


WAYS = (
    *(
        Way(
            f"{what}-{manager}",
            f"{title}, {where}",
            _of_each(test, manager, executors=executors, everywhere=(what, manager) == ("declared", "local")),
        )
        for manager, where, executors in (
            ("local", "master `local`", EXECUTORS),
            ("standalone", "a standalone cluster", EXECUTORS),
            ("yarn", "YARN, deploy mode `cluster`", EXECUTORS),
            # Its API server has an address of this machine alone, which Celery's workers do not reach.
            ("kubernetes", "Kubernetes, deploy mode `cluster`", EXECUTORS[:1]),
        )
        for what, title, test in (
            ("declared", "a declared job", "test_a_declared_job_by_spark_submit"),
            ("drop-in", "drop-ins", "test_drop_ins"),
        )
    ),
    Way(
        "standalone-cluster-mode",
        "Python on a standalone cluster, deploy mode `cluster`",
        refused=dict.fromkeys(NEWEST, NO_CLUSTER_MODE),
        refusals=_of_each("test_a_standalone_cluster_in_cluster_mode_is_refused"),
    ),
    Way(
        "declared-connect",
        "a declared job, a Spark Connect server, `pyspark-client` 4.2.0",
        _of_each("test_a_declared_job_over_connect"),
        refused=_before("4.0", NO_CONNECT),
        refusals=_of_each("test_a_server_that_is_too_old_is_refused"),
    ),
    Way(
        "client-connect",
        "a declared job, a Spark Connect server, the full package of its version",
        _of_each("test_the_full_package_as_the_client"),
        refused=_before("4.0", NO_CONNECT),
        refusals=_of_each("test_a_server_and_a_client_that_are_too_old_are_refused"),
    ),
    Way(
        "streams",
        "streaming regions, by spark-submit",
        _of_each("test_streaming_regions"),
        refused=_before("4.2", NO_STREAMS),
        refusals=_of_each("test_streams_on_a_spark_that_is_too_old_are_refused"),
    ),
    Way(
        "streams-standalone",
        "streaming regions, a standalone cluster",
        _of_each("test_streaming_regions_on_executors"),
        refused=_before("4.2", NO_STREAMS),
    ),
)


def _alone(name: str, title: str, test: str = "", refused: str = "") -> Cell:
    return Cell(EXECUTORS[0], Way(name, title), "", test and f"tests/{test}", refused)


_SERVICES = (
    "integration/test_any_operator.py::"
    "test_a_job_outlives_its_task_and_is_submitted_again_where_it_fails_or_its_result_is_lost"
)
OPERATORS = (
    _alone(
        "operator-bash",
        "`BashOperator`",
        "integration/test_any_operator.py::"
        "test_a_shell_command_that_fails_and_one_whose_result_is_lost_run_again_and_no_other",
    ),
    _alone("operator-livy", "`LivyOperator`, a server of its REST API", f"{_SERVICES}[livy]"),
    _alone(
        "operator-databricks", "`DatabricksSubmitRunOperator`, a server of its REST API", f"{_SERVICES}[databricks]"
    ),
    _alone("operator-emr-serverless", "`EmrServerlessStartJobOperator`, moto", f"{_SERVICES}[emr]"),
    _alone("operator-emr-steps", "`EmrAddStepsOperator`, moto", f"{_SERVICES}[emr_steps]"),
    _alone(
        "operator-dataproc",
        "`DataprocSubmitJobOperator` and `DataprocCreateBatchOperator`, a server of its gRPC API",
        f"{_SERVICES}[dataproc]",
    ),
    _alone(
        "operator-tables",
        "`PythonOperator`, Iceberg tables as results",
        "integration/test_table_example.py::"
        "test_fault_170_a_failed_step_and_a_table_that_was_rolled_back_run_again_and_no_other",
    ),
    _alone(
        "operator-job-tables",
        "`SparkJobTaskGroup` by spark-submit, results in an Iceberg and a Delta table on S3",
        "integration/test_flight_tables.py::"
        "test_fault_170_171_a_driver_that_dies_and_snapshots_that_are_lost_are_made_again_in_order",
    ),
    _alone(
        "operator-sql",
        "`SparkSqlOperator`, `PySparkOperator`, `SparkPipelinesOperator`, `SparkJDBCOperator` (PostgreSQL)",
        "integration/test_spark_provider.py::"
        "test_every_spark_that_dies_begins_again_and_a_lost_result_is_made_again_by_its_producer_alone",
    ),
    _alone(
        "operator-deferrable",
        "any of them with `deferrable=True`",
        "operators/test_recoverable.py::test_an_operator_that_does_not_wait_in_the_worker_is_refused[deferrable]",
        refused=NO_DEFERRING,
    ),
)
"""In a real Airflow: an attempt that fails, and a result that is lost; a job of a service outlives its killed task."""

_ON_CLOUDS = "integration/test_clouds.py::test_an_attempt_that_dies_and_a_result_that_is_lost_on_a_cloud_are_made_again"
STORES = (
    _alone(
        "store-google",
        "Google Cloud Storage: journal, results and Spark's data by `gcs-connector`, on fake-gcs-server",
        f"{_ON_CLOUDS}[google_cloud]",
    ),
    _alone(
        "store-azure",
        "Azure Blob Storage: journal, results and Spark's data by `hadoop-azure`, on Azurite",
        f"{_ON_CLOUDS}[azure]",
    ),
    _alone(
        "store-azure-hierarchical",
        "an Azure account with a hierarchical namespace: its listings",
        "store/test_cloud_stores.py::test_a_listing_in_another_order_is_refused_by_name",
        refused=NO_FOLDERS,
    ),
)
"""In a real Airflow, journal and results there: an attempt that fails, and a result that is lost."""


def cells() -> Iterator[Cell]:
    """All of them: executor by executor, way by way; then `OPERATORS` and `STORES`."""
    yield from _of_sparks()
    yield from OPERATORS
    yield from STORES


def _of_sparks() -> Iterator[Cell]:
    for executor in EXECUTORS:
        for way in WAYS:
            for series in NEWEST:
                refused = way.refused.get(series, "")
                test = (way.refusals if refused else way.tests).get(executor, "")
                is_tried = "{series}" in test or series == ON_THIS_SPARK
                yield Cell(executor, way, series, test.format(series=series) if is_tried else "", refused)
