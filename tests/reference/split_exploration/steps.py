"""What may happen next in a world, and what comes of it: the decisions are those that jobs run.

Of a try, what stands between two requests to a store is one step; nothing else is made up here:

    LIST, ENTER   `dynamic_splits.rescaled`, ``news``, ``to_read``;  static: `assignment.advance`
    EVALUATE      `Evaluation` with the book;  `batches.adoptable` and ``usable``, `SplitBook.has`
    CLAIM         put if absent
    RETURN        `SplitBook.rest_of`, `dynamic_splits.check_own`
    PULL, COMMIT  `SplitBook.pull`; a batch is put whether the attempt is fenced or not: nothing rests on that look
    FINISH        `batches.check_cover`; put if absent

A process that is frozen goes on whenever it likes, so that every write may come late; one that dies after a write has
never heard of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from airflow_recovery.errors import AttemptLost, RecoveryError, SplitsVanished, UserCodeError
from airflow_recovery.job.enumerators import Enumeration
from airflow_recovery.model import split_assignment as assigning
from airflow_recovery.model.records import CommittedBatch
from airflow_recovery.model.split import Split, in_order
from airflow_recovery.model.split_assignment import Assignment
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.splits import committed_batches
from airflow_recovery.splits import dynamic_assignment as dynamic_splits
from airflow_recovery.splits.committed_batches import adoptable, check_cover, numbers_of, refs_of
from airflow_recovery.splits.committed_splits import check_kept
from airflow_recovery.splits.log import Assign
from airflow_recovery.splits.mode import CommittedBatchRef, SplitClaim, SplitOutcome, SplitPlan
from airflow_recovery.splits.planning import SplitBooks
from reference.split_exploration.case import CODES, Case, Change, Fault
from reference.split_exploration.world import (
    VERTEX,
    Log,
    Phase,
    Process,
    Region,
    Task,
    Tried,
    World,
    batch_of,
    claim_of,
    externals_of,
    name_of,
    plan_of,
    reading,
    run_state,
    state_of,
)

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
log.propagate = False

Step: TypeAlias = tuple[str, ...]
"""What happens, and to whom, in words."""

BYTES = 10
MOST_ATTEMPTS = 14
"""Of one subtask: more of them than changes and faults can account for is a circle."""


class Violation(Exception):
    """A split is lost or doubled, or nothing goes on."""


class Steps:
    """The steps of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def first(self) -> World:
        """Before anything has run."""
        case = self.case
        return World(
            code=CODES[0],
            subtasks=case.subtasks,
            listing=tuple(split(name) for name in LETTERS[: case.splits]),
            regions=(Region(),) * case.subtasks,
            tasks=(Task.CLEARED,) * case.subtasks,
            log=Log(),
        )

    def next(self, world: World) -> Iterator[tuple[Step, World]]:
        """Every step that is possible, and the world after it. Raises `Violation`."""
        work = [*self._work(world)] or [*self._follow_errors(world)]
        is_quiet = world.changes == self.case.changes and world.faults == self.case.faults
        if is_quiet and all(process.is_live for process in world.processes):
            # Nothing more can go wrong, and case 0 faults tells of every order.
            yield from work[:1]
            return
        yield from work
        yield from self._faults(world)
        yield from self._changes(world)

    # what goes on by itself

    def _work(self, world: World) -> Iterator[tuple[Step, World]]:
        for at, each in enumerate(world.processes):
            yield (each.phase, _who(each)), self._proceeded(world, at)
        running = {process.subtask for process in world.processes if process.is_live}
        for subtask in range(world.subtasks):
            if world.tasks[subtask] == Task.CLEARED and subtask not in running:
                process = Process(subtask, world.code, world.subtasks)
                yield (
                    ("a try begins", _who(process)),
                    _told(world._replace(processes=(*world.processes, process)), subtask, Task.RUNNING),
                )
        if all(task == Task.GREEN for task in world.tasks[: world.subtasks]) and not world.is_published:
            yield ("publish",), self._published(world)

    def _proceeded(self, world: World, at: int) -> World:
        process = world.processes[at]
        try:
            world, after = _PHASES[process.phase](self, world, process)
        except (SplitsVanished, UserCodeError):
            world, after = _ended(world, process, Task.NAMED), None
        except AttemptLost:
            world, after = _ended(world, process, Task.CLEARED), None
        except RecoveryError as error:
            raise Violation(f"stuck: {type(error).__name__}: {error}") from error
        processes = (*world.processes[:at], *(() if after is None else (after,)), *world.processes[at + 1 :])
        return world._replace(processes=processes)

    def _follow_errors(self, world: World) -> Iterator[tuple[Step, World]]:
        """A person does what a task says: where what is kept can't be taken over, the region is restarted."""
        for subtask in range(world.subtasks if self.case.vanished is Vanished.KEEP else 0):
            region = world.regions[subtask]
            if world.tasks[subtask] == Task.NAMED and len(region.attempts) > region.reset_watermark:
                marked = region._replace(reset_watermark=len(region.attempts))
                after = world._replace(regions=_at(world.regions, subtask, marked))
                yield ("a person restarts, as it says", name_of(subtask)), _clear(after, [subtask])

    def check_end(self, world: World) -> None:
        """Nothing more happens: it was published, or a task says by name what is to be done outside."""
        of = self.case.of_changes
        needs_others = (
            self.case.vanished is Vanished.FAIL  # the splits are to be brought back
            or (self.case.vanished is Vanished.KEEP and bool(of & {Change.FEWER, Change.MORE}))
            or not self.case.is_dynamic  # a subtask that is left without any split
        )
        if not world.is_published and not (needs_others and Task.NAMED in world.tasks[: world.subtasks]):
            raise Violation(f"stuck: nothing more happens, and nothing was published: {world.tasks}")

    # the phases of a try

    def _list(self, world: World, process: Process) -> tuple[World, Process | None]:
        if not self.case.is_dynamic:
            return world, process._replace(phase=Phase.ENTER, told=world.listing, seen=len(world.generations))
        record = dynamic_splits.rescaled(world.log.book, process.subtasks, VERTEX, self.case.vanished)
        if record is not None:
            world = world._replace(log=world.log.added(record))
        return world, process._replace(phase=Phase.ENTER, told=world.listing, seen=world.log.book.listings)

    def _enter(self, world: World, process: Process) -> tuple[World, Process | None]:
        if not self.case.is_dynamic:
            return self._enter_generation(world, process)
        book = world.log.book
        if book.listings != process.seen:
            return world, process._replace(phase=Phase.LIST)
        told = Enumeration({each.key: each for each in process.told})
        record = dynamic_splits.news(book, told, VERTEX, self.case.vanished, log)
        if record is not None:
            world = world._replace(log=world.log.added(record))
        found = dynamic_splits.to_read(world.log.book, self.case.vanished)
        return world, process._replace(phase=Phase.LOOK, told=found)

    def _enter_generation(self, world: World, process: Process) -> tuple[World, Process | None]:
        records = world.generations[: process.seen]
        before = Assignment.of_record(records[-1]) if records else None
        earlier = None
        if before is not None and before.parallelism != process.subtasks:
            same = [record for record in records if record.parallelism == process.subtasks]
            earlier = Assignment.of_record(same[-1]) if same else None
        found = assigning.advance(before, process.told, process.subtasks, vanished=self.case.vanished, earlier=earlier)
        if found.is_new(before):
            if len(world.generations) > process.seen:
                if world.generations[process.seen].parallelism != process.subtasks:
                    return world, process._replace(phase=Phase.LIST)
                assignment = Assignment.of_record(world.generations[process.seen])  # the winner's
            else:
                assignment = found.assignment
                record = assignment.record(VERTEX, process.seen, "w")
                world = world._replace(generations=(*world.generations, record))
        else:
            assignment = found.assignment
        own = [*assignment.of(process.subtask)]
        if self.case.vanished is Vanished.KEEP:
            committed = _committed(world.regions[process.subtask], process.subtask)
            own += [each for each in assignment.gone_of(process.subtask) if each.key in committed]
        if not own:
            return _ended(world, process, Task.NAMED), None
        return world, process._replace(phase=Phase.LOOK, told=tuple(in_order(own)))

    def _look(self, world: World, process: Process) -> tuple[World, Process | None]:
        region = world.regions[process.subtask]
        if region.attempts and region.attempts[-1].is_open:
            _check_live(process)
            process = process._replace(is_late=False)
            # A fence: it loses against a finish, and is put where there is no outcome.
            return _put(world, process.subtask, len(region.attempts), is_fenced=True), process
        seen = process._replace(phase=Phase.EVALUATE, region=region)
        return (world, seen) if self.case.is_fine else self._evaluate(world, seen)

    def _evaluate(self, world: World, process: Process) -> tuple[World, Process | None]:
        subtask, region, book = process.subtask, process.region, world.log.book
        assert region is not None
        listed = world._replace(regions=_at(world.regions, subtask, region))
        evaluation = self._evaluation(
            listed, process.code, process.subtasks, {name_of(subtask): externals_of(process.told)}
        )
        if evaluation.invalid_because(name_of(subtask)) is None:
            return _ended(world, process, Task.GREEN), None
        state = state_of(subtask, region)
        claims = {n: claim_of(subtask, n, each) for n, each in enumerate(region.attempts, 1) if n > state.invalid_up_to}
        base = adoptable(state, claims, reading(process.code, process.subtasks))
        batches = [batch_of(subtask, region, *number) for number in numbers_of(base)]
        assigned = {each.key for each in process.told}
        is_dynamic = self.case.is_dynamic
        base = committed_batches.usable(
            base,
            batches,
            assigned,
            is_own=lambda batch: not is_dynamic or book.has(subtask, batch.attempt, batch.splits),
        )
        self._check_kept(
            world, process, {key for n in numbers_of(base) for key in batch_of(subtask, region, *n).splits}
        )
        number = len(region.attempts) + 1
        return world, process._replace(phase=Phase.CLAIM, region=None, attempt=number, base=base)

    def _check_kept(self, world: World, process: Process, adopted: set[str]) -> None:
        if self.case.vanished is not Vanished.KEEP:
            return
        committed = _committed(world.regions[process.subtask], process.subtask)
        if self.case.is_dynamic:
            committed &= world.log.book.vanished() & {*world.log.book.held_by(process.subtask)}
        else:
            newest = Assignment.of_record(world.generations[-1])
            committed &= {each.key for each in newest.gone}
        left = [each for each in process.told if each.key in committed and each.key not in adopted]
        check_kept(name_of(process.subtask), left)

    def _claim(self, world: World, process: Process) -> tuple[World, Process | None]:
        region = world.regions[process.subtask]
        _check_live(process)
        if len(region.attempts) >= process.attempt:
            raise AttemptLost("somebody else has claimed it")
        if process.attempt > MOST_ATTEMPTS:
            raise Violation(f"no end: {name_of(process.subtask)} comes to attempt {process.attempt}")
        tried = Tried(process.code, process.subtasks, process.told, process.base)
        region = region._replace(attempts=(*region.attempts, tried))
        return world._replace(regions=_at(world.regions, process.subtask, region)), process._replace(
            phase=Phase.RETURN, is_late=False
        )

    def _return(self, world: World, process: Process) -> tuple[World, Process | None]:
        subtask, region = process.subtask, world.regions[process.subtask]
        adopted = self._adopted(world, process)
        try:
            if any(each.attempt <= region.reset_watermark for each in process.base):
                raise AttemptLost("what it adopts was reset after it was claimed")
            if self.case.is_dynamic:
                kept = {key for each in adopted for key in each.splits}
                record = world.log.book.rest_of(subtask, process.attempt, kept)
                if record is not None:
                    world = world._replace(log=world.log.added(record))
                dynamic_splits.check_own(world.log.book, subtask, process.attempt, adopted)
        except AttemptLost:
            if world.regions[subtask].attempts[process.attempt - 1].is_open:
                world = _put(world, subtask, process.attempt, is_fenced=True)
            return _ended(world, process, Task.CLEARED), None
        among = {each.key for each in process.told}
        if self.case.is_dynamic and not world.log.book.next_batch(subtask, 1, among):
            return world, process._replace(phase=Phase.FINISH)
        return world, process._replace(phase=Phase.PULL)

    def _pull(self, world: World, process: Process) -> tuple[World, Process | None]:
        if not self.case.is_dynamic:
            done = {key for each in self._adopted(world, process) for key in each.splits} | {*process.taken}
            todo = [each.key for each in process.told if each.key not in done][: self.case.batch]
            return world, self._given(process, tuple(todo))
        among = {each.key for each in process.told}
        found = world.log.book.pull(process.subtask, process.attempt, process.seq, BYTES * self.case.batch, among)
        assert found is not None, "whoever has a number has read it"
        world = world._replace(log=world.log.added(found))
        after = process._replace(seq=process.seq + 1)
        return world, self._given(after, found.splits if isinstance(found, Assign) else ())

    def _given(self, process: Process, batch: tuple[str, ...]) -> Process:
        if not batch:
            return process._replace(phase=Phase.FINISH)
        return process._replace(phase=Phase.COMMIT, batch=batch, taken=(*process.taken, *batch))

    def _commit(self, world: World, process: Process) -> tuple[World, Process | None]:
        region = world.regions[process.subtask]
        tried = region.attempts[process.attempt - 1]
        region = region._replace(
            attempts=_at(region.attempts, process.attempt - 1, tried._replace(batches=(*tried.batches, process.batch)))
        )
        regions = _at(world.regions, process.subtask, region)
        return world._replace(regions=regions), process._replace(phase=Phase.PULL, batch=())

    def _finish(self, world: World, process: Process) -> tuple[World, Process | None]:
        subtask = process.subtask
        tried = world.regions[subtask].attempts[process.attempt - 1]
        own = [
            batch_of(subtask, world.regions[subtask], process.attempt, number) for number in range(len(tried.batches))
        ]
        adopted = self._adopted(world, process)
        kept = {key for each in adopted for key in each.splits}
        assigned = [each for each in process.told if not self.case.is_dynamic or each.key in kept]
        if self.case.is_dynamic:
            assigned += [_BY_KEY[key] for key in process.taken]
        check_cover([each for each in assigned if each.key in kept or each.key in {*process.taken}], (*adopted, *own))
        if not tried.is_open:
            raise AttemptLost("it was fenced")
        world = _put(world, subtask, process.attempt, outcome=refs_of((*adopted, *own)))
        return _ended(world, process, Task.GREEN), None

    def _adopted(self, world: World, process: Process) -> list[CommittedBatch]:
        region = world.regions[process.subtask]
        return [batch_of(process.subtask, region, *number) for number in numbers_of(process.base)]

    def _evaluation(self, world: World, code: str, subtasks: int, externals: object = None) -> Evaluation:
        plan = plan_of(code, subtasks, self.case.is_dynamic)
        books = SplitBooks.of(plan, lambda source: world.log.book) if self.case.is_dynamic else None
        return Evaluation(
            plan,
            run_state(world),
            available=lambda region, attempt, result: None,
            externals=externals,  # type: ignore[arg-type]
            known={SplitPlan.name: books},
        )

    # what is read of it

    def _published(self, world: World) -> World:
        """A reader of all subtasks: wakes those that do not stand, or takes what they have."""
        evaluation = self._evaluation(world, world.code, world.subtasks)
        tasks = list(world.tasks)
        for subtask in range(world.subtasks):
            if evaluation.invalid_because(name_of(subtask)) is not None:
                tasks[subtask] = Task.CLEARED
        if tuple(tasks) != world.tasks:
            return world._replace(tasks=tuple(tasks))
        finishes: dict[int, tuple[CommittedBatchRef, ...]] = {}
        for subtask in range(world.subtasks):
            current = evaluation.current(name_of(subtask))
            assert current is not None
            assert current.outcome is not None
            finishes[subtask] = SplitOutcome.of(current.outcome).batches
        counts = Counter(key for finish in finishes.values() for batch in finish for key in batch.splits)
        for each in self._expected(world, evaluation):
            if counts[each.key] != 1:
                what = "lost" if not counts[each.key] else "doubled"
                raise Violation(f"{what}: {each.name} is in {counts[each.key]} results that are published: {finishes}")
        twice = [key for key, count in counts.items() if count > 1]
        if twice:
            raise Violation(f"doubled: {twice}, which are not listed any more, are published twice: {finishes}")
        return world._replace(is_published=True)

    def _expected(self, world: World, evaluation: Evaluation) -> list[Split]:
        """What has to be there once: all that is listed, as far as it was entered."""
        if self.case.is_dynamic:
            book = world.log.book
            return [each for key, each in book.known.items() if key not in book.vanished()]
        newest = Assignment.of_record(world.generations[-1])
        expected: list[Split] = []
        for subtask in range(world.subtasks):
            current = evaluation.current(name_of(subtask))
            assert current is not None
            assert current.outcome is not None
            # Its own next try reads what has come since: nobody else does.
            expected += [each for each in newest.of(subtask) if each.external(VERTEX) in current.outcome.externals]
        return expected

    # what goes wrong, and what changes

    def _faults(self, world: World) -> Iterator[tuple[Step, World]]:
        if world.faults == self.case.faults:
            return
        for at, each in enumerate(world.processes):
            if not each.is_live:
                continue
            rest = (*world.processes[:at], *world.processes[at + 1 :])
            gone = _told(world._replace(faults=world.faults + 1), each.subtask, Task.CLEARED)
            if Fault.KILL in self.case.of_faults and each.phase in _WRITTEN:
                yield ("killed", _who(each)), gone._replace(processes=rest)
            if Fault.FREEZE in self.case.of_faults and each.phase in _STALE:
                frozen = each._replace(is_live=False, is_late=each.phase in (Phase.LOOK, Phase.CLAIM))
                yield ("taken for dead", _who(each)), gone._replace(processes=(*rest, frozen))

    def _changes(self, world: World) -> Iterator[tuple[Step, World]]:  # noqa: C901 - a branch a kind of change
        if world.changes == self.case.changes:
            return
        kinds = self.case.of_changes
        changed = world._replace(changes=world.changes + 1, is_published=False)
        if Change.CODE in kinds:
            other = CODES[1 - CODES.index(world.code)]
            yield from self._cleared(changed._replace(code=other), f"code {other}")
        if Change.FEWER in kinds and world.subtasks > self.case.fewest:
            yield from self._resized(changed, self.case.fewest)
        if Change.MORE in kinds and world.subtasks < self.case.subtasks:
            yield from self._resized(changed, self.case.subtasks)
        if Change.VANISH in kinds and len(world.listing) > 1:
            for each in world.listing:
                left = tuple(one for one in world.listing if one != each)
                yield from self._cleared(changed._replace(listing=left), f"{each.name} vanishes")
        if Change.APPEAR in kinds:
            here = {each.name for each in world.listing}
            for name in LETTERS[: self.case.splits + 1]:
                if name not in here:
                    more = tuple(in_order((*world.listing, split(name))))
                    yield from self._cleared(changed._replace(listing=more), f"{name} appears")
        if Change.OVERWRITE in kinds:
            old = world.listing[0]
            newer = replace(old, etag="2" if old.etag == "1" else "1")
            listing = (newer, *world.listing[1:])
            yield from self._cleared(changed._replace(listing=listing), f"{old.name} is overwritten")
        if Change.RESTART in kinds:
            for subtask in range(world.subtasks):
                region = world.regions[subtask]
                if len(region.attempts) > region.reset_watermark:
                    marked = region._replace(reset_watermark=len(region.attempts))
                    after = changed._replace(regions=_at(world.regions, subtask, marked))
                    yield ("a person restarts", name_of(subtask)), _clear(after, [subtask])
        if Change.CLEAR in kinds:
            yield from self._cleared(changed, "cleared")

    def _resized(self, changed: World, subtasks: int) -> Iterator[tuple[Step, World]]:
        yield from self._cleared(changed._replace(subtasks=subtasks), f"{subtasks} subtasks")

    def _cleared(self, world: World, what: str) -> Iterator[tuple[Step, World]]:
        """Of all tasks, or of one."""
        yield (what, "all are cleared"), _clear(world, range(world.subtasks))
        for number in range(world.subtasks if world.subtasks > 1 else 0):
            yield (what, f"{name_of(number)} is cleared"), _clear(world, [number])


