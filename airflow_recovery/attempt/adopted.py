"""After ``adopt``: what a task has committed under its old name is its own finish (docs/protocol.md#owners).

The target then holds, under the new name, a token that the journal of the new name does not have. The finish with that
token lies in the journal under the old name. It is copied, and evaluated as any other finish: so the task is kept if
code and inputs are as they were, and nothing is appended a second time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import ObjectMissing
from airflow_recovery.journal.folders import folders
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, xcoms_key
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.mode import BATCH
from airflow_recovery.model.names import decode, encode
from airflow_recovery.model.records import ADOPTED_FROM, Claim, CommitEnd, Committed, Outcome, RunIdentity, StoredXComs

_BY_WORD = ", and its code is taken to be the same but for the name"
"""If the name is a part of the fingerprint: that the code is the same is then the word of the user who has adopted."""


def copy_adopted(run: Run, region: str, region_state: RegionState, is_held: Callable[[Outcome], bool]) -> bool:
    """Copy the finish that ``region`` has committed under its old name. Returns whether there is one.

    ``is_held``: whether the target holds a finish, if that is one of ``region``. Two processes copy the same records.
    """
    planned = run.regions[region]
    if planned.mode.name != BATCH.name or planned.persistent:
        return False
    found = next(_adopted(run, region, is_held), None)
    if found is None:
        return False
    journal, old, attempt = found
    assert attempt.outcome is not None
    assert attempt.outcome.commit is not None
    run.task_instances.live_check()
    run.journal.put_plan(run.plan)
    number = region_state.latest_attempt + 1
    claim = replace(
        journal.read_claim(old, attempt.number),
        region=region,
        attempt=number,
        plan_hash=run.plan_hash,
        airflow_run_id=run.task.airflow_run_id,
        try_number=run.task.try_number,
        ti_id=run.task.ti_id,
        tag=f"airflow-recovery-{uuid.uuid5(uuid.NAMESPACE_OID, f'{attempt.outcome.writer}/{region}/{number}')}",
        folder=f"{number:08d}-{uuid.uuid5(uuid.NAMESPACE_OID, attempt.outcome.writer).hex[:8]}",
        components=None,
        outdated=None,
    )
    outcome = replace(
        attempt.outcome,
        region=region,
        attempt=number,
        fingerprint=_fingerprint(run, region, old, attempt.outcome),
        outputs=tuple(_renamed(output, old, region) for output in attempt.outcome.outputs),
        commit=replace(attempt.outcome.commit, result=_new_name(attempt.outcome.commit.result, old, region)),
        xcoms=_copied_xcoms(run, journal, old, attempt.outcome, claim),
    )
    name = f"{old}@{attempt.number} of {journal.identity.dag_id}"
    commit_id = attempt.committed.commit_id if attempt.committed is not None else name
    run.journal.claim(claim)
    run.journal.finish(outcome)
    # For notes, plans and the tab, as the log of this try says it.
    probe = f"{ADOPTED_FROM}{name}" + ("" if outcome.fingerprint == attempt.outcome.fingerprint else _BY_WORD)
    run.journal.commit(Committed(region, number, CommitEnd.COMMITTED, run.task.airflow_run_id, commit_id, probe))
    run.log.warning(
        "%s: its sink holds what %s has committed, which `airflow recovery adopt` has made its own. It is attempt %d.",
        region,
        name,
        number,
    )
    return True


def _adopted(run: Run, region: str, is_held: Callable[[Outcome], bool]) -> Iterator[tuple[Journal, str, Attempt]]:
    """The finish that the target holds under ``region``, and the journal and the region that it lies in."""
    for journal in _journals_of_run_key(run):
        names = journal.recorded_regions()
        if journal is run.journal:
            names = names - {region}
        loaded = journal.load(journal.list(names))
        for name in sorted(names):
            for attempt in loaded.of(name).attempts.values():
                outcome = attempt.outcome
                if outcome is None or outcome.commit is None or outcome.commit.number is None or attempt.batches:
                    continue
                if outcome.shared is None and is_held(replace(outcome, region=region)):
                    yield journal, name, attempt


def _journals_of_run_key(run: Run) -> Iterator[Journal]:
    """The run's own journal, then those of all groups and DAGs with its run key."""
    own, store = run.journal.identity, run.journal.store
    yield run.journal
    for dag in folders(store, most=1_000_000):
        if dag.startswith("_"):
            continue
        for group in folders(store, f"{dag}/{encode(own.run_key)}/"):
            with suppress(ValueError):  # a name that is shortened, or no folder of ours
                identity = RunIdentity(decode(dag), own.run_key, decode(group))
                if identity != own:
                    yield Journal(store, identity, writer=run.journal.writer)


def _fingerprint(run: Run, region: str, old: str, outcome: Outcome) -> str | None:
    """That of the finish. The name of a vertex is a part of its fingerprint, so there the user's word counts."""
    today = run.fingerprints.get(region, run.regions[region].fingerprint)
    if old == region or run.journal.identity.group_id == OPERATORS_GROUP or outcome.fingerprint == today:
        return outcome.fingerprint
    run.log.warning(
        "%s: its code is taken to be that of %s but for the name, since it was adopted. If it is not, remove the rows "
        "of %s and its token from the target, and restart the region.",
        region,
        old,
        old,
    )
    return today


def _renamed(output: PartitionManifest, old: str, region: str) -> PartitionManifest:
    """It lies where the old name has written it, so it is not below a folder of the copied attempt."""
    return replace(output, result=_new_name(output.result, old, region), managed=False)


def _new_name(result: str, old: str, region: str) -> str:
    return region + result.removeprefix(old) if result == old or result.startswith(f"{old}.") else result


def _copied_xcoms(run: Run, journal: Journal, old: str, outcome: Outcome, claim: Claim) -> StoredXComs | None:
    """The XComs of the finish, copied to where those of the new attempt are looked for."""
    stored = outcome.xcoms
    if stored is None or not stored.digest or run.results is None:
        return stored
    before = f"{journal.layout.data_of_region(old)}/{stored.folder or f'{outcome.attempt:08d}'}"
    after = JournalLayout(run.journal.identity).data_of(claim)
    try:
        body = run.results.get(xcoms_key(before, stored.digest)).body
    except ObjectMissing:
        return StoredXComs("", stored.size, f"those of {old} are missing")
    run.results.put(xcoms_key(after, stored.digest), body)
    return replace(stored, folder=claim.folder)
