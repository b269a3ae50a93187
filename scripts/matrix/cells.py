"""Every combination of an executor, a way to reach a Spark, and a Spark, with the test that tries it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scripts.sparks import NEWEST

EXECUTORS = ("LocalExecutor", "CeleryExecutor")
ON_THIS_SPARK = "4.2"
"""The series that the package's extra installs: tests without a parameter run on it."""

_MATRIX = "tests/matrix/test_recoveries.py"


@dataclass(frozen=True)
class Way:
    """A way to reach a Spark.

    ``tests``: by executor, the test of a recovery; ``{series}`` in it stands for the Spark, without it the test is of
    `ON_THIS_SPARK` alone. ``refused``: by series, the words. ``untried``: what keeps the rest from being tried here;
    empty where it should work, since an executor or a Spark that was tried elsewhere makes no difference to it.
    """

    name: str
    title: str
    tests: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    untried: str = ""


@dataclass(frozen=True)
class Cell:
    """One combination. ``test`` is a pytest node, or empty; ``refused`` the words, or empty."""

    executor: str
    way: Way
    series: str
    test: str = ""
    refused: str = ""

    @property
    def name(self) -> str:
        """Its result's file, and its name on the command line."""
        return f"{self.executor}.{self.way.name}.{self.series}"


def _submitted(test: str, manager: str) -> dict[str, str]:
    return {"LocalExecutor": f"{_MATRIX}::{test}[{{series}}-{manager}]"}


_NO_CONNECT = {"3.5": "expected Spark 4.0 or later for regions over Spark Connect"}
_NO_STREAMS = dict.fromkeys(("3.5", "4.0", "4.1"), "expected Spark 4.2 or later for regions of the mode 'streaming'")

WAYS = (
    Way("declared-local", "a declared job, master `local`", _submitted("test_a_declared_job_by_spark_submit", "local")),
    Way("drop-in-local", "drop-ins, master `local`", _submitted("test_drop_ins", "local")),
    Way(
        "declared-standalone",
        "a declared job, a standalone cluster",
        _submitted("test_a_declared_job_by_spark_submit", "standalone"),
    ),
    Way("drop-in-standalone", "drop-ins, a standalone cluster", _submitted("test_drop_ins", "standalone")),
    Way(
        "standalone-cluster-mode",
        "a standalone cluster in deploy mode `cluster`",
        refused=dict.fromkeys(NEWEST, "deploy-mode cluster, in which a standalone cluster takes no Python application"),
    ),
    Way(
        "declared-connect",
        "a declared job, a Spark Connect server, `pyspark-client` 4.2.0",
        {
            "LocalExecutor": f"{_MATRIX}::test_a_declared_job_over_connect[{{series}}]",
            "CeleryExecutor": "tests/machines/test_two_workers.py::"
            "test_a_lost_result_is_made_again_on_another_machine_than_its_readers",
        },
        refused=_NO_CONNECT,
    ),
    Way(
        "client-connect",
        "a Spark Connect server, the full package of its version as the client",
        {"LocalExecutor": "tests/matrix/test_clients.py::test_a_region_by_the_full_package_as_client[{series}]"},
        refused=_NO_CONNECT,
    ),
    Way(
        "streams",
        "streaming regions, by spark-submit",
        {
            "LocalExecutor": "tests/integration/test_streams.py::"
            "test_only_what_is_killed_or_cleared_starts_again_and_the_ledger_is_the_difference",
        },
        refused=_NO_STREAMS,
    ),
    Way("yarn", "YARN", untried="there is no YARN here"),
    Way("kubernetes", "Kubernetes", untried="there is no Kubernetes here"),
)


def cells() -> Iterator[Cell]:
    """All of them: executor by executor, way by way."""
    for executor in EXECUTORS:
        for way in WAYS:
            for series in NEWEST:
                refused, test = way.refused.get(series, ""), way.tests.get(executor, "")
                is_tried = not refused and ("{series}" in test or series == ON_THIS_SPARK)
                yield Cell(executor, way, series, test.format(series=series) if is_tried else "", refused)
