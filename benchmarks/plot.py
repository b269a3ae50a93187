"""The page's charts, as SVG: drawn from a result's samples, with labels beside what they name. Nothing to install."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.svg import WIDTH, svg, text

FIRST = "airflow-recovery"
"""The system that is drawn in colour."""


def recoveries(samples: Mapping[str, Any]) -> str:
    """How long each system takes to recover from each disturbance: a bar a system, over the work that was lost."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for outcome in samples["outcomes"]:
        if outcome["work_s"] is not None:
            rows.setdefault(outcome["disturbance"], []).append(outcome)
    left, right, height = 170, 190, 21
    most = max(outcome["ratio"] or 0.0 for outcomes in rows.values() for outcome in outcomes)
    scale = (WIDTH - left - right) / most
    marks = []
    y = 78
    for disturbance, outcomes in rows.items():
        marks.append(text(20, y, disturbance, "head"))
        y += 10
        for outcome in outcomes:
            ours = outcome["system"] == FIRST
            failed = outcome["ratio"] is None or not outcome["right"]
            marks.append(text(left - 10, y + 13, outcome["system"], "strong" if ours else "quiet", anchor="end"))
            if outcome["ratio"] is not None and outcome["right"]:
                kind = "ours" if ours else "others"
                marks.append(_bar(left, y + 3, scale * outcome["ratio"], 13, kind))
                said = outcome["text"]
                at = left + scale * outcome["ratio"] + 8
            else:
                said, at = outcome["text"], left + 8
            marks.append(text(at, y + 13, said, "bad strong" if failed else "strong" if ours else ""))
            y += height
        y += 24
    one = left + scale
    rule = f'<line class="mark" x1="{one:.1f}" y1="62" x2="{one:.1f}" y2="{y - 24}"/>'
    said = "Time from the failure until the run is done, in multiples of the work that truly had to run again"
    return svg(
        "Recovery, beside what people use today",
        y - 8,
        [text(20, 48, said, "quiet"), rule, *marks, text(one + 4, y - 14, "1: the work itself", "quiet")],
    )


def failures(samples: Mapping[str, Any]) -> str:
    """The clean run and the disturbed ones on one axis of time: a bar a try, red where its driver was killed."""
    clean_s = samples["clean"]["seconds"]
    runs = [("nothing fails", samples["clean"])]
    runs += [(f"seed {run['seed']}: {len(run['kills'])} kills", run) for run in samples["runs"]]
    last = max(max(run["seconds"] for _, run in runs) / clean_s, samples["goal"]) * 1.02
    left, right = 150, 76
    scale = (WIDTH - left - right) / last
    marks = []
    y = 76
    for name, run in runs:
        lanes = _lanes(run["tries"])
        height = 15 * len(lanes)
        marks.append(text(20, y + height / 2 + 4, name, "strong"))
        for lane, tries in enumerate(lanes):
            for tried in tries:
                begun, ended = tried["begun"] / clean_s * scale, tried["ended"] / clean_s * scale
                kind = "ours" if tried["succeeded"] else "bad"
                marks.append(_bar(left + begun, y + 15 * lane, max(0.8, ended - begun - 0.6), 12, kind))
        end = left + run["seconds"] / clean_s * scale
        marks.append(text(end + 8, y + height / 2 + 4, f"{run['seconds'] / clean_s:.2f}", "strong"))
        y += height + 22
    for at, said in ((1.0, "the clean run"), (samples["flink"], "Flink's"), (samples["goal"], "goal")):
        x = left + at * scale
        marks.append(f'<line class="mark" x1="{x:.1f}" y1="66" x2="{x:.1f}" y2="{y - 10}"/>')
        above = said == "goal"
        marks.append(
            text(x + (4 if above else -4), y + 4, f"{said} {at:g}", "quiet", anchor="start" if above else "end")
        )
    said = "Every try of every task, red where it failed, on an axis of the clean run's time"
    return svg("A failure every thirtieth of the run", y + 18, [text(20, 48, said, "quiet"), *marks])


def _lanes(tries: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """As few rows as there are tries at the same time."""
    lanes: list[list[Mapping[str, Any]]] = []
    for tried in sorted(tries, key=lambda tried: (tried["begun"], tried["task"])):
        free = next((lane for lane in lanes if lane[-1]["ended"] <= tried["begun"]), None)
        if free is None:
            lanes.append([tried])
        else:
            free.append(tried)
    return lanes


def _bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'
