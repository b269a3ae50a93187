"""The journal of one run: reads its state, writes its write-once objects. Decides nothing."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from airflow_recovery.errors import (
    AttemptLost,
    ObjectMissing,
    ObjectTooLarge,
    PagesDisagree,
    RecordInvalid,
    StoreTimeout,
    StoreUnavailable,
    WriteLost,
)
from airflow_recovery.journal.codec import MAX_RECORD_BYTES, checked_record, decode_record
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.masking import Mask, masked
from airflow_recovery.journal.plans import GroupsOfRun, plan_hash
from airflow_recovery.journal.record_cache import MIN_PAUSE_S, RecordCache, SnapshotPace
from airflow_recovery.journal.recording import JournalListener, NoListener
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState, in_order, is_pinned_after
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.journal.sharded_listing import list_sharded
from airflow_recovery.model.altered import altered
from airflow_recovery.model.components import Component
from airflow_recovery.model.inputs import InputGroupRef, Inputs
from airflow_recovery.model.names import encode
from airflow_recovery.model.record_kinds import RECORD_KINDS, RecordKind
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    Committed,
    CommittedBatch,
    CommitterDead,
    CommitterEpoch,
    Declared,
    ExternalObject,
    FingerprintRecord,
    Kept,
    Lost,
    Outcome,
    Pin,
    PlanRecord,
    Publish,
    Record,
    Released,
    Reset,
    RunIdentity,
    Withdrawal,
)
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, get_many
from airflow_recovery.store.write_once import write_once

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_LISTED = Attempt(0)
"""An attempt of which a listing says nothing."""
_MANY_FILES = 50_000
"""So many files of a source, with URIs as long as they come, may be too many for a record."""

LISTING_ROUNDS = 10
"""How often a listing whose pages disagree, or an evaluation that another process made invalid, is done again."""


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Inside, no garbage is collected: very many values are read, none of them in a cycle, and all of them stay.

    Looking through them again and again takes as long as reading them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Listing:
    """What the names of one listing say: complete, but no snapshot."""

    state: RunState
    objects: Mapping[str, ObjectInfo]
    """By key."""
    snapshot: ObjectInfo | None = None
    """The snapshot (`RecordCache`) that was listed beside them."""

    def of(self, regions: Iterable[str]) -> Listing:
        """What it says of these regions alone. Of one that was not listed: that it has never started."""
        return replace(self, state=replace(self.state, regions={name: self.state.of(name) for name in regions}))


class DataInUse(NamedTuple):
    """``claims``: those without an outcome, of whatever region. ``pinned``: attempts that a person has pinned.

    An attempt is named by its region's name as a path segment, and its number.
    """

    claims: tuple[Claim, ...]
    pinned: frozenset[tuple[str, int]]


class Journal:
    """One run's journal in ``store``, for one process.

    ``writer`` is this process's random id. By it a conditional write that was refused tells its own earlier request
    from another process's. ``deadline_s`` bounds how long a write with an unknown outcome is repeated
    (docs/protocol.md#put-rule). ``listener`` is called with everything that was written. ``mask`` takes secrets out of
    free text; without one, what has the form of a secret is masked. ``writes_snapshot``: this process leaves a
    snapshot for others (`RecordCache`) when it reads many outcomes, at most one in ``snapshot_min_pause_s``.
    """

    def __init__(  # noqa: PLR0913 - options, and a test's clock
        self,
        store: ObjectStore,
        identity: RunIdentity,
        *,
        writer: str,
        deadline_s: float = 60.0,
        listener: JournalListener | None = None,
        mask: Mask = scrubbed,
        writes_snapshot: bool = False,
        snapshot_min_pause_s: float = MIN_PAUSE_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.store = store
        self.identity = identity
        self.layout = JournalLayout(identity)
        self.writer = writer
        self.deadline_s = deadline_s
        self._listener = listener or NoListener()
        self._mask = mask
        pace = SnapshotPace(snapshot_min_pause_s)
        self._cache = RecordCache(store, self.layout.snapshot, writes=writes_snapshot, pace=pace)
        self._noticed: set[tuple[str, int, type[Record]]] = set()
        self._sleep = sleep
        self._clock = clock
        self._rng = rng or random.Random()
        self._plans_read: dict[str, PlanRecord] = {}
        self._contents: dict[str, tuple[str, Record]] = {}
        """What was loaded so far: the etag of each object, and the record in it."""
        self._loaded: dict[str, RegionState] = {}
        self._groups = GroupsOfRun(self._take_all_groups)
        self.of_modes: dict[object, Any] = {}
        """What a mode has read of the run beside the records, by keys of its own."""

    def sibling(self, identity: RunIdentity, *, listener: JournalListener | None = None) -> Journal:
        """The journal of ``identity`` in the same store, for the same process, with a listener of its own."""
        return Journal(
            self.store,
            identity,
            writer=self.writer,
            deadline_s=self.deadline_s,
            listener=listener,
            mask=self._mask,
            sleep=self._sleep,
            clock=self._clock,
            rng=self._rng,
        )

    # reading

    @without_garbage_collection()
    def list(  # noqa: C901 - a branch a kind of object
        self, regions: Iterable[str], listed: Iterable[ObjectInfo] | None = None
    ) -> Listing:
        """The run's state by the names in one listing. Objects of regions that are not named are left out.

        ``listed``: all objects of the journal, where they were listed just now.

        Raises the store's errors; never takes "denied" or "timed out" for "empty".
        """
        names = {encode(region): region for region in regions}
        marks: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in names.values()}
        batches: dict[tuple[str, int], set[int]] = {}
        plans: set[str] = set()
        fingerprints: set[str] = set()
        newest_publish = newest_closed = 0
        objects: dict[str, ObjectInfo] = {}
        snapshot: ObjectInfo | None = None
        for info in list_sharded(self.store, self.layout, names.values()) if listed is None else listed:
            objects[info.key] = info
            key = self.layout.parse_attempt(info.key)
            if key is not None:
                region = names.get(key.region)
                if region is not None and key.kind == "part":
                    batches.setdefault((region, key.attempt), set()).add(key.number)
                elif region is not None:
                    marked = marks[region].setdefault(key.attempt, {})
                    if (mark := RECORD_KINDS[key.kind].mark) is not None:
                        marked[mark] = max(marked.get(mark, 0), key.number) if key.number else True
                    if key.kind == "outcome":
                        marked["outcome_etag"] = info.etag
            elif (plan := self.layout.parse_plan(info.key)) is not None:
                plans.add(plan)
            elif (fingerprint := self.layout.parse_fingerprint(info.key)) is not None:
                fingerprints.add(fingerprint)
            elif (number := self.layout.parse_publish(info.key)) is not None:
                newest_publish = max(newest_publish, number)
            elif (number := self.layout.parse_closed(info.key)) is not None:
                newest_closed = max(newest_closed, number)
            elif info.key == self.layout.snapshot:
                snapshot = info
            else:
                self._check_known(info.key, names)
        for (region, attempt), numbers in batches.items():
            marks[region].setdefault(attempt, {})["batches"] = _length_of(numbers)
        closed_at = self.closed_at(newest_closed) if newest_closed else {}
        for region, attempts in marks.items():
            for attempt, marked in attempts.items():
                if "has_outcome" in marked and "is_claimed" not in marked and attempt > closed_at.get(region, 0):
                    marked["is_claimed"] = self._confirm_claimed(region, attempt)
        state = RunState(
            regions={
                region: RegionState(
                    in_order(
                        {number: altered(_LISTED, number=number, **marked) for number, marked in attempts.items()}
                    ),
                    closed_at.get(region, 0),
                )
                for region, attempts in marks.items()
            },
            plans=frozenset(plans),
            newest_publish=newest_publish,
            is_closed=newest_closed > 0,
            fingerprints=frozenset(fingerprints),
        )
        return Listing(state, objects, snapshot)

    @without_garbage_collection()
    def load(self, listing: Listing, regions: Iterable[str] | None = None) -> RunState:
        """The listing's state with the contents of outcomes, and of open claims, of ``regions`` (default: all).

        What was loaded before is not decoded again, and of a region of which nothing has changed since the state is
        the same object (`airflow_recovery.planning.evaluation` evaluates what is another one).

        Raises `PagesDisagree` where a record names an attempt that the listing lacks: list again; and `ObjectTooLarge`
        where an outcome is, before any is read.
        """
        wanted = listing.state.regions.keys() if regions is None else set(regions)
        kinds = [(kind.mark or "", kind) for kind in RECORD_KINDS.values() if kind.content is not None]
        keys: dict[str, tuple[str, int, RecordKind]] = {}
        for region in wanted:
            for n, attempt in listing.state.of(region).attempts.items():
                for mark, kind in kinds:
                    # A claim is read of an open attempt alone: of one that has ended, the outcome says more.
                    if getattr(attempt, mark) and (kind.record is not Claim or not attempt.has_outcome):
                        keys[self.layout.attempt(region, n, kind.name)] = (region, n, kind)
        regions = dict(listing.state.regions)
        self._read_into(regions, keys, listing)
        # What the newest claim says of an earlier finish holds until there is another one.
        claim = RECORD_KINDS["claim"]
        states = ((region, regions[region]) for region in wanted if region in regions)
        after_finish = ((region, now.attempts[now.latest_attempt]) for region, now in states if now.is_followed)
        ended = {
            self.layout.attempt(region, newest.number, claim.name): (region, newest.number, claim)
            for region, newest in after_finish
            if newest.is_claimed and newest.has_outcome
        }
        if ended:
            self._read_into(regions, ended, listing)
        for region in wanted:
            if region in regions:
                loaded = self._loaded.get(region)
                if loaded is not None and _is_same(loaded, regions[region]):
                    regions[region] = loaded
                self._loaded[region] = regions[region]
        state = replace(listing.state, regions=regions)
        _check_pages(state, wanted)
        return state

    def _read_into(
        self, regions: dict[str, RegionState], keys: Mapping[str, tuple[str, int, RecordKind]], listing: Listing
    ) -> None:
        """Read the records at ``keys``, each one of an attempt of a region, into the states of those regions."""
        self._check_sizes(listing, keys)
        etags = {key: listing.objects[key].etag for key in keys}
        bodies = self._cache.bodies(etags, listing.snapshot, lambda missing: get_many(self.store, missing))
        contents: dict[str, dict[int, dict[str, Any]]] = {}
        for key, (region, n, kind) in keys.items():
            of_attempt = contents.setdefault(region, {}).setdefault(n, {})
            of_attempt[kind.content or ""] = self._content(kind.record, bodies[key], key, etags[key])
            if kind.record is Outcome:
                of_attempt["outcome_etag"] = etags[key]
        for region, by_number in contents.items():
            read = {n: altered(regions[region].attempts[n], **content) for n, content in by_number.items()}
            regions[region] = RegionState({**regions[region].attempts, **read}, regions[region].closed_at)

    def renew_snapshot(self, listing: Listing) -> None:
        """Have a snapshot of ``listing``'s outcomes written in the background, where one is due. Never waits."""
        keys = (
            self.layout.attempt(name, n, "outcome")
            for name, region in listing.state.regions.items()
            for n, attempt in region.attempts.items()
            if attempt.has_outcome
        )
        etags = {key: listing.objects[key].etag for key in keys}
        self._cache.renew(etags, listing.snapshot, lambda missing: get_many(self.store, missing))

    def wait_for_snapshot(self) -> None:
        """Wait until the snapshot that is being written, if any, is there. For tests and measurements."""
        self._cache.wait()

    def open_claims(self) -> tuple[Claim, ...]:
        """Every claim without an outcome, of whatever region, by one listing. Their inputs may not be deleted."""
        return self.data_in_use().claims

    def data_in_use(self, listed: Iterable[ObjectInfo] | None = None) -> DataInUse:
        """Whose data may not be deleted, whatever any plan says, by one listing: ``listed``, where nothing will be."""
        claimed: dict[str, str] = {}
        ended: set[str] = set()
        turns: dict[tuple[str, int], int] = {}
        for info in self.store.list(self.layout.attempts) if listed is None else listed:
            attempt, _, kind = info.key.rpartition(".")
            if kind == "claim":
                claimed[attempt] = info.key
            elif kind == "outcome":
                ended.add(attempt)
            else:
                key = self.layout.parse_attempt(info.key)
                if key is not None and key.kind == "hold":
                    turns[key.region, key.attempt] = max(turns.get((key.region, key.attempt), 0), key.number)
                elif key is None:
                    self._check_known(info.key)
        opened = [key for attempt, key in claimed.items() if attempt not in ended and self.layout.parse_attempt(key)]
        many = get_many(self.store, opened)
        claims = tuple(self._decode(Claim, many[key].body, key) for key in opened)
        return DataInUse(claims, frozenset(attempt for attempt, turn in turns.items() if is_pinned_after(turn)))

    def read_claim(self, region: str, attempt: int) -> Claim:
        """The claim of an attempt. Raises `ObjectMissing` where nobody has claimed it."""
        return self._read(Claim, self.layout.attempt(region, attempt, "claim"))

    def read_claims(self, attempts: Iterable[tuple[str, int]]) -> tuple[Claim, ...]:
        """The claims of many attempts, (region, number), in the order given. Raises as `read_claim`."""
        keys = [self.layout.attempt(region, attempt, "claim") for region, attempt in attempts]
        many = get_many(self.store, keys)
        return tuple(self._decode(Claim, many[key].body, key) for key in keys)

    def read_batch_log(self, region: str, attempt: int, length: int) -> tuple[CommittedBatch, ...]:
        """The batches of an attempt that are numbered below ``length``, in order, read at once.

        Raises `ObjectMissing` where one of them is not there.
        """
        return self.read_committed_batches(region, [(attempt, number) for number in range(length)])

    def read_committed_batches(self, region: str, batches: Iterable[tuple[int, int]]) -> tuple[CommittedBatch, ...]:
        """Committed batches by attempt and number, in the order given, read at once. Raises `ObjectMissing`."""
        keys = [self.layout.batch(region, attempt, number) for attempt, number in batches]
        many = get_many(self.store, keys)
        return tuple(self._decode(CommittedBatch, many[key].body, key) for key in keys)

    def read_outcome(self, region: str, attempt: int) -> Outcome | None:
        """The outcome of an attempt; `None` while it is open."""
        try:
            return self._read(Outcome, self.layout.attempt(region, attempt, "outcome"))
        except ObjectMissing:
            return None

    def has_outcome(self, region: str, attempt: int) -> bool:
        """Whether the attempt has ended. One LIST: cheaper than `read_outcome` while it is open."""
        key = self.layout.attempt(region, attempt, "outcome")
        return any(info.key == key for info in self.store.list(key))

    def read_lost(self, region: str, attempt: int) -> Lost:
        """A consumer's report that the attempt's result is gone. Raises `ObjectMissing` where there is none."""
        return self._read(Lost, self.layout.attempt(region, attempt, "lost"))

    def read_reset(self, region: str, attempt: int) -> Reset:
        """The reset that names this attempt. Raises `ObjectMissing` where there is none."""
        return self._read(Reset, self.layout.attempt(region, attempt, "reset"))

    @without_garbage_collection()
    def read_plans(self) -> dict[str, PlanRecord]:
        """All plans of the run by their hashes, in that order. Each is read once: nobody writes another one there."""
        keys = self._plan_keys()
        missing = {hash_: key for hash_, key in keys.items() if hash_ not in self._plans_read}
        many = get_many(self.store, missing.values())
        self._plans_read |= {hash_: self._decode(PlanRecord, many[key].body, key) for hash_, key in missing.items()}
        return {hash_: self._plans_read[hash_] for hash_ in keys}

    def recorded_regions(self) -> set[str]:
        """The names of the regions of all recorded plans. Raises the store's errors."""
        return {name for plan in self.read_plans().values() for name in plan.by_name}

    def read_plan(self, hash_: str) -> PlanRecord:
        """The plan with this hash (`plan_hash`). Raises `ObjectMissing` where the run has never recorded it."""
        return self._read(PlanRecord, self.layout.plan(hash_))

    def read_components(self, name: str) -> tuple[Component, ...]:
        """What attempts are made of, by `Claim.components`. Raises `ObjectMissing` if it was purged."""
        return self._read(FingerprintRecord, self.layout.fingerprint(name)).components

    def read_all_components(self, names: Iterable[str]) -> dict[str, tuple[Component, ...]]:
        """Those of several names, read at once. Raises as `read_components`."""
        keys = {name: self.layout.fingerprint(name) for name in names}
        many = get_many(self.store, keys.values())
        return {name: self._decode(FingerprintRecord, many[key].body, key).components for name, key in keys.items()}

    def take_groups(self, plan: PlanRecord) -> None:
        """Tell the inputs of records by the groups of ``plan``, the one in use, as by those of plans that were read."""
        self._groups.add(plan)

    def read_publish(self, number: int) -> Publish:
        """The publish with this number, from 1. Raises `ObjectMissing`."""
        return self._read(Publish, self.layout.publish(number))

    def read_closed(self, number: int) -> Closed:
        """The tombstone with this number: 1 for the first purge of the run. Raises `ObjectMissing`."""
        return self._read(Closed, self.layout.tombstone(number))

    # writing; each is put-if-absent, and raises `AttemptLost` where somebody else's object is there

    def put_plan(self, plan: PlanRecord) -> None:
        """Record a plan; the same plan of another writer is as good."""
        self.take_groups(plan)
        self._put(plan, self.layout.plan(plan_hash(plan)), lambda held: held == plan)

    def put_components(self, record: FingerprintRecord) -> None:
        """Record what attempts are made of. Its key names its content, so any writer's record is as good."""
        self._put(record, self.layout.fingerprint(record.name), lambda held: True)

    def check_fits(self, region: str, externals: tuple[ExternalObject, ...]) -> None:
        """Raise `JobDefinitionError` where no finish of ``region`` could tell that it has read ``externals``.

        So that this is known before Spark has run for it, for so many that it may be.
        """
        if len(externals) > _MANY_FILES:
            finish = Outcome(region, 0, AttemptState.FINISHED, self.writer, "", externals=externals)
            checked_record(self.identity, finish)

    def claim(self, claim: Claim) -> None:
        """Open an attempt. Raises `AttemptLost` where the number is taken."""
        self._put(
            claim, self.layout.attempt(claim.region, claim.attempt, "claim"), lambda held: held.writer == claim.writer
        )

    def commit_batch(self, batch: CommittedBatch) -> ObjectInfo:
        """Commit splits. Raises `AttemptLost` where another process has written a batch of this number."""
        key = self.layout.batch(batch.region, batch.attempt, batch.number)
        return self._put(batch, key, lambda held: (held.writer, held.splits) == (batch.writer, batch.splits))

    def finish(self, outcome: Outcome) -> ObjectInfo:
        """End an attempt with its result. Raises `AttemptLost` where it was fenced."""
        return self._end(outcome, AttemptState.FINISHED)

    def fence(self, outcome: Outcome) -> ObjectInfo:
        """End an attempt without a result. Raises `AttemptLost` where it has finished or was fenced by another."""
        return self._end(outcome, AttemptState.FENCED)

    def reset(self, reset: Reset) -> None:
        """Attempts up to ``reset.attempt`` do not count any more. A reset that is there already is as good."""
        self._put(reset, self.layout.attempt(reset.region, reset.attempt, "reset"), lambda held: True)

    def keep(self, kept: Kept) -> None:
        """The region's own task has found a finish valid that a later claim calls outdated. Who says so is no matter.

        Raises `AttemptLost` where another try has found another finish valid.
        """
        self._put(kept, self.layout.attempt(kept.region, kept.attempt, "kept"), lambda held: held.kept == kept.kept)

    def compare_declared(self, declared: Declared) -> None:
        """The next turn of a question and its answer. Raises `AttemptLost` if another process has taken that turn."""
        key = self.layout.attempt(declared.region, declared.attempt, "declared", declared.turn)
        mine = (declared.own, declared.is_answer)
        self._put(declared, key, lambda held: (held.own, held.is_answer) == mine)

    def read_declared(self, region: str, attempt: int, turns: int) -> tuple[Declared, ...]:
        """The first ``turns`` questions and answers about one attempt. Raises `ObjectMissing`."""
        keys = [self.layout.attempt(region, attempt, "declared", turn) for turn in range(1, turns + 1)]
        return tuple(self._read(Declared, key) for key in keys)

    def report_lost(self, lost: Lost) -> None:
        """A consumer's report. Its key names what was lost, so two reporters write one object."""
        self._put(lost, self.layout.attempt(lost.region, lost.attempt, "lost"), lambda held: True)

    def release(self, released: Released) -> None:
        """The data of an attempt may not be used any more."""
        self._put(released, self.layout.attempt(released.region, released.attempt, "released"), lambda held: True)

    def commit(self, committed: Committed) -> None:
        """How the commit of a finish ended. Raises `AttemptLost` where somebody else says that it ended otherwise."""
        key = self.layout.attempt(committed.region, committed.attempt, "committed")
        self._put(committed, key, lambda held: held.end is committed.end)

    def take_commit(self, epoch: CommitterEpoch) -> None:
        """Become the one process that may commit. Raises `AttemptLost` where another one has."""
        key = self.layout.attempt(epoch.region, epoch.attempt, "committer", epoch.epoch)
        self._put(epoch, key, lambda held: held.writer == epoch.writer)

    def confirm_dead(self, dead: CommitterDead) -> None:
        """The process of an epoch commits no more. Who says so does not matter."""
        self._put(dead, self.layout.attempt(dead.region, dead.attempt, "confirmed", dead.epoch), lambda held: True)

    def pin(self, pin: Pin) -> None:
        """A person's word on one attempt's data. Raises `AttemptLost` where somebody else has said otherwise first."""
        key = self.layout.attempt(pin.region, pin.attempt, "hold", pin.turn)
        self._put(pin, key, lambda held: (held.who, held.why) == (pin.who, pin.why))

    def read_pin(self, region: str, attempt: int, turn: int) -> Pin:
        """Who has pinned or unpinned an attempt's data, and why. Raises `ObjectMissing`."""
        return self._read(Pin, self.layout.attempt(region, attempt, "hold", turn))

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Take an attempt from readers outside the run, or give it back.

        Raises `AttemptLost` if somebody else has done this turn first.
        """
        key = self.layout.attempt(withdrawal.region, withdrawal.attempt, "withdrawn", withdrawal.turn)
        self._put(withdrawal, key, lambda held: (held.who, held.reason) == (withdrawal.who, withdrawal.reason))

    def read_withdrawal(self, region: str, attempt: int, turn: int) -> Withdrawal:
        """Who has withdrawn an attempt or given it back, and why. Raises `ObjectMissing`."""
        return self._read(Withdrawal, self.layout.attempt(region, attempt, "withdrawn", turn))

    def read_committer(self, region: str, attempt: int, epoch: int) -> CommitterEpoch:
        """Which process may commit in this epoch, from 2 on. Raises `ObjectMissing` where nobody has taken it."""
        return self._read(CommitterEpoch, self.layout.attempt(region, attempt, "committer", epoch))

    def close(self, closed: Closed, number: int) -> None:
        """The tombstone ``number`` of this run, before anything of it is purged.

        Raises `AttemptLost` where another sweeper has closed the run at other attempts.
        """
        self._put(closed, self.layout.tombstone(number), lambda held: held == closed, number)

    def publish(self, publish: Publish) -> None:
        """Record a coherent cut. Raises `AttemptLost` where the number is taken by another cut."""
        self._put(
            publish,
            self.layout.publish(publish.number),
            lambda held: (held.regions, held.skipped) == (publish.regions, publish.skipped),
        )

    def noticed(self, record: Claim | Outcome) -> None:
        """Hand the listener a record that another process has written, unless it was handed this one already.

        A driver ends its attempt by itself, and a process may die before its events are written: whoever reads what it
        left records it once more.
        """
        key = (record.region, record.attempt, type(record))
        if key not in self._noticed:
            self._noticed.add(key)
            self._listener.wrote(record)

    def _check_known(self, key: str, names: Container[str] | None = None) -> None:
        """Refuse an object of a kind that a later version has added, but for one of a region that is not in ``names``.

        What it says may be a person's "keep this": nobody may decide, or delete, who does not know.
        """
        kind = self.layout.unknown_kind(key)
        folder, *below = key.removeprefix(self.layout.prefix).split("/")
        if kind is not None and (names is None or folder != "t" or below[0] in names):
            raise RecordInvalid(
                f"{self.store.base_uri}/{key}: expected a kind of record that this version knows, found {kind!r}: a "
                "newer version has written it. Upgrade airflow-recovery here. Where no version of it did, move the "
                "object away.",
                code="record-kind-unknown",
                found=kind,
            )

    def _confirm_claimed(self, region: str, attempt: int) -> bool:
        """True, once the claim of an attempt is read of which the listing had the outcome alone (pages may disagree).

        Raises `RecordInvalid` where there is no claim: its number would be given out again, and its files overwritten.
        """
        key = self.layout.attempt(region, attempt, "claim")
        try:
            self.store.get(key)
        except ObjectMissing as error:
            raise RecordInvalid(
                f"{self.store.base_uri}/{key}: expected the claim of {region}@{attempt}, which has ended, found "
                "nothing: something deletes objects of the journal, perhaps a lifecycle rule of the bucket. Exempt the "
                "journal, and restore the object (a bucket with versions has it). Where it is gone for good, delete "
                f"all of this run below {self.store.base_uri}/{self.layout.prefix} and below the results, and clear "
                "the run: it is made again.",
                code="claim-vanished",
                region=region,
                attempt=attempt,
            ) from error
        return True

    def _end(self, outcome: Outcome, state: AttemptState) -> ObjectInfo:
        if outcome.state is not state:
            raise ValueError(f"expected an outcome that is {state.value}, found {outcome.state.value}")
        return self._put(
            outcome,
            self.layout.attempt(outcome.region, outcome.attempt, "outcome"),
            lambda held: held.writer == outcome.writer and held.state is outcome.state,
        )

    def _put(self, record: R, key: str, is_mine: Callable[[R], bool], number: int = 0) -> ObjectInfo:
        kind = type(record)
        # What is in the journal in the end: somebody else's record may be as good as ours.
        stored = masked(record, self._mask)

        def evaluate(body: bytes) -> bool:
            nonlocal stored
            held = self._decode(kind, body, key)
            if is_mine(held):
                stored = held
                return True
            return False

        try:
            written = write_once(
                self.store,
                key,
                checked_record(self.identity, stored),
                is_mine=evaluate,
                deadline_s=self.deadline_s,
                sleep=self._sleep,
                clock=self._clock,
                rng=self._rng,
            )
        except WriteLost as error:
            raise AttemptLost(str(error), code="written-first") from None
        except (StoreTimeout, StoreUnavailable) as error:
            self._listener.in_doubt(key, str(error))
            raise
        if isinstance(stored, (Claim, Outcome)):
            self.noticed(stored)
        else:
            self._listener.wrote(stored, number)
        return written.info

    def _read(self, kind: type[R], key: str) -> R:
        return self._decode(kind, self.store.get(key).body, key)

    def _plan_keys(self) -> dict[str, str]:
        """The keys of all plans by their hashes, in that order."""
        listed = (info.key for info in self.store.list(f"{self.layout.prefix}plan/"))
        return {hash_: key for key in listed if (hash_ := self.layout.parse_plan(key)) is not None}

    def _take_all_groups(self) -> None:
        for key in self._plan_keys().values():
            # What one damaged plan would have told, another one may tell as well.
            with suppress(RecordInvalid, ObjectMissing):
                self._read(PlanRecord, key)

    def _check_sizes(self, listing: Listing, keys: Mapping[str, tuple[str, int, RecordKind]]) -> None:
        """Raises `ObjectTooLarge`. Earlier versions wrote such outcomes, and read none: nothing rests on one."""
        for key, (region, attempt, kind) in keys.items():
            info = listing.objects[key]
            if info.size > MAX_RECORD_BYTES and kind.record is Outcome:
                raise ObjectTooLarge(
                    f"{self.store.base_uri}/{info.key}: expected at most {MAX_RECORD_BYTES} bytes in the outcome of "
                    f"{region}@{attempt}, found {info.size}: an earlier version of recovery may have written it, and "
                    f"nobody reads it. Delete this object, and clear the task of {region}: it ends attempt {attempt}, "
                    "and runs again (where its sink appends, first remove what that attempt has appended)."
                )

    def _decode(self, kind: type[R], body: bytes, key: str) -> R:
        where = f"{self.store.base_uri}/{key}"
        record = decode_record(self.identity, kind, body, where=where)
        if self.layout.of_attempt(record) not in (None, key):
            about: Any = record
            raise RecordInvalid(
                f"{where}: expected a record of this key, found one of {about.region}@{about.attempt}: it was copied "
                "here. Delete the copy.",
                code="record-copied",
            )
        return self._groups.taken(record)

    def _content(self, kind: type[Record], body: bytes, key: str, etag: str) -> Record:
        """As `_decode`. An object that was loaded before, and has this etag still, is decoded once."""
        known_etag, record = self._contents.get(key, ("", None))
        if record is None or known_etag != etag:
            record = self._decode(kind, body, key)
            # A plan that is recorded later may tell the groups of a record: that one is looked at again.
            inputs = record.inputs if isinstance(record, (Claim, Outcome)) else ()
            if type(inputs) is not Inputs or inputs.is_known:
                self._contents[key] = etag, record
        return record

    def closed_at(self, number: int) -> dict[str, int]:
        """By region, the attempt up to which tombstone ``number`` has made all void. Raises `ObjectMissing`."""
        return {ref.region: ref.attempt for ref in self.read_closed(number).highest}


def until_pages_agree(look: Callable[[], T]) -> T:
    """What ``look`` returns, which lists the journal and reads what it has listed.

    The pages of a listing are not a snapshot: while tasks write, they may disagree, and then all is looked at again.
    Raises `PagesDisagree` where they disagreed `LISTING_ROUNDS` times.
    """
    for _ in range(LISTING_ROUNDS - 1):
        with suppress(PagesDisagree):
            return look()
    try:
        return look()
    except PagesDisagree as error:
        raise PagesDisagree(
            f"The journal was not coherent in {LISTING_ROUNDS} listings, since others write all the time: {error} "
            "Try again; a task retries by itself.",
            code="journal-busy",
        ) from error


def _length_of(numbers: set[int]) -> int:
    """How long a log of these batches is: a hole is a batch that an early page lacks, and ends what is known of it."""
    length = 0
    while length in numbers:
        length += 1
    return length


def _is_same(before: RegionState, now: RegionState) -> bool:
    """Whether nothing of a region has changed. Equal inputs are not enough: of groups one may tell more by now."""
    return before == now and all(
        attempt.outcome is now.attempts[n].outcome and attempt.claim is now.attempts[n].claim
        for n, attempt in before.attempts.items()
    )


def _check_pages(state: RunState, regions: Iterable[str]) -> None:
    """Raise `PagesDisagree` where a record refers to an attempt that an earlier page lacks: it was written since."""
    checked: set[InputGroupRef] = set()
    for region in regions:
        for attempt in state.of(region).attempts.values():
            record = attempt.outcome or attempt.claim
            inputs = record.inputs if record is not None else ()
            if type(inputs) is Inputs:
                # Of a group that no plan has nothing can be checked, and nobody takes its readers for valid.
                inputs = tuple(inputs.unseen(checked) if inputs.is_known else inputs.singles.values())
            for ref in inputs:
                producer = state.regions.get(ref.region)
                if producer is None or ref.attempt <= producer.closed_at:
                    continue
                named = producer.attempts.get(ref.attempt)
                if named is None or not named.has_outcome:
                    raise PagesDisagree(
                        f"{region}@{attempt.number} names {ref.region}@{ref.attempt}, which the listing lacks.",
                        code="listing-lacks-attempt",
                        region=region,
                        attempt=attempt.number,
                    )
            for number, length in attempt.claim.mode.batches_named if attempt.claim is not None else ():
                named = state.of(region).attempts.get(number)
                if number > state.of(region).closed_at and (named is None or named.batches < length):
                    raise PagesDisagree(
                        f"{region}@{attempt.number} has adopted {length} batches of attempt {number}, and the listing "
                        "lacks some of them.",
                        code="listing-lacks-batches",
                        attempt=attempt.number,
                    )
