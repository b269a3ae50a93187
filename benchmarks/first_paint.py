"""How soon the Recovery tab can be read: a run of 1,000 regions beside one of 10, in headless Chromium."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Figure, Report, Table, summary

SHAPES = {10: (5, 2), 100: (10, 10), 1_000: (25, 40)}
"""Layers, and regions in each."""
SMALL, LARGE = 10, 1_000
GOAL_S, GOAL_TIMES = 2.0, 10.0
MOMENTS = {"paint": "first paint", "answer": "answer of the REST API", "drawn": "graph drawn, in its level of detail"}
MEASURED = r"""
const of = (name) => performance.getEntriesByName(name)[0]?.startTime ?? null;
const asked = performance.getEntriesByType("resource").map((each) => [new URL(each.name).pathname, each.responseEnd]);
const answer = asked.find(([path]) => /\/runs\/[^/]+$/.test(path))?.[1] ?? null;
return {paint: of("first-contentful-paint"), answer, drawn: of("recovery:drawn")};
"""


def measure(folder: Path, repeats: int | None) -> Report:
    """Sizes in turns, in one Chromium; each round is a new page."""
    rounds = repeats or 9
    samples: dict[int, list[dict[str, float]]] = {size: [] for size in SHAPES}
    with _Pages(folder) as pages:
        for number in range(rounds + 1):
            for size in SHAPES:
                found = pages.open(size)
                if number:  # the first of each size finds cold caches
                    samples[size].append(found)
    drawn = {size: median(each["drawn"] for each in found) for size, found in samples.items()}
    ratio = median(large["drawn"] / small["drawn"] for small, large in zip(samples[SMALL], samples[LARGE], strict=True))
    return Report(
        name="first_paint",
        title="First paint of the Recovery tab",
        method=(
            f"The tab of runs of {', '.join(map(str, SHAPES))} regions, framed as Airflow frames it, over its REST API "
            f"and a journal in memory, so that no store's network is in the figures. {rounds} rounds, the sizes in "
            "turns; times are the browser's own, from the navigation of the frame on. Above 150 boxes the graph begins "
            "as an overview by layer."
        ),
        figures=[
            Figure(
                f"{LARGE} regions can be read",
                drawn[LARGE] / 1000,
                "s",
                f"under {GOAL_S} s",
                drawn[LARGE] < 1000 * GOAL_S,
            ),
            Figure(f"{LARGE} regions against {SMALL}", ratio, "times", f"under {GOAL_TIMES}", ratio < GOAL_TIMES),
        ],
        tables=[
            Table(
                f"Milliseconds to: {words}",
                ("regions", "median", "least", "most", "pages"),
                [(size, *summary([each[moment] for each in found])) for size, found in samples.items()],
            )
            for moment, words in MOMENTS.items()
        ],
        samples={str(size): found for size, found in samples.items()},
    )


class _Pages:
    """Runs of all sizes, and a browser: by what the tab's tests use."""

    def __init__(self, folder: Path) -> None:
        tests = Path(__file__).parents[1] / "tests"
        sys.path[:0] = [str(tests / name) for name in ("tab", "support")]
        self._folder = folder
        browser, pages, world, many = map(import_module, ("browser", "pages", "rest_world", "many"))
        self._browser_of, self._serving, self._driving = browser.Browser, pages.serve(), browser.open_browser()
        self._world_of, self._fill = world.RestWorld, many.many_regions
        self._patch = import_module("pytest").MonkeyPatch()
        self._worlds: dict[int, Any] = {}

    def __enter__(self) -> _Pages:
        for size, (layers, wide) in SHAPES.items():
            world = self._world_of(self._folder / str(size), self._patch)
            self._fill(world, layers=layers, wide=wide)
            self._worlds[size] = world
        self._site = self._serving.__enter__()
        self._browser = self._browser_of(self._driving.__enter__(), self._folder)
        self._browser.be("admin", self._site.url)
        return self

    def __exit__(self, *error: object) -> None:
        self._driving.__exit__(None, None, None)
        self._serving.__exit__(None, None, None)
        self._patch.undo()

    def open(self, size: int) -> dict[str, float]:
        self._worlds[size].open_the_app(self._patch)
        self._browser.driver.get("about:blank")
        self._browser.open(self._site.run_page())
        found: dict[str, float] = self._browser.wait(self._measured, "the graph")
        return found

    def _measured(self) -> dict[str, float] | None:
        found: dict[str, float | None] = self._browser.script(MEASURED)
        return None if None in found.values() else {name: float(value or 0) for name, value in found.items()}
