"""A run with a Spark of its own in real Airflow: one server for all regions, which is killed within one of them.

start_spark --> raw ~ kept (CACHED) --> total --> publish --> stop_spark
"""

from __future__ import annotations

import psutil
import pytest
from pipeline import Pipeline, empty_folder

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
