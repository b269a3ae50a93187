"""``docs/soak.md``: what was done, by which seed, and what was found. Written by ``make soak``, of the soak's log.

``python -m scripts.soak.report LOG PAGE`` writes it again: of a soak that was cut off, it tells up to the last pause.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.soak.disturbances import DISTURBANCES
from scripts.soak.growth import Sample, growths
from scripts.soak.plot import plotted
from scripts.soak.soak import Done, Violation

FINDINGS = Path(__file__).parent / "findings.md"
"""What soaks have found so far and what became of it: written by people, and part of the page."""
WANTED_HOURS = 2.0


@dataclass(frozen=True)
class Story:
    """All that the page tells of one soak, as its log has it. ``counts``: the last ones; ``seconds``: its length."""

    seconds: float
    counts: Mapping[str, Any]
    done: Sequence[Done]
    violations: Sequence[Violation]
    notes: Sequence[str]
    samples: Sequence[Sample]


def story_of(log: Iterable[str]) -> Story:
    """What the lines of a soak's log tell."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    seconds = 0.0
    for line in log:
        values = json.loads(line)
        seconds = values.pop("s")
        kinds.setdefault(values.pop("kind"), []).append(values)
    return Story(
        seconds=seconds,
        counts=kinds["counts"][-1],
        done=[Done(**one) for one in kinds.get("done", ())],
        violations=[Violation(**one) for one in kinds.get("violation", ())],
        notes=[one["said"] for one in kinds.get("note", ())],
        samples=[Sample(*one) for some in kinds.get("samples", ()) for one in some["samples"]],
    )


def write_report(log: Path, page: Path) -> None:
    """Write the page, and its picture beside it."""
    story = story_of(log.read_text(encoding="utf-8").splitlines())
    page.parent.mkdir(parents=True, exist_ok=True)
    page.with_suffix(".svg").write_text(plotted(story.samples), encoding="utf-8")
    page.write_text(rendered(story, FINDINGS.read_text(encoding="utf-8"), page.stem), encoding="utf-8")


def rendered(story: Story, findings: str, picture: str = "soak") -> str:
    """The page."""
    counted, hours = story.counts, story.seconds / 3600
    short = f" That is less than the {WANTED_HOURS:.0f} hours that are wanted of it." if hours < WANTED_HOURS else ""
    counts = Counter(done.name for done in story.done)
    rows = [(one.name, one.what, counts[one.name], counted["missed"].get(one.name, 0) or "") for one in DISTURBANCES]
    found = len(story.violations)
    ill = ", ".join(f"{count} by {kind}" for kind, count in sorted(counted["struck"].items())) or "none"
    dags = ", ".join(f"{count} of `{dag}`" for dag, count in sorted(counted["runs"].items()))
    parts = [
        "# The soak",
        "`make soak HOURS=8` runs eleven DAGs of mixed kinds in a real Airflow: two schedulers, CeleryExecutor with "
        "two workers (each a machine of its own, by namespaces), PostgreSQL, real Spark, S3 over HTTP through a proxy "
        "that is ill at times. Every half minute something is done to it. Every ten minutes it is left alone, people "
        "clear what has failed, and everything is checked. This page is written by the command.",
        f"**{hours:.2f} hours with seed {counted['seed']}, ended {counted['ended']}: "
        f"{'nothing wrong was found' if not found else f'{found} violations were found'}.**{short}",
        f"{sum(counts.values())} disturbances; {sum(counted['runs'].values())} runs ({dags}), "
        f"{counted['created_again']} of them created again after the database was restored, {counted['purged']} "
        f"purged; {counted['pauses']} pauses. Requests to S3 that something happened to: {ill}.",
        f"On {counted['machine']['cores']} cores, {counted['machine']['memory']}, load "
        f"{counted['machine']['load in the last minute']} at the end. "
        f"Again: `python -m scripts.soak --hours {hours:.2f} --seed {counted['seed']}`; "
        "the order and the kinds "
        "of disturbances are the seed's, whom they find at work is not.",
        "## What was done",
        _table(("disturbance", "what it does", "done", "nobody to do it to"), rows),
        "## What was looked at",
        f"- **The independent checker** (`airflow recovery verify --ended --deep`): {counted['verified']} times a run, "
        "and by its command one DAG a pause.\n"
        f"- **Results**: {counted['compared']} times all results of a run were compared with plain Python's.\n"
        "- **What nobody owns**, after every run had ended and `gc` had run: processes, connections to the databases, "
        "temporary files, objects below the results that no record names, and unfinished uploads.\n"
        "- **Requests** of an undisturbed run at each pause, counted by the proxy, against the "
        "[budget](benchmarks.md#requests-to-s3).\n"
        "- **Memory and open files**, every ten seconds:",
        _table(
            ("component", "of", "level", "slope an hour", "longest stretch", ""),
            [
                (
                    growth.component,
                    growth.what,
                    f"{growth.level:.0f}",
                    f"{growth.slope:+.1f}",
                    f"{growth.longest_s / 60:.0f} min",
                    growth.verdict,
                )
                for growth in growths(story.samples)
            ],
        ),
        "The slope is that of least squares over all processes of a component, each with a level of its own and "
        "without its first three minutes. A stretch ends where the component is killed; below "
        "20 minutes nobody can say. GROWS: it has gained a quarter of its level, some of it in each quarter of its "
        "longest stretch; a step, as where a triggerer meets its first trigger, is no growth.",
        f"![Memory and open files over time]({picture}.svg)",
        "## What was found",
        _found(story),
        findings.strip(),
    ]
    if story.notes:
        parts += ["## What was in vain", "\n".join(f"- {_line(note.splitlines()[0])}" for note in story.notes[:20])]
    return "\n\n".join(parts) + "\n"


def _found(story: Story) -> str:
    if not story.violations:
        return "In this soak nothing."
    return "\n".join(
        f"- {violation.at / 60:.0f} min, {violation.run or 'no run'}: {_line(violation.what)} "
        f"(before: {_line('; '.join(violation.before[-3:]), 200)})"
        for violation in story.violations[:20]
    )


def _line(text: str, most: int = 300) -> str:
    flat = " ".join(text.split()).replace("|", "/").replace("<", "&lt;")
    return flat if len(flat) < most else f"{flat[:most]} ..."


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


if __name__ == "__main__":
    write_report(Path(sys.argv[1]), Path(sys.argv[2]))
