"""What recovery costs while nothing fails: the demo's job with it and without it, in turns, one task at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from statistics import median, quantiles

from benchmarks.local_pipeline import LocalPipeline, Measured, MeasuredRun, median_of
from benchmarks.report import Figure, Report, Table

GOAL = 0.03
GROUP = "flights."
PUBLISH = "publish"
NO_CPU = Measured(PUBLISH, 0.0, 0.0, 0.0)


def measure_overhead(
    pipeline: LocalPipeline,
    way: str,
    rounds: int,
    server_cpu_s: Callable[[], float] = lambda: 0.0,
    *,
    warm_up: bool = False,
) -> Report:
    """``rounds`` pairs of runs. The order changes from pair to pair, so that a drift of the machine favours nobody.

    ``server_cpu_s`` gives the CPU time of a server so far; ``warm_up`` begins with a run of each that does not count.
    """
    kinds = (f"{way}_plain", f"{way}_recovering")
    loads: list[float] = []
    for dag_id in kinds if warm_up else ():
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
    regions = _more([_regions_s(our) for our in ours], [_regions_s(run) for run in plain])
    with_publish = _more([_all_s(our) for our in ours], [_all_s(run) for run in plain])
    makespan = _more([our.makespan_s for our in ours], [run.makespan_s for run in plain])
    cpu = _more(_cpu_s(ours, server[kinds[1]]), _cpu_s(plain, server[kinds[0]]))
    pairs = [_more([_regions_s(a)], [_regions_s(b)]) for a, b in zip(ours, plain, strict=True)]
    seconds = sorted(
        a.seconds - _regions(without)[name].seconds
        for run, without in zip(ours, plain, strict=True)
        for name, a in _regions(run).items()
    )
    least, fixed, most = quantiles(seconds, n=4)
    return Report(
        name=f"overhead_{way}",
        title=f"No-failure overhead ({'spark-submit' if way == 'submit' else 'Spark Connect'})",
        method=(
            "The demo's job with all flights in one region (eight regions), one task at a time, "
            f"{rounds} times without and with recovery in turns"
            + (" (after one run of each that does not count)" if warm_up else "")
            + ". Each overhead is the median over the pairs of (with / without - 1). Without: the same vertex "
            "functions in "
            + ("`SparkSubmitOperator`s" if way == "submit" else "plain Python tasks on the same warm server")
            + ", reading and overwriting Parquet by prefix, the same Spark settings. The time is that of the task "
            "instances as Airflow has it. The publish task at the end of a group has no counterpart in the plain DAG; "
            "it is counted in the figures that say so. CPU time: that of all task processes, their Spark "
            "applications, and the Connect server. What a region costs more is a fixed time, whatever the region "
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
            Figure("overhead with the publish task", 100 * with_publish, "%"),
            Figure("overhead of the makespan, with the publish task", 100 * makespan, "%"),
            Figure("overhead in CPU time, without the publish task", 100 * cpu, "%"),
            Figure("load of the machine before a run (median)", median(loads), ""),
        ],
        tables=[_by_region(ours, plain)],
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


def _regions(run: MeasuredRun) -> dict[str, Measured]:
    named = {name.removeprefix(GROUP): each for name, each in run.tasks.items()}
    return {name: each for name, each in named.items() if name != PUBLISH}


def _regions_s(run: MeasuredRun) -> float:
    return sum(region.seconds for region in _regions(run).values())


def _all_s(run: MeasuredRun) -> float:
    return sum(task.seconds for task in run.tasks.values())


def _cpu_s(runs: Sequence[MeasuredRun], server: Sequence[float]) -> list[float]:
    return [
        sum(task.cpu_s for task in _regions(run).values()) + server_s
        for run, server_s in zip(runs, server, strict=True)
    ]


def _by_region(ours: Sequence[MeasuredRun], plain: Sequence[MeasuredRun]) -> Table:
    rows = []
    for name in [*_regions(plain[0]), PUBLISH]:
        found = [run.tasks[f"{GROUP}{name}"] for run in ours]
        other = [_regions(run).get(name, NO_CPU) for run in plain]
        sides = [(side, what) for what in ("seconds", "cpu_s") for side in (other, found)]
        rows.append([name, *(f"{median_of(side, what):.3f}" for side, what in sides)])
    return Table(
        "By region (medians)",
        ("region", "without, s", "with, s", "without, CPU s", "with, CPU s"),
        rows,
    )


def lake_env(folder: Path) -> dict[str, str]:
    """Fill the demo's lake below ``folder``; the environment that tells the DAGs of it, and of the regions."""
    from benchmarks.whole_flights import flights
    from scripts.demo.lake import fill_lake

    folder.mkdir(parents=True)
    fill_lake(folder / "lake")
    return {
        "BENCHMARK_LAKE": str(folder / "lake"),
        "BENCHMARK_OUTPUT": str(folder / "output"),
        "BENCHMARK_REGIONS": json.dumps({region.name: region.upstream for region in flights.regions().regions}),
    }
