"""A region that commits split by split, on a real session: its batches, what it takes over, and what it gives up."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_split_run import REGION, SparkSplitRun

from airflow_recovery.driver import outcome as outcome_module
from airflow_recovery.driver import region, vertex_pass
from airflow_recovery.driver.failure_class import label_of
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import AttemptLost, RegionFailed, UserCodeError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome
from airflow_recovery.model.split import Split
from airflow_recovery.splits.loop import SplitLoop
from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim, SplitOutcome
from airflow_recovery.splits.poison import SPLITS_LABEL
from airflow_recovery.splits.spec import SplitSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def spark_run(spark: SparkSession, tmp_path: Path) -> SparkSplitRun:
    found = SparkSplitRun(tmp_path, spark)
    found.write_files(7)
    return found


def key_of(spark_run: SparkSplitRun, name: str) -> str:
    (found,) = (external for external in spark_run.externals() if external.uri.endswith(f"/{name}.csv"))
    return Split.of_external(found).key


def splits_of(spark_run: SparkSplitRun, outcome: Outcome) -> dict[int, int]:
    """Attempt -> how many splits of the finish it has read."""
    found: dict[int, int] = {}
    for batch in SplitOutcome.of(outcome).batches:
        found[batch.attempt] = found.get(batch.attempt, 0) + len(batch.splits)
    return found


def test_it_gives_what_one_big_job_gives(spark_run: SparkSplitRun, caplog: pytest.LogCaptureFixture) -> None:
    spark_run.write_files(5, first=10)
    with caplog.at_level(logging.INFO, "tests.spark_split_run"):
        outcome = spark_run.go().outcome
    parsed, large = outcome.outputs
    assert spark_run.numbers(outcome) == [*range(7), *range(10, 15)]
    assert spark_run.numbers(outcome, "large") == [*range(10, 15)]
    assert len(SplitOutcome.of(outcome).batches) == 6
    assert all(batch.attempt == 1 for batch in SplitOutcome.of(outcome).batches)
    whole, whole_large = spark_run.at_once()
    assert (parsed.digest, parsed.rows, large.rows) == (whole.digest, whole.rows, whole_large.rows)
    assert outcome.read is not None
    assert outcome.read.files == 12 + 2  # the side input's
    assert outcome.accumulators == (("files", 12),)
    assert "12 of 12 splits are committed, 72 B of 72 B" in caplog.text


def test_the_next_attempt_reads_what_is_left(spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_run.fail_after(2, monkeypatch)
    outcome = spark_run.go().outcome
    assert splits_of(spark_run, outcome) == {1: 4, 2: 3}
    assert SplitClaim.of(spark_run.journal().read_claim(REGION, 2)).base == (AdoptedBatches(1, 2),)
    assert spark_run.numbers(outcome) == [*range(7)]
    assert outcome.outputs[0].digest == spark_run.at_once()[0].digest
    # What the first attempt has counted stands in its batches.
    assert outcome.accumulators == (("files", 7),)
    assert outcome.read is not None
    assert outcome.read.files == 3 + 2


def test_a_side_input_that_was_made_again_with_other_rows_is_read_by_all(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_run.fail_after(2, monkeypatch)
    spark_run.make_side("EVEN")
    outcome = spark_run.go().outcome
    assert SplitClaim.of(spark_run.journal().read_claim(REGION, 2)).base == ()
    assert splits_of(spark_run, outcome) == {2: 7}
    assert outcome.outputs[0].digest == spark_run.at_once()[0].digest


def test_a_side_input_that_was_made_again_with_equal_rows_changes_nothing(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_run.fail_after(2, monkeypatch)
    spark_run.make_side("even")
    assert splits_of(spark_run, spark_run.go().outcome) == {1: 4, 2: 3}


def test_control_batches_of_two_side_inputs_do_not_fit(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_recovery.splits import adoption

    monkeypatch.setattr(adoption, "reading_of", lambda fingerprint, pins: "one for all")
    spark_run.fail_after(2, monkeypatch)
    spark_run.make_side("EVEN")
    outcome = spark_run.go().outcome
    assert splits_of(spark_run, outcome) == {1: 4, 2: 3}
    assert outcome.outputs[0].digest != spark_run.at_once()[0].digest


def test_the_files_of_a_result_in_batches_are_read_by_their_folders(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another attempt has left files that no batch names."""
    spark_run.fail_after(2, monkeypatch)
    outcome = spark_run.go().outcome
    region = Path(outcome.outputs[0].location.removeprefix("file://"))
    assert list(region.glob(f"{1:08d}-*/parsed/0002/part-*"))  # written, and not committed
    assert spark_run.numbers(outcome) == [*range(7)]


# poison by exception


def test_poison_is_named_and_everything_else_is_safe(spark_run: SparkSplitRun) -> None:
    spark_run.write_file("00003", 66666)
    for attempt in (1, 2):
        with pytest.raises(RegionFailed, match=r"(?s)00003\.csv could not be read: .*66666 is poison") as caught:
            spark_run.go()
        assert not isinstance(caught.value, UserCodeError)
        failure = spark_run.outcome(attempt).failure
        assert label_of(failure, SPLITS_LABEL) == key_of(spark_run, "00003")
        assert "6 of 7 splits are committed" in str(caught.value)
    assert (spark_run.batches(1), spark_run.batches(2)) == (4, 0)
    with pytest.raises(UserCodeError, match=r"(?s)00003\.csv can't be read, .*loss_budget=1 \(it is 0\)"):
        spark_run.go()
    assert spark_run.batches(3) == 0


