"""What a task and another DAG's viewer feel of twenty viewers of a large run, and of eight whose bodies never come."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import requests

from benchmarks.crowded_server import LARGE_PAGE, SMALL_PAGE, CrowdedServer, crowded_server
from benchmarks.report import Figure, Report, Table

LEVELS, PARALLELISM = 100, 100
VIEWERS, ATTACKERS = 20, 8
POLL_S = 3.0
"""As the page of a run that is at work."""
PAGES = 10
GOAL_TIMES, GOAL_PAGE_S, GOAL_MIB = 2.0, 2.0, 100.0
MIB = 1024 * 1024


def measure(folder: Path, repeats: int | None) -> Report:
    """The task's requests alone and in the crowd, on one server; the first of each are left out."""
    requests_each = 20 * (repeats or 5)
    with crowded_server(folder, LEVELS, PARALLELISM, viewers=VIEWERS + 1, database="postgresql") as server:
        *crowd, other = server.viewers
        for viewer in server.viewers:
            server.airflow.token(viewer)
        server.get(SMALL_PAGE, other)
        task: dict[str, list[float]] = {"alone": _timed(requests_each, lambda: server.write_state("alone"))}
        page = {"alone": _timed(PAGES, lambda: server.get(SMALL_PAGE, other))}
        memory = {"alone": _memory(server)}
        with _crowd(server, crowd) as seen, _attack(server, crowd[0]) as attacks, _watched(server) as peak:
            while len(seen) < 2 * VIEWERS:  # the first answers are there
                time.sleep(0.1)
            task["crowd"] = _timed(requests_each, lambda: server.write_state("crowd"))
            page["crowd"] = _timed(PAGES, lambda: server.get(SMALL_PAGE, other))
        memory["crowd"] = peak
        small = len(server.get(SMALL_PAGE, other).content)
        large = len(server.get(LARGE_PAGE, other).content)
    statuses = sorted({str(status) for status, _ in seen})
    ratio = median(task["crowd"]) / median(task["alone"])
    late = _late(task["crowd"]) / _late(task["alone"])
    grown = (memory["crowd"][0] - memory["alone"][0]) / MIB
    answers = [seconds for _, seconds in seen]
    return Report(
        name="viewers",
        title="Twenty viewers of one large run",
        method=(
            f"A real API server over PostgreSQL, and a run of {LEVELS * PARALLELISM:,} regions in an S3 stand-in on "
            f"the same machine. {VIEWERS} users ask for the run every {POLL_S:g} s, and for a page of its regions; "
            f"{ATTACKERS} connections with a token begin a plan and never send its body. A task writes into its own "
            f"state store {requests_each} times, before the crowd comes and while it is there. Viewers, attackers and "
            "stand-in share the two cores with the server. The memory is that of the API server's processes; the "
            "processes that read large runs for it are counted apart."
        ),
        figures=[
            Figure(
                "a task's request, against alone", ratio, "times", f"at most {GOAL_TIMES:g}", ratio <= GOAL_TIMES
            ),
            Figure("its slowest twentieth, against alone", late, "times"),
            Figure(
                "another DAG's page, the slowest",
                max(page["crowd"]),
                "s",
                f"under {GOAL_PAGE_S:g} s",
                max(page["crowd"]) < GOAL_PAGE_S,
            ),
            Figure("another DAG's page, the median", median(page["crowd"]), "s"),
            Figure("the API server grows by", grown, "MiB", f"less than {GOAL_MIB:g} MiB", grown < GOAL_MIB),
            Figure("processes that read large runs", memory["crowd"][1] / MIB, "MiB"),
            Figure("the large run's page, the median of its viewers", median(answers), "s"),
            Figure("bytes of the large run's page, against three regions", large / small, "times"),
        ],
        tables=[
            Table(
                "Milliseconds",
                ("what", "alone", "in the crowd", "slowest twentieth alone", "in the crowd"),
                [
                    (name, *(f"{1000 * median(of[when]):.1f}" for when in ("alone", "crowd")),
                     *(f"{1000 * _late(of[when]):.1f}" for when in ("alone", "crowd")))
                    for name, of in (("a task's request", task), ("another DAG's page", page))
                ],
            ),
            Table(
                "The crowd",
                ("answers", "their statuses", "attacks that the server has ended"),
                [(len(seen), ", ".join(statuses), attacks[0])],
            ),
        ],
        samples={"task": task, "page": page, "memory": memory, "viewers": answers},
    )  # fmt: skip


def _timed(number: int, ask: Callable[[], requests.Response]) -> list[float]:
    """Seconds of each request; one before them is not counted."""
    seconds = []
    for at in range(number + 1):
        begun = time.perf_counter()
        answer = ask()
        if at:
            seconds.append(time.perf_counter() - begun)
        answer.raise_for_status()
    return seconds


def _late(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[-1]


def _memory(server: CrowdedServer) -> list[int]:
    """Resident bytes of the API server's processes, and of those that read for it."""
    found = []
    for processes in server.processes():
        sizes = []
        for process in processes:
            with suppress(Exception):  # it has ended meanwhile
                sizes.append(process.memory_info().rss)
        found.append(sum(sizes))
    return found


@contextmanager
def _watched(server: CrowdedServer) -> Iterator[list[int]]:
    """The most memory while the context lasts."""
    peak, ended = [0, 0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            with suppress(Exception):
                peak[:] = [max(pair) for pair in zip(peak, _memory(server), strict=True)]

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


@contextmanager
def _crowd(server: CrowdedServer, viewers: Any) -> Iterator[list[tuple[int, float]]]:
    """The status and the seconds of each answer that the viewers have."""
    seen: list[tuple[int, float]] = []
    ended = threading.Event()

    def view(viewer: Any, number: int) -> None:
        draw = random.Random(number)
        ended.wait(draw.uniform(0, POLL_S))
        etag: dict[str, str] = {}
        while not ended.is_set():
            for path, headers in ((LARGE_PAGE, etag), (f"{LARGE_PAGE}/regions?offset={draw.randrange(9000)}", {})):
                begun = time.perf_counter()
                answer = server.get(path, viewer, **headers)
                seen.append((answer.status_code, time.perf_counter() - begun))
                if path == LARGE_PAGE and "ETag" in answer.headers:
                    etag = {"If-None-Match": answer.headers["ETag"]}
            ended.wait(POLL_S)

    with ThreadPoolExecutor(len(viewers)) as pool:
        watching = [pool.submit(view, viewer, number) for number, viewer in enumerate(viewers)]
        try:
            yield seen
        finally:
            ended.set()
    for each in watching:
        each.result()


@contextmanager
def _attack(server: CrowdedServer, user: Any) -> Iterator[list[int]]:
    """How many requests without a body the server has ended; each is begun anew."""
    ends, ended = [0], threading.Event()

    def attack() -> None:
        while not ended.is_set():
            with suppress(OSError), server.post_head(f"{LARGE_PAGE}/plan", user, 100) as connection:
                connection.settimeout(1.0)
                while not ended.is_set():
                    with suppress(TimeoutError):
                        connection.recv(1000)
                        ends[0] += 1
                        break

    with ThreadPoolExecutor(ATTACKERS) as pool:
        for _ in range(ATTACKERS):
            pool.submit(attack)
        try:
            yield ends
        finally:
            ended.set()
