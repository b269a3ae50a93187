"""What recovery costs while nothing fails: one pipeline with it and without it, in turns, one task at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import median, quantiles

import psutil  # type: ignore[import-untyped]

from airflow_recovery.testing.spark_cluster import connect_server
from benchmarks.local_pipeline import LocalPipeline, Measured, MeasuredRun, median_of, open_local_pipeline
from benchmarks.peers.flights import steps
from benchmarks.report import Figure, Report, Table
from scripts.demo.lake import fill_lake

GOAL = 0.03
LONG_S = 10
PUBLISH = "publish"
NO_CPU = Measured(PUBLISH, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Way:
    """One way to run a pipeline: its DAGs are ``<dags>_plain`` and ``<dags>_recovering``.

    ``group``: what the ids of the second one's tasks begin with.
    """

    name: str
    dags: str
    title: str
    what: str
    without: str
    group: str = ""


SUBMIT = Way(
    "overhead_submit",
    "submit",
    "No-failure overhead of a declared job (spark-submit)",
    "The demo's job with all flights in one region (eight regions)",
    "the same vertex functions in `SparkSubmitOperator`s, reading and overwriting Parquet by prefix",
    "flights.",
)
CONNECT = Way(
    "overhead_connect",
    "connect",
    "No-failure overhead of a declared job (Spark Connect)",
    "The demo's job with all flights in one region (eight regions)",
    "the same vertex functions in Python tasks on the same server, reading and overwriting Parquet by prefix",
    "flights.",
)
CONNECT_LONG = Way(
    "overhead_connect_long",
    "slow",
    "No-failure overhead of a declared job (Spark Connect, regions of ten seconds)",
    f"A chain of four regions of {LONG_S} s of work each (waited inside a Spark task)",
    "the same vertex functions in Python tasks on the same server, reading and overwriting Parquet by prefix",
    "job.",
)
DROP_IN = Way(
    "overhead_drop_in",
    "peers",
    "No-failure overhead of drop-in operators",
    "The eight applications of the comparison with peers, by `RecoverableSparkSubmitOperator` with nothing said",
    "the same applications by `SparkSubmitOperator`",
)


def measure_submit(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 2) pairs of runs, about 80 s each."""
    with open_local_pipeline(folder / "pipeline", lake_env(folder)) as pipeline:
        return measure_overhead(pipeline, SUBMIT, repeats or 2)


def measure_connect(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 3) pairs of runs."""
    return _over_connect(folder, CONNECT, lake_env(folder), repeats or 3)


def measure_connect_long(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 3) pairs of runs, of 45 s each."""
    env = {"BENCHMARK_WORK_S": str(LONG_S), "BENCHMARK_OUTPUT": str(folder / "output")}
    return _over_connect(folder, CONNECT_LONG, env | {"BENCHMARK_FAILURES": str(folder)}, repeats or 3)


def _over_connect(folder: Path, way: Way, env: dict[str, str], rounds: int) -> Report:
    with connect_server(conf={"spark.sql.shuffle.partitions": "4"}) as server:
        connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
        jvm = psutil.Process(server.pid)

        def cpu_s() -> float:
            times = jvm.cpu_times()
            return float(times.user + times.system)

        with open_local_pipeline(
            folder / "pipeline", {**env, "AIRFLOW_CONN_SPARK_CONNECT": json.dumps(connection)}
        ) as pipeline:
            return measure_overhead(pipeline, way, rounds, cpu_s)


