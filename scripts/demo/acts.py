"""The two acts: one run that nothing disturbs, and one that is disturbed four times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.rehearsal import FAIL_ONCE, GO, PAUSE, REACHED

from airflow_recovery.testing.spark_drivers import driver_of, kill_9
from scripts.demo.journal_view import JournalView
from scripts.demo.local_pipeline import DAG_ID, LocalPipeline, RunWatch, States

ACT_ONE = "2013-03-01T00:00:00+00:00"
ACT_TWO = "2013-03-02T00:00:00+00:00"
MONTH = "2013-07"
DAYS = 31
PAUSED_DAY = f"{MONTH}-15"
"""The driver that reads this day's file is held there, until it has committed all other batches of its days."""
OTHER_BATCHES = 2
"""The files of a month are 2.6 MB, and a batch is 1 MiB."""
KILLED_READING = f"cleaned_flights[{MONTH}]"
"""One of twelve subtasks: its driver is killed in the middle of reading."""
FAILS = "weather_delays"
"""The last region: its code raises."""
KILLED = "weather_totals"
"""The region whose Spark driver is killed."""
LOST = "route_totals"
"""The intermediate result that is deleted while the last region fails. A region that has finished has read it too."""


class DemoFailed(Exception):
    """A check of the demo failed. The message says which."""


@dataclass(frozen=True)
class Act:
    """What one act of the demo has shown."""

    run_id: str
    journal: JournalView


def act_one(pipeline: LocalPipeline) -> Act:
    """Run the pipeline once, without a disturbance."""
    print(f"\nAct one: an undisturbed run for {ACT_ONE[:10]}", flush=True)
    run_id = pipeline.start_run(ACT_ONE)
    return _to_the_end(pipeline, run_id, RunWatch(pipeline, run_id))


def act_two(pipeline: LocalPipeline) -> Act:
    """A run for another date: two drivers are killed, and a result is lost while the last region raises."""
    print(f"\nAct two: a run for {ACT_TWO[:10]}, with trouble", flush=True)
    rehearsal = pipeline.folder / "rehearsal"
    rehearsal.mkdir()
    for flag in (f"{FAILS}{FAIL_ONCE}", f"{PAUSED_DAY}{PAUSE}"):
        (rehearsal / flag).touch()
    run_id = pipeline.start_run(ACT_TWO, {"rehearsal": str(rehearsal)})
    watch = RunWatch(pipeline, run_id)
    _kill_reader(pipeline, run_id, rehearsal / f"{PAUSED_DAY}{PAUSE}", watch)
    _kill_driver(pipeline, watch)
    _lose_result(pipeline, run_id, rehearsal, watch)
    return _to_the_end(pipeline, run_id, watch)


def _kill_reader(pipeline: LocalPipeline, run_id: str, pause: Path, watch: RunWatch) -> None:
    """When all that can be is committed of the month, whose reading is paused at one day: kill -9 its driver."""
    name = f"{DAG_ID}.{KILLED_READING}@1"

    def killed(states: States) -> bool:
        _still_running(states)
        driver = driver_of(name, pipeline.airflow.home)
        if driver is None:
            if states.get(KILLED_READING, ("", 0))[0] == "success":
                raise DemoFailed(f"{KILLED_READING} ended before its Spark driver was seen")
            return False
        batches = JournalView(pipeline.journal, pipeline.identity(run_id)).batches(KILLED_READING, 1)
        if len(batches) < OTHER_BATCHES:
            return False
        committed = sum(len(batch.splits) for batch in batches)
        kill_9(driver)
        pause.unlink()
        print(f"  >>> kill -9 {driver.pid}: it had committed {committed} of {DAYS} daily files of {MONTH}", flush=True)
        return True

    watch.until(killed)


def _kill_driver(pipeline: LocalPipeline, watch: RunWatch) -> None:
    name = f"{DAG_ID}.{KILLED}@1"

    def killed(states: States) -> bool:
        _still_running(states)
        driver = driver_of(name, pipeline.airflow.home)
        if driver is None:
            if states[KILLED][0] == "success":
                raise DemoFailed(f"{KILLED} ended before its Spark driver was seen")
            return False
        kill_9(driver)
        print(f"  >>> kill -9 {driver.pid}: the Spark driver of {KILLED} is dead", flush=True)
        return True

    watch.until(killed)


def _lose_result(pipeline: LocalPipeline, run_id: str, rehearsal: Path, watch: RunWatch) -> None:
    """While the last region is about to raise, and everybody else has ended: delete what it and another one read."""

    def alone(states: States) -> bool:
        _still_running(states)
        others = [state for name, (state, _) in states.items() if name not in (FAILS, "publish")]
        return (rehearsal / f"{FAILS}{REACHED}").exists() and all(state == "success" for state in others)

    watch.until(alone)
    manifest = JournalView(pipeline.journal, pipeline.identity(run_id)).result(LOST)
    pipeline.open_data(manifest.location).delete(file.path for file in manifest.objects)
    print(f"  >>> the {len(manifest.objects)} objects of {LOST} are deleted, and {FAILS} raises", flush=True)
    (rehearsal / f"{FAILS}{GO}").touch()


def _to_the_end(pipeline: LocalPipeline, run_id: str, watch: RunWatch) -> Act:
    watch.until(lambda _: pipeline.airflow.run_state(DAG_ID, run_id) in ("success", "failed"))
    if pipeline.airflow.run_state(DAG_ID, run_id) != "success":
        raise DemoFailed(
            f"run {run_id} failed:\n{pipeline.airflow.describe(DAG_ID, run_id)}\nlogs: {pipeline.airflow.home / 'logs'}"
        )
    print(f"  success after {watch.seconds:.0f} s", flush=True)
    return Act(run_id, JournalView(pipeline.journal, pipeline.identity(run_id)))


def _still_running(states: States) -> None:
    failed = [name for name, (state, _) in states.items() if state in ("failed", "upstream_failed")]
    if failed:
        raise DemoFailed(f"failed for good: {', '.join(failed)}")
