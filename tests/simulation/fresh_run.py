"""The rule as an oracle: what a run that has no history makes of the same code, inputs, branches and skips.

Nothing here reads a journal, and nothing of the product's decisions is shared: a task comes to what Airflow's trigger
rules, the declared inputs and the code say. So a task of a run with a history may be green only if it is here, and
its rows are then among these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from airflow_recovery.testing.fake_airflow import ALL_SUCCESS, BLOCKING, EARLY_RULES, RUNS, by_trigger_rule
from airflow_recovery.testing.simulation.jobs import rows
from simulation.dag_job import DagJob, xcom_of

Made = Mapping[str, frozenset[tuple[str, ...]]]
"""What each region may have made: the rows of its results, in their order. More than one only if it reads what may be
there or not, as the trigger rule decides when its task starts."""


@dataclass(frozen=True)
class FreshRun:
    """A run without a history: the ``states`` of its tasks in the end, and what those that succeed have ``made``.

    ``is_certain``: the states do not depend on which task ends first. Otherwise a task may also end as not successful.
    """

    states: Mapping[str, str]
    made: Made
    is_certain: bool


def fresh_run(
    job: DagJob,
    followed: Mapping[str, frozenset[str]],
    by_hand: Mapping[str, str] | None = None,
    ended: Mapping[str, str | None] | None = None,
) -> FreshRun:
    """The run of ``job`` in which each branch follows what ``followed`` says of it.

    ``by_hand``: tasks that a person has marked ``failed`` or ``skipped`` before they start.
    ``ended``: the states in which a run has ended. There a failure or a skip above a task has come first.
    """
    marks = by_hand or {}
    states: dict[str, str] = {branch: marks.get(branch, "success") for branch in job.branches}
    made: dict[str, frozenset[tuple[str, ...]]] = {}
    is_certain = not EARLY_RULES & set(job.rules.values())
    for name, region in job.regions.items():
        branches = [branch for branch, below in job.branches.items() if name in below]
        above = [states[task] for task in (*branches, *region.inputs)]
        rule = job.rules.get(name, ALL_SUCCESS)
        found = by_trigger_rule(rule, above)
        is_left = any(states[branch] == "success" and name not in followed[branch] for branch in branches)
        # The scheduler takes what ends first.
        has_both = rule == ALL_SUCCESS and "skipped" in above and BLOCKING & set(above)
        is_open = has_both or (is_left and found == "upstream_failed")
        is_certain &= not is_open
        if name in marks:
            states[name] = marks[name]
        elif is_open and ended is not None and ended.get(name) in {"skipped", "upstream_failed"}:
            states[name] = ended[name] or ""
        elif is_left:
            states[name] = "skipped"
        elif found == RUNS:
            states[name], made[name] = one_try(job, name, states, made)
        else:
            assert found is not None, f"{name} waits for tasks that have ended: {above}"
            states[name] = found
        if states[name] != "success":
            made.pop(name, None)
    return FreshRun(states, made, is_certain)


def one_try(
    job: DagJob, region: str, states: Mapping[str, str | None], made: Made
) -> tuple[str, frozenset[tuple[str, ...]]]:
    """How a try of ``region`` ends that starts now, and what it may have made if it is a ``success``.

    ``states`` are those of its inputs' tasks in this run, ``made`` what those that are a success have made.

    An input counts only if its task is a success in this run. If one does not, and may not be absent, the task is
    skipped if its inputs were skipped, and else fails.
    """
    planned = job.regions[region]
    optional = job.optional.get(region, ())
    missing = {states[name] for name in planned.inputs if states[name] != "success" and name not in optional}
    if missing:
        return "skipped" if missing == {"skipped"} else "failed", frozenset()
    ends_as = job.ends_as(region, planned.fingerprint)
    if ends_as is not None:
        return ends_as, frozenset()
    may_be_early = job.rules.get(region) in EARLY_RULES
    # What each input may have made; `None`: it is absent.
    choices: list[list[tuple[str, ...] | None]] = []
    for name in planned.inputs:
        variants: list[tuple[str, ...] | None] = [None]
        if states[name] == "success":
            variants = [*sorted(made[name]), *(variants if may_be_early and name in optional else [])]
        choices.append(variants)
    lines = job.lines_of(region)
    found = set()
    for chosen in product(*choices):
        of_inputs = dict(zip(planned.inputs, chosen, strict=True))
        read = [row for name, variant in of_inputs.items() if variant for row in _read(job, name, region, variant)]
        xcoms = {name: xcom_of(variant) for name, variant in of_inputs.items()}
        fingerprint = job.rendered(region, planned.fingerprint, xcoms)
        found.add(tuple(rows(region, result, fingerprint, [*read, *lines]) for result in planned.results))
    return "success", frozenset(found)


def _read(job: DagJob, producer: str, reader: str, made: tuple[str, ...]) -> list[str]:
    """Those of the rows that ``producer`` has made which ``reader`` reads."""
    place = {result: at for at, result in enumerate(job.regions[producer].results)}
    return [made[place[result]] for result in job.read_of(producer, reader)]
