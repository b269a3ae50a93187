"""Dynamic assignment over the real journal and the real pre-check: four mapped subtasks that pull from one log.

S[0] ─┐
S[1] ─┼──> all
S[2] ─┤
S[3] ─┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
from expected_errors import fails_with
from fakes import IDENTITY, FakeApplication, Hooks, Killed, Process, World, log

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import (
    AttemptLost,
    RecoveryError,
    RegionFailed,
    SplitsNotCovered,
)
from airflow_recovery.job.enumerators import Enumeration, ResumedEnumerator
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import CommittedBatch, ExternalObject, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.splits import dynamic_assignment as dynamic_splits
from airflow_recovery.splits.committed_batches import SplitWork, check_cover, numbers_of, refs_of, union_of
from airflow_recovery.splits.dynamic_assignment import discover, return_rest
from airflow_recovery.splits.log import SplitBook
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.splits.mode import SplitClaim, SplitOutcome, SplitPlan
from airflow_recovery.splits.pull import PulledSplits
from airflow_recovery.testing import CountingStore, Verb

ONE, TWO, THREE, FOUR = SUBTASKS = ("S[0]", "S[1]", "S[2]", "S[3]")
JOB: dict[str, tuple[str, ...]] = {**dict.fromkeys(SUBTASKS, ()), "all": SUBTASKS}


def splits(names: str) -> tuple[Split, ...]:
    """One split a letter."""
    return tuple(Split.of_file(f"s3://lake/{name}.csv", 10, f"etag of {name}") for name in names)


def letter(split: Split) -> str:
    return split.name.removeprefix("s3://lake/").removesuffix(".csv")


class PullingApplication(FakeApplication):
    """As a driver does: pulls, writes, commits a batch, until nothing is left."""

    @property
    def world(self) -> DynamicWorld:
        assert isinstance(self._world, DynamicWorld)
        return self._world

    def externals(self) -> tuple[ExternalObject, ...]:
        world = self.world
        found = discover(
            self._log(),
            world.enumerator or world.lists,
            vertex="S",
            parallelism=world.parallelism,
            vanished=world.vanished,
            log=log,
        )
        return tuple(each.external("S") for each in found)

    def _log(self) -> SplitLogStore:
        journal = self._journal
        return SplitLogStore(journal.store, journal.identity, "S", writer=journal.writer, snapshot_every=3)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        claim, work = attempt.claim, attempt.work
        assert isinstance(work, SplitWork)
        self.world.ran.append((claim.region, claim.attempt))
        index = SUBTASKS.index(claim.region)
        adopted = self._journal.read_committed_batches(claim.region, numbers_of(SplitClaim.of(claim).base))
        among = {each.key for each in work.assigned}
        pulled = PulledSplits(self._log(), index, claim.attempt, batch_bytes=10, suspicion={}, among=among)
        own: list[CommittedBatch] = []
        try:
            for number in count():
                batch = pulled.next_batch()
                if batch is None:
                    break
                self.world.begins(claim.region, number)
                outputs = (self._write_batch(claim.region, claim.attempt, number, batch.splits),)
                keys = tuple(split.key for split in batch.splits)
                committed = CommittedBatch(claim.region, claim.attempt, number, claim.writer, keys, outputs, "now", 1.0)
                self._journal.commit_batch(committed)
                own.append(committed)
            if not own and not adopted:
                outputs = (self._write_batch(claim.region, claim.attempt, 0, ()),)
                own.append(CommittedBatch(claim.region, claim.attempt, 0, claim.writer, (), outputs, "now", 1.0))
                self._journal.commit_batch(own[0])
            batches = (*adopted, *own)
            kept = {key for committed in adopted for key in committed.splits}
            check_cover((*(each for each in work.assigned if each.key in kept), *pulled.taken.values()), batches)
            root = f"{self._results.base_uri}/{self._journal.layout.data_of_region(claim.region)}"
            whole = union_of(root, ("S",), batches)
            outcome = attempt.trace.finished(
                "now", whole, spark_seconds=1.0, mode=SplitOutcome(batches=refs_of(batches))
            )
            self._journal.finish(outcome)
        except AttemptLost as error:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} was fenced") from error
        return outcome

    def _write_batch(self, region: str, attempt: int, number: int, batch: tuple[Split, ...]) -> PartitionManifest:
        folder = f"{self._journal.layout.data_of_number(region, attempt)}/S/{number:04d}"
        body = "".join(letter(split) for split in batch)
        info = self._results.put(f"{folder}/part-0", body.encode())
        where = f"{self._results.base_uri}/{folder}"
        return PartitionManifest("S", where, (ResultObject("part-0", info.size, info.etag),), len(batch), "schema")


class DynamicWorld(World):
    """``listing`` is what the source names today; ``begins`` is called with region and number before each batch."""

    def __init__(self, names: str) -> None:
        super().__init__(JOB)
        self.listing = splits(names)
        self.vanished = Vanished.DROP
        self.parallelism = len(SUBTASKS)
        self.enumerator: ResumedEnumerator | None = None
        self.begins: Callable[[str, int], None] = lambda region, number: None
        self.lists: Callable[[], tuple[Split, ...]] = lambda: self.listing

    @property
    def plan(self) -> PlanRecord:
        plain = super().plan

        def pulling(each: RegionPlan) -> RegionPlan:
            if each.name not in SUBTASKS:
                return replace(each, reads=("S",))
            subtask = SubtaskPlan("S", SUBTASKS.index(each.name), each.name)
            return replace(
                each,
                vertices=("S",),
                results=("S",),
                subtask=subtask,
                mode=SplitPlan(split_source="S", pulls_splits=True),
            )

        return replace(plain, regions=tuple(map(pulling, plain.regions)))

    def region_task(
        self, own: TaskTry, process: Process, hooks: Hooks | None = None, *, epoch: str | None = None
    ) -> RegionTask:
        if own.task_id not in SUBTASKS:
            return super().region_task(own, process, hooks, epoch=epoch)
        self._writers += 1
        writer = f"writer-{self._writers}"
        run = self.run(own, process, writer)
        application = PullingApplication(self, own.task_id, process, writer, hooks or Hooks())
        return RegionTask(run, own.task_id, application, epoch=epoch, restarts=Restarts(run, own.task_id, None))

    # what happens

    @contextmanager
    def when(self, region: str, number: int, act: Callable[[], object]) -> Iterator[None]:
        """``act`` where batch ``number`` of ``region`` begins, once."""
        done: list[bool] = []

        def begins(begun: str, at: int) -> None:
            if (begun, at) == (region, number) and not done:
                done.append(True)
                act()

        before, self.begins = self.begins, begins
        try:
            yield
        finally:
            self.begins = before
        assert done, f"{region} has not come to batch {number}"

    def dies(self, region: str, number: int) -> None:
        """A try that is killed where its batch ``number`` begins; Airflow notices."""
        process = Process()
        with self.when(region, number, process.kill), pytest.raises(Killed):
            self.go(region, process=process)
        self.airflow.lose_heartbeat(region)

    def again(self, region: str) -> RegionResult:
        self.airflow.clear(region)
        return self.go(region)

    def wakes_up(self, region: str, at: int, meanwhile: Callable[[], object]) -> None:
        """A try that is frozen where batch ``at`` begins, and taken for dead; it goes on after ``meanwhile``."""
        own = self.airflow.start(region)

        def zombie() -> None:
            self.airflow.lose_heartbeat(region)
            meanwhile()

        with self.when(region, at, zombie), pytest.raises(RecoveryError):
            self.region_task(own, Process()).execute()

    # what came of it

    def read(self) -> dict[str, str]:
        """The letters in the finish that counts of each subtask, sorted; from the objects that its manifest names."""
        found = {}
        for region in SUBTASKS[: self.parallelism]:
            current = self.state().of(region).current
            if current is not None and current.outcome is not None:
                (manifest,) = current.outcome.outputs
                prefix = manifest.location.removeprefix(f"{self.results.base_uri}/")
                bodies = (self.results.get(f"{prefix}/{file.path}").body.decode() for file in manifest.objects)
                found[region] = "".join(sorted("".join(bodies)))
        return found

    @property
    def everything(self) -> str:
        """All letters of all finishes: one that is there twice was counted twice."""
        return "".join(sorted("".join(self.read().values())))


@pytest.fixture
def world() -> DynamicWorld:
    return DynamicWorld("abcdefgh")


def go_all(world: DynamicWorld) -> None:
    for region in SUBTASKS:
        world.go(region)


def test_whoever_asks_is_given_the_next_one_and_all_together_read_everything_once(world: DynamicWorld):
    with world.when(ONE, 2, lambda: world.go(TWO)):
        world.go(ONE)
    assert world.read() == {ONE: "abc", TWO: "defgh"}


def test_an_index_that_finds_nothing_finishes_without_spark(world: DynamicWorld):
    go_all(world)
    assert world.read() == {ONE: "abcdefgh", TWO: "", THREE: "", FOUR: ""}
    assert world.ran == [(ONE, 1)]
    outcome = world.state().of(TWO).current.outcome
    assert outcome is not None
    assert [(output.rows, output.schema, output.objects) for output in outcome.outputs] == [(0, "schema", ())]


def test_an_index_that_finds_nothing_before_anybody_has_shown_the_columns_asks_spark(world: DynamicWorld):
    world.listing = ()
    go_all(world)
    assert world.ran == [(ONE, 1)]
    assert world.everything == ""


def test_fault_56_one_of_four_is_killed_what_it_had_committed_stays_and_the_rest_goes_home(world: DynamicWorld):
    world.dies(TWO, 3)
    for region in (ONE, THREE, FOUR):
        world.go(region)
    # D was in the hands of the dead one; the others could not have it.
    assert world.read() == {ONE: "efgh", THREE: "", FOUR: ""}
    world.go(TWO)
    assert world.read()[TWO] == "abcd"
    assert world.everything == "abcdefgh"
    assert [each for each in world.ran if each[0] == TWO] == [(TWO, 1), (TWO, 2)]


@pytest.mark.parametrize("number", range(4))
def test_fault_56_killed_anywhere_twice_nothing_is_lost_or_doubled(world: DynamicWorld, number: int):
    world.dies(ONE, number)
    world.dies(ONE, 1)
    with world.when(TWO, 0, lambda: world.go(ONE)):
        world.go(TWO)
    world.go(THREE)
    world.go(FOUR)
    assert world.everything == "abcdefgh"


def test_fault_4_killed_between_claim_and_return_the_next_one_returns_for_it(world: DynamicWorld):
    world.dies(ONE, 2)
    seen: list[str] = []

    def gate(request: str) -> None:
        seen.append(request)
        if request.startswith("PUT _splits/") and any(each.endswith("00000002.claim") for each in seen):
            process.kill()

    process = Process(gate)
    with pytest.raises(Killed):
        world.go(ONE, process=process)
    world.airflow.lose_heartbeat(ONE)
    go_all(world)
    assert world.everything == "abcdefgh"


def test_fault_56_a_zombie_wakes_up_after_its_splits_were_returned_and_finds_itself_fenced(world: DynamicWorld):
    def meanwhile() -> None:
        world.go(ONE)
        world.go(TWO)

    world.wakes_up(ONE, 2, meanwhile)
    world.go(THREE)
    world.go(FOUR)
    assert world.everything == "abcdefgh"


@pytest.mark.parametrize("looks_again", [False, True], ids=["one look", "control: two looks"])
def test_fault_56_what_a_zombie_commits_between_claim_and_return_is_nobodys(
    world: DynamicWorld, monkeypatch: pytest.MonkeyPatch, looks_again: bool
):
    world.dies(ONE, 2)
    real = dynamic_splits.return_rest

    def late(log_: SplitLogStore, subtask: int, attempt: int, base: Iterable[CommittedBatch]) -> object:
        if (subtask, attempt) != (0, 2):
            return real(log_, subtask, attempt, base)
        journal = world.journal()
        (third,) = [each for each in world.listing if letter(each) == "c"]
        journal.commit_batch(CommittedBatch(ONE, 1, 2, "zombie", (third.key,), (), "now", 1.0))
        seen = journal.read_batch_log(ONE, 1, 3)
        return real(log_, subtask, attempt, seen if looks_again else base)

    monkeypatch.setattr(dynamic_splits, "return_rest", late)
    go_all(world)
    assert world.everything == ("abdefgh" if looks_again else "abcdefgh")


def test_a_cleared_index_whose_splits_stand_is_kept(world: DynamicWorld):
    go_all(world)
    assert world.again(ONE).why != "ran"
    assert world.ran == [(ONE, 1)]


def test_a_restart_of_one_index_takes_back_its_own_splits_alone(world: DynamicWorld):
    with world.when(ONE, 2, lambda: world.go(TWO)):
        world.go(ONE)
    world.go(THREE)
    world.go(FOUR)
    world.restart(TWO)
    world.until_green()
    assert world.read() == {ONE: "abc", TWO: "defgh", THREE: "", FOUR: ""}
    assert world.current(ONE) == 1
    assert (TWO, 2) in world.ran


def test_fault_55_a_listing_that_has_grown_is_read_by_whoever_runs_next_and_nothing_twice(world: DynamicWorld):
    go_all(world)
    world.listing = tuple(reversed(splits("abcdefghxy")))
    world.again(THREE)
    assert world.read()[THREE] == "xy"
    world.again(ONE)
    assert world.everything == "abcdefghxy"
    assert world.ran == [(ONE, 1), (THREE, 2)]


def test_fault_55_what_a_slow_process_has_listed_does_not_overtake_a_newer_listing(world: DynamicWorld):
    """It lists; a file comes, and another process lists it too; then the first one goes on."""
    stale: list[tuple[Split, ...]] = [world.listing]

    def lists() -> tuple[Split, ...]:
        if not stale:
            return world.listing
        old = stale.pop()
        world.listing = splits("abcdefghx")
        world.go(TWO)
        return old

    world.lists = lists
    for region in (ONE, THREE, FOUR):
        world.go(region)
    assert world.everything == "abcdefghx"
    assert world.read()[TWO] == "abcdefghx"


def test_fault_55_a_split_that_has_vanished_leaves_the_result(world: DynamicWorld):
    go_all(world)
    world.listing = splits("acdefgh")
    world.again(ONE)
    assert world.everything == "acdefgh"
    assert world.ran == [(ONE, 1)]


def test_fault_55_with_keep_what_was_committed_of_a_vanished_split_stays(world: DynamicWorld):
    world.vanished = Vanished.KEEP
    go_all(world)
    world.listing = splits("acdefgh")
    world.again(ONE)
    assert world.everything == "abcdefgh"


def test_fault_55_with_keep_what_was_not_committed_comes_to_nobody(world: DynamicWorld):
    world.vanished = Vanished.KEEP
    world.dies(ONE, 1)
    world.listing = splits("acdefgh")
    go_all(world)
    assert world.everything == "acdefgh"


def test_fault_55_with_fail_nothing_is_entered_and_the_task_names_it(world: DynamicWorld):
    world.vanished = Vanished.FAIL
    go_all(world)
    world.listing = splits("acdefgh")
    with fails_with("listed-splits-gone"):
        world.again(ONE)
    world.listing = splits("abcdefgh")
    world.again(ONE)
    assert world.everything == "abcdefgh"


def test_an_overwritten_split_is_read_again_and_its_old_rows_leave(world: DynamicWorld):
    go_all(world)
    world.listing = (*splits("abcdefg"), Split.of_file("s3://lake/h.csv", 10, "other"))
    world.again(ONE)
    assert Counter(world.everything) == Counter("abcdefgh")
    assert (ONE, 2) in world.ran


def test_other_code_adopts_nothing_and_everything_comes_back(world: DynamicWorld):
    world.dies(ONE, 3)
    world.fingerprints = dict.fromkeys(SUBTASKS, "code 2")
    go_all(world)
    assert world.everything == "abcdefgh"


def deploys(world: DynamicWorld, code: str, parallelism: int = 4) -> None:
    """Other code, or another number of subtasks; the number belongs to the fingerprint, as it does in a job."""
    world.parallelism = parallelism
    world.upstream = {**dict.fromkeys(SUBTASKS[:parallelism], ()), "all": SUBTASKS[:parallelism]}
    world.fingerprints = dict.fromkeys(SUBTASKS, f"{code}, {parallelism} subtasks")


def clears_all(world: DynamicWorld) -> None:
    for region in SUBTASKS[: world.parallelism]:
        world.again(region)


def two_have_read(world: DynamicWorld) -> None:
    """ONE has read abcd, FOUR the rest."""
    with world.when(ONE, 3, lambda: world.go(FOUR)):
        world.go(ONE)
    world.go(TWO)
    world.go(THREE)
    assert world.read() == {ONE: "abcd", TWO: "", THREE: "", FOUR: "efgh"}


@pytest.mark.parametrize("is_off", [False, True], ids=["as it is", "control: nobody gives it back"])
def test_fault_91_with_fewer_subtasks_what_the_others_had_is_read_by_those_that_are_left(
    world: DynamicWorld, monkeypatch: pytest.MonkeyPatch, is_off: bool
):
    if is_off:
        monkeypatch.setattr(SplitBook, "rescaled", lambda self, parallelism: None)
        monkeypatch.setattr(SplitBook, "invalid_because", lambda self, *given: None)
    deploys(world, "X")
    two_have_read(world)
    deploys(world, "X", 2)
    clears_all(world)
    assert world.everything == ("abcd" if is_off else "abcdefgh")


def test_fault_91_a_driver_of_a_subtask_that_there_is_no_more_is_given_nothing(world: DynamicWorld):
    deploys(world, "X")

    def meanwhile() -> None:
        deploys(world, "X", 2)
        clears_all(world)

    world.wakes_up(FOUR, 2, meanwhile)
    assert world.everything == "abcdefgh"
    deploys(world, "X", 4)
    clears_all(world)
    assert world.everything == "abcdefgh"


def test_fault_92_control_batches_that_were_given_back_are_adopted_and_nothing_goes_on(
    world: DynamicWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SplitBook, "has", lambda self, *given: True)
    with fails_with("splits-not-in-one-batch"):
        test_fault_92_code_back_and_forth_neither_doubles_a_split_nor_gets_stuck(world)


def test_fault_92_what_was_given_back_between_the_look_and_the_return_is_not_adopted(world: DynamicWorld):
    """A zombie of other code claims, and gives back what it does not adopt when its successor has looked already."""
    world.dies(ONE, 2)
    log_ = SplitLogStore(world.journal_store, IDENTITY, "S", writer="zombie")
    base = world.journal().read_batch_log(ONE, 1, 2)
    assert [letter(log_.read().known[key]) for committed in base for key in committed.splits] == ["a", "b"]
    return_rest(log_, 0, 2, base=())
    with fails_with("adopted-batches-given-back"):
        return_rest(SplitLogStore(world.journal_store, IDENTITY, "S", writer="next"), 0, 3, base)
    assert log_.read().next_batch(0, 30) == tuple(split.key for split in splits("abc"))  # who adopts it reads it twice


@pytest.mark.parametrize("is_asked", [True, False], ids=["as it is", "control: the log is not asked"])
def test_fault_92_a_reader_takes_no_finish_whose_splits_were_given_back(
    world: DynamicWorld, monkeypatch: pytest.MonkeyPatch, is_asked: bool
):
    """Its task is green: a process that was taken for dead has given them back since, and has died."""
    go_all(world)
    if not is_asked:
        monkeypatch.setattr(SplitBook, "invalid_because", lambda self, *given: None)
        monkeypatch.setattr(RegionState, "outdated_since", None)
    world.airflow.clear(ONE)
    process = Process(lambda request: process.kill() if ".part-" in request else None)
    world.fingerprints = dict.fromkeys(SUBTASKS, "code 2")
    with pytest.raises(Killed):  # after the claim of other code, and the return
        world.go(ONE, process=process)
    world.fingerprints = {}
    world.airflow.lose_heartbeat(ONE)
    world.airflow.mark(ONE, "success")
    if is_asked:
        with fails_with("input-cleared", cleared=["S[0]"]):
            world.go("all")
        world.until_green()
        assert world.everything == "abcdefgh"
    else:
        world.go("all")


def test_fault_94_what_is_known_is_not_asked_for_again(world: DynamicWorld):
    """Nothing new: two LIST and the records. Given the next splits: one LIST, one PUT. Given back: the same."""
    world.go(ONE)
    store = CountingStore(world.journal_store)
    log_ = SplitLogStore(store, IDENTITY, "S", writer="me")

    def lists() -> None:
        discover(log_, lambda: world.listing, vertex="S", parallelism=4, vanished=Vanished.DROP, log=log)

    records = sum(1 for each in world.journal_store.list("_splits/") if "/log-" in each.key)
    snapshots = records // 3  # PullingApplication writes one behind every third record
    lists()
    assert store.counts() == {Verb.LIST: 2, Verb.GET: 2 + records - 3 * snapshots}
    store.clear()
    lists()
    assert store.counts() == {Verb.LIST: 1}
    world.listing = splits("abcdefghx")
    lists()
    store.clear()
    return_rest(log_, 0, 2, base=())
    assert store.counts() == {Verb.LIST: 1, Verb.PUT_IF_ABSENT: 1}
    store.clear()
    pulled = PulledSplits(log_, 0, 2, batch_bytes=10, suspicion={}, among={each.key for each in world.listing})
    assert pulled.next_batch() is not None
    assert store.counts() == {Verb.LIST: 1, Verb.PUT_IF_ABSENT: 1}


class Numbered:
    """Tells of the letters one by one, from where the one before it was."""

    def __init__(self, world: DynamicWorld) -> None:
        self.world, self.told = world, 0

    def __iter__(self) -> Iterator[Split]:
        while self.told < len(self.world.listing):
            self.told += 1
            yield self.world.listing[self.told - 1]

    def snapshot_state(self) -> int:
        return self.told

    def restore(self, state: int) -> None:
        self.told = state


@pytest.mark.parametrize("request_", ["LIST _splits", "PUT _splits", "PUT dag"])
@pytest.mark.parametrize("number", range(3))
def test_fault_95_an_enumerator_that_goes_on_is_killed_anywhere_and_tells_of_each_split_once(
    world: DynamicWorld, request_: str, number: int
):
    world.enumerator = ResumedEnumerator(lambda: Numbered(world), "letters", where="S")
    world.listing = splits("abc")
    world.go(ONE)
    world.listing = splits("abcdefgh")
    seen = count()
    process = Process(lambda request: process.kill() if request.startswith(request_) and next(seen) == number else None)
    world.airflow.clear(ONE)
    with pytest.raises(Killed):
        world.go(ONE, process=process)
    world.airflow.lose_heartbeat(ONE)
    go_all(world)
    assert world.everything == "abcdefgh"


def test_fault_95_control_a_state_that_is_kept_apart_from_the_splits_loses_some(
    world: DynamicWorld, monkeypatch: pytest.MonkeyPatch
):
    apart: list[object] = []
    real = ResumedEnumerator.goes_on

    def goes_on(self: ResumedEnumerator, state: object, known: Mapping[str, Split]) -> Enumeration:
        enumeration = real(self, apart[-1] if apart else state, known)
        apart.append(enumeration.state)
        return enumeration

    monkeypatch.setattr(ResumedEnumerator, "goes_on", goes_on)
    world.enumerator = ResumedEnumerator(lambda: Numbered(world), "letters", where="S")
    process = Process(lambda request: process.kill() if request.endswith("log-00000001") else None)
    with pytest.raises(Killed):
        world.go(ONE, process=process)
    world.airflow.lose_heartbeat(ONE)
    go_all(world)
    assert world.everything == ""


def test_fault_92_code_back_and_forth_neither_doubles_a_split_nor_gets_stuck(world: DynamicWorld):
    deploys(world, "X")
    world.dies(ONE, 3)
    deploys(world, "Y")
    world.dies(ONE, 0)
    deploys(world, "X")
    go_all(world)
    assert world.everything == "abcdefgh"


def test_fault_92_subtasks_down_and_up_again_neither_double_a_split_nor_get_stuck(world: DynamicWorld):
    deploys(world, "X")
    two_have_read(world)
    deploys(world, "X", 2)
    clears_all(world)
    assert world.everything == "abcdefgh"
    deploys(world, "X", 4)
    clears_all(world)
    assert world.everything == "abcdefgh"


def test_fault_56_a_finish_must_cover_exactly_what_was_given(world: DynamicWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PulledSplits, "_apply", _forgets_the_third(PulledSplits._apply))
    with pytest.raises(SplitsNotCovered):
        world.go(ONE)


def _forgets_the_third(apply: Callable[..., None]) -> Callable[..., None]:
    def applied(self: PulledSplits, message: object) -> None:
        apply(self, message)
        if len(self.taken) == 3:
            self._batches.clear()

    return applied
