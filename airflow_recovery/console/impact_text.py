"""What `impact` prints: for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from airflow_recovery.escaping import for_markdown, one_line
from airflow_recovery.planning.plan_text import cut, table
from airflow_recovery.story.deploy_impact import Effect, Impact, JobImpact, RegionImpact, RunImpact

_AGAIN = (Effect.AGAIN, Effect.MAYBE)
_SUBTASK = re.compile(r"(.*)\[.*\]")
_MARK = {Effect.MAYBE: "maybe ", Effect.FIRST: "for the first time ", Effect.ANYWAY: "anyway "}
_RUN_COLUMNS = ("run", "runs again", "spark s", "read", "written")
_CHANGE_COLUMNS = ("vertex or region", "change", "why")


def impact_text(impact: Impact, limit: float | None) -> str:
    """For a terminal."""
    parts = [_headline(impact, "", one_line)]
    for job in impact.jobs:
        parts.append(f"{one_line(_title(job))}{f': {_brief(job)}' if _brief(job) else ''}")
        if job.changes:
            parts.append(table(_CHANGE_COLUMNS, _changes(job)))
        if rows := _rows(job):
            parts.append(table(_RUN_COLUMNS, rows))
        parts += [f"Note: {one_line(note)}." for note in _notes(job)]
    parts += [f"Note: {one_line(note)}" for note in impact.notes]
    parts += [f"Not answered: {one_line(text)}" for text in _unanswered(impact)]
    if limit is not None:
        parts.append(limit_text(impact, limit)[1])
    return "\n\n".join(parts)


def impact_markdown(impact: Impact, limit: float | None) -> str:
    """For a pull request: the same, with tables that GitHub and GitLab show.

    Names and error texts are those of the deploy that is reviewed: each is escaped (`for_markdown`).
    """
    parts = ["### What this deploy runs again", _headline(impact, "**", for_markdown)]
    for job in impact.jobs:
        if not job.changes and not _rows(job) and not _notes(job):
            continue
        parts.append(f"#### {for_markdown(_title(job))}")
        if _brief(job):
            parts.append(f"{_brief(job)[0].upper()}{_brief(job)[1:]}.")
        if job.changes:
            parts.append(_markdown_table(_CHANGE_COLUMNS, _changes(job)))
        if rows := _rows(job):
            parts.append(_markdown_table(_RUN_COLUMNS, rows))
        parts += [f"- {for_markdown(note)}" for note in _notes(job)]
    unchanged = [_title(job) for job in impact.jobs if not job.changes and not _rows(job) and not _notes(job)]
    if unchanged:
        parts.append(f"Nothing changes for {for_markdown('; '.join(unchanged))}.")
    parts += [f"- {for_markdown(note)}" for note in impact.notes]
    if unanswered := _unanswered(impact):
        parts.append("\n".join(["**Not answered**", "", *(f"- {for_markdown(text)}" for text in unanswered)]))
    if limit is not None:
        is_over, said = limit_text(impact, limit, for_markdown)
        is_held = ":white_check_mark:" if impact.is_complete else ":grey_question:"
        parts.append(f"{':x:' if is_over else is_held} {said}")
    return "\n\n".join(parts)


def limit_text(impact: Impact, limit: float, escaped: Callable[[str], str] = one_line) -> tuple[bool, str]:
    """Whether the limit is exceeded, and what is said of it. Seconds that nobody knows can't be held to one.

    ``escaped`` is called for names.
    """
    if impact.at_most_seconds > limit:
        return True, f"Limit: {_seconds(impact.at_most_seconds)} s of Spark may run again, over {limit:g} s."
    if impact.unmeasured:
        names = escaped(", ".join(_folded(impact.unmeasured)))
        return True, f"Limit: {limit:g} s can't be held, since no run has recorded the seconds of {names}."
    as_far = "" if impact.is_complete else ", as far as it is answered"
    return False, f"Limit: {_seconds(impact.at_most_seconds)} s of Spark may run again, within {limit:g} s{as_far}."


def _headline(impact: Impact, bold: str, escaped: Callable[[str], str]) -> str:
    new, old, span = escaped(impact.new), escaped(impact.old), escaped(impact.span)
    again, possible = impact.regions(Effect.AGAIN), impact.regions(Effect.MAYBE)
    runs = [run for job in impact.jobs for run in job.runs if any(region.effect in _AGAIN for region in run.regions)]
    looked_at = sum(len(job.runs) for job in impact.jobs)
    if not looked_at:
        versions = f"with {new} in place of {old}"
        if _unanswered(impact):
            return f"{bold}Of no run can be told{bold} what would run again {versions} ({span})."
        return f"{bold}No run is recorded{bold} ({span}), so none would run again {versions}."
    said = f"{_counted(len(again), 'region')} of {_counted(len(runs), 'run')} would run again"
    seconds = f"{_seconds(impact.seconds)} s of Spark"
    if possible:
        said += f", and {len(possible)} more may"
        seconds = f"{seconds}, at most {_seconds(impact.at_most_seconds)} s"
    written = sum(region.cost.written or 0 for region in again)
    if not again and not possible:
        said, seconds = "Nothing would run again", ""
    detail = f": {seconds}, {_bytes(written)} written" if seconds else ""
    return (
        f"{bold}{said}{detail}{bold} once {_counted(looked_at, 'recorded run')} ({span}) were cleared or "
        f"backfilled with {new} in place of {old}."
    )


def _title(job: JobImpact) -> str:
    return f"DAG {job.dag_id}, group {job.group_id}" + (f" ({job.job})" if job.job else "")


def _brief(job: JobImpact) -> str:
    if job.why_not or job.changes:
        return ""
    return "" if job.notes and not job.runs else "no vertex has another fingerprint"


def _notes(job: JobImpact) -> list[str]:
    return [*job.notes, *dict.fromkeys(f"run {run.run_key}: {note}" for run in job.runs for note in run.notes)]


def _unanswered(impact: Impact) -> list[str]:
    found = [*impact.failures]
    for job in impact.jobs:
        if job.why_not:
            found.append(f"{_title(job)}: {job.why_not}")
        found += [f"{_title(job)}, run {run.run_key}: {run.why_not}" for run in job.runs if run.why_not]
    return found


def _changes(job: JobImpact) -> list[tuple[str, str, str]]:
    return [
        (f"region {change.name}" if change.is_region else change.name, change.what, "; ".join(change.why))
        for change in job.changes
    ]


def _rows(job: JobImpact) -> list[tuple[str, str, str, str, str]]:
    return [_row(run) for run in job.runs if run.regions]


def _row(run: RunImpact) -> tuple[str, str, str, str, str]:
    counted = [region for region in run.regions if region.effect in _AGAIN]
    said = []
    for effect in Effect:
        names = [region.name for region in run.regions if region.effect is effect]
        if names:
            said.append(f"{_MARK.get(effect, '')}{', '.join(_folded(names))}")
    elsewhere = sorted({region.made_in for region in counted if region.made_in is not None})
    shared = f" (shared, made in {', '.join(elsewhere)})" if elsewhere else ""
    return (
        run.run_key,
        "; ".join(said) + shared,
        _total(counted),
        _sized([region.cost.read for region in counted]),
        _sized([region.cost.written for region in counted]),
    )


def _total(regions: Sequence[RegionImpact]) -> str:
    """``~``: an estimate. ``?``: some are not known."""
    estimate = "~" if any(region.cost.is_estimate for region in regions) else ""
    unknown = " + ?" if any(region.cost.seconds is None for region in regions) else ""
    return f"{estimate}{_seconds(sum(region.cost.seconds or 0 for region in regions))}{unknown}"


def _sized(sizes: Sequence[int | None]) -> str:
    """As `_total` has what is not known."""
    known = [size for size in sizes if size is not None]
    if sizes and not known:
        return "?"
    return f"{_bytes(sum(known))}{'' if len(known) == len(sizes) else ' + ?'}"


def _folded(names: Sequence[str]) -> list[str]:
    """Subtasks of one region as ``by_month[12 subtasks]``."""
    found: dict[str, int] = {}
    for name in names:
        subtask = _SUBTASK.fullmatch(name)
        found[f"{subtask[1]}[]" if subtask else name] = found.get(f"{subtask[1]}[]" if subtask else name, 0) + 1
    return [name if not name.endswith("[]") else f"{name[:-1]}{_counted(n, 'subtask')}]" for name, n in found.items()]


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *([for_markdown(cut(cell)) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _seconds(value: float) -> str:
    return f"{value:,.1f}"


def _bytes(size: float) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
