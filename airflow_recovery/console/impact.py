"""``impact --from OLD [--to NEW]``: what a deploy makes run again, of the runs that there have been, and why."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_recovery.attempt.rebuild import asked_for
from airflow_recovery.console.arguments import name
from airflow_recovery.console.deployment import Deployment, deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.impact_text import impact_markdown, impact_text, limit_text
from airflow_recovery.console.terminal import answer
from airflow_recovery.console.versions import open_version, reports_of
from airflow_recovery.errors import ConfigurationError, NothingRecorded, RecordInvalid
from airflow_recovery.job.vertex_changes import with_lines
from airflow_recovery.journal.folders import folders, readable
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, logical_date_of
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.codec import from_json
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.places import Asker, ResultPlaces
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.story.deploy_impact import (
    Impact,
    JobImpact,
    JobVersion,
    PlannedVersion,
    RunImpact,
    SharedResults,
    changes_since_recorded,
    job_changes,
    run_impact,
    with_estimates,
)
from airflow_recovery.story.run_lookup import all_runs, check_dag, moment_of, worked_s
from airflow_recovery.story.run_view import RunView, view_run

RECORDED = "journal"
"""As ``--from``: the plans that the journals hold."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which versions, which runs, and how it is shown."""
    versions = parser.add_argument_group("versions: a folder, a wheel, or a git revision of the current folder")
    versions.add_argument(
        "--from",
        dest="old",
        metavar="OLD",
        required=True,
        help=f"what is deployed; `{RECORDED}`: the plans in the journals, which tell less of why",
    )
    versions.add_argument("--to", dest="new", metavar="NEW", default=".", help="what is to be deployed; default: .")
    versions.add_argument("--dags", metavar="FOLDER", help="where the DAG files are in each; default: at its top")
    versions.add_argument(
        "--path", action="append", metavar="FOLDER", help="a folder in each that is on Python's path as well"
    )
    runs = parser.add_argument_group("runs: those of the journal")
    runs.add_argument("--dag", action="append", metavar="DAG", type=name, help="of this DAG alone; may be repeated")
    runs.add_argument("--days", type=float, metavar="N", help="of the last N days (default: 7)")
    runs.add_argument("--since", metavar="DATE", help="in place of --days: a backfill's first logical date")
    runs.add_argument("--until", metavar="DATE", help="its last logical date")
    runs.add_argument(
        "--journal-only",
        action="store_true",
        help="ask no store whether results are there: what no record says is gone is taken to be there",
    )
    shown = parser.add_argument_group("output")
    form = shown.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--markdown", action="store_true", help="for a pull request")
    shown.add_argument(
        "--max-seconds",
        type=float,
        metavar="S",
        help=f"exit code {ExitCode.OVER_LIMIT.value} where more seconds of Spark than that may run again",
    )


@dataclass(frozen=True)
class Span:
    """Which runs are looked at. ``dated``: only runs with a logical date can be in it."""

    first: datetime
    last: datetime | None
    dated: bool

    def text(self) -> str:
        """In words."""
        last = f" to {self.last.isoformat()}" if self.last is not None else " on"
        return f"{'logical dates' if self.dated else 'runs'} from {self.first.isoformat()}{last}"

    def may_have(self, key: str) -> bool:
        """Whether the run of that key may be in it: of one without a logical date the listing tells."""
        moment = logical_date_of(key)
        if moment is None:
            return not self.dated
        return self.has(datetime.fromisoformat(moment))

    def has(self, moment: datetime) -> bool:
        """Whether it is in it; both ends are."""
        return self.first <= moment and (self.last is None or moment <= self.last)


@dataclass(frozen=True)
class FoundRun:
    """A run in the span, or why it can't be read."""

    identity: RunIdentity
    view: RunView | None
    why_not: str = ""


