"""A run with a Spark of its own in real Airflow: one server for all regions, which is killed within one of them.

start_spark --> raw ~ kept (CACHED) --> total --> publish --> stop_spark
clean --> left, right --> publish --> stop_spark                                (existing applications)
"""

from __future__ import annotations

import re

import psutil
import pytest
from pipeline import Pipeline, empty_folder

from airflow_recovery.testing.patience import HANG_S

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

SQUARES = [(sum(n * n for n in range(9)),)]


def keepers(pipeline: Pipeline) -> list[psutil.Process]:
    """Airflow's own, and not those of other tests."""
    home = str(pipeline.airflow.home)
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if "airflow_recovery.driver.server_keeper" in (process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("AIRFLOW_HOME") == home
    ]


def applications(pipeline: Pipeline, name: str) -> list[psutil.Process]:
    """Processes of the application with this name."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["cmdline"] or ())[-1:] == [name]
        and (process.info["environ"] or {}).get("AIRFLOW_HOME") == str(pipeline.airflow.home)
        and "SPARK_REMOTE" in process.info["environ"]
    ]


def server_of(log: str) -> str:
    """The server that a task says it uses."""
    (server,) = set(re.findall(r"Spark Connect server: (\S+),", log))
    return str(server)


def test_fault_142_a_killed_server_takes_what_it_has_cached_and_recovery_makes_that_again_on_another_one(
    pipeline: Pipeline,
) -> None:
    lake = empty_folder(pipeline.folder / "own_spark")
    (lake / "a.csv").write_text("".join(f"{n}\n" for n in range(9)))
    run = pipeline.run("own_spark", {"lake": f"file://{lake}"})
    run.hold("total")
    run.start()
    run.wait_called("total")
    (keeper,) = keepers(pipeline)
    (server,) = keeper.children()
    # It did not end with the setup task that has started it.
    assert run.state("start_spark") == "success"
    assert run.said("start_spark")["server"].startswith("127.0.0.1:")

    server.kill()
    run.release("total")
    journal = run.ends()
    journal.check()
    assert journal.rows("total") == SQUARES
    assert journal.executions() == {"kept": 2, "total": 2}
    assert (run.calls("kept"), run.calls("total")) == (2, 2)
    run.wait(lambda: run.state("stop_spark") == "success", "the teardown")
    run.wait(lambda: not keepers(pipeline), "the end of the server")

    # A region that is cleared after the end has its setup and teardown cleared with it, and its Spark again.
    run.delete("total")
    run.clear("total", downstream=True)
    after = run.ends()
    after.check()
    assert after.rows("total") == SQUARES
    assert after.ran_since(journal) == {"kept": 1, "total": 1}
    run.wait(lambda: not keepers(pipeline), "the end of the server")


@pytest.mark.drill
def test_fault_142_an_existing_application_is_killed_with_its_server_and_it_alone_runs_again_on_another_one(
    pipeline: Pipeline,
) -> None:
    """With real servers and no Airflow: `tests/task/test_run_spark.py`, beside the other tests."""
    lake = pipeline.folder / "lake"
    lake.mkdir(exist_ok=True)
    (lake / "gated.csv").write_text("1\n41\n")
    run = pipeline.run("own_spark_existing")
    run.group_id = "~28operators~29"
    run.hold("right")
    run.start()
    run.wait_called("right")
    run.wait(lambda: run.state("left") == "success", "the other reader")
    (keeper,) = keepers(pipeline)
    servers = {name: server_of(run.log(name)) for name in ("clean", "left", "right")}
    assert len(set(servers.values())) == 1

    (application,) = applications(pipeline, "right")
    (server,) = keeper.children()
    server.kill()
    psutil.wait_procs([server], timeout=HANG_S)
    application.kill()
    run.release("right")
    journal = run.ends()
    journal.check()
    assert journal.executions() == {"clean": 1, "left": 1, "right": 2}
    assert [run.calls(name) for name in ("clean", "left", "right")] == [1, 1, 2]
    assert journal.rows("right.copy") == journal.rows("left.copy") == [(1,), (41,)]
    assert server_of(run.log("right")) not in servers.values()
    assert "is gone" in run.log("right", 1)
    run.wait(lambda: run.state("stop_spark") == "success", "the teardown")
    run.wait(lambda: not keepers(pipeline), "the end of the server")