_PHASES = {
    Phase.LIST: Steps._list,
    Phase.ENTER: Steps._enter,
    Phase.LOOK: Steps._look,
    Phase.EVALUATE: Steps._evaluate,
    Phase.CLAIM: Steps._claim,
    Phase.RETURN: Steps._return,
    Phase.PULL: Steps._pull,
    Phase.COMMIT: Steps._commit,
    Phase.FINISH: Steps._finish,
}


_WRITTEN = frozenset({Phase.LOOK, Phase.RETURN, Phase.PULL, Phase.COMMIT, Phase.FINISH})
"""Before these something may have been written; a process that dies at any other has never been."""

_STALE = frozenset(
    {Phase.ENTER, Phase.LOOK, Phase.EVALUATE, Phase.CLAIM, Phase.RETURN, Phase.PULL, Phase.COMMIT, Phase.FINISH}
)
"""In front of these a process knows something that may be old when it goes on."""


def split(name: str) -> Split:
    """One split of a letter, small enough that a batch takes as many as it says."""
    return Split.of_file(name, BYTES, "1")


LETTERS = "abcdefghijkl"
_BY_KEY = {each.key: each for name in LETTERS for each in (split(name), replace(split(name), etag="2"))}


def _who(process: Process) -> str:
    what = f"{name_of(process.subtask)}@{process.attempt or '?'} of code {process.code}/{process.subtasks}"
    return what if process.is_live else f"{what}, taken for dead"


