"""The two acts: the chain whose regions restart alone, killed twice, and the same chain that restarts as a whole."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date, timedelta

from jobs.live_flights import DAYS_A_BATCH

from scripts.demo.flights_by_day import FlightsByDay
from scripts.demo.local_pipeline import LocalPipeline
from scripts.demo.stream_run import REGIONS, SCORER, SINK, Seen, StreamRun

FIRST_KILL = date(2013, 1, 9)
"""A streaming region is killed when the running table has come so far."""
BETWEEN = timedelta(days=4)
"""How far it must have come since the restart, before the next one is killed."""
AWAY = timedelta(days=32)
"""How far the source goes on while a killed region is away: on a slow machine it would come to its last day."""
BATCH = timedelta(days=DAYS_A_BATCH)


@dataclass(frozen=True)
class Recovery:
    """What became of one kill. Seconds from the kill: to the first table that was committed by a restarted region, and
    to the first one with flights that had not left the source at the kill."""

    killed: str
    strategy: str
    restarted: tuple[str, ...]
    first_s: float
    fresh_s: float
    fresh_day: date


@dataclass(frozen=True)
class Act:
    """An act that came to its end, or was cut short when everything was measured."""

    run: StreamRun
    recoveries: tuple[Recovery, ...]


def act_single(pipeline: LocalPipeline, flights: FlightsByDay) -> Act:
    """The sink is killed, then the scorer; each restarts alone, and the run goes on to its end."""
    print("\nAct one: a streaming region that dies restarts alone (approximate-single)", flush=True)
    run = StreamRun(pipeline, "live_flights", limit=FIRST_KILL + BATCH)
    run.until_table(lambda seen: seen is not None and seen.newest >= FIRST_KILL, f"a table up to {FIRST_KILL}")
    first = kill_and_measure(run, SINK, flights, "approximate-single")
    second_kill = first.fresh_day + BETWEEN
    run.go_on_to(second_kill + BATCH)
    run.until_table(lambda seen: seen is not None and seen.newest >= second_kill, f"a table up to {second_kill}")
    second = kill_and_measure(run, SCORER, flights, "approximate-single")
    run.at_full_speed()
    run.until(lambda _: run.airflow_state in ("success", "failed"))
    print(f"  {run.airflow_state} after {run.seconds:.0f} s", flush=True)
    return Act(run, (first, second))


def act_regional(pipeline: LocalPipeline, flights: FlightsByDay) -> Act:
    """The sink is killed at the same point, and all three start over. Cut short at the first fresh table."""
    print("\nAct two: the same chain restarts as a whole (region)", flush=True)
    run = StreamRun(pipeline, "live_flights_regional", limit=FIRST_KILL + BATCH)
    run.until_table(lambda seen: seen is not None and seen.newest >= FIRST_KILL, f"a table up to {FIRST_KILL}")
    recovery = kill_and_measure(run, SINK, flights, "region")
    print("  enough: the rest of this run is not waited for", flush=True)
    run.stop()
    return Act(run, (recovery,))


def kill_and_measure(run: StreamRun, region: str, flights: FlightsByDay, strategy: str) -> Recovery:
    """Kill a region of a run whose table is there, and wait for a fresh one: a run with a limit goes on by `AWAY` until
    the region reads again. Raises as `StreamRun.until_table`."""
    tops = {name: run.state().of(name).latest_attempt for name in REGIONS}
    before = run.look()
    assert before is not None
    attempt = run.kill(region)
    killed = time.monotonic()
    # What had left the source by then is old.
    old = flights.day_of(run.published())
    run.go_on_to(old + AWAY)
    back = False
    times: list[float] = []
    commits: list[Seen] = []

    def fresh(seen: Seen | None) -> bool:
        nonlocal back
        if not back and run.reads_since(region, attempt):
            back = True
            run.go_on_to(old + AWAY + 2 * BATCH)
        if seen is None or (seen.generation, seen.batch) == (before.generation, before.batch):
            return False
        if not times and _is_of_restarted(run, region, seen, before, old):
            times.append(time.monotonic() - killed)
            print(f"  {run.seconds:6.1f} s  first table after {times[0]:.1f} s, up to {seen.newest}", flush=True)
        if seen.newest > old:
            commits.append(seen)
            return True
        return False

    run.until_table(fresh, f"a table with flights after {old}")
    fresh_s = time.monotonic() - killed
    print(
        f"  {run.seconds:6.1f} s  fresh table after {fresh_s:.1f} s: up to {commits[0].newest}, past {old}", flush=True
    )
    state = run.state()
    again = tuple(
        f"{name}@{state.of(name).latest_attempt}" for name in REGIONS if state.of(name).latest_attempt > tops[name]
    )
    return Recovery(region, strategy, again, times[0] if times else fresh_s, fresh_s, commits[0].newest)


def _is_of_restarted(run: StreamRun, region: str, seen: Seen, before: Seen, old: date) -> bool:
    """A sink makes every table after its kill; a scorer's rows are seen when they are newer than all of before."""
    if region == SINK or seen.generation != before.generation:
        return True
    return seen.newest > old
