"""Letting the data of one attempt go (docs/protocol.md#release): which, and how.

    candidate: P@n finished, not named by the newest publish, and (n < cur(P), or every consumer is valid and P is
               neither final nor persistent, or its sink has all of it); or a fenced attempt
    PUT n.released;  LIST again: an open claim that pins P@n -> leave it for the next sweep;  else delete the objects

Whether every consumer is valid is Flink's release rule (FLIP-1), in one line: `ReadersLeft`. It knows no policy, no
publish and no clock.

A reader claims, *then* looks for ``released``. Whoever releases writes ``released``, *then* looks for claims. So of two
that race, one sees the other, and no reader ever holds half of a result. In this sense a claim that adopts batches of
an earlier attempt reads it, and its finish goes on to do so. What was committed in batches is made of files of several
attempts (`airflow_recovery.results.batches_in_use`): they go together, less those that somebody else uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from airflow_recovery.errors import AttemptLost
from airflow_recovery.journal.journal import DataInUse, Journal
from airflow_recovery.journal.layout import shared_identity
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.committing import CommitMode
from airflow_recovery.model.groups import RegionGroup
from airflow_recovery.model.inputs import InputGroupRef, Inputs
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.location import key_below
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    FenceCause,
    Outcome,
    PlanRecord,
    Publish,
    Released,
    RunAttempt,
    SharedRef,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.retention import ReleasePolicy, Retention, duration_text
from airflow_recovery.planning.edges import Edges
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.availability import in_pages, list_together
from airflow_recovery.results.batches_in_use import (
    BatchNumbers,
    batches_in_use,
    finishes_made_of,
    made_of,
    newest_claims,
)
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore


@dataclass(frozen=True)
class Verdict:
    """Whether the data of an attempt may go, and why (not)."""

    may_go: bool
    why: str


class ReleaseRule:
    """Which attempts of one run may go. A rule reads and writes nothing: the state and the ages are handed in.

    ``age_s(keys)`` is how long ago the newest of these journal objects was stored, by the store's own clock.
    ``orphan_grace_s`` is how long an attempt that no longer counts is kept all the same. ``claims`` are the newest ones
    of the regions that have batches.
    """

    def __init__(  # noqa: PLR0913 - all that the rule is told: it reads nothing itself
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
        claims: Mapping[str, Claim] | None = None,
    ) -> None:
        self._claims = claims or {}
        self._state = state
        self._publish = publish
        self._published: dict[str, set[int]] = {}
        for entry in publish.regions if publish is not None else ():
            self._published.setdefault(entry.region, set()).add(entry.attempt)
        self._layout = journal.layout
        self._retention = plan.retention or retention
        self._orphan_grace_s = orphan_grace_s
        self._age_s = age_s
        self._silent_s = silent_s
        self._regions = plan.by_name
        self._evaluation = Evaluation(plan, state, available=_never_asked)
        self._edges = self._evaluation.edges
        self._readers_left = ReadersLeft(self._edges, lambda reader: self._evaluation.invalid_because(reader) is None)
        self._ended_s: dict[str, float] = {}

    @classmethod
    def at_once(
        cls, journal: Journal, plan: PlanRecord, state: RunState, retention: Retention, *, orphan_grace_s: float
    ) -> ReleaseRule:
        """The rule for who lets results go in the moment in which they may: no object's age is asked for.

        ``retention``: in place of the plan's, without a grace time. Reads the newest publish and the newest claims of
        ``journal``. Raises the store's errors.
        """
        return cls(
            replace(plan, retention=retention),
            state,
            journal.read_publish(state.newest_publish) if state.newest_publish else None,
            journal=journal,
            retention=retention,
            orphan_grace_s=orphan_grace_s,
            age_s=lambda keys: 0.0,
            silent_s=0.0,
            claims=newest_claims(journal, state),
        )

    def verdict(self, region: str, number: int) -> Verdict:
        """Whether the data of this attempt may go, by the state that was handed in. It may have changed since."""
        attempt = self._state.of(region).attempts.get(number)
        if attempt is None or not attempt.is_claimed or attempt.outcome is None:
            return Verdict(False, "it is open" if attempt is not None and attempt.is_open else "it was never claimed")
        if attempt.is_pinned:
            return Verdict(False, "it is pinned")
        adopted = self.used_batches(region, but_finish=self._current_number(region, number)).get(number)
        if adopted:
            return Verdict(False, f"{len(adopted)} of its batches are in use")
        if attempt.outcome.state is AttemptState.FENCED:
            cause = attempt.outcome.cause
            return self._orphan(region, number, f"fenced ({cause.value if cause is not None else 'no cause'})")
        if self._publish is not None and self._is_pinned(region, number):
            return Verdict(False, f"publish {self._publish.number} names it")
        current = self._state.of(region).current
        if current is None:
            return Verdict(False, "it was reset, and nothing has replaced it")
        if number < current.number:
            return self._orphan(region, current.number, f"superseded by attempt {current.number}")
        return self._current(region, self._regions.get(region), attempt)

    def used_batches(self, region: str, *, but_finish: int | None = None) -> BatchNumbers:
        """The batches of ``region`` that are used, by attempt (`batches_in_use`); empty where it does not commit so."""
        published = self._published.get(region, ())
        return batches_in_use(self._state.of(region), self._claims.get(region), published, but_finish=but_finish)

    def released_with(self, region: str, number: int) -> tuple[int, ...]:
        """The attempts that go with this finish: it alone uses their batches."""
        others = self.used_batches(region, but_finish=number)
        return tuple(maker for maker in made_of(self._state.of(region), number) if maker not in others)

    def _current_number(self, region: str, number: int) -> int | None:
        """``number`` where it is the finish that counts: its own use of its batches does not keep it."""
        current = self._state.of(region).current
        return number if current is not None and current.number == number else None

    def _is_pinned(self, region: str, number: int) -> bool:
        """Final results, and whatever was superseded, for as long as the publish names them.

        A result inside the job that still counts follows its policy: every publish names all valid regions, so it would
        never go else.
        """
        named = number in self._published.get(region, ())
        current = self._state.of(region).current
        if current is None or current.number != number or region not in self._regions:
            return named
        return named and self._outlives(self._regions[region], current)

    @staticmethod
    def _outlives(region: RegionPlan, attempt: Attempt) -> bool:
        """Whether readers outside the run read these files. What a sink has taken over, they read there.

        Of a region that has other results beside the committed one, no plan says which of them are final.
        """
        taken_over = () if region.commit is None or not attempt.is_committed else (region.commit.result,)
        return region.final and region.results != taken_over

    def _orphan(self, region: str, since: int, why: str) -> Verdict:
        """``since``: the attempt whose outcome made an orphan of it."""
        age_s = self._age_s([self._layout.attempt(region, since, "outcome")])
        return _after(age_s, self._orphan_grace_s, f"{why} {duration_text(age_s)} ago", "grace time")

    def _current(self, name: str, region: RegionPlan | None, attempt: Attempt) -> Verdict:
        if region is not None and self._outlives(region, attempt):
            return Verdict(False, "it outlives runs: --purge" if region.persistent else "it is a final result")
        if not self._regions:
            return Verdict(False, "no plan says whether it is a final result")
        waiting = self._readers_left.first(name) if region is not None else None
        if waiting is not None:
            return Verdict(False, f"{waiting} still needs it")
        consumers = self._edges.readers(name) if region is not None else ()
        if consumers and region is not None and region.commit is not None and region.commit.mode is CommitMode.APPEND:
            return Verdict(False, "others read it, and a sink that appends takes over no second attempt")
        policy, grace_s = self._retention.policy, self._retention.grace_s
        if policy is ReleasePolicy.KEEP:
            since = f"the run has been silent for {duration_text(self._silent_s)}"
            return _after(self._silent_s, grace_s, since, "retention")
        if policy is ReleasePolicy.ON_RUN_SUCCESS:
            publish = self._publish
            if publish is None or attempt.number not in self._published.get(name, ()):
                return Verdict(False, "the run has not published it")
            age_s = self._age_s([self._layout.publish(publish.number)])
            return _after(age_s, grace_s, f"published {duration_text(age_s)} ago", "grace time")
        ages_s = [self._since_ended_s(node) for node in consumers]
        if attempt.is_committed or not consumers:
            committed = [self._layout.attempt(name, attempt.number, "committed")] if attempt.is_committed else []
            ages_s.append(self._age_s(committed))
        age_s = min(ages_s)
        return _after(age_s, grace_s, f"consumed {duration_text(age_s)} ago", "grace time")

    def _since_ended_s(self, node: str) -> float:
        """The age of the newest outcome that counts of the regions of a node; asked for once, whatever they read."""
        if node not in self._ended_s:
            currents = ((name, self._state.of(name).current) for name in self._edges.members(node) or (node,))
            outcomes = [
                self._layout.attempt(name, current.number, "outcome")
                for name, current in currents
                if current is not None
            ]
            self._ended_s[node] = self._age_s(outcomes)
        return self._ended_s[node]


class ReadersLeft:
    """Flink's release rule: what a region makes can go when all that read it are done.

    Each reader is asked about once, however many regions it reads.
    """

    def __init__(self, edges: Edges, is_done: Callable[[str], bool]) -> None:
        self._edges = edges
        self._is_done = is_done
        self._first: dict[str, str | None] = {}
        """The first region of a node that is not done."""

    def first(self, region: str) -> str | None:
        """The first reader of ``region`` that is not done."""
        return next(filter(None, map(self._first_of, self._edges.readers(region))), None)

    def _first_of(self, node: str) -> str | None:
        if node not in self._first:
            members = self._edges.members(node) or (node,)
            self._first[node] = next((name for name in members if not self._is_done(name)), None)
        return self._first[node]


def _after(age_s: float, limit_s: float, since: str, limit: str) -> Verdict:
    if age_s >= limit_s:
        return Verdict(True, since)
    return Verdict(False, f"{since}, {limit} {duration_text(limit_s)}")


def _never_asked(region: str, attempt: Attempt, result: str) -> None:
    raise AssertionError(
        f"the release rule is about identity, and asks for no data of {region}@{attempt.number}: {result}"
    )


@dataclass(frozen=True)
class Deleted:
    """What a release came to. ``readers``, as text: where there are any, nothing was deleted."""

    objects: int = 0
    size: int = 0
    readers: str = ""


class Candidate(NamedTuple):
    """An attempt of ``region`` that may go, and those that go ``also``. ``objects``: how many it has, if known."""

    region: str
    attempt: Attempt
    also: tuple[int, ...] = ()
    objects: int = 0

    def markers(self, who: str) -> list[Released]:
        """What is written before anything is deleted."""
        numbers = self.also if self.attempt.is_released else (self.attempt.number, *self.also)
        return [Released(self.region, number, who) for number in numbers]


CONNECTIONS = 64
PINNED = "a person, who has pinned it,"
"""In place of a reader's name."""


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

    def release(self, region: str, attempt: Attempt, also: Iterable[int] = ()) -> Deleted:
        """Let one attempt go, as `release_all`.

        ``also``: attempts whose batches go with it (`ReleaseRule.released_with`).
        """
        [deleted] = self.release_all([Candidate(region, attempt, tuple(also))])
        return deleted

    def release_all(self, candidates: Sequence[Candidate]) -> list[Deleted]:
        """Markers, one look for readers, delete. Raises the store's errors; may be called again where that happened."""
        if not self._dry_run:
            self._mark([released for candidate in candidates for released in candidate.markers(self._who)])
        readers = look_for_readers(self._journal)
        together = self._listed_together(candidates)
        return [self._delete_unless_read(candidate, readers, together) for candidate in candidates]

    def _mark(self, markers: Sequence[Released]) -> None:
        if len(markers) <= CONNECTIONS:
            for marker in markers:
                self._journal.release(marker)
            return
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="recovery-release") as pool:
            for _ in pool.map(self._journal.release, markers):
                pass

    def _listed_together(self, candidates: Sequence[Candidate]) -> dict[str, list[ObjectInfo]]:
        """What lies below the prefixes of very many attempts, as far as a few listings tell."""
        if len(candidates) <= CONNECTIONS:
            return {}
        objects = {self._prefix(region, attempt.number): count for region, attempt, _, count in candidates}
        listed: dict[str, list[ObjectInfo]] = {}
        for page in in_pages(objects):
            listed |= list_together(self._results, page)
        return listed

    def _delete_unless_read(
        self, candidate: Candidate, readers: Readers, listed: dict[str, list[ObjectInfo]]
    ) -> Deleted:
        region, attempt, also, _ = candidate
        numbers = (attempt.number, *also)
        texts = readers.of(region, *numbers)
        if attempt.batches or also:
            texts += self._made_of(region, numbers)
        if texts:
            return Deleted(readers=", ".join(texts))
        by_attempt = [self.delete_data(region, number, listed.get(self._prefix(region, number))) for number in numbers]
        deleted = Deleted(sum(one.objects for one in by_attempt), sum(one.size for one in by_attempt))
        if attempt.outcome is not None and attempt.outcome.shared is not None and not self._dry_run:
            identity = self._journal.identity
            owner = RunAttempt(*RegionKey.of(identity, region), attempt.number)
            end_reading(self._journal, attempt.outcome.shared, owner, self._who)
        return deleted

    def delete_data(self, region: str, number: int, listed: list[ObjectInfo] | None = None) -> Deleted:
        """Everything below the attempt's own prefix, and nothing else: a user's own location is never deleted.

        Whoever calls knows that no finish and no base names anything there. ``listed``: what lies there, if known.
        """
        deleted = self._delete(list(self._results.list(self._prefix(region, number))) if listed is None else listed)
        if not self._dry_run:
            self._drop_cached(region, number)
        return deleted

    def _made_of(self, region: str, numbers: tuple[int, ...]) -> list[str]:
        """Who needs these attempts for a finish that is made of them.

        It counts by now, claimed before the marker; or it is read, or a person holds it.
        """
        state = self._journal.load(self._journal.list([region])).of(region)
        finishes = finishes_made_of(state, numbers)
        if not finishes:
            return []
        counts = [f"{region}@{n}" for n in finishes if state.current is not None and n == state.current.number]
        return [*counts, *readers_of(self._journal, region, *finishes)]

    def delete_surplus(
        self, region: str, number: int, outputs: Iterable[PartitionManifest], is_old: Callable[[ObjectInfo], bool]
    ) -> Deleted:
        """Of an attempt whose batches are used, what is in none of them: ``outputs`` are theirs. No marker: it counts.

        What a zombie has committed beyond what was adopted, committed batches that were dropped, and what
        was not committed. Only where no later claim can adopt more of it (`batches_in_use.is_decided`).
        """
        base = self._results.base_uri
        kept = {key_below(base, uri) for output in outputs for uri in output.uris()}
        listed = self._results.list(self._prefix(region, number))
        return self._delete([info for info in listed if info.key not in kept and is_old(info)])

    def _prefix(self, region: str, number: int) -> str:
        return f"{self._journal.layout.data_of(region, number)}/"

    def _delete(self, infos: list[ObjectInfo]) -> Deleted:
        if infos and not self._dry_run:
            self._results.delete([info.key for info in infos])
        return Deleted(len(infos), sum(info.size for info in infos))


