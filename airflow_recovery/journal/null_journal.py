"""The journal of a run whose job does not recover: it records nothing, and never finds an attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from airflow_recovery.errors import ConfigurationError, ObjectMissing
from airflow_recovery.journal.codec import decode_record, encode_record
from airflow_recovery.journal.journal import Journal, Listing, R
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import AttemptState, Claim, ExternalObject, Outcome, PlanRecord, RunIdentity
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

RUN_KEY_PREFIX = "plain-"
"""No run key begins like this, so that nothing of such a run can be taken for an attempt that a journal knows."""


def unrecorded(dag_id: str, run_id: str, group_id: str) -> RunIdentity:
    """The identity of a DAG run whose job does not recover. Each run has its own: a re-created one finds nothing."""
    return RunIdentity(dag_id, f"{RUN_KEY_PREFIX}{run_id}", group_id)


class NullJournal(Journal):
    """As `Journal`, for one try of one task: so every try runs as a region's first, and no caller asks why.

    ``store`` is where a driver of this try leaves its outcome. ``made`` holds the newest finish of each region of the
    run, ``<region>.json``, which every finish overwrites: the inputs of the regions to come. Its attempts have the
    numbers of the tries that made them, so ``try_number`` is the one that a claim gets. ``plan``: what is run;
    ``committing``: the regions of it that commit to a sink, which can't be claimed.
    """

    def __init__(
        self,
        store: ObjectStore,
        identity: RunIdentity,
        *,
        writer: str,
        made: ObjectStore,
        plan: PlanRecord | None = None,
        committing: Collection[str] = (),
        try_number: int = 1,
        mask: Mask = scrubbed,
    ) -> None:
        super().__init__(store, identity, writer=writer, mask=mask)
        self._made = made
        self._plans = frozenset() if plan is None else frozenset((plan_hash(plan),))
        self._fingerprints = {} if plan is None else {region.name: region.fingerprint for region in plan.regions}
        self._committing = committing
        self._before = try_number - 1
        self._inputs: set[str] = set()

    def list(self, regions: Iterable[str], listed: Iterable[ObjectInfo] | None = None) -> Listing:
        """No attempt of any region. Nothing is asked of a store."""
        states = {name: RegionState(closed_at=0 if name in self._inputs else self._before) for name in regions}
        return Listing(RunState(states, self._plans), {})

    def load(self, listing: Listing, regions: Iterable[str] | None = None) -> RunState:
        """With the newest finish of each of ``regions``, whatever code made it. Raises `ObjectMissing` for one without.

        Without ``regions``, nothing more than ``listing`` has.
        """
        finishes = {region: self._finish_of(region) for region in regions or ()}
        self._inputs |= finishes.keys()
        loaded = {
            region: RegionState({finish.attempt: Attempt(finish.attempt, True, True, outcome=finish)})
            for region, finish in finishes.items()
        }
        return replace(listing.state, regions={**listing.state.regions, **loaded})

    def check_fits(self, region: str, externals: tuple[ExternalObject, ...]) -> None:
        """What is not recorded has no limit."""

    def claim(self, claim: Claim) -> None:
        """Nothing is claimed. Raises `ConfigurationError` for a region that commits to a sink."""
        if claim.region in self._committing:
            raise ConfigurationError(
                f"{claim.region}: expected recovery to be on, since it has commit=, found that it is off: without a "
                "journal nobody would know what was committed. Leave commit= out, or let the job recover.",
                code="commit-without-recovery",
                region=claim.region,
            )

    def noticed(self, record: Claim | Outcome) -> None:
        """Keep a finish for the regions that read it."""
        if isinstance(record, Outcome) and record.state is AttemptState.FINISHED:
            self._made.put(f"{encode(record.region)}.json", encode_record(self.identity, record))

    def _finish_of(self, region: str) -> Outcome:
        key = f"{encode(region)}.json"
        try:
            body = self._made.get(key).body
        except ObjectMissing as error:
            raise ObjectMissing(
                f"{region} has made nothing in run {self.identity.run_key.removeprefix(RUN_KEY_PREFIX)} (recovery is "
                f"off: what other runs made does not count). Clear {region}.",
                code="nothing-made-without-recovery",
                region=region,
            ) from error
        outcome = decode_record(self.identity, Outcome, body, where=f"{self._made.base_uri}/{key}")
        return replace(outcome, fingerprint=self._fingerprints.get(region, outcome.fingerprint))

    def _put(self, record: R, key: str, is_mine: Callable[[R], bool], number: int = 0) -> ObjectInfo:
        return ObjectInfo(key, 0, "")
