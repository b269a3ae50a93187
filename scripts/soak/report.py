"""``docs/soak.md``: what was done, by which seed, and what was found. Written by ``make soak`` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from scripts.machine import describe_machine
from scripts.soak.disturbances import DISTURBANCES
from scripts.soak.growth import Growth, Sample
from scripts.soak.plot import plotted
from scripts.soak.runs import Runs
from scripts.soak.soak import Done, Soak, Violation

FINDINGS = Path(__file__).parent / "findings.md"
"""What soaks have found so far and what became of it: written by people, and part of the page."""
WANTED_HOURS = 2.0


@dataclass(frozen=True)
class Story:
    """All that the page tells of one soak. ``missed``: how often there was nothing to disturb."""

    seed: int
    seconds: float
    ended: str
    machine: Mapping[str, str]
    done: Sequence[Done]
    missed: Mapping[str, int]
    struck: Mapping[str, int]
    runs: Mapping[str, int]
    """How many runs of each DAG."""
    created_again: int
    purged: int
    pauses: int
    verified: int
    compared: int
    violations: Sequence[Violation]
    notes: Sequence[str]
    growths: Sequence[Growth]


def story_of(soak: Soak) -> Story:
    """The soak so far."""
    runs: Runs = soak.runs
    return Story(
        seed=soak.seed,
        seconds=soak.seconds,
        ended=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        machine=describe_machine(),
        done=soak.done,
        missed=soak.missed,
        struck=soak.ground.faults.struck,
        runs=Counter(name.dag_id for name in runs.names),
        created_again=runs.created_again,
        purged=len(soak.purged),
        pauses=soak.pauses,
        verified=soak.verified,
        compared=soak.compared,
        violations=soak.violations,
        notes=soak.notes,
        growths=soak.growths(),
    )


def write_report(soak: Soak, page: Path) -> None:
    """Write the page, and its picture beside it."""
    samples: Sequence[Sample] = soak.sampler.samples
    page.with_suffix(".svg").write_text(plotted(samples), encoding="utf-8")
    page.write_text(rendered(story_of(soak), FINDINGS.read_text(encoding="utf-8"), page.stem), encoding="utf-8")


def rendered(story: Story, findings: str, picture: str = "soak") -> str:
    """The page."""
    hours = story.seconds / 3600
    short = f" That is less than the {WANTED_HOURS:.0f} hours that are wanted of it." if hours < WANTED_HOURS else ""
    counts = Counter(done.name for done in story.done)
    rows = [(one.name, one.what, counts[one.name], story.missed.get(one.name, 0) or "") for one in DISTURBANCES]
    found = len(story.violations)
    ill = ", ".join(f"{count} by {kind}" for kind, count in sorted(story.struck.items())) or "none"
    dags = ", ".join(f"{count} of `{dag}`" for dag, count in sorted(story.runs.items()))
    parts = [
        "# The soak",
        "`make soak HOURS=8` runs eleven DAGs of mixed kinds in a real Airflow: two schedulers, CeleryExecutor with "
        "two workers (each a machine of its own, by namespaces), PostgreSQL, real Spark, S3 over HTTP through a proxy "
        "that is ill at times. Every half minute something is done to it. Every ten minutes it is left alone, people "
        "clear what has failed, and everything is checked. This page is written by the command.",
        f"**{hours:.2f} hours with seed {story.seed}, ended {story.ended}: "
        f"{'nothing wrong was found' if not found else f'{found} violations were found'}.**{short}",
        f"{sum(counts.values())} disturbances; {sum(story.runs.values())} runs ({dags}), {story.created_again} of them "
        f"created again after the database was restored, {story.purged} purged; {story.pauses} pauses. Requests to S3 "
        f"that something happened to: {ill}.",
        f"On {story.machine['cores']} cores, {story.machine['memory']}, load "
        f"{story.machine['load in the last minute']} at the end. "
        f"Again: `python -m scripts.soak --hours {hours:.2f} --seed {story.seed}`; "
        "the order and the kinds "
        "of disturbances are the seed's, whom they find at work is not.",
        "## What was done",
        _table(("disturbance", "what it does", "done", "nobody to do it to"), rows),
        "## What was looked at",
        f"- **The independent checker** (`airflow recovery verify --ended --deep`): {story.verified} times a run, "
        "and by its command one DAG a pause.\n"
        f"- **Results**: {story.compared} times all results of a run were compared with plain Python's.\n"
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
                for growth in story.growths
            ],
        ),
        "The slope is that of least squares over all processes of a component, each with a level of its own and "
        "without its first three minutes. A stretch ends where the component is killed; below "
        "20 minutes nobody can say.",
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