def run(args: argparse.Namespace) -> int:
    """The subcommand. Changes nothing, and runs nothing but the import of the two versions."""
    if args.max_seconds is not None and not args.max_seconds >= 0:
        raise ConfigurationError(f"Expected --max-seconds as a number from 0, found {args.max_seconds}.")
    span = _span(args)
    deployment = deployment_of(args)
    notes: list[str] = []
    found = _runs(deployment.journal, args.dag or (), span, notes)
    asked = [_request(each.view) for each in found if each.view is not None]
    with ExitStack() as stack:
        names = [args.new] if args.old == RECORDED else [args.new, args.old]
        versions = [stack.enter_context(open_version(each, args.dags, args.path or ())) for each in names]
        reports = reports_of(versions, asked)
    if args.old == RECORDED:
        reports.append({"failures": [], "jobs": [], "plans": [None for _ in asked]})
    new, old = reports
    if new.get("code_version"):
        notes.append(
            f"[recovery] code_version = bundle: each task runs again after a deploy of another version of its bundle. "
            f"{args.new} is taken as version {new['code_version']}."
        )
    jobs = _jobs(args, deployment, found, old, new, notes)
    failures = [
        f"{label}, {failure['where']}: {failure['message']}"
        for label, report in ((args.old, old), (args.new, new))
        for failure in report["failures"]
    ]
    known = {*(job.dag_id for job in jobs), *(each.identity.dag_id for each in found)}
    unknown = [dag for dag in args.dag or () if dag not in known]
    if unknown:
        unread = f" What can't be imported: {'; '.join(failures)}" if failures else ""
        raise NothingRecorded(f"Neither {args.old} nor {args.new} nor the journal has a DAG {unknown[0]!r}.{unread}")
    impact = Impact(args.old, args.new, span.text(), tuple(jobs), tuple(failures), tuple(notes))
    text = (impact_markdown if args.markdown else impact_text)(impact, args.max_seconds)
    answer(args, _document(impact, args.max_seconds), text)
    if args.max_seconds is not None and limit_text(impact, args.max_seconds)[0]:
        return ExitCode.OVER_LIMIT
    return ExitCode.DONE if impact.is_complete else ExitCode.INCOMPLETE


def _span(args: argparse.Namespace) -> Span:
    if args.since is None:
        if args.until is not None:
            raise ConfigurationError("Expected --until with --since, found it alone: name the first date too.")
        days = 7.0 if args.days is None else args.days
        if not 0 < days < 36500:
            raise ConfigurationError(f"Expected --days as a number above 0, found {days:g}.")
        return Span(datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=days), None, dated=False)
    if args.days is not None:
        raise ConfigurationError("Expected --days or --since, found both: say one of them.")
    first = _moment("--since", args.since)
    last = None if args.until is None else _moment("--until", args.until, is_end=True)
    if last is not None and last < first:
        raise ConfigurationError(f"Expected --until as a date from --since on, found {args.until} before {args.since}.")
    return Span(first, last, dated=True)


def _moment(option: str, text: str, *, is_end: bool = False) -> datetime:
    moment = moment_of(text)
    if moment is None:
        raise ConfigurationError(f"Expected {option} as a date such as 2026-01-31, found {text!r}.")
    if is_end and len(text) == len("2026-01-31"):
        moment += timedelta(days=1, microseconds=-1)
    return moment


def _runs(store: ObjectStore, dags: Sequence[str], span: Span, notes: list[str]) -> list[FoundRun]:
    known = [readable(folder) for folder in folders(store, most=1_000_000) if not folder.startswith("_")]
    found: list[FoundRun] = []
    for dag in dags or known:
        if dag not in known:
            notes.append(f"The journal has no run of DAG {dag}.")
            continue
        try:
            check_dag(store, dag)
            identities = all_runs(store, dag, wanted_key=span.may_have)
        except NothingRecorded:
            if dags:
                notes.append(f"The journal has no run of DAG {dag} in that time.")
            continue
        for identity in identities:
            listed = list(store.list(JournalLayout(identity).prefix))
            if logical_date_of(identity.run_key) is None and not _is_touched(listed, span):
                continue
            found.append(_found(store, identity, listed))
    if not known:
        notes.append(f"The journal {store.base_uri} is empty: no run has claimed an attempt yet.")
    elif not found and not dags:
        notes.append(f"The journal {store.base_uri} has no run in that time, of any DAG: {', '.join(known[:5])}.")
    return found


