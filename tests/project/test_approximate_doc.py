"""`docs/approximate.md` says what is so: its job, its defaults, its strategies, and what it calls refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_recovery import FailoverStrategy, job
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job import Job
from airflow_recovery.streaming import APPROXIMATE, Streaming

TEXT = (Path(__file__).parents[2] / "docs" / "approximate.md").read_text(encoding="utf-8")
LOSSY = APPROXIMATE(reconnect="latest", max_lost_records=5)


def rows(first_cell: str) -> dict[str, str]:
    """First and second cell of the table whose head begins with ``first_cell``."""
    table = TEXT.partition(f"| {first_cell}")[2].partition("\n\n")[0].splitlines()[2:]
    return {
        cells[0]: cells[1] for line in table for cells in [[piece.strip() for piece in line.strip("|").split(" | ")]]
    }


def test_the_job_at_the_top_is_one() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    document: dict[str, Any] = {"SCHEMA": "id long", "load_model": lambda: SimpleNamespace()}
    exec(compile(block, "approximate.md", "exec"), document)
    live: Job = document["live"]
    assert [region.name for region in live.regions().regions] == ["events", "scored", "by_hour"]
    assert all(region.is_streaming for region in live.regions().regions)
    assert live.failover_strategy is FailoverStrategy.APPROXIMATE_SINGLE


def test_every_option_is_told_with_its_default() -> None:
    told = {name: default for cell, default in rows("of a result").items() for name in re.findall(r"`(\w+)`", cell)}
    budget = {"max_lost_records", "max_lost_fraction"}
    wanted = {name for name in APPROXIMATE.__dataclass_fields__ if not name.endswith("_per_restart")}
    assert {each for each in told if not each.startswith("_")} == wanted
    assert told["reconnect"] == f'`"{APPROXIMATE.reconnect.value}"`'
    assert told["overflow"] == f'`"{APPROXIMATE.overflow.value}"`'
    assert told["max_bytes"] == f"{APPROXIMATE.max_bytes // 1024**2} MiB"
    assert told["block_timeout_s"] == f"{APPROXIMATE.block_timeout_s:g}"
    assert told["subpartitions"] == str(APPROXIMATE.subpartitions)
    assert {told[name] for name in budget} == {"none"}
    streaming = {name for cell in rows("of a streaming region") for name in re.findall(r"`(\w+)`", cell)}
    assert streaming == set(Streaming().__dataclass_fields__)


def test_every_strategy_is_told() -> None:
    told = {name for cell in rows("strategy | who") for name in re.findall(r"`([\w-]+)`", cell)}
    assert told == {each.value for each in FailoverStrategy} - {"individual"}


def chain(
    *, source: dict[str, Any] | None = None, middle: dict[str, Any] | None = None, sink: dict[str, Any] | None = None
) -> Job:
    """source ==> middle ==> sink, with these options."""
    made = job("chain")

    @made.source(**{"result": APPROXIMATE, **(source or {})})
    def raw(spark: Any) -> Any: ...

    @made.vertex(**{"result": APPROXIMATE, **(middle or {})})
    def scored(raw: Any) -> Any: ...

    @made.sink(**(sink or {}))
    def table(scored: Any) -> Any: ...

    return made


def two_consumers() -> Job:
    made = chain()

    @made.sink
    def other(scored: Any) -> Any: ...

    return made


def approximate_batch() -> Job:
    made = job("batch", failover_strategy="approximate-single")

    @made.source
    def raw(spark: Any) -> Any: ...

    @made.sink
    def table(raw: Any) -> Any: ...

    return made


REFUSED: dict[str, Callable[[], Job]] = {
    "latest without a budget": lambda: chain(source={"result": APPROXIMATE(reconnect="latest")}),
    "drop without a budget": lambda: chain(source={"result": APPROXIMATE(overflow="drop")}),
    "drop with a budget of 0": lambda: chain(source={"result": APPROXIMATE(overflow="drop", max_lost_records=0)}),
    "latest into state": lambda: chain(middle={"result": LOSSY}, sink={"streaming": Streaming(stateful=True)}),
    "a sink that appends": lambda: chain(sink={"idempotent": False, "allow_duplicates": True}),
    "no replay": lambda: chain(source={"streaming": Streaming(replays=False)}),
    "two consumers": two_consumers,
    "parallelism": lambda: chain(middle={"parallelism": 2}),
    "an approximate batch job": approximate_batch,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_calls_refused_is_refused_with_advice(name: str) -> None:
    with pytest.raises(JobDefinitionError, match="expected"):
        REFUSED[name]().validate()


def test_control_the_chain_by_itself_is_not_refused() -> None:
    chain(source={"result": LOSSY}, sink={"streaming": Streaming(stateful=True, output="complete")}).validate()
    chain(source={"streaming": Streaming(replays=False, allow_unknown_loss=True)}).validate()
