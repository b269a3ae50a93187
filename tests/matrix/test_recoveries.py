"""One recovery on each Spark that users have, in a real Airflow: what `make matrix` runs (`scripts/matrix`).

numbers --> total        as a declared job, by spark-submit and over Spark Connect
clean --> report         as applications that know nothing of recovery
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pipeline import Pipeline

from airflow_recovery.testing.spark_cluster import connect_server, standalone_cluster
from scripts.sparks import NEWEST, Spark, installed_spark

pytestmark = [pytest.mark.drill, pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

WITH_CONNECT = [series for series in NEWEST if series != "3.5"]


@contextmanager
def connected(pipeline: Pipeline, conn_id: str, conn_type: str, url: str) -> Iterator[None]:
    """Meanwhile the connection is there, in Airflow's database."""
    host, _, port = url.rpartition(":") if "://" in url else (url, "", "")
    body = {"connection_id": conn_id, "conn_type": conn_type, "host": host, "login": "matrix"}
    pipeline.airflow.api("POST", "/connections", body | ({"port": int(port)} if port else {}))
    try:
        yield
    finally:
        pipeline.airflow.api("DELETE", f"/connections/{conn_id}")


@contextmanager
def submitted_to(pipeline: Pipeline, spark: Spark, manager: str) -> Iterator[None]:
    if manager == "local":
        with connected(pipeline, f"submit_{spark.series}", "spark", "local[1]"):
            yield
        return
    with (
        standalone_cluster(cores=1, home=spark.home) as cluster,
        connected(pipeline, f"submit_{spark.series}", "spark", cluster.master_url),
    ):
        yield


def make_a_lost_result_again(pipeline: Pipeline, dag_id: str) -> None:
    run = pipeline.run(dag_id)
    before = run.start().ends()
    before.check()
    assert before.rows("total") == [(run.day, 90)]

    run.delete("numbers", "total")
    run.clear("total")
    after = run.ends()

    after.check()
    assert after.ran_since(before) == {"numbers": 1, "total": 1}
    assert after.attempts["numbers"][1].objects["lost"]["reporter"] == "total"
    assert after.rows("total") == [(run.day, 90)]


@pytest.mark.parametrize("manager", ["local", "standalone"])
@pytest.mark.parametrize("series", NEWEST)
def test_a_declared_job_by_spark_submit(pipeline: Pipeline, series: str, manager: str) -> None:
    with submitted_to(pipeline, installed_spark(series), manager):
        make_a_lost_result_again(pipeline, f"declared_{series}")


@pytest.mark.parametrize("manager", ["local", "standalone"])
@pytest.mark.parametrize("series", NEWEST)
def test_drop_ins(pipeline: Pipeline, series: str, manager: str) -> None:
    with submitted_to(pipeline, installed_spark(series), manager):
        run = pipeline.run(f"drop_in_{series}")
        run.group_id = "~28operators~29"
        before = run.start().ends()
        before.check()
        assert before.rows("report.report") == [(42.0,)]

        run.delete("clean.cleaned", "report.report")
        run.clear("report")
        after = run.ends()

        after.check()
        assert after.ran_since(before) == {"clean": 1, "report": 1}
        assert after.rows("report.report") == [(42.0,)]


@pytest.mark.parametrize("series", WITH_CONNECT)
def test_a_declared_job_over_connect(pipeline: Pipeline, series: str) -> None:
    """The client is the one beside Airflow, whatever the server's version is."""
    spark = installed_spark(series)
    conf = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    with (
        connect_server(master="local[1]", conf=conf, home=spark.home) as server,
        connected(pipeline, f"connect_{series}", "spark_connect", server.url),
    ):
        make_a_lost_result_again(pipeline, f"connect_{series}")
