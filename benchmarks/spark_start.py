"""What spark-submit of a small application costs: as the Spark provider starts it, and as recovery does."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from airflow_recovery.driver.submit import submit_environment
from airflow_recovery.hooks.settings import DriverJvm
from airflow_recovery.task.class_archive import USER_OPTIONS, SparkInstallation, make_archive
from airflow_recovery.task.driver_jvm import jvm_variables
from benchmarks.report import Figure, Report, Table, summary

GOAL = 0.5
APPLICATIONS = Path(__file__).resolve().parent / "applications"
SMALL, LONG = "first_job.py", "long_job.py"
WAYS = {
    DriverJvm.PLAIN: "plain (as the Spark provider starts it)",
    DriverJvm.QUICK: "quick (the default)",
    DriverJvm.SHORT_LIVED: "short-lived",
}


@dataclass(frozen=True)
class Start:
    """One spark-submit: the CPU time of all its processes, and the time that somebody waits."""

    application: str
    way: DriverJvm
    cpu_s: float
    seconds: float


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 5) rounds of three starts, and a third as many of the long application."""
    folder.mkdir(parents=True)
    environment = plain_environment()
    archives = folder / "archives"
    make_archive(SparkInstallation.locate(environment), archives, environment)
    rounds = repeats or 5
    starts: list[Start] = []
    for application, times in ((SMALL, rounds), (LONG, (rounds + 2) // 3)):
        for number in range(times):
            for way in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
                out = folder / f"{application}-{number}-{way.value}"
                variables = jvm_variables(way, archives, "spark-submit", environment)
                starts.append(_start(application, way, out, environment | variables))
    return _report(starts, rounds)


def plain_environment() -> dict[str, str]:
    """This process's, in which nobody says how JVMs start."""
    environment = submit_environment(os.environ) | {"SPARK_LOCAL_IP": "127.0.0.1"}
    return {name: value for name, value in environment.items() if name not in USER_OPTIONS}


def _start(application: str, way: DriverJvm, out: Path, environment: Mapping[str, str]) -> Start:
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        ["spark-submit", "--master", "local[2]", str(APPLICATIONS / application), str(out)],
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began_s
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(application, way, cpu_s, seconds)


def _ratio(starts: list[Start], application: str, way: DriverJvm, what: str = "cpu_s") -> float:
    of_ways = (
        [getattr(start, what) for start in starts if (start.application, start.way) == (application, one)]
        for one in (way, DriverJvm.PLAIN)
    )
    return float(median(ours / plain for ours, plain in zip(*of_ways, strict=True)))


def _report(starts: list[Start], rounds: int) -> Report:
    quick = _ratio(starts, SMALL, DriverJvm.QUICK)
    return Report(
        name="spark_start",
        title="The start of an application",
        method=(
            "spark-submit in local mode of an application that writes a thousand rows, reads and groups them, "
            f"{rounds} times in each way in turns; and of one that computes for half a minute. Each ratio is the "
            "median over the pairs. CPU time: that of all processes of the spark-submit. The archive of Spark's "
            "classes has been made before, as it is for every driver of a worker but its first ones."
        ),
        figures=[
            Figure("CPU time by default, over plain", quick, "times", f"at most {GOAL}", quick <= GOAL),
            Figure("CPU time with short-lived, over plain", _ratio(starts, SMALL, DriverJvm.SHORT_LIVED), "times"),
            Figure("time by default, over plain", _ratio(starts, SMALL, DriverJvm.QUICK, "seconds"), "times"),
            Figure(
                "the long application, CPU time by default, over plain", _ratio(starts, LONG, DriverJvm.QUICK), "times"
            ),
            Figure("the same, time", _ratio(starts, LONG, DriverJvm.QUICK, "seconds"), "times"),
            Figure("the same, CPU time with short-lived", _ratio(starts, LONG, DriverJvm.SHORT_LIVED), "times"),
        ],
        tables=[
            Table(
                f"{title} in seconds",
                ("application", "way", "median", "least", "most", "samples"),
                [
                    (
                        application,
                        name,
                        *summary(
                            [getattr(one, what) for one in starts if (one.application, one.way) == (application, way)]
                        ),
                    )
                    for application in (SMALL, LONG)
                    for way, name in WAYS.items()
                ],
            )
            for title, what in (("CPU time", "cpu_s"), ("Time", "seconds"))
        ],
    )
