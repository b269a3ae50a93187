"""Which results of a DAG's jobs to write and which not, by what past runs cost and lost. Changes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from airflow_recovery.advice.advising import Advice, Assumed, advise
from airflow_recovery.advice.history import history_of
from airflow_recovery.errors import ConfigurationError, RecoveryError
from airflow_recovery.model.retention import parse_duration_s
from airflow_recovery.planning.plan_text import table
from airflow_recovery.story.asked import AskedDag
from airflow_recovery.story.past_runs import RUNS, past_runs
from airflow_recovery.story.question import Given


@dataclass(frozen=True)
class AdviceAnswer(Advice):
    """The advice for the runs of one DAG and group. ``notes`` also names the runs that can't be read."""

    dag_id: str
    group_id: str
    first_line: str

    def text(self) -> str:
        """The advice for people."""
        kinds = ", ".join(f"{kind} {count:g}" for kind, count in sorted(self.kinds.items())) or "none"
        rate = "not known" if self.mtbf_s is None else f"one in {self.mtbf_s:,.0f} s of work"
        lines = [
            f"DAG {self.dag_id}, group {self.group_id}, {self.job}",
            self.first_line,
            f"From {self.runs} runs, {self.finishes} attempts, {self.failures:g} failures ({kinds}); rate: {rate}"
            f"{', as given' if self.is_given else ''}; {self.region_s:.1f} s a region beyond its work. "
            f"Search: {self.how}.",
        ]
        if self.changes:
            lines.append("")
            rows = [
                (
                    change.what,
                    change.of,
                    f"{change.before.run_s:,.0f} + {change.before.recovery_s:,.0f}",
                    f"{change.after.run_s:,.0f} + {change.after.recovery_s:,.0f}",
                    f"{change.why}; {change.how_sure}",
                )
                for change in self.changes
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
            for each in self.boundaries
        ]
        lines.append(
            table(("result", "now", "advised", "MB moved", "cut costs s", "cut saves s", "readers", ""), boundaries)
        )
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines)


def advice_of_dag(
    dag: AskedDag,
    runs: Annotated[int, Given(f"the newest N runs; default: {RUNS}", "N")] = RUNS,
    mtbf: Annotated[
        str | None, Given("mean time between failures of the work, such as 12h; in place of history", "TIME")
    ] = None,
    job: Annotated[
        str | None,
        Given("package.module:name of the job: what each vertex reads is taken from its code", "REF"),
    ] = None,
    mb_per_s: Annotated[float, Given("to write and to read results; default: 100", "N")] = 100.0,
) -> AdviceAnswer:
    """Read the journals of the newest runs; of the data only what they say of it. Raises as `past_runs`."""
    if runs < 1:
        raise ConfigurationError(f"Expected --runs of 1 or more, found {runs}.")
    if not 0 < mb_per_s < math.inf:
        raise ConfigurationError(f"Expected --mb-per-s as a number above 0, found {mb_per_s:g}.")
    mtbf_s = None if mtbf is None else parse_duration_s(mtbf)
    if mtbf_s == 0:
        raise ConfigurationError(f"Expected --mtbf of 1s or more, found {mtbf}.")
    inputs = None if job is None else _inputs_of(job)
    past = past_runs(dag.journal, dag.dag_id, dag.group_id, runs, read=dag.read)
    advice = advise(history_of(past.runs, inputs), Assumed(mtbf_s, mb_per_s * 1e6))
    found = {**vars(advice), "notes": (*past.notes, *advice.notes)}
    return AdviceAnswer(**found, dag_id=dag.dag_id, group_id=past.group_id, first_line=advice.in_one_line())


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
