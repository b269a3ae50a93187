"""What a region costs that need not run: the worker time of its task beside Airflow's plain Python task."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.local_pipeline import Measured, median_of, open_local_pipeline
from benchmarks.report import Figure, Report, Table, summary

GOAL_S = 0.5
DATE = "2013-01-01T00:00:00Z"
DAGS = ("kept_plain", "kept_region")
TASKS = {
    "plain_python": "plain Python task",
    "job.inner": "kept region (inner)",
    "job.leaf": "kept region (leaf: its files are checked)",
    "job.publish": "publish that finds nothing new",
}


def measure(folder: Path, repeats: int | None) -> Report:
    """One run that makes the results, then ``repeats`` (default 8) times: clear the whole run."""
    rounds = repeats or 8
    with open_local_pipeline(folder, {}) as pipeline:
        for dag_id in DAGS:
            pipeline.run(dag_id, DATE)
            pipeline.run_again(dag_id, DATE)  # the first of each kind finds cold caches
        samples: dict[str, list[Measured]] = {task: [] for task in TASKS}
        for _ in range(rounds):
            for dag_id in DAGS:
                for task, measured in pipeline.run_again(dag_id, DATE).tasks.items():
                    samples[task].append(measured)
    kept = max(("job.inner", "job.leaf"), key=lambda task: median_of(samples[task], "seconds"))
    worst = median_of(samples[kept], "seconds")
    ratio = median(a.seconds / b.seconds for a, b in zip(samples[kept], samples["plain_python"], strict=True))
    more = median(a.seconds - b.seconds for a, b in zip(samples[kept], samples["plain_python"], strict=True))
    return Report(
        name="kept_region",
        title="A kept region",
        method=(
            f"One task at a time. A run is made once, then cleared as a whole {rounds} times, in turns with that of a "
            "plain Python task: every region is kept, and no Spark starts. The time is that of the task instance as "
            "Airflow has it (from the worker's report of its start to that of its end), the CPU time that of the "
            "task's process. The journal is on an S3 server over HTTP, reached by an Airflow connection, and every try "
            "makes its final check by the state store."
        ),
        figures=[
            Figure("worker time of a kept region", worst, "s", f"under {GOAL_S} s", worst < GOAL_S),
            Figure("against a plain Python task", ratio, "times"),
            Figure("more than a plain Python task", more, "s"),
        ],
        tables=[
            _table("Task time in seconds", samples, "seconds"),
            _table("CPU time of the task's process in seconds", samples, "own_cpu_s"),
        ],
        samples={task: [asdict(each) for each in found] for task, found in samples.items()},
    )


def _table(title: str, samples: dict[str, list[Measured]], what: str) -> Table:
    rows = [(TASKS[task], *summary([getattr(each, what) for each in found])) for task, found in samples.items()]
    return Table(title, ("task", "median", "least", "most", "samples"), rows)
