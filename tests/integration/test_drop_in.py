"""`RecoverableSparkSubmitOperator` in a real DAG, and a sensor that waits for another DAG's publish."""

from __future__ import annotations

import pytest
from pipeline import Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


@pytest.mark.smoke
def test_two_existing_applications_recover(pipeline: Pipeline) -> None:
    lake = pipeline.folder / "lake"
    lake.mkdir(exist_ok=True)
    (lake / "raw.csv").write_text("amount\n1\n\n41\n")
    run = pipeline.run("existing")
    run.group_id = "~28operators~29"

    first = run.start().ends()
    assert first.executions() == {"clean": 1, "report": 1}
    assert first.rows("report.report") == [(42.0,)]
    assert first.manifest("report.report")["location"] == f"file://{lake}/report"
    assert run.said("publish") == {"publish": 1, "regions": {"clean": 1, "report": 1}}
    first.check()

    # Cleared as a whole: kept.
    run.clear()
    assert set(run.ends().keys) == set(first.keys)
    assert [run.said(name)["decision"] for name in ("clean", "report")] == ["kept", "kept"]

    # Both outputs gone, one task cleared: it has its input made again.
    run.delete("clean.cleaned", "report.report")
    run.clear("report")
    second = run.ends()
    assert second.ran_since(first) == {"clean": 1, "report": 1}
    assert second.rows("report.report") == [(42.0,)]
    assert second.manifest("clean.cleaned")["location"] != first.manifest("clean.cleaned")["location"]
    second.check()

    # Somebody else has written to the fixed location: stop and say so, and leave it alone.
    newer = lake / "report" / "part-newer.parquet"
    newer.write_bytes(b"newer data")
    tries = run.tries("clean")
    run.clear("report", downstream=True)
    stopped = run.ends("failed")
    assert stopped.ran_since(second) == {}
    assert run.tries("clean") == tries
    assert "is not as it was registered" in run.log("report")
    assert newer.read_bytes() == b"newer data"

    newer.unlink()
    run.clear(only_failed=True)
    assert run.ends().ran_since(second) == {}


def test_a_sensor_is_deferred_until_another_dag_has_published(pipeline: Pipeline) -> None:
    chain = pipeline.run("chain")
    chain.hold("total")
    chain.start()
    airflow = pipeline.airflow
    waiting = airflow.trigger("waiting", logical_date=f"{chain.day}T00:00:00Z")
    chain.wait_called("total")

    def state() -> str:
        return str(airflow.task_instance("waiting", waiting, "wait")["state"])

    chain.wait(lambda: state() == "deferred", "the sensor to be deferred")

    chain.release("total")
    chain.ends()

    assert airflow.wait_run("waiting", waiting) == "success"
    assert "Published: attempt 1" in airflow.log("waiting", waiting, "wait", 1)
