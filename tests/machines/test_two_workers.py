"""A pipeline over two workers that share nothing but S3.

numbers (on worker-1) --> total (on worker-2)
"""

from __future__ import annotations

import pytest
from machines_run import MachinesPipeline, machine_of

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
