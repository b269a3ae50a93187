from __future__ import annotations

import pytest

from airflow_recovery import job
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.vertex_options import RUNNABLE
from airflow_recovery.model.result_type import Consume, ReleasedBy, ResultType

# Flink's types, and below them FLIP-1's two cached ones.
TABLE = """
    BLOCKING               yes  no   no   after    scheduler
    BLOCKING_PERSISTENT    yes  no   yes  after    scheduler
    PIPELINED              no   no   no   must     upstream
    PIPELINED_BOUNDED      no   yes  no   must     upstream
    PIPELINED_APPROXIMATE  no   yes  no   may      upstream
    HYBRID_FULL            yes  no   no   may      scheduler
    HYBRID_SELECTIVE       no   no   no   may      scheduler
    CACHED                 yes  no   no   after    scheduler
    CACHED_MEMORY_ONLY     yes  no   no   after    scheduler
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def test_the_table_names_every_type() -> None:
    assert {row[0] for row in ROWS} == set(ResultType.__members__)


@pytest.mark.parametrize(
    ("name", "re_consumable", "bounded", "persistent", "consume", "released_by"), ROWS, ids=[row[0] for row in ROWS]
)
def test_the_answers(
    name: str, re_consumable: str, bounded: str, persistent: str, consume: str, released_by: str
) -> None:
    each = ResultType[name]
    assert each.re_consumable == (re_consumable == "yes")
    assert each.bounded == (bounded == "yes")
    assert each.persistent == (persistent == "yes")
    assert (
        each.consume
        is {
            "after": Consume.AFTER_FINISH,
            "may": Consume.MAY_RUN_TOGETHER,
            "must": Consume.MUST_RUN_TOGETHER,
        }[consume]
    )
    assert each.must_run_together == (consume == "must")
    assert each.released_by is ReleasedBy(released_by)


@pytest.mark.parametrize("result", sorted(set(ResultType) - {*RUNNABLE, ResultType.PIPELINED_APPROXIMATE}))
def test_a_job_with_a_type_that_nothing_can_run_is_refused(result: ResultType) -> None:
    flights = job("flights")

    def raw(spark: object) -> object:
        return spark

    with pytest.raises(
        JobDefinitionError, match=rf"vertex 'raw'.*found '{result.value}', which .* nothing can run yet"
    ):
        flights.source(result=result)(raw)
