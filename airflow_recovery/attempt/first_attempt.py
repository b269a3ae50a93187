"""The fast path of the pre-check: where nothing has ever failed, only the outcomes of the inputs are fetched."""

from __future__ import annotations

from collections.abc import Container

from airflow_recovery.attempt.declarations import is_as_declared
from airflow_recovery.attempt.run import Run, is_untouched
from airflow_recovery.errors import PagesDisagree
from airflow_recovery.journal.journal import Listing
from airflow_recovery.model.records import Outcome


def first_attempt_inputs(
    run: Run, region: str, listing: Listing, absent: Container[str] = ()
) -> dict[str, Outcome] | None:
    """What the first attempt of ``region`` reads, but for ``absent`` inputs; `None`: evaluate the whole state.

    One plan, attempts 1 only and no marker: all finished regions are valid.
    """
    state = listing.state
    if state.of(region).attempts:
        return None
    wanted = [name for name in run.regions[region].inputs if name not in absent]
    if not wanted:
        is_first = not state.is_closed and state.plans <= {run.plan_hash}
        return {} if is_first else None
    if not is_untouched(state, run.plan_hash):
        return None
    try:
        loaded = run.journal.load(listing, wanted)
    except PagesDisagree:
        return None
    asked = [question for question in run.results_read(region, loaded) if question.region not in absent]
    run.available.look_ahead(asked)
    inputs: dict[str, Outcome] = {}
    for producer in wanted:
        attempt = loaded.of(producer).current
        if attempt is None or attempt.outcome is None:
            return None
        today = run.regions[producer].fingerprint
        if today is not None and attempt.outcome.fingerprint != today:
            return None
        if not is_as_declared(run, producer, attempt.outcome):
            return None
        inputs[producer] = attempt.outcome
    is_there = all(run.available(*question) is None for question in asked)
    return inputs if is_there else None
