"""``docs/where-it-runs.md``, written whole from the cells and their results: ``python -m scripts.matrix.page``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.matrix.cells import EXECUTORS, OPERATORS, STORES, WAYS, Cell, cells
from scripts.matrix.record import Record, read_records
from scripts.sparks import NEWEST

PAGE = Path(__file__).resolve().parents[2] / "docs" / "where-it-runs.md"

SPARKS = {
    "3.5": ("3.8 to 3.11", "8", "3.3.4", "no", "no"),
    "4.0": ("3.9 to 3.13", "17", "3.4.1", "yes", "no"),
    "4.1": ("3.10 to 3.14", "17", "3.4.2", "yes", "no"),
    "4.2": ("3.10 to 3.14", "17", "3.5.0", "yes", "yes"),
    "4.3": ("3.11 to 3.14", "17", "3.5.0", "yes", "yes"),
}
"""As each says itself: its Pythons (its package), the oldest Java (its classes), its Hadoop (its jars).

Then whether regions run over Spark Connect, and whether they run as streams (`airflow_recovery.driver.spark_version`).
"""

PREFACE = """\
# Where it runs

What was tried, on which day and by which test; what should work and was not tried here; and what is refused, with its
words. `make matrix` tries the cells and writes this page from what they said (`scripts/matrix/results/*.json`); nothing
of the tables is written by hand. A cell with a date is one recovery in a real Airflow: a run ends, a result is lost,
its reader is cleared, and the result is made again by its producer. (Of streaming regions the sink is killed, and goes
on alone.) *Refused* with a date: the test has heard the words. The journal is on S3, results are in a folder that all
components see. With CeleryExecutor there are two workers, each on a machine of its own (namespaces of one Linux);
a declared job with master `local` was tried there on each Spark, everything else on one. Kubernetes is a real API
server, and a node that [runs pods as processes](kubernetes.md#what-was-tried).

## Versions of Spark

Recovery pins no Spark. An application of your own (a drop-in) runs on whatever its `spark-submit` is. The driver of a
declared job imports the pyspark that it finds, and says by name what that version can't do.
"""

AFTER_SPARKS = """\
Any driver of a declared job needs Python 3.10 or later, and nothing beyond what a stock image of Spark has: neither
Airflow nor pydantic, pendulum, Jinja, boto3, pandas or pyarrow. The client of S3 with which it finishes its attempt
comes along with it ([why](decisions.md#23-the-sdk-of-s3-travels-with-the-driver)). What your vertices import has to be
there, and so have pyarrow and pandas for streaming regions, since Spark asks for them, pyiceberg for
[results that are Iceberg's](tables.md), and Delta's jar of that Spark's version for those that are Delta's (tried:
4.4.0 on 4.2).

**By spark-submit.** Which Spark: the `spark-submit` that is first on the worker's `PATH`, or `spark_binary=` of the
operator or the group (`"/opt/spark/bin/spark-submit"`). A connection can't say it: Airflow's provider takes neither a
path nor a `spark-home` from there. Which Python: `PYSPARK_PYTHON` of the worker or in `env_vars=`, or the setting
`spark.pyspark.python`; else the worker's own. The driver's and the executors' Python must have one minor version;
Airflow's may be another. The worker needs no pyspark of that version. The extra `airflow-recovery[spark]` is for those
who have no Spark: it pins the newest version of which both packages are there.

**Over Spark Connect.** The client is the pyspark beside Airflow. Airflow's provider brings `pyspark-client`, which ends
at 4.2.0; the full package is a client as well. Both write the same files: install one of them, or both of one version.

**On S3** Spark needs `hadoop-aws` of its own Hadoop's version, and the AWS SDK that this was built with: version 1 for
Spark 3.5 (`aws-java-sdk-bundle`), version 2 from 4.0 on.
"""

OF_OPERATORS = """\
## Operators

[Operators that start a job and wait](operators.md#any-operator-that-starts-a-job-and-waits), in a real Airflow with
LocalExecutor. An attempt fails and another one is made; a result is lost and made again. Where a service runs the jobs,
the task is killed as well, and its next try waits for the same job. The services are servers of the tests, which run
each job as a process: nothing here was tried on a service itself.
"""

OF_STORES = """\
## Stores

[Journal and results](stores.md) elsewhere than on S3, in a real Airflow with LocalExecutor: an attempt fails, and a
result is lost and made again. The servers run on one machine: nothing here was tried on Google's or Azure's own.
"""


def write_page() -> None:
    """Write the page."""
    PAGE.write_text(render(read_records()), encoding="utf-8")


def render(records: Mapping[str, Record]) -> str:
    """The page of these results."""
    columns = ("Spark", "newest", "its Python", "oldest Java", "its Hadoop", "Spark Connect", "streams")
    parts = [
        PREFACE,
        _table(columns, [(series, NEWEST[series], *facts) for series, facts in SPARKS.items()]),
        AFTER_SPARKS,
    ]
    for executor in EXECUTORS:
        rows = []
        for way in WAYS:
            of_way = [cell for cell in cells() if (cell.executor, cell.way) == (executor, way)]
            rows.append((way.title, *(_said(cell, records.get(cell.name)) for cell in of_way)))
        parts += [f"## {executor}\n", _table(("", *NEWEST), rows)]
    parts += [OF_OPERATORS, _alone(OPERATORS, records), OF_STORES, _alone(STORES, records)]
    parts += ["## What is refused\n", _refusals()]
    failures = [
        (cell, records[cell.name]) for cell in cells() if cell.name in records and not records[cell.name].passed
    ]
    if failures:
        rows = [(cell.name, record.day, f"`{record.words or 'it did not end'}`") for cell, record in failures]
        parts += ["## What fails\n", _table(("cell", "day", "what the test said"), rows)]
    parts += ["## The tests\n", _tests(records)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _said(cell: Cell, record: Record | None) -> str:
    if record is not None:
        when = f"{record.spark}: {record.day}" if cell.series else record.day
        if not record.passed:
            return f"**{'did not end' if record.passed is None else 'fails'}** ({when})"
        return f"refused ({when})" if cell.refused else when
    if cell.refused:
        return "refused"
    return "not tried here" if cell.test else "should work"


def _alone(those: Sequence[Cell], records: Mapping[str, Record]) -> str:
    rows = []
    for cell in those:
        said = _said(cell, records.get(cell.name)) + (f": `{cell.refused}`" if cell.refused else "")
        rows.append((cell.way.title, said, f"`{cell.test}`" if cell.test else ""))
    return _table(("", "tried", "test"), rows)


def _tests(records: Mapping[str, Record]) -> str:
    rows = [
        (cell.executor, cell.way.title, record.spark, record.airflow, record.python, record.java, f"`{record.test}`")
        for cell in cells()
        if cell.series and (record := records.get(cell.name)) is not None
    ]
    return _table(("executor", "way", "Spark", "Airflow", "Python", "Java", "test"), rows)


def _refusals() -> str:
    rows = [(way.title, _all(way.refused), f"`{words}`") for way in WAYS for words in sorted({*way.refused.values()})]
    return _table(("way", "Spark", "the words"), rows)


def _all(series: Mapping[str, str]) -> str:
    return "all" if list(series) == list(NEWEST) else ", ".join(series)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(text.replace('|', '&#124;') for text in line)} |\n" for line in lines)


if __name__ == "__main__":
    write_page()
    sys.exit(0)
