"""The three acts: a run that nothing disturbs, one that is disturbed four times, and two applications that exist."""

from __future__ import annotations

from collections.abc import Callable

from jobs.rehearsal import FAIL_ONCE, GO, PAUSE, REACHED

from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import CommittedBatch
from scripts.demo.local_pipeline import LocalPipeline
from scripts.demo.pipeline_run import DemoFailed, PipelineRun, States
from scripts.spark_drivers import driver_of, kill_9, server_of

DAG_ID = "flights_delays"
GROUP_ID = "flights"
DROP_IN_DAG_ID = "drop_in"
ACT_ONE = "2013-03-01T00:00:00+00:00"
ACT_TWO = "2013-03-02T00:00:00+00:00"
HALF = "2013-H2"
DAYS = 184
PAUSED_DAY = "2013-10-15"
"""The driver that reads this day's file is held there, until it has committed all other batches of its days."""
OTHER_BATCHES = 3
"""The files of half a year are 16 MB, and a batch is 4 MiB."""
KILLED_READING = f"cleaned_flights[{HALF}]"
"""One of two subtasks: its driver is killed in the middle of reading."""
FAILS = "weather_delays"
"""The last region: its code raises."""
KILLED = "weather_totals"
"""While this region runs, the Spark of the run is killed."""
LOST = "route_totals"
"""The intermediate result that is deleted while the last region fails. A region that has finished has read it too."""
DROP_IN_KILLED = "report"
"""The application whose driver is killed."""


def act_one(pipeline: LocalPipeline) -> PipelineRun:
    """Run the pipeline once, without a disturbance."""
    print(f"\nAct one: an undisturbed run for {ACT_ONE[:10]}", flush=True)
    run = PipelineRun(pipeline, DAG_ID, GROUP_ID, ACT_ONE)
    run.to_the_end()
    return run


def act_two(pipeline: LocalPipeline) -> PipelineRun:
    """A run for another date: a driver and the run's Spark are killed, a result is lost, and the last region raises."""
    print(f"\nAct two: a run for {ACT_TWO[:10]}, with trouble", flush=True)
    rehearsal = pipeline.folder / "rehearsal"
    rehearsal.mkdir()
    for flag in (f"{FAILS}{FAIL_ONCE}", f"{PAUSED_DAY}{PAUSE}", f"{KILLED}{PAUSE}"):
        (rehearsal / flag).touch()
    run = PipelineRun(pipeline, DAG_ID, GROUP_ID, ACT_TWO, {"rehearsal": str(rehearsal)})

    def reached(name: str, *waiting: str) -> None:
        """Until a region is where it is held, and all but those that are ``waiting`` for it have ended."""

        def is_alone(states: States) -> bool:
            others = [state for region, (state, _) in states.items() if region not in (name, *waiting)]
            return (rehearsal / f"{name}{REACHED}").exists() and all(state == "success" for state in others)

        run.until(is_alone)

    _kill_reader(run)
    (rehearsal / f"{PAUSED_DAY}{PAUSE}").unlink()
    reached(KILLED, FAILS, "publish", "stop_spark")
    _kill_spark(run)
    (rehearsal / f"{KILLED}{PAUSE}").unlink()
    reached(FAILS, "publish", "stop_spark")
    _lose_result(run)
    (rehearsal / f"{FAILS}{GO}").touch()
    run.to_the_end()
    return run


def act_three(pipeline: LocalPipeline) -> PipelineRun:
    """Two applications that know nothing of recovery, each a spark-submit; the driver of the second one is killed."""
    print("\nAct three: two existing Spark applications, with another operator's name in their DAG", flush=True)
    run = PipelineRun(pipeline, DROP_IN_DAG_ID, OPERATORS_GROUP, ACT_TWO)
    _kill_driver(run, DROP_IN_KILLED, f"{pipeline.airflow.dags_folder}/applications/{DROP_IN_KILLED}.py")
    run.to_the_end()
    return run


def _kill_reader(run: PipelineRun) -> None:
    """When all that can be is committed of the half, whose reading is paused at one day: kill -9 its driver."""

    def batches() -> tuple[CommittedBatch, ...]:
        return run.journal().batches(KILLED_READING, 1)

    submitted = f"{run.dag_id}.{KILLED_READING}@1"
    _kill_driver(run, KILLED_READING, submitted, lambda: len(batches()) >= OTHER_BATCHES)
    committed = sum(len(batch.splits) for batch in batches())
    print(f"  >>> it had committed {committed} of {DAYS} daily files of {HALF}", flush=True)


def _kill_driver(run: PipelineRun, region: str, submitted: str, is_time: Callable[[], bool] = lambda: True) -> None:
    """``kill -9`` of the driver of a region, when it runs and ``is_time``. ``submitted``: its name, or its program."""

    def is_killed(states: States) -> bool:
        driver = driver_of(submitted, run.pipeline.airflow.home)
        if driver is None:
            if states.get(region, ("", 0))[0] == "success":
                raise DemoFailed(f"{region} ended before its Spark driver was seen")
            return False
        if not is_time():
            return False
        kill_9(driver)
        print(f"  >>> kill -9 {driver.pid}: the Spark driver of {region} is dead", flush=True)
        return True

    run.until(is_killed)


def _kill_spark(run: PipelineRun) -> None:
    server = server_of(f"{run.dag_id}.{run.group_id}", run.pipeline.airflow.home)
    if server is None:
        raise DemoFailed("the Spark of the run has ended while its regions are running")
    kill_9(server)
    print(f"  >>> kill -9 {server.pid}: the Spark of the run is dead, while {KILLED} runs on it", flush=True)


def _lose_result(run: PipelineRun) -> None:
    manifest = run.journal().result(LOST)
    run.pipeline.open_data(manifest.location).delete(file.path for file in manifest.objects)
    print(f"  >>> the result of {LOST} is deleted, and {FAILS} raises", flush=True)