def readers_of(journal: Journal, region: str, *numbers: int) -> list[str]:
    """The open claims that read, or have adopted batches of, one of these attempts of ``region``, as text.

    A claim of which nobody can tell what it reads may read any. `PINNED` is among them where a person has pinned one of
    the attempts.
    """
    return look_for_readers(journal).of(region, *numbers)


def look_for_readers(journal: Journal) -> Readers:
    """Who reads whatever attempts of the run now, by one listing and the open claims."""
    return Readers(journal.data_in_use())


class Readers:
    """The open claims that rest on attempts, and the pinned attempts, as one look has found them.

    A claim of which nobody can tell what it reads may read any attempt.
    """

    def __init__(self, in_use: DataInUse) -> None:
        self._pinned = in_use.pinned
        self._reading: dict[tuple[str, int], list[str]] = {}
        self._reading_groups: dict[InputGroupRef, tuple[RegionGroup, list[str]]] = {}
        self._reading_any: list[str] = []
        for claim in in_use.claims:
            name, inputs = f"{claim.region}@{claim.attempt}", Inputs.of(claim.inputs)
            for read in _read_singly(claim):
                self._reading.setdefault(read, []).append(name)
            if not inputs.is_known:
                self._reading_any.append(name)
                continue
            for ref in inputs.groups.values():
                self._reading_groups.setdefault(ref, (inputs.group(ref), []))[1].append(name)

    def of(self, region: str, *numbers: int) -> list[str]:
        """As `readers_of`."""
        readers = [reader for number in numbers for reader in self._reading.get((region, number), ())]
        for ref, (group, names) in self._reading_groups.items():
            if region in group.index_of and ref.attempts[group.index_of[region]] in numbers:
                readers += names
        is_pinned = any((encode(region), number) in self._pinned for number in numbers)
        return [*dict.fromkeys([*readers, *self._reading_any]), *([PINNED] if is_pinned else [])]


