"""What a small region takes as a Spark application of its own, and on a Spark that the run has for itself."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from statistics import median

from airflow_recovery.task.class_archive import SparkInstallation, make_archive
from benchmarks.local_pipeline import MeasuredRun, open_local_pipeline
from benchmarks.report import Figure, Report, Table, summary
from benchmarks.spark_start import plain_environment

SCOPES = {"per-region": "spark-submit", "per-run": "the run's own Spark"}
TASKS = ("job.start_spark", "job.inner", "job.leaf", "job.publish", "job.stop_spark")
REGIONS = ("job.inner", "job.leaf")


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 5) pairs of runs of two regions each, after a pair that does not count."""
    folder.mkdir(parents=True)
    environment, archives = plain_environment(), folder / "archives"
    make_archive(SparkInstallation.locate(environment), archives, environment)
    runs: dict[str, list[MeasuredRun]] = {scope: [] for scope in SCOPES}
    with open_local_pipeline(folder / "pipeline", {"AIRFLOW__RECOVERY__CLASS_ARCHIVES": str(archives)}) as pipeline:
        for number in range(1 + (repeats or 5)):
            day = date(2013, 1, 1) + timedelta(days=number)
            for scope in list(SCOPES)[:: 1 if number % 2 == 0 else -1]:
                runs[scope].append(pipeline.run(f"small_{scope}", f"{day}T00:00:00Z"))
    runs = {scope: found[1:] for scope, found in runs.items()}
    regions = {scope: [median(run.tasks[name].seconds for name in REGIONS) for run in runs[scope]] for scope in SCOPES}
    makespans = {scope: [run.makespan_s for run in runs[scope]] for scope in SCOPES}
    submitted, own = regions.values()
    return Report(
        name="own_spark",
        title="A Spark for each run",
        method=(
            f"A job of two regions of a hundred rows, {len(submitted)} times by spark-submit (with the default "
            "driver_jvm) and on a Spark of the run's own (spark='per-run') in turns, one task at a time. The time is "
            "that of the task instances as Airflow has it; a ratio is the median over the pairs. What the run's own "
            "Spark costs once is its setup task, which waits until the server answers."
        ),
        figures=[
            Figure("a region by spark-submit", median(submitted), "s"),
            Figure("a region on the run's own Spark", median(own), "s"),
            Figure("the second over the first", median(a / b for a, b in zip(own, submitted, strict=True)), "times"),
            Figure("its start, once a run", median(run.tasks[TASKS[0]].seconds for run in runs["per-run"]), "s"),
            Figure("a run of two regions by spark-submit", median(makespans["per-region"]), "s"),
            Figure("a run of two regions on its own Spark", median(makespans["per-run"]), "s"),
        ],
        tables=[
            Table(
                "Task time in seconds",
                ("task", "way", "median", "least", "most", "samples"),
                [
                    (task, name, *summary([run.tasks[task].seconds for run in runs[scope]]))
                    for task in TASKS
                    for scope, name in SCOPES.items()
                    if task in runs[scope][0].tasks
                ],
            )
        ],
        samples={
            scope: [
                {"makespan_s": run.makespan_s, "tasks": [asdict(task) for task in run.tasks.values()]} for run in found
            ]
            for scope, found in runs.items()
        },
    )
