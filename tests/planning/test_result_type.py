from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery import job
from airflow_recovery.model.result_type import PIPELINED_APPROXIMATE, RESULT_TYPES, Consume, ResultType

# Flink's types, and below them FLIP-1's two cached ones.
TABLE = """
    BLOCKING               no   after
    BLOCKING_PERSISTENT    yes  after
    PIPELINED              no   must
    PIPELINED_BOUNDED      no   must
    PIPELINED_APPROXIMATE  no   may
    HYBRID_FULL            no   may
    HYBRID_SELECTIVE       no   may
    CACHED                 no   after
    CACHED_MEMORY_ONLY     no   after
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def test_the_table_names_every_type() -> None:
    ours = [kind for kind in RESULT_TYPES.values() if not kind.kept_by or kind.kept_by.startswith("airflow_recovery.")]
    assert {row[0] for row in ROWS} == {kind.name for kind in ours}


@pytest.mark.parametrize(("name", "persistent", "consume"), ROWS, ids=[row[0] for row in ROWS])
def test_the_answers(name: str, persistent: str, consume: str) -> None:
    result = RESULT_TYPES[name]
    when = {"after": Consume.AFTER_FINISH, "may": Consume.MAY_RUN_TOGETHER, "must": Consume.MUST_RUN_TOGETHER}
    assert result.persistent == (persistent == "yes")
    assert result.consume is when[consume]
    assert result.must_run_together == (consume == "must")


@pytest.mark.parametrize(
    "result", [each for each in RESULT_TYPES.values() if not each.is_runnable and each != PIPELINED_APPROXIMATE]
)
def test_a_job_with_a_type_that_nothing_can_run_is_refused(result: ResultType) -> None:
    flights = job("flights")

    def raw(spark: object) -> object:
        return spark

    with fails_with("result-type-cannot-run", where="job 'flights', vertex 'raw'"):
        flights.source(result=result)(raw)