def _check_live(process: Process) -> None:
    """As `TaskInstances.live_check`, before a fence and a claim. Whoever is frozen behind it has passed it."""
    if not process.is_live and not process.is_late:
        raise AttemptLost("Airflow has started another try")


def _at(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def _told(world: World, subtask: int, task: str) -> World:
    return world._replace(tasks=_at(world.tasks, subtask, task))


def _ended(world: World, process: Process, task: str) -> World:
    """What Airflow takes the end of a try for; of one that was taken for dead, nothing."""
    return _told(world, process.subtask, task) if process.is_live else world


def _put(world: World, subtask: int, number: int, **fields: object) -> World:
    region = world.regions[subtask]
    tried = region.attempts[number - 1]._replace(**fields)  # type: ignore[arg-type]
    region = region._replace(attempts=_at(region.attempts, number - 1, tried))
    return world._replace(regions=_at(world.regions, subtask, region))


def _clear(world: World, subtasks: object) -> World:
    """A running try is let run: Airflow would end it, which is a fault of its own."""
    tasks = list(world.tasks)
    for subtask in subtasks:  # type: ignore[attr-defined]
        if tasks[subtask] != Task.RUNNING:
            tasks[subtask] = Task.CLEARED
    return world._replace(tasks=tuple(tasks))


def _committed(region: Region, subtask: int) -> set[str]:
    """As `source.committed.committed_splits`."""
    state = state_of(subtask, region)
    found: set[str] = set()
    if state.current is not None and state.current.outcome is not None:
        found |= {Split.of_external(external).key for external in state.current.outcome.externals}
    claims = {n: claim_of(subtask, n, each) for n, each in enumerate(region.attempts, 1) if n > state.invalid_up_to}
    if claims:
        made_of = SplitClaim.of(claims[max(claims)]).reading
        assert made_of is not None
        base = adoptable(state, claims, made_of)
        found |= {key for number in numbers_of(base) for key in batch_of(subtask, region, *number).splits}
    return found