def _is_touched(listed: Sequence[ObjectInfo], span: Span) -> bool:
    moment_s = worked_s(listed)
    if moment_s is None:  # of a purged run a tombstone is left
        moment_s = max((info.modified_s for info in listed if info.modified_s is not None), default=None)
    return moment_s is None or span.has(datetime.fromtimestamp(moment_s, timezone.utc))


def _found(store: ObjectStore, identity: RunIdentity, listed: list[ObjectInfo]) -> FoundRun:
    try:
        return FoundRun(identity, view_run(Journal(store, identity, writer="reader"), listed))
    except NothingRecorded:
        return FoundRun(identity, None)
    except RecordInvalid as error:
        return FoundRun(identity, None, str(error))


def _request(view: RunView) -> dict[str, Any]:
    """What a version is asked of a run: its plan, by the subtasks that the run has recorded."""
    current = {name: state.current for name, state in view.in_use.state.regions.items()}
    keys = {
        name: list(attempt.outcome.subtasks)
        for name, attempt in current.items()
        if attempt is not None and attempt.outcome is not None and attempt.outcome.subtasks
    }
    return {**asdict(view.journal.identity), "job": view.in_use.plan.job, "keys": keys}


def _jobs(
    args: argparse.Namespace, deployment: Deployment, found: Sequence[FoundRun], old: Any, new: Any, notes: list[str]
) -> list[JobImpact]:
    old_jobs, new_jobs = ({(job["dag_id"], job["group_id"]): job for job in each["jobs"]} for each in (old, new))
    runs: dict[tuple[str, str], list[tuple[FoundRun, Any, Any]]] = {}
    plans = iter(zip(old["plans"], new["plans"], strict=True))
    for each in found:
        planned = next(plans) if each.view is not None else (None, None)
        runs.setdefault((each.identity.dag_id, each.identity.group_id), []).append((each, *planned))
    defined = new_jobs.keys() | old_jobs.keys()
    empty = [each.identity.dag_id for key in runs.keys() - defined for each, *_ in runs[key] if not each.why_not]
    if empty:
        notes.append(
            f"{len(empty)} runs of {', '.join(sorted(set(empty))[:5])} hold no plan: they were purged, or "
            f"{deployment.journal.base_uri} is not where journals begin."
        )
    unread = {key for key, of_job in runs.items() if any(each.why_not for each, *_ in of_job)}
    keys = {key for key in defined | unread if not args.dag or key[0] in args.dag}
    evaluations = _evaluations(deployment, args)
    is_whole = (args.old == RECORDED or not old["failures"], not new["failures"])
    return [
        _job(key, args, old_jobs.get(key), new_jobs.get(key), is_whole, runs.get(key, []), evaluations)
        for key in sorted(keys)
    ]


Evaluations = Callable[[RunView], Callable[[PlanRecord, RunState], Evaluation]]


def _evaluations(deployment: Deployment, args: argparse.Namespace) -> Evaluations:
    def of_run(view: RunView) -> Callable[[PlanRecord, RunState], Evaluation]:
        base, identity = deployment.results.base_uri, view.journal.identity
        places = ResultPlaces.of(base, identity, Asker.PERSON, view.in_use.recorded, deployment.may_open)
        prober = ResultProber(deployment.open_location, places=places)

        def evaluate(plan: PlanRecord, state: RunState) -> Evaluation:
            if args.journal_only:
                return Evaluation(plan, state, available=lambda region, attempt, result: None)
            evaluation = Evaluation(plan, state, available=prober)
            prober.look_ahead(asked_for(evaluation))
            return evaluation

        return evaluate

    return of_run


