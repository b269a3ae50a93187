"""Streaming regions as real applications: killed with SIGKILL, frozen and woken, and counted from files.

What was committed is read from the files that the log's commits name; what was lost is what the test has sent and does
not find there. Neither plan nor ledger is asked, but compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paths import CODE
from spark_streaming_run import SparkStreamingRun

from airflow_recovery.driver import driver
from airflow_recovery.driver.exit_report import read_receipt
from airflow_recovery.model.channel_options import Reconnect
from scripts.streaming_driver import Moments, StreamingDriverProcess

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
Start = Callable[[], StreamingDriverProcess]


@pytest.fixture(scope="module")
def idle() -> Iterator[list[StreamingDriverProcess]]:
    """Processes that a test has left alive, for the next one: a JVM's start is dear. They end with the module."""
    left: list[StreamingDriverProcess] = []
    yield left
    for candidate in left:
        candidate.kill()


@pytest.fixture
def start(idle: list[StreamingDriverProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Driver processes."""
    used: list[StreamingDriverProcess] = []

    def start_one() -> StreamingDriverProcess:
        folder = tmp_path_factory.mktemp("driver") / "of"
        used.append(idle.pop() if idle else StreamingDriverProcess(folder, [CODE, ROOT]))
        return used[-1]

    yield start_one
    for candidate in used:
        if candidate.is_idle():
            idle.append(candidate)
        else:
            candidate.kill()


@pytest.mark.drill
def test_fault_13_59_a_scorer_dies_between_its_logs_and_its_neighbours_go_on(start: Start, tmp_path: Path) -> None:
    """Killed with its output published and its input not committed; nothing is lost or repeated.

    Beside the other tests between its logs without Spark (`test_channel_processes.py`), and at any moment with Spark in
    Airflow (`tests/integration/test_streams.py`).
    """
    spark_run = SparkStreamingRun(tmp_path)
    source, scorer, sink, spare = (start() for _ in range(4))
    for turn in range(4):
        spark_run.drop(f"{turn}.csv", *range(10 * turn, 10 * turn + 10))
    specs = {name: spark_run.spec(name, max_rows=10) for name in ("raw", "scores", "board")}
    source.begin(specs["raw"], Moments(hold_at=2))  # it lives, and has more, when the scorer dies
    scorer.begin(specs["scores"], Moments(die_at=1))
    sink.begin(specs["board"])
    scorer.wait_for_death()
    assert (source.is_alive(), sink.is_alive()) == (True, True)

    again = spark_run.spec("scores", 2)
    spare.begin(again)
    spare.wait(lambda: spark_run.state("raw").view == 2, "the second attempt's view")
    source.go(specs["raw"])
    for process, spec in ((source, specs["raw"]), (spare, again), (sink, specs["board"])):
        assert process.code(spec) == driver.FINISHED, process.log()

    assert spark_run.committed() == list(range(40))
    raw, scores = spark_run.state("raw"), spark_run.state("scores")
    assert (raw.ledger, scores.ledger) == ([], [])
    assert (raw.producer, raw.view, scores.producer, scores.view) == (1, 2, 2, 1)


@pytest.mark.drill
def test_fault_11_14_58_a_sink_is_frozen_woken_late_and_killed(start: Start, tmp_path: Path) -> None:
    """With ``latest``: attempt 1 is frozen, 2 takes over, 1 wakes; 1 comes again; 2 is killed; 3.

    Beside the other tests without Spark (`test_channel_processes.py`).
    """
    spark_run = SparkStreamingRun(tmp_path)
    first, second, third = (start() for _ in range(3))
    said = {
        "params": {"how": "state"},
        "stateful": True,
        "allow_stateful_loss": True,
        "input": {"reconnect": Reconnect.LATEST},
    }
    specs = [spark_run.spec("board", attempt, **said) for attempt in (1, 2, 3)]
    made = spark_run.producer("scores")
    made.emit(*range(10))
    first.begin(specs[0], Moments(hold_at=1))
    first.wait(lambda: spark_run.committed() == list(range(10)), "the first batch")
    made.emit(*range(10, 20))
    first.wait_until_held(specs[0])  # with a plan, and with files that it is about to commit
    first.freeze()

    made.emit(*range(20, 25))
    second.begin(specs[1], Moments(hold_at=2))
    second.wait(lambda: spark_run.state("scores").view == 2, "the second attempt's view")
    made.emit(*range(25, 35))
    second.wait(lambda: spark_run.state("scores").checkpoint == 1, "the second attempt's commit")
    first.wake()
    first.go(specs[0])
    assert first.code(specs[0]) == driver.FENCED, first.log()
    first.begin(specs[0])
    assert first.code(specs[0]) == driver.FENCED, first.log()

    made.emit(*range(35, 40))
    second.wait_until_held(specs[1])
    second.kill()
    third.begin(specs[2])
    third.wait(lambda: spark_run.state("scores").view == 3, "the third attempt's view")
    made.emit(*range(40, 44))
    made.finish()
    assert third.code(specs[2]) == driver.FINISHED, third.log()

    committed = spark_run.committed()
    assert committed == [*range(10), *range(25, 35), *range(40, 44)]
    assert made.lost(spark_run) == sorted(set(made.sent.values()) - set(committed))
    outcome = read_receipt(specs[2])
    assert outcome is not None
    assert outcome.outputs[0].rows == len(committed)
    assert dict(outcome.accumulators)["state rows"] == len(committed)