def read_by(claims: Iterable[Claim]) -> set[tuple[str, int]]:
    """(region, attempt) of everything that these open claims rest on. Raises `InputsUnknown`."""
    groups: set[InputGroupRef] = set()
    used: set[tuple[str, int]] = set()
    for claim in claims:
        used |= _read_singly(claim)
        used |= {(ref.region, ref.attempt) for ref in Inputs.of(claim.inputs).unseen(groups)}
    return used


def _read_singly(claim: Claim) -> set[tuple[str, int]]:
    """What it reads or has adopted, but for the groups among its inputs."""
    inputs = {(ref.region, ref.attempt) for ref in Inputs.of(claim.inputs).singles.values()}
    return inputs | {(claim.region, attempt) for attempt in claim.mode.attempts}


def reader_name(owner: RunAttempt) -> str:
    """The name of a reading region in the journal of shared results. Region names have no slash, so none is like it."""
    return RegionKey(owner.dag_id, owner.run_key, owner.group_id, owner.region).path


def ended(
    journal: Journal, region: str, attempt: int, why: str, cause: FenceCause | None = FenceCause.SUPERSEDED
) -> Outcome:
    """The outcome that ends an attempt whose run, or whose reader, is over. It names no time. Writes nothing."""
    return Outcome(region, attempt, AttemptState.FENCED, journal.writer, ended_at="", cause=cause, detail=why)


def end_reading(journal: Journal, shared: SharedRef, owner: RunAttempt, who: str) -> None:
    """``owner`` does not read the shared result any more. Ending it twice is once."""
    shared_journal = Journal(journal.store, shared_identity(shared.key), writer=journal.writer)
    try:
        shared_journal.fence(ended(journal, reader_name(owner), owner.attempt, f"let go by {who}"))
    except AttemptLost:
        return  # somebody else ended it
