"""Letting the data of one attempt go (PROTOCOL section 7): which, and how.

    candidate: P@n finished, not named by the newest publish, and (n < cur(P), or every consumer stands and P is neither
               final nor persistent); or a fenced attempt
    PUT n.released;  LIST again: an open claim that pins P@n -> leave it for the next sweep;  else delete the objects

Whether every consumer stands is asked of Flink's release rule (`airflow_recovery.failover.unread`), which is pure and
knows no policy, no publish and no clock.

A reader claims, *then* looks for ``released``. Whoever releases writes ``released``, *then* looks for claims. So of two
that race, one sees the other, and no reader ever holds half of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from airflow_recovery.errors import AttemptLost
from airflow_recovery.failover.judgement import Judgement
from airflow_recovery.failover.unread import unread_regions
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import shared_identity
from airflow_recovery.journal.records import (
    AttemptState,
    FenceCause,
    Outcome,
    PlanRecord,
    Publish,
    RegionPlan,
    Released,
    RunAttempt,
    SharedPin,
)
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.storage.names import encode
from airflow_recovery.storage.object_store import ObjectStore
from airflow_recovery.topology.retention import ReleasePolicy, Retention, duration_text


@dataclass(frozen=True)
class Verdict:
    """Whether the data of an attempt may go, and why (not)."""

    may_go: bool
    why: str


class ReleaseRule:
    """Which attempts of one run may go. Reads nothing and writes nothing: the state and the ages are handed in.

    ``age_s(keys)`` is how long ago the newest of these journal objects was stored, by the store's own clock.
    ``orphan_grace_s`` is how long an attempt that no longer counts is kept all the same.
    """

    def __init__(
        self,
        plan: PlanRecord,
        state: RunState,
        publish: Publish | None,
        *,
        journal: Journal,
        retention: Retention,
        orphan_grace_s: float,
        age_s: Callable[[Iterable[str]], float],
        silent_s: float,
    ) -> None:
        self._state = state
        self._publish = publish
        self._layout = journal.layout
        self._retention = plan.retention or retention
        self._orphan_grace_s = orphan_grace_s
        self._age_s = age_s
        self._silent_s = silent_s
        self._regions = {each.name: each for each in plan.regions}
        self._judged = Judgement(plan, state, available=_never_asked)

    @cached_property
    def _unread(self) -> frozenset[str]:
        """The regions that no other still needs: only what is inside the job is ever asked about."""
        return unread_regions(self._judged.topology, lambda name: self._judged.why_not_standing(name) is None)

    def verdict(self, region: str, number: int) -> Verdict:
        """May the data of this attempt go?"""
        attempt = self._state.of(region).attempts.get(number)
        if attempt is None or not attempt.is_claimed or attempt.outcome is None:
            return Verdict(False, "it is open" if attempt is not None and attempt.is_open else "it was never claimed")
        if attempt.outcome.state is AttemptState.FENCED:
            cause = attempt.outcome.cause
            return self._orphan(region, number, f"fenced ({cause.value if cause is not None else 'no cause'})")
        if self._publish is not None and self._is_pinned(self._publish, region, number):
            return Verdict(False, f"publish {self._publish.number} names it")
        current = self._state.of(region).current
        if current is None:
            return Verdict(False, "it was reset, and nothing has replaced it")
        if number < current.number:
            return self._orphan(region, current.number, f"superseded by attempt {current.number}")
        return self._current(region, self._regions.get(region), attempt)

    def _is_pinned(self, publish: Publish, region: str, number: int) -> bool:
        """Final results, and whatever was superseded, for as long as the publish names them.

        A result inside the job that still counts follows its policy: every publish names all regions that stand, so it
        would never go else.
        """
        named = any((each.region, each.attempt) == (region, number) for each in publish.regions)
        current = self._state.of(region).current
        is_inner = region in self._regions and not self._regions[region].final
        return named and not (is_inner and current is not None and current.number == number)

    def _orphan(self, region: str, since: int, why: str) -> Verdict:
        """``since``: the attempt whose outcome made an orphan of it."""
        age_s = self._age_s([self._layout.attempt(region, since, "outcome")])
        return _after(age_s, self._orphan_grace_s, f"{why} {duration_text(age_s)} ago", "grace time")

    def _current(self, name: str, region: RegionPlan | None, attempt: Attempt) -> Verdict:
        if region is not None and region.final:
            return Verdict(False, "it outlives runs: --purge" if region.persistent else "it is a final result")
        if not self._regions:
            return Verdict(False, "no plan says whether it is a final result")
        consumers = [each.name for each in self._regions.values() if name in each.inputs]
        if consumers and name not in self._unread:
            waiting = (each for each in consumers if self._judged.why_not_standing(each) is not None)
            return Verdict(False, f"{next(waiting, 'another subtask')} still needs it")
        policy, grace_s = self._retention.policy, self._retention.grace_s
        if policy is ReleasePolicy.KEEP:
            said = f"the run has been silent for {duration_text(self._silent_s)}"
            return _after(self._silent_s, grace_s, said, "retention")
        if policy is ReleasePolicy.ON_RUN_SUCCESS:
            publish = self._publish
            if publish is None or (name, attempt.number) not in {
                (each.region, each.attempt) for each in publish.regions
            }:
                return Verdict(False, "the run has not published it")
            age_s = self._age_s([self._layout.publish(publish.number)])
            return _after(age_s, grace_s, f"published {duration_text(age_s)} ago", "grace time")
        age_s = self._age_s(
            self._layout.attempt(each, current.number, "outcome")
            for each in consumers
            if (current := self._state.of(each).current) is not None
        )
        return _after(age_s, grace_s, f"consumed {duration_text(age_s)} ago", "grace time")


def _after(age_s: float, limit_s: float, said: str, what: str) -> Verdict:
    if age_s >= limit_s:
        return Verdict(True, said)
    return Verdict(False, f"{said}, {what} {duration_text(limit_s)}")


def _never_asked(region: str, attempt: Attempt) -> None:
    raise AssertionError(f"the release rule is about identity, and asks for no data of {region}@{attempt.number}")


@dataclass(frozen=True)
class Deleted:
    """What a release came to. ``pinned_by`` is set where a reader was seen: then nothing was deleted."""

    objects: int = 0
    size: int = 0
    pinned_by: str = ""


class Releaser:
    """Lets attempts of one run go. ``who`` is written into the markers. A dry run looks, and changes nothing.

    ``drop_cached`` has a server forget what it keeps of an attempt.
    """

    def __init__(
        self,
        journal: Journal,
        results: ObjectStore,
        *,
        who: str,
        dry_run: bool = False,
        drop_cached: Callable[[str, int], None] = lambda region, number: None,
    ) -> None:
        self._journal = journal
        self._results = results
        self._who = who
        self._dry_run = dry_run
        self._drop_cached = drop_cached

    def release(self, region: str, attempt: Attempt) -> Deleted:
        """Marker, look for readers, delete. Raises the store's errors; may be called again where that happened."""
        if not self._dry_run and not attempt.is_released:
            self._journal.release(Released(region, attempt.number, self._who))
        readers = readers_of(self._journal, region, attempt.number)
        if readers:
            return Deleted(pinned_by=", ".join(readers))
        deleted = self.delete_data(region, attempt.number)
        if attempt.outcome is not None and attempt.outcome.shared is not None and not self._dry_run:
            identity = self._journal.identity
            owner = RunAttempt(identity.dag_id, identity.run_key, identity.group_id, region, attempt.number)
            end_pin(self._journal, attempt.outcome.shared, owner, self._who)
        return deleted

    def delete_data(self, region: str, number: int) -> Deleted:
        """Everything below the attempt's own prefix, and nothing else: a user's own location is never deleted."""
        found = list(self._results.list(f"{self._journal.layout.data_of(region, number)}/"))
        if found and not self._dry_run:
            self._results.delete([each.key for each in found])
        if not self._dry_run:
            self._drop_cached(region, number)
        return Deleted(len(found), sum(each.size for each in found))


def readers_of(journal: Journal, region: str, number: int) -> list[str]:
    """The open claims that pin ``region@number``, as text."""
    return [
        f"{each.region}@{each.attempt}"
        for each in journal.open_claims()
        if any((pin.region, pin.attempt) == (region, number) for pin in each.inputs)
    ]


def pin_name(owner: RunAttempt) -> str:
    """The name of a reading region in the journal of shared results. Region names have no slash, so none is like it."""
    return "/".join(encode(each) for each in (owner.dag_id, owner.run_key, owner.group_id, owner.region))


def end_pin(journal: Journal, shared: SharedPin, owner: RunAttempt, who: str) -> None:
    """``owner`` does not hold the shared result any more. Ending it twice is once."""
    pins = Journal(journal.store, shared_identity(shared.key), writer=journal.writer)
    ended = Outcome(
        region=pin_name(owner),
        attempt=owner.attempt,
        state=AttemptState.FENCED,
        writer=journal.writer,
        ended_at="",
        cause=FenceCause.SUPERSEDED,
        detail=f"let go by {who}",
    )
    try:
        pins.fence(ended)
    except AttemptLost:
        return  # somebody else ended it
