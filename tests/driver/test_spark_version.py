"""What a Spark can't do is said by name, before a vertex is called."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.driver.spark_version import check_new_enough
from airflow_recovery.errors import NotSetUp, kind_of
from airflow_recovery.streaming.spec import StreamingSpec


class Classic:
    def __init__(self, version: str) -> None:
        self.version = version


class Remote(Classic):
    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("session", "mode"),
    [
        (Classic("3.5.9"), ModeSpec()),
        (Classic("3.5.1-amzn-1"), ModeSpec()),
        (Classic("4.3.0"), ModeSpec()),
        (Classic("10.0.0"), StreamingSpec()),
        (Classic("4.2.0-SNAPSHOT"), StreamingSpec()),
        (Remote("4.0.0"), ModeSpec()),
        (Classic("a vendor's own"), StreamingSpec()),
    ],
)
def test_fault_156_control_one_that_will_do(session: Any, mode: ModeSpec) -> None:
    check_new_enough(session, mode)


@pytest.mark.parametrize(
    ("session", "mode", "told"),
    [
        (Classic("3.4.4"), ModeSpec(), "Spark 3.5 or later for regions of the mode 'batch', found 3.4.4"),
        (Classic("4.1.4"), StreamingSpec(), "Spark 4.2 or later for regions of the mode 'streaming', found 4.1.4"),
        (Remote("3.5.9"), ModeSpec(), "Spark 4.0 or later for regions over Spark Connect, found 3.5.9"),
    ],
)
def test_fault_156_one_that_is_too_old_is_named_and_not_tried_again(session: Any, mode: ModeSpec, told: str) -> None:
    with pytest.raises(NotSetUp, match=told) as refused:
        check_new_enough(session, mode)
    assert kind_of(refused.value).is_final