def measure_drop_in(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 2) pairs of runs, about a minute each."""
    folder.mkdir(parents=True)
    fill_lake(folder / "lake")
    names = {steps.LAKE: "lake", steps.OUTPUT: "output", steps.LEDGER: "ledger", steps.ORDER: "order"}
    env = {variable: str(folder / name) for variable, name in names.items()}
    with open_local_pipeline(folder / "pipeline", env) as pipeline:
        return measure_overhead(pipeline, DROP_IN, repeats or 2)


def measure_overhead(
    pipeline: LocalPipeline, way: Way, rounds: int, server_cpu_s: Callable[[], float] = lambda: 0.0
) -> Report:
    """``rounds`` pairs of runs. The order changes from pair to pair, so that a drift of the machine favours nobody.

    A run of each comes first that does not count. ``server_cpu_s`` gives the CPU time of a server so far.
    """
    kinds = (f"{way.dags}_plain", f"{way.dags}_recovering")
    loads: list[float] = []
    for dag_id in kinds:
        pipeline.run(dag_id, "2012-12-31T00:00:00Z")
    runs: dict[str, list[MeasuredRun]] = {kind: [] for kind in kinds}
    server: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        day = date(2013, 1, 1) + timedelta(days=number)
        for dag_id in kinds if number % 2 == 0 else kinds[::-1]:
            before = server_cpu_s()
            loads.append(os.getloadavg()[0])
            runs[dag_id].append(pipeline.run(dag_id, f"{day}T00:00:00Z"))
            server[dag_id].append(server_cpu_s() - before)
    plain, ours = runs[kinds[0]], runs[kinds[1]]
    regions = _more([_regions_s(way, our) for our in ours], [_regions_s(way, run) for run in plain])
    with_publish = _more([_all_s(our) for our in ours], [_all_s(run) for run in plain])
    makespan = _more([our.makespan_s for our in ours], [run.makespan_s for run in plain])
    cpu = _more(_cpu_s(way, ours, server[kinds[1]]), _cpu_s(way, plain, server[kinds[0]]))
    pairs = [_more([_regions_s(way, a)], [_regions_s(way, b)]) for a, b in zip(ours, plain, strict=True)]
    seconds = sorted(
        a.seconds - _regions(way, without)[name].seconds
        for run, without in zip(ours, plain, strict=True)
        for name, a in _regions(way, run).items()
    )
    least, fixed, most = quantiles(seconds, n=4)
    publishes = f"{way.group}{PUBLISH}" in ours[0].tasks
    at_the_end = (
        " The publish task at the end of a group has no counterpart in the plain DAG; it is counted in the figures "
        "that say so."
    )
    return Report(
        name=way.name,
        title=way.title,
        method=(
            f"{way.what}, one task at a time, {rounds} times without and with recovery in turns, after one run of each "
            "that does not count. Each overhead is the median over the pairs of (with / without - 1). Without: "
            f"{way.without}, with the same Spark settings. The time is that of the task instances as Airflow has "
            f"it.{at_the_end if publishes else ''} CPU time: that of all task processes, their Spark applications, and "
            "the Connect server where there is one. What a region costs more is a fixed time, whatever the region "
            f"does: where it is {100 * GOAL:.0f} % of the region's own is the break-even."
        ),
        figures=[
            Figure("overhead of the regions", 100 * regions, "%", f"at most {100 * GOAL:.0f} %", regions <= GOAL),
            Figure("the same, least of the pairs", 100 * min(pairs), "%"),
            Figure("the same, most of the pairs", 100 * max(pairs), "%"),
            Figure("more a region (median over regions and pairs)", fixed, "s"),
            Figure("the same, lower quartile", least, "s"),
            Figure("the same, upper quartile", most, "s"),
            Figure(f"break-even: that is {100 * GOAL:.0f} % of a region of", max(0.0, fixed) / GOAL, "s"),
            *([Figure("overhead with the publish task", 100 * with_publish, "%")] if publishes else []),
            Figure("overhead of the makespan, with all tasks", 100 * makespan, "%"),
            Figure("overhead in CPU time of the regions", 100 * cpu, "%"),
            Figure("load of the machine before a run (median)", median(loads), ""),
        ],
        tables=[_by_region(way, ours, plain)],
        samples={
            kind: [
                {
                    "makespan_s": run.makespan_s,
                    "server_cpu_s": server_s,
                    "tasks": [asdict(task) for task in run.tasks.values()],
                }
                for run, server_s in zip(runs[kind], server[kind], strict=True)
            ]
            for kind in kinds
        },
    )


def _more(ours: Sequence[float], plain: Sequence[float]) -> float:
    return median(a / b for a, b in zip(ours, plain, strict=True)) - 1


def _regions(way: Way, run: MeasuredRun) -> dict[str, Measured]:
    named = {name.removeprefix(way.group): measured for name, measured in run.tasks.items()}
    return {name: measured for name, measured in named.items() if name != PUBLISH}


def _regions_s(way: Way, run: MeasuredRun) -> float:
    return sum(region.seconds for region in _regions(way, run).values())


def _all_s(run: MeasuredRun) -> float:
    return sum(task.seconds for task in run.tasks.values())


def _cpu_s(way: Way, runs: Sequence[MeasuredRun], server: Sequence[float]) -> list[float]:
    return [
        sum(task.cpu_s for task in _regions(way, run).values()) + server_s
        for run, server_s in zip(runs, server, strict=True)
    ]


def _by_region(way: Way, ours: Sequence[MeasuredRun], plain: Sequence[MeasuredRun]) -> Table:
    rows = []
    for name in [name.removeprefix(way.group) for name in ours[0].tasks]:
        recovering = [run.tasks[f"{way.group}{name}"] for run in ours]
        other = [_regions(way, run).get(name, NO_CPU) for run in plain]
        sides = [(side, what) for what in ("seconds", "cpu_s") for side in (other, recovering)]
        rows.append([name, *(f"{median_of(side, what):.3f}" for side, what in sides)])
    return Table(
        "By region (medians)",
        ("region", "without, s", "with, s", "without, CPU s", "with, CPU s"),
        rows,
    )


def lake_env(folder: Path) -> dict[str, str]:
    """Fill the demo's lake below ``folder``; the environment that tells the DAGs of it, and of the regions."""
    from benchmarks.whole_flights import flights

    folder.mkdir(parents=True)
    fill_lake(folder / "lake")
    return {
        "BENCHMARK_LAKE": str(folder / "lake"),
        "BENCHMARK_OUTPUT": str(folder / "output"),
        "BENCHMARK_REGIONS": json.dumps({region.name: region.upstream for region in flights.regions().regions}),
    }
