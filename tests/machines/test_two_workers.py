"""A pipeline over two workers that share nothing but S3.

numbers (on worker-1) --> total (on worker-2)
"""

from __future__ import annotations

import psutil
import pytest
from machines_run import MachinesPipeline, machine_of, start_worker

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


def test_a_lost_result_is_made_again_on_another_machine_than_its_readers(pipeline: MachinesPipeline) -> None:
    run = pipeline.run("apart").start()
    before = run.ends()
    before.check()
    assert {region: machine_of(run, region) for region in ("numbers", "total")} == {
        "numbers": "worker-1",
        "total": "worker-2",
    }
    assert pipeline.rows(before, "total") == [(45,)]

    pipeline.delete(before, "numbers", "total")
    run.clear("total")
    after = run.ends()

    after.check()
    assert after.ran_since(before) == {"numbers": 1, "total": 1}
    assert after.attempts["numbers"][1].objects["lost"]["reporter"] == "total"
    assert pipeline.rows(after, "total") == [(45,)]
    assert run.calls("numbers") == run.calls("total") == 2


def frozen_objects(pipeline: MachinesPipeline) -> int:
    """How many objects a task on the worker of `forks` finds left out of its garbage collection."""
    run_id = pipeline.airflow.trigger("forks")
    assert pipeline.airflow.wait_run("forks", run_id) == "success"
    return int(pipeline.airflow.xcom("forks", run_id, "frozen"))


def test_a_pools_process_that_is_forked_again_leaves_out_of_its_garbage_collection_what_it_shares(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    machine = pipeline.airflow.processes[start_worker(pipeline, workers, "forks")]
    at_start = frozen_objects(pipeline)

    children = psutil.Process(machine.pid).children(recursive=True)
    title = "airflow supervisor: "
    (of_pool,) = [
        child for child in children if " ".join(child.as_dict(["cmdline"])["cmdline"] or []).startswith(title)
    ]
    of_pool.kill()

    # Control: 0, as Airflow's own freeze has ended by then.
    assert min(at_start, frozen_objects(pipeline)) > 100_000
