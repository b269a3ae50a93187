"""The planner that runs, beside Flink's own scheduler: large shapes, and a run of 20,000 finished regions."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.plan_cases import Case, ladder, volatile_vertex
from benchmarks.report import Figure, Report, Table
from benchmarks.s3_stand_in import serving
from benchmarks.shapes import chain, finished_run, planned

PEER = Path(__file__).parent / "peers" / "flink_scheduler"
STEPS = ("graph", "regions", "mid_one_lost")
SHAPES = (("all_to_all_blocking", 2, 10_000), ("pointwise_blocking", 100, 1_000), ("pointwise_blocking", 100_000, 1))
FINISHED = {"10,000 x 2": (2, 10_000), "100 x 200": (100, 200)}
DELAY_MS, READ_GOAL_S = 150, 5.0
COMMANDS = (("show",), ("plan",), ("gc", "--dry-run"))
TIMEOUT_S = 120
CPU_GOAL_S, SHAPE_GOAL_MS = 2.0, 100.0


def measure(folder: Path, repeats: int | None) -> Report:
    """Every figure is of a fresh process. ``repeats``: how many of each of ours, of which the median counts (1)."""
    rounds = repeats or 1
    folder.mkdir(parents=True)
    flink, beside = _flink(folder / "flink")
    figures: list[Figure] = []
    rows = [_shape_row(shape, rounds, flink, figures) for shape in SHAPES]
    spreading = [
        _spread("ladder", ladder, 800, figures),
        _spread("volatile", volatile_vertex, 4_000, figures),
    ]
    reads, commands, tabs = [], [], []
    for name, (levels, parallelism) in FINISHED.items():
        objects: dict[str, bytes] = {}
        finished_run(planned(chain(levels, parallelism)).record, objects)
        file = folder / f"{levels}.pickle"
        file.write_bytes(pickle.dumps(objects))
        reads.append(_read_row(name, file, rounds, figures))
        commands += _command_rows(name, file, folder / "bytecode", figures)
        tabs.append(_tab_row(name, file, (levels, parallelism), folder / "airflow", figures))
    return Report(
        name="planner",
        title="The planner that runs, beside Flink's scheduler",
        method=(
            "Of ours, `record` is from the declared job to the plan record, which holds what Flink calls graph and "
            "regions. Then the middle vertex's first subtask, which was reset, runs again while everything else has "
            "finished. `pre-check` is what its try finds out of the run before it begins, of a plan and a state of "
            "which nothing was asked before. It fails, and the error names one lost input: `restart set` is who "
            "restarts, of the state that was listed after the failure, evaluated from where the pre-check left it, as "
            "a task does it. `without` is the same for a process that has evaluated nothing before. `plan` is the "
            "whole plan of such a process, with its reasons for every region. Of Flink, `graph`, "
            "`regions` and the restart set are the first calls in a "
            f"fresh JVM, {beside}. Memory: of ours the growth of the peak until the record is there, of Flink its live "
            "heap after a collection. Finished runs are on a stand-in for S3, over HTTP, with the real SDK."
        ),
        figures=figures,
        tables=[
            Table(
                "Shapes, cold",
                (
                    "shape", "record, ms", "pre-check, ms", "its CPU, ms", "restart set, ms", "its CPU, ms",
                    "without, ms", "its CPU, ms", "plan, ms", "record, MB", "restarts",
                    "Flink: graph, ms", "regions, ms", "restart set, ms", "MB", "restarts",
                ),
                rows,
            ),
            Table("Shapes that spread", ("shape", "size", "plan, ms", "its CPU, ms"), spreading),
            Table(f"Listing to plan at {DELAY_MS} ms a request", ("run", "s", "CPU s", "requests", "peak MB"), reads),
            Table("Commands, CPU seconds of the process", ("run", "command", "CPU s", "requests", "MB"), commands),
            Table(
                f"First answer of the Recovery tab, and the next one if nothing has changed; {DELAY_MS} ms a request",
                ("run", "CPU s", "s", "next: CPU s", "s", "requests of both", "bytes", "peak MB"),
                tabs,
            ),
        ],
        samples={"flink": list(flink.values())},
    )  # fmt: skip


def _flink(build: Path) -> tuple[Mapping[tuple[str, str], dict[str, Any]], str]:
    """Flink's figures by shape and step, and in words when they were measured. Empty where they can't be."""
    if not (shutil.which("java") and shutil.which("mvn")):
        return {}, "not measured: Java or Maven is not there"
    shapes = "|".join(" ".join(map(str, shape)) for shape in SHAPES)
    only = {"WARM": "1", "FLINKBENCH_BUILD": str(build), **os.environ, "ONLY": f"^({shapes}) ({'|'.join(STEPS)})$"}
    done = subprocess.run(["bash", str(PEER / "run.sh")], env=only, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}, f"not measured: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        (f"{line['case']} {line['levels']} {line['parallelism']}", line["step"]): line
        for line in lines
        if "cold_ms" in line
    }, "in this call"


def _shape_row(
    shape: tuple[str, int, int],
    rounds: int,
    flink: Mapping[tuple[str, str], dict[str, Any]],
    figures: list[Figure],
) -> tuple[object, ...]:
    key = " ".join(map(str, shape))
    ours = [_ours(key.split()) for _ in range(rounds)]
    theirs = [flink.get((key, step)) for step in STEPS]
    peer = [f"{line['cold_ms']:.0f}" if line else "-" for line in theirs]
    last = theirs[-1]
    peer += [str(last["heap_mb"]), str(last["result"])] if last else ["-", "-"]
    if "refused" in ours[0]:
        figures.append(Figure(key, 0.0, "plans", f"a plan, not: {ours[0]['refused']}", reached=False))
        return (key, ours[0]["refused"][:40], *["-"] * 9, *peer)
    found = {name: median(our[name] for our in ours) for name in ours[0]}
    if theirs[0] and theirs[1] and last:
        made = theirs[0]["cold_ms"] + theirs[1]["cold_ms"]
        for name, value, goal, unit in (
            ("record", found["record_ms"], made, "ms"),
            ("restart set", found["restart_set_ms"], last["cold_ms"], "ms"),
            ("memory of the record", found["record_mb"], last["heap_mb"], "MB"),
        ):
            figures.append(Figure(f"{key}: {name}", value, unit, f"at most Flink's {goal:.4g} {unit}", value <= goal))
    return (
        key,
        f"{found['record_ms']:.0f}",
        f"{found['pre_check_ms']:.0f}",
        f"{found['pre_check_cpu_ms']:.0f}",
        f"{found['restart_set_ms']:.0f}",
        f"{found['restart_set_cpu_ms']:.0f}",
        f"{found['cold_ms']:.0f}",
        f"{found['cold_cpu_ms']:.0f}",
        f"{found['plan_ms']:.0f}",
        f"{found['record_mb']:.0f}",
        f"{found['restarts']:.0f}",
        *peer,
    )


def _spread(name: str, make: Callable[[int], Case], size: int, figures: list[Figure]) -> tuple[object, ...]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.planner_case", make.__name__, str(size)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    took = json.loads(done.stdout)
    took_ms = took["plan_ms"]
    goal = f"at most {SHAPE_GOAL_MS:.0f} ms"
    figures.append(Figure(f"{name} of {size}", took_ms, "ms", goal, took_ms <= SHAPE_GOAL_MS))
    return name, size, f"{took_ms:.0f}", f"{took['plan_cpu_ms']:.0f}"


def _read_row(name: str, objects: Path, rounds: int, figures: list[Figure]) -> tuple[object, ...]:
    with serving(objects, DELAY_MS) as server:
        found = [_ours(["finished", server.endpoint_url]) for _ in range(rounds)]
        requests = server.requests() // rounds
    seconds = median(one["read_ms"] for one in found) / 1000
    goal = f"at most {READ_GOAL_S:g} s"
    figures.append(Figure(f"listing to plan, {name} at {DELAY_MS} ms", seconds, "s", goal, seconds <= READ_GOAL_S))
    cpu_s = median(one["cpu_s"] for one in found)
    return name, f"{seconds:.1f}", f"{cpu_s:.1f}", requests, f"{found[0]['peak_mb']:.0f}"


def _tab_row(name: str, objects: Path, shape: tuple[int, int], home: Path, figures: list[Figure]) -> tuple[object, ...]:
    with serving(objects, DELAY_MS) as server:
        found = _ours(["tab", server.endpoint_url, *map(str, shape)], {"AIRFLOW_HOME": str(home)})
        requests = server.requests()
    cpu_s = found["first_cpu_s"]
    goal = f"at most {CPU_GOAL_S:g} s"
    figures.append(Figure(f"Recovery tab, {name}", cpu_s, "s of CPU", goal, cpu_s <= CPU_GOAL_S))
    seconds = [f"{found[key]:.1f}" for key in ("first_cpu_s", "again_cpu_s")]
    times = [f"{found[key] / 1000:.1f}" for key in ("first_ms", "again_ms")]
    peak = f"{found['peak_mb']:.0f}"
    return name, seconds[0], times[0], seconds[1], times[1], requests, found["bytes"], peak


def _command_rows(name: str, objects: Path, bytecode: Path, figures: list[Figure]) -> list[tuple[object, ...]]:
    """``bytecode``: what pip compiles where it installs the package."""
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}
    rows: list[tuple[object, ...]] = []
    with serving(objects) as server:
        store = ("--journal", "s3://bucket/journal", "--endpoint-url", server.endpoint_url, "--s3-region", "us-east-1")
        for command in COMMANDS:
            run = ("wide", "date-2026-01-01T000000Z") if command[0] != "gc" else ()
            words = [command[0], *run, *command[1:], *store]
            _command(words, compiled)  # compiles what it imports
            before = server.requests()
            cpu_s, peak_mb = _command(words, compiled)
            told = " ".join(command)
            goal = f"at most {CPU_GOAL_S:g} s"
            figures.append(Figure(f"{told}, {name}", cpu_s, "s of CPU", goal, cpu_s <= CPU_GOAL_S))
            rows.append((name, told, f"{cpu_s:.1f}", server.requests() - before, f"{peak_mb:.0f}"))
    return rows


def _command(words: list[str], more: Mapping[str, str]) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of a process of its own. Raises `RuntimeError` where it fails."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow_recovery", *words], env={**os.environ, **_CREDENTIALS, **more}, stdout=said
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} has exited with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_EC2_METADATA_DISABLED": "true"}


def _ours(arguments: list[str], more: Mapping[str, str] | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.planner_case", *arguments]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **_CREDENTIALS, **(more or {})},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"no end within {TIMEOUT_S} s"}
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # Airflow logs to the same place
    return document