def test_fault_119_within_the_loss_budget_a_split_is_given_up_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    spark_run = SparkSplitRun(tmp_path, spark, loss_budget=1)
    spark_run.write_files(7)
    spark_run.write_file("00003", 66666)
    for _ in range(2):
        with pytest.raises(RegionFailed, match="66666 is poison"):
            spark_run.go()
    outcome = spark_run.go().outcome
    assert spark_run.numbers(outcome) == [0, 1, 2, 4, 5, 6]
    (lost,) = SplitOutcome.of(outcome).lost_splits
    assert (lost.key, lost.uri.rpartition("/")[2]) == (key_of(spark_run, "00003"), "00003.csv")
    assert "66666 is poison; db.password=***" in lost.message
    held = [path.read_bytes() for name in ("journal", "results") for path in (tmp_path / name).rglob("*.*")]
    assert any(b"66666 is poison" in each for each in held)
    assert not any(b"hunter2-of-the-split" in each for each in held)
    assert splits_of(spark_run, outcome) == {1: 6, 3: 1}


def test_fault_119_control_without_the_mask_of_the_driver_a_lost_split_says_it_in_clear(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made in (Journal.__init__, region.run_region, outcome_module.finish_attempt):
        monkeypatch.setitem(made.__kwdefaults__, "mask", str)
    spark_run = SparkSplitRun(tmp_path, spark, loss_budget=1)
    spark_run.write_files(1)
    spark_run.write_file("00003", 66666)
    for _ in range(2):
        with pytest.raises(RegionFailed, match="66666 is poison"):
            spark_run.go()
    (lost,) = SplitOutcome.of(spark_run.go().outcome).lost_splits
    assert "hunter2-of-the-split" in lost.message


def test_a_file_that_is_repaired_is_another_split(spark_run: SparkSplitRun) -> None:
    spark_run.write_file("00003", 66666)
    for _ in range(2):
        with pytest.raises(RegionFailed, match="66666 is poison"):
            spark_run.go()
    spark_run.write_file("00003", 33)
    outcome = spark_run.go().outcome
    assert spark_run.numbers(outcome) == [0, 1, 2, 4, 5, 6, 33]


def test_code_that_fails_everywhere_is_not_tried_split_by_split(spark_run: SparkSplitRun) -> None:
    for number in range(7):
        spark_run.write_file(f"{number:05d}", 66666)
    with pytest.raises(RegionFailed, match=r"(?s)66666 is poison.*nothing more is tried"):
        spark_run.go()
    assert label_of(spark_run.outcome(1).failure, SPLITS_LABEL) is None
    assert spark_run.batches(1) == 0


def test_control_without_the_record_it_is_tried_for_ever(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_recovery.splits import region as split_region
    from airflow_recovery.splits.poison import NOTHING

    monkeypatch.setattr(split_region, "_record", lambda *given: NOTHING)
    spark_run.write_file("00003", 66666)
    for _ in range(4):
        with pytest.raises(RegionFailed, match="66666 is poison") as caught:
            spark_run.go()
        assert not isinstance(caught.value, UserCodeError)


# what may not be


def test_an_aggregate_is_refused_before_anything_is_written(spark_run: SparkSplitRun) -> None:
    spark_run.counts = True
    with pytest.raises(UserCodeError, match=r"vertex 'parsed': expected .*found an aggregate .*result=BLOCKING"):
        spark_run.go()
    assert (spark_run.batches(1), spark_run.data(1)) == (0, [])


def test_control_without_the_guard_the_counts_are_wrong(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_run.counts = True
    for number in range(7):
        spark_run.write_file(f"{number:05d}", 1)
    monkeypatch.setattr(vertex_pass.VertexPass, "_look_at", lambda *given: None)
    outcome = spark_run.go().outcome
    whole, _ = spark_run.at_once()
    assert (whole.rows, outcome.outputs[0].rows) == (1, 4)


def test_columns_that_differ_between_batches_are_refused_at_once(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = vertex_pass.write_result
    seen = []

    def other_columns(session, frame, **named):
        seen.append(named["location"])
        return write(session, frame.selectExpr("*", "1 as more") if len(seen) == 5 else frame, **named)

    monkeypatch.setattr(vertex_pass, "write_result", other_columns)
    with pytest.raises(UserCodeError, match=r"the columns of the first one.*in the batch of file:.*csv: look at"):
        spark_run.go()


def test_an_attempt_that_was_fenced_stops_before_its_next_batch(
    spark_run: SparkSplitRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[RegionSpec] = []

    def drive(spec: RegionSpec) -> None:
        commit, one_at_a_time = SplitLoop._commit, threading.Lock()

        def fence_first(loop, *given, **named):
            with one_at_a_time:
                if len(loop._own) == 2 and not ended:
                    ended.append(spec)
                    spark_run.journal().fence(
                        Outcome(REGION, 1, AttemptState.FENCED, "other", "now", cause=FenceCause.SUPERSEDED)
                    )
                commit(loop, *given, **named)

        monkeypatch.setattr(SplitLoop, "_commit", fence_first)
        assert isinstance(spec.mode, SplitSpec)
        with pytest.raises(AttemptLost, match="was fenced after it had committed 2 batches"):
            # One thread: where there are two, the other one's Spark job is cancelled, and what it had written is swept.
            spark_run.in_process(replace(spec, mode=replace(spec.mode, threads=1)))

    with pytest.raises(AttemptLost):
        spark_run.go(drive)
    assert ended
    assert spark_run.batches(1) == 2
    # The batch that was not committed is gone, and those that were are there.
    folders = {each.split("/")[-2] for each in spark_run.data(1)}
    assert len(folders) == 2


def test_no_splits_make_a_result_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    spark_run = SparkSplitRun(tmp_path, spark)
    outcome = spark_run.go().outcome
    assert [output.rows for output in outcome.outputs] == [0, 0]
    assert spark_run.numbers(outcome) == []
