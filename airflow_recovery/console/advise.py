"""``advise DAG``: which results to write and which not, by what past runs cost and lost. Changes nothing."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict

from airflow_recovery.advice.advising import Advice, Assumed, advise
from airflow_recovery.advice.history import history_of
from airflow_recovery.console.arguments import name
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.errors import ConfigurationError, RecoveryError
from airflow_recovery.model.retention import parse_duration_s
from airflow_recovery.planning.plan_text import table
from airflow_recovery.story.past_runs import RUNS, past_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare whose runs are read, and what is said in place of them."""
    parser.add_argument("dag", metavar="DAG", type=name, help="DAG id")
    parser.add_argument("--group", metavar="G", type=name, help="task group; needed only where runs have several")
    parser.add_argument("--runs", metavar="N", type=int, default=RUNS, help=f"the newest N runs; default: {RUNS}")
    parser.add_argument(
        "--mtbf", metavar="TIME", help="mean time between failures of the work, such as 12h; in place of history"
    )
    parser.add_argument(
        "--job", metavar="REF", help="package.module:name of the job: what each vertex reads is taken from its code"
    )
    parser.add_argument(
        "--mb-per-s", metavar="N", type=float, default=100.0, help="to write and to read results; default: 100"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Reads journals; of the data only what they say of it."""
    if args.runs < 1:
        raise ConfigurationError(f"Expected --runs of 1 or more, found {args.runs}.")
    if not 0 < args.mb_per_s < math.inf:
        raise ConfigurationError(f"Expected --mb-per-s as a number above 0, found {args.mb_per_s:g}.")
    mtbf_s = None if args.mtbf is None else parse_duration_s(args.mtbf)
    if mtbf_s == 0:
        raise ConfigurationError(f"Expected --mtbf of 1s or more, found {args.mtbf}.")
    inputs = None if args.job is None else _inputs_of(args.job)
    past = past_runs(deployment_of(args).journal, args.dag, args.group, args.runs)
    advice = advise(history_of(past.runs, inputs), Assumed(mtbf_s, args.mb_per_s * 1e6))
    if args.json:
        document = {"dag_id": args.dag, "group_id": past.group_id, "first_line": advice.first_line()}
        output(json.dumps({**document, **asdict(advice), "notes": [*past.notes, *advice.notes]}, indent=1))
    else:
        output(advice_text(args.dag, past.group_id, advice, past.notes))
    return ExitCode.DONE


def _inputs_of(reference: str) -> dict[str, tuple[str, ...]]:
    """What each vertex of the job reads. Raises `ConfigurationError` where its module does not import."""
    from airflow_recovery.job.loading import load_job

    try:
        return {vertex.name: vertex.inputs for vertex in load_job(reference).graph().vertices}
    except RecoveryError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"Expected --job {reference} to be a job that can be imported here, found {type(error).__name__}: {error}. "
            "Mend it, or leave --job out: then the plans of past runs say what vertices read, as far as they can."
        ) from error


def advice_text(dag_id: str, group_id: str, advice: Advice, notes: list[str]) -> str:
    """The advice for people."""
    kinds = ", ".join(f"{kind} {count:g}" for kind, count in sorted(advice.kinds.items())) or "none"
    rate = "not known" if advice.mtbf_s is None else f"one in {advice.mtbf_s:,.0f} s of work"
    lines = [
        f"DAG {dag_id}, group {group_id}, {advice.job}",
        advice.first_line(),
        f"From {advice.runs} runs, {advice.finishes} attempts, {advice.failures:g} failures ({kinds}); rate: {rate}"
        f"{', as given' if advice.is_given else ''}; {advice.region_s:.1f} s a region beyond its work. "
        f"Search: {advice.how}.",
    ]
    if advice.changes:
        lines.append("")
        rows = [
            (
                change.what,
                change.of,
                f"{change.before.run_s:,.0f} + {change.before.recovery_s:,.0f}",
                f"{change.after.run_s:,.0f} + {change.after.recovery_s:,.0f}",
                f"{change.why}; {change.how_sure}",
            )
            for change in advice.changes
        ]
        lines.append(table(("do", "to", "without: run + recovery s", "with", "why"), rows))
    lines.append("")
    boundaries = [
        (
            each.result,
            "cut" if each.is_cut else "glued",
            "cut" if each.advised else "glued",
            f"{'<=' if each.is_guessed else ''}{each.moved_bytes / 1e6:,.1f}",
            f"{each.costs_s:,.1f}",
            f"{each.saves_s:,.1f}",
            str(len(each.readers)),
            f"fixed: {each.fixed}" if each.fixed else "",
        )
        for each in advice.boundaries
    ]
    lines.append(
        table(("result", "now", "advised", "MB moved", "cut costs s", "cut saves s", "readers", ""), boundaries)
    )
    lines += [f"- {note}" for note in (*notes, *advice.notes)]
    return "\n".join(lines)
