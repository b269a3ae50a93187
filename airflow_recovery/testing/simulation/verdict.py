"""What must hold when every task is green, and after a last round without any trouble. Raises `Violation`."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.journal.replay import differences
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.testing.simulation.dag_run import PUBLISH
from airflow_recovery.testing.simulation.jobs import SimulatedJob, rows
from airflow_recovery.testing.simulation.settings import PURGES, Trouble, Violation
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.sinks import check_sinks


def check_green(run: SimulatedRun) -> None:
    """What stands, or what the tasks have reported, is one cut, and every restart that was acknowledged is done."""
    ledger = run.world.ledger
    check_sinks(run)
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
    """What stands is one cut, there, right, and published, and has the rows of an undisturbed run."""
    current = run.world.ledger.current()
    check_cut(run, current)
    if has_same_rows(run):
        _check_undisturbed(run.world.job, run.world.ledger.wrote, current)


def check_cut(run: SimulatedRun, current: Mapping[str, int]) -> None:
    """What stands is one cut, there, right, and published. ``current``: the attempts that count."""
    ledger, job = run.world.ledger, run.world.job

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


def has_same_rows(run: SimulatedRun) -> bool:
    """Whether the rows must be those of a run without a history.

    Under `assume` a consumer keeps even what it has made of older code or input.
    """
    job = run.world.job
    is_assumed = any(mode is Determinism.ASSUME for region in job.plan.regions for _, mode in region.determinism)
    return not job.unstable and not (is_assumed and (run.is_redeployed or run.is_relisted))


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
