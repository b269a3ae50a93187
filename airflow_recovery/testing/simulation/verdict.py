"""What must hold when every task is green, and after a last round without any trouble. Raises `Violation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_recovery.journal.replay import differences
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.testing.simulation.dag_run import PUBLISH
from airflow_recovery.testing.simulation.fresh_run import fresh_run
from airflow_recovery.testing.simulation.jobs import SimulatedJob, code_of, rows
from airflow_recovery.testing.simulation.settings import PURGES, Trouble, Violation
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.sinks import check_sinks, check_table


def check_green(run: SimulatedRun) -> None:
    """What stands, or what the tasks have reported, is one cut, and every restart that was acknowledged is done."""
    ledger = run.world.ledger
    check_sinks(run)
    check_table(run)
    for region, most in run.settings.max_attempts.items():
        is_shared = run.world.job.regions[region].persistent
        claimed = run.world.built(region) if is_shared else ledger.regions[region].latest_attempt
        if claimed > most:
            raise Violation(f"waste: {region} was claimed {claimed} times")
    if run.settings.is_patient and run.world.cluster.hasty:
        raise Violation(f"waste: an application beside a driver that lives: {run.world.cluster.hasty[0]}")
    if run.unseen_marks:
        return  # nobody has looked since a person said so
    if any(0 < run.served[name] <= region.floor for name, region in ledger.regions.items()):
        return  # purged since it was reported, by a sweeper that has died before anybody made the run again
    # A task that a person has called a success may have made nothing. What rests on its result names an attempt of it.
    current, served = (
        {name: n for name, n in cut.items() if n or name not in run.called_success}
        for cut in (ledger.current(), run.served)
    )
    bad = ledger.why_incoherent(current, run.promised)
    # After green a late zombie may still finish: the results rest on what was reported, and the next pre-check sees it.
    if bad and ledger.why_incoherent(served, run.promised):
        raise Violation(f"I13: false green: {bad}; current {current}, reported {served}")


def check_declared(run: SimulatedRun, task: str) -> None:
    """What a try has just succeeded with was made by the code that the DAG's file declares, and so was all above it.

    Not what each worker, or each reading of the file, finds otherwise: only its own task can judge that.
    """
    ledger, job = run.world.ledger, run.world.job
    if task == PUBLISH:
        number = max(ledger.publishes)
        waiting = [(name, ledger.publishes[number][name]) for name in ledger.handed_out[number]]
    else:
        waiting = [(task, run.served[task])]
    seen: set[tuple[str, int]] = set()
    while waiting:
        name, n = waiting.pop()
        if (name, n) in seen or n <= ledger.regions[name].floor:
            continue
        seen.add((name, n))
        finish = ledger.regions[name].finish(n)
        waiting += [(ref["region"], ref["attempt"]) for ref in finish["inputs"]]
        made_by, declared = code_of(finish["fingerprint"]), code_of(job.regions[name].fingerprint)
        if made_by != declared and name not in job.uneven | job.unsteady | run.unasked:
            raise Violation(
                f"against the rule: {task} succeeds with {name}@{n} of {made_by!r}, and the DAG declares {declared!r}"
            )


def _holds(run: SimulatedRun, region: str, attempt: int) -> bool:
    """Its result is there: in its sink, else as its files."""
    ledger = run.world.ledger
    return attempt in ledger.regions[region].committed or ledger.is_there(region, attempt)


def check_history(run: SimulatedRun) -> None:
    """Whoever replays the events comes to the state that is folded from the journal (I11)."""
    unlike = differences(run.world.state(), run.world.history.state())
    if unlike:
        raise Violation(f"I11: the history is not the journal's: {'; '.join(unlike)}")


def check_end(run: SimulatedRun) -> None:
    """What stands is one cut, there, right, and published."""
    ledger, job = run.world.ledger, run.world.job
    current = ledger.current()
    if job.is_decided:
        _check_fresh(run, current)
        current = {name: n for name, n in current.items() if run.world.airflow.state(name) == "success"}

    def may_write(region: str, result: str, fingerprint: str, read: list[str]) -> set[str]:
        draws = (0, 1) if region in job.unstable else (0,)
        return {rows(region, result, fingerprint, read + job.lines_of(region), draw) for draw in draws}

    bad = ledger.why_incoherent(current, run.promised) or ledger.why_wrong_rows(current, may_write)
    if bad:
        raise Violation(f"I13: {bad}; current {current}")
    for name in (ledger.splits.regions | job.reading) & current.keys():
        read = sorted(external["uri"] for external in ledger.regions[name].finish(current[name])["externals"])
        if read != sorted(external.uri for external in job.externals_of(name)):
            raise Violation(f"I13: {name}@{current[name]} has read {read}, which is not what there is")
    _check_unseen_code(run, current)
    _check_tables(run, current)
    _check_event_files(run)
    has_published = run.settings.publishes and run.world.airflow.state(PUBLISH) == "success"
    published = ledger.publishes[max(ledger.publishes)] if has_published else current
    for name in job.finals:
        if name not in current:
            continue  # this run has none, and may not
        if published[name] != current[name]:
            raise Violation(f"I13: {name}@{published[name]} is published, and {name}@{current[name]} is current")
        if not _holds(run, name, current[name]):
            raise Violation(f"I4: {name}@{current[name]} is green, and its data is not there")
    if _must_have_the_same_rows(run) and not job.is_decided:
        _check_undisturbed(job, run.world.ledger.wrote, current)


def _must_have_the_same_rows(run: SimulatedRun) -> bool:
    """As a run without a history. Under `assume` a consumer keeps even what it has made of older code or input."""
    job = run.world.job
    is_assumed = any(mode is Determinism.ASSUME for region in job.plan.regions for _, mode in region.determinism)
    return not job.unstable and not (is_assumed and (run.is_redeployed or run.is_relisted or job.is_decided))


def _check_fresh(run: SimulatedRun, current: Mapping[str, int]) -> None:
    """Compare how the run ended, and what its newest publish hands out, with a run without a history."""
    ledger, job, airflow = run.world.ledger, run.world.main.today, run.world.airflow
    fresh = fresh_run(job, run.followed, run.marked)
    states = {name: airflow.state(name) for name in job.regions}
    _check_intervals(run)
    is_held_up = not run.world.main.in_run.by_timetable and "failed" in states.values()
    if not fresh.is_certain or is_held_up:
        # A task that its rule starts early may have used up its retries before its inputs had ended. A task of a run
        # that was triggered stops rather than replace what another interval has made.
        failed = {name: state for name, state in states.items() if state == "failed"}
        fresh = fresh_run(job, run.followed, {**run.marked, **failed}, states)
    for name, state in states.items():
        if state == "success" and fresh.states[name] != state:
            raise Violation(
                f"against the rule: {name}@{current[name]} is green, and {fresh.states[name]} in a fresh run"
            )
    if run.settings.publishes and airflow.state(PUBLISH) == "success":
        number = max(ledger.publishes)
        for name in sorted(ledger.handed_out[number]):
            if states[name] != "success":
                named = f"{name}@{ledger.publishes[number][name]}"
                raise Violation(f"against the rule: publish {number} names {named}, and {name} is {states[name]}")
    if _must_have_the_same_rows(run):
        for name, variants in fresh.made.items():
            made = tuple(ledger.wrote.get((name, current[name], result)) for result in job.regions[name].results)
            if states[name] == "success" and made not in variants:
                raise Violation(f"against the rule: {name}@{current[name]} has other rows than in a fresh run")
    if fresh.is_certain and not is_held_up and states != {name: fresh.states[name] for name in states}:
        raise Violation(f"against the rule: the run ends as {states}, and a fresh run as {dict(fresh.states)}")


def _check_intervals(run: SimulatedRun) -> None:
    """A run that was triggered has replaced nothing that another interval had made, if all else is equal."""
    for name, region in run.world.ledger.regions.items():
        last, before = 0, dict[str, Any]()
        for n in sorted(filter(region.has_finished, region.outcomes)):
            now: dict[str, Any] = region.finish(n).get("dag_run") or {}
            is_triggered = now.get("run_id", "").startswith("manual")
            if is_triggered and before and last > max(region.resets, default=0):
                same = all(now.get(part) == before.get(part) for part in ("params", "logical_date"))
                if same and now["data_interval_start"] != before["data_interval_start"]:
                    raise Violation(f"against the rule: {name}@{n} of a triggered run replaces another interval's")
            last, before = n, now


def _check_unseen_code(run: SimulatedRun, current: Mapping[str, int]) -> None:
    """Each deploy is followed by a person's clear, after which code that can't be seen has run."""
    job, ran = run.world.job, run.world.cluster.unseen_versions
    if Trouble.DATABASE in run.settings.troubles:
        return  # with the database the clear is forgotten
    for name in job.unseen & current.keys():
        version = ran.get((run.world.layout.prefix, name, current[name]))
        if version is not None and version != job.unseen_versions.get(name, 0):
            raise Violation(f"unseen code: {name}@{current[name]} was made by version {version}, and is kept")


def _check_tables(run: SimulatedRun, current: Mapping[str, int]) -> None:
    if run.world.tables is not None:
        for region in run.world.job.plan.regions:
            for result in run.world.job.tables.keys() & set(region.results):
                maker = run.world.layout.prefix, region.name, current[region.name]
                bad = run.world.tables.why_not_held(*maker, run.world.job.tables[result])
                if bad is not None:
                    raise Violation(bad)


def _check_event_files(run: SimulatedRun) -> None:
    # A purge takes old streams away.
    if run.world.event_files is not None and not PURGES & run.settings.troubles.keys():
        bad = run.world.event_files.why_wrong(run.world.journal_store)
        if bad is not None:
            raise Violation(bad)


def _check_undisturbed(
    job: SimulatedJob, wrote: Mapping[tuple[str, int, str], str], current: Mapping[str, int]
) -> None:
    undisturbed = job.undisturbed()
    for name in job.finals:
        for result in job.regions[name].results:
            if wrote[name, current[name], result] != undisturbed[name, result]:
                raise Violation(f"I13: {result} of {name} is not what an undisturbed run writes")