def _job(
    key: tuple[str, str],
    args: argparse.Namespace,
    old: Any,
    new: Any,
    is_whole: tuple[bool, bool],
    runs: Sequence[tuple[FoundRun, Any, Any]],
    evaluations: Evaluations,
) -> JobImpact:
    """``is_whole``: whether every file of the old and of the new version could be imported."""
    ref = next((each["job"] for each in (new, old) if each is not None), "")
    unread = tuple(RunImpact(each.identity.run_key, why_not=each.why_not) for each, *_ in runs if each.why_not)
    if new is None or not new["is_defined"]:
        if not is_whole[1]:
            return JobImpact(*key, ref, why_not=_not_defined(args.new), runs=unread)
        return JobImpact(*key, ref, notes=("removed: nothing of it runs again",), runs=unread)
    if new["why_not"]:
        return JobImpact(*key, ref, why_not=new["why_not"], runs=unread)
    notes: list[str] = []
    before = None
    if old is not None and old["is_defined"] and not old["why_not"]:
        before = _version(old)
    elif args.old != RECORDED:
        said = _no_old_version(args.old, old, is_whole=is_whole[0])
        notes.append(f"{said}: compared with the plans in the journal" if runs else said)
    after, shared = _version(new), SharedResults()
    answers: list[RunImpact] = []
    newest: tuple[PlanRecord, PlannedVersion] | None = None
    for each, old_plan, new_plan in runs:
        if each.view is None:
            if not each.why_not:
                notes.append(f"run {each.identity.run_key} holds no plan: it was purged, or nothing has begun")
            continue
        why_not = new_plan["why_not"] or (old_plan["why_not"] if before is not None else "")
        if why_not:
            answers.append(RunImpact(each.identity.run_key, why_not=why_not))
            continue
        plan = from_json(PlanRecord, new_plan["plan"])
        planned = PlannedVersion(after, plan, new_plan["rendered"], new_plan["not_rendered"])
        earlier = None if before is None else PlannedVersion(before, from_json(PlanRecord, old_plan["plan"]))
        newest = (each.view.in_use.plan, planned)
        answers.append(_run_answer(each.view, earlier, planned, evaluations, shared))
    if before is not None:
        changes = job_changes(before, after)
    else:
        changes = changes_since_recorded(*newest) if newest is not None else ()
    if not any(each.view is not None and _has_finished(each.view) for each, *_ in runs):
        notes.append("no finished run of it in that time: what it would cost can't be told")
    return JobImpact(*key, ref, changes, (*with_estimates(answers), *unread), tuple(notes))


def _run_answer(
    view: RunView, old: PlannedVersion | None, new: PlannedVersion, evaluations: Evaluations, shared: SharedResults
) -> RunImpact:
    try:
        return run_impact(view, old, new, evaluations(view), shared)
    except RecordInvalid as error:  # one run that can't be read, or lies elsewhere, is not the others
        return RunImpact(view.journal.identity.run_key, why_not=str(error))


def _no_old_version(name: str, old: Any, *, is_whole: bool) -> str:
    if old is not None and old["is_defined"]:
        return f"{name} is not told of ({old['why_not']})"
    return f"added: {name} does not define it" if is_whole else _not_defined(name)


def _not_defined(version: str) -> str:
    return f"no DAG file of {version} that can be imported defines it"


def _has_finished(view: RunView) -> bool:
    return any(
        attempt.is_finished for state in view.in_use.state.regions.values() for attempt in state.attempts.values()
    )


def _version(job: Any) -> JobVersion:
    regions = {region: (tuple(vertices), tuple(results)) for region, vertices, results in job["regions"]}
    lines = job.get("lines", {})
    return JobVersion({name: with_lines(each, lines) for name, each in job["vertices"].items()}, regions)


def _document(impact: Impact, limit: float | None) -> dict[str, Any]:
    """What ``--json`` prints."""
    is_over, said = (False, None) if limit is None else limit_text(impact, limit)
    return {
        **asdict(impact),
        "seconds": impact.seconds,
        "at_most_seconds": impact.at_most_seconds,
        "unmeasured": impact.unmeasured,
        "is_complete": impact.is_complete,
        "limit": None if limit is None else {"max_seconds": limit, "is_over": is_over, "said": said},
    }
