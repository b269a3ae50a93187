"""A person lets the data of one attempt go, before the release policy does (docs/protocol.md#release).

The same two looks as every release (`airflow_recovery.results.release`); what differs is who decides. What is given up
is said beforehand (`airflow_recovery.story.release_preview`).
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.attempt.pin import finished_attempt
from airflow_recovery.errors import Refused
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.batches_in_use import finishes_made_of
from airflow_recovery.results.readers import readers_of
from airflow_recovery.results.release import Deleted, Releaser
from airflow_recovery.results.release_rule import ReleaseRule
from airflow_recovery.results.table_tags import RunTags
from airflow_recovery.store.object_store import ObjectStore


@dataclass(frozen=True)
class ReleaseByHand:
    """An attempt that may be released. ``still_needed``: why the rule would keep it, or empty.

    ``also``: attempts whose batches nobody else uses, and which go with it.
    """

    region: str
    attempt: Attempt
    still_needed: str
    also: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The attempt as people write it: ``region@attempt``."""
        return f"{self.region}@{self.attempt.number}"


def look_at_release(
    journal: Journal, topology: PlanRecord, state: RunState, region: str, number: int | None
) -> ReleaseByHand:
    """The attempt that is meant. Policy and grace times don't count: the person decides when.

    Raises `NothingRecorded` without such a finish, and `Refused` where it is pinned, read now, not committed to its
    sink yet, or made into a finish that counts or is pinned.
    """
    attempt = finished_attempt(state, region, number)
    name = f"{region}@{attempt.number}"
    if attempt.is_pinned:
        pin = journal.read_pin(region, attempt.number, attempt.pin_turn)
        raise Refused(f"{name} was pinned by {pin.who} ({pin.why}). Unpin it first: `airflow recovery pin --off`.")
    if attempt.is_prepared:
        raise Refused(f"{name} is not committed to its sink yet. Release it afterwards.")
    rule = ReleaseRule.at_once(journal, topology, state, Retention.as_consumed(), orphan_grace_s=0.0)
    also = rule.released_with(region, attempt.number)
    readers = readers_of(journal, region, attempt.number, *also)
    if readers:
        raise Refused(f"{', '.join(readers)} reads {name} now. Release it when that has ended.")
    region_state = state.of(region)
    kept = {attempt.number for attempt in (region_state.current, *region_state.pinned) if attempt is not None}
    for finish in sorted(kept & set(finishes_made_of(region_state, [attempt.number]))):
        raise Refused(
            f"{region}@{finish} is made of batches of {name}, among others. Release that one.",
            code="release-of-adopted-batches",
            region=region,
        )
    verdict = rule.verdict(region, attempt.number)
    return ReleaseByHand(region, attempt, "" if verdict.may_go else verdict.why, also)


def release_by_hand(
    journal: Journal,
    results: ObjectStore,
    hand: ReleaseByHand,
    who: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    tags: RunTags | None = None,
) -> Deleted:
    """Write the marker and delete the data. Raises `Refused`, without ``force``, where it is still needed.

    Without ``tags``, those at tables are left to the next sweep.
    """
    check_may_go(hand, force=force)
    releaser = Releaser(journal, results, who=who, dry_run=dry_run, tags=tags)
    return releaser.release(hand.region, hand.attempt, hand.also)


def check_may_go(hand: ReleaseByHand, *, force: bool) -> None:
    """Raise `Refused` where it is still needed, without ``force``."""
    if hand.still_needed and not force:
        raise Refused(
            f"{hand.name} is still needed: {hand.still_needed}. With --force it is released all the same (over REST: "
            '"force": true).'
        )
