"""A source that commits split by split: what an attempt takes over, and what it never does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fakes import InlineThread, Killed, MemoryStore, Process
from split_world import SOURCE, SplitWorld, split, splits

from airflow_recovery.attempt import attempt as attempt_module
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.errors import RecoveryError, SplitsNotCovered, StoreTimeout
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.records import AttemptState, Claim, CommittedBatch, FenceCause, Outcome, Reset
from airflow_recovery.splits import adoption, committed_batches
from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing import split_driver
from airflow_recovery.testing.split_driver import SplitDriver

ALONE = {"S": ()}
READ = {"S": (), "C": ("S",)}
SIDED = {"P": (), "S": ("P",), "C": ("S",)}


@pytest.fixture
def world() -> SplitWorld:
    return SplitWorld(READ, splits("abcdef"))


@pytest.fixture(autouse=True)
def _in_order(monkeypatch):
    """The look for release markers comes before the driver starts: a test knows the order of all requests."""
    monkeypatch.setattr(attempt_module, "threading", SimpleNamespace(Thread=InlineThread))


def base(world: SplitWorld, attempt: int) -> tuple[AdoptedBatches, ...]:
    return SplitClaim.of(world.journal().read_claim(SOURCE, attempt)).base


def dies_before_its_finish(request: str) -> None:
    if request.startswith("PUT") and request.endswith("outcome"):
        raise Killed(request)


# what an attempt that died leaves


def test_the_next_attempt_reads_what_is_not_committed(world):
    world.dies_at_batch(4)
    result = world.go(SOURCE)
    assert (world.read_by(1), world.read_by(2)) == ("abcd", "ef")
    assert base(world, 2) == (AdoptedBatches(1, 4),)
    assert (result.decision, result.why) == (Decision.RAN, "ran; 4 of 6 splits kept")
    assert world.result() == world.fresh()


def test_an_attempt_after_two_that_died_takes_over_from_both(world):
    world.dies_at_batch(2)
    world.dies_at_batch(3)
    world.go(SOURCE)
    assert [world.read_by(number) for number in (1, 2, 3)] == ["ab", "cde", "f"]
    assert base(world, 3) == (AdoptedBatches(1, 2), AdoptedBatches(2, 3))
    assert world.result() == world.fresh()


def test_where_everything_was_committed_no_spark_is_started(world):
    world.go_killed(Process(gate=dies_before_its_finish))
    result = world.go(SOURCE)
    assert world.ran == [(SOURCE, 1)]
    assert (result.attempt, result.why) == (2, "ran; 6 of 6 splits kept")
    assert world.result() == world.fresh()
    world.go("C")


def test_a_consumer_reads_batches_of_several_attempts_as_one_result(world):
    world.dies_at_batch(4)
    world.until_green()
    assert world.content("C").count("etag of") == 6


# a clear keeps, a reset drops


def test_a_clear_keeps_a_region_that_stands(world):
    world.go(SOURCE)
    assert world.again().decision is Decision.KEPT


def test_a_clear_of_a_task_that_failed_keeps_the_base(world):
    world.dies_at_batch(3)
    world.again()
    assert world.read_by(2) == "def"


def test_a_restart_by_a_person_drops_the_base(world):
    world.dies_at_batch(3)
    world.restart(SOURCE)
    world.go(SOURCE)
    assert base(world, 2) == ()
    assert world.read_by(2) == "abcdef"


def restart_beside(world: SplitWorld, before: str) -> None:
    """A person who has seen attempt 1 has it restarted just before attempt 2 makes the request ``before``."""
    asked: list[str] = []

    def gate(request: str) -> None:
        if request.startswith(before) and not asked:
            asked.append(request)
            world.journal().reset(Reset(SOURCE, 1, "user", "asked for"))

    try:
        world.go(SOURCE, process=Process(gate=gate))
    except RecoveryError:
        world.go(SOURCE)
    assert asked


@pytest.mark.parametrize("before", ["PUT dag/date~202026-01-01T00~3A00~3A00~2B00~3A00/flights/t/S/00000002.", "PUT "])
def test_a_restart_that_comes_with_the_claim_drops_the_base(world, before):
    world.dies_at_batch(3)
    restart_beside(world, f"{before}claim" if before != "PUT " else before)
    last = world.current(SOURCE)
    assert (base(world, last), world.read_by(last)) == ((), "abcdef")


def test_a_restart_that_comes_after_the_claims_last_look_makes_its_finish_not_count(world):
    world.dies_at_batch(3)
    restart_beside(world, f"PUT {world.journal().layout.batch(SOURCE, 2, 1)}")
    assert base(world, 2) == (AdoptedBatches(1, 3),)
    # What attempt 2 has read itself is not what was asked to be made again.
    assert base(world, 3) == (AdoptedBatches(2, 3),)
    assert (world.current(SOURCE), world.read_by(3)) == (3, "abc")
    assert world.result() == world.fresh()


def test_control_where_a_finish_counts_whatever_it_took_over_a_restart_is_lost(world, monkeypatch):
    monkeypatch.setattr(Attempt, "oldest", property(lambda self: self.number))
    world.dies_at_batch(3)
    restart_beside(world, f"PUT {world.journal().layout.batch(SOURCE, 2, 1)}")
    assert (world.current(SOURCE), world.read_by(2)) == (2, "def")


def test_recompute_drops_the_base_once(world):
    world.go(SOURCE)
    world.airflow.clear(SOURCE)
    world.go(SOURCE, epoch="e")
    assert world.read_by(2) == "abcdef"
    assert world.result() == world.fresh()


def test_other_code_adopts_nothing_and_the_old_code_its_own_again(world):
    world.dies_at_batch(3)
    world.fingerprints[SOURCE] = "code 2"
    world.dies_at_batch(1)
    assert base(world, 2) == ()
    world.fingerprints[SOURCE] = "code 1"
    world.go(SOURCE)
    assert base(world, 3) == (AdoptedBatches(1, 3),)
    assert world.result() == world.fresh()


# each change of the listing equals a fresh run

CHANGES = {
    "re-ordered": (splits("fedcba"), ""),
    "grown": (splits("abcdefgh"), "gh"),
    "shrunk": (splits("abef"), ""),
    "overwritten": (splits("abcdef", c="2"), "c"),
    "grown, shrunk and overwritten": (splits("bcdefx", e="2"), "ex"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_listing_that_changed_equals_a_fresh_run_and_only_what_changed_is_read(world, change):
    world.go(SOURCE)
    world.listing, read = CHANGES[change]
    world.again()
    assert world.read_by(2) == read
    assert world.result() == world.fresh()


@pytest.mark.parametrize("change", CHANGES)
def test_a_listing_that_changes_between_two_attempts_equals_a_fresh_run(world, change):
    world.dies_at_batch(4)
    world.listing, _ = CHANGES[change]
    world.go(SOURCE)
    assert world.result() == world.fresh()


def test_a_batch_leaves_as_a_whole(world):
    world.batch = 2
    world.go(SOURCE)
    world.listing = splits("abcdef", c="2")
    world.again()
    assert world.read_by(2) == "cd"  # d was in the batch of c
    assert base(world, 2) == (AdoptedBatches(1, 3, dropped=(1,)),)
    assert world.result() == world.fresh()


def test_what_was_dropped_once_stays_dropped_when_its_split_comes_back(world):
    world.batch = 2
    world.go(SOURCE)
    world.listing = splits("acdef")
    world.again()
    assert world.read_by(2) == "a"
    world.listing = splits("abcdef")
    world.again()
    assert world.read_by(3) == "b"  # the first batch holds a and b, and a is in a later one
    assert world.result() == world.fresh()


# side inputs


def side_input_made_again(**given: object) -> SplitWorld:
    """The source joins P, dies after two of four splits, and goes on after P was made again."""
    world = SplitWorld(SIDED, splits("abcd"), **given)
    world.go("P")
    world.dies_at_batch(2)
    world.restart("P")
    world.go("P")
    world.go(SOURCE)
    return world


VERIFIED = {"modes": {"P": Determinism.VERIFY}}
OTHER_ROWS = {**VERIFIED, "unstable": frozenset("P")}


def test_a_side_input_that_was_made_again_with_other_rows_empties_the_base():
    world = side_input_made_again(**OTHER_ROWS)
    assert (base(world, 2), world.read_by(2)) == ((), "abcd")


def test_a_side_input_that_was_made_again_with_equal_rows_keeps_the_base():
    world = side_input_made_again(**VERIFIED)
    assert base(world, 2) == (AdoptedBatches(1, 2),)
    assert world.result() == world.fresh()


def test_a_side_input_without_digests_is_another_with_each_attempt():
    assert base(side_input_made_again(), 2) == ()


def test_control_where_the_side_input_is_not_in_the_reading_rows_of_two_of_them_are_mixed(monkeypatch):
    monkeypatch.setattr(adoption, "reading_of", lambda fingerprint, inputs: str(fingerprint))
    world = side_input_made_again(**OTHER_ROWS)
    assert len({row.partition(" with ")[2] for row in world.result()}) == 2


# objects that are lost or altered


def test_a_lost_part_of_a_finished_region_is_read_again_alone(world):
    world.dies_at_batch(4)
    world.until_green()
    lost = next(key for key in world.results.objects if "/S/00000001-" in key and "/S/0002/" in key)
    world.results.delete([lost])
    world.delete_results("C", 1)
    world.airflow.clear("C")
    world.until_green()
    assert world.read_by(3) == "c"
    assert base(world, 3) == (AdoptedBatches(1, 4, dropped=(2,)), AdoptedBatches(2, 2))
    assert world.result() == world.fresh()


def test_an_altered_batch_is_not_adopted(world):
    world.dies_at_batch(4)
    altered = next(key for key in world.results.objects if "/S/00000001-" in key and "/S/0001/" in key)
    world.results.put(altered, b"something else")
    world.go(SOURCE)
    assert world.read_by(2) == "bef"
    assert world.result() == world.fresh()


def test_control_without_the_look_at_the_objects_an_altered_batch_is_adopted(world, monkeypatch):
    monkeypatch.setattr(adoption, "_gone", lambda run, region, batches: frozenset())
    world.dies_at_batch(4)
    altered = next(key for key in world.results.objects if "/S/00000001-" in key and "/S/0001/" in key)
    world.results.put(altered, b"something else")
    world.go(SOURCE)
    assert "something else" in world.result()


def test_nothing_of_a_released_attempt_is_adopted(world):
    world.dies_at_batch(4)
    world.journal().fence(fenced(1))
    world.release(SOURCE, 1)
    world.go(SOURCE)
    assert base(world, 2) == ()
    assert world.result() == world.fresh()


def release_after_the_claim(world) -> RecoveryError:
    """Between the claim of attempt 2 and its look for markers, a sweeper lets attempt 1 go."""
    claimed: list[str] = []

    def gate(request: str) -> None:
        if claimed and request.startswith("LIST") and not world.state().of(SOURCE).attempts[1].is_released:
            world.release(SOURCE, 1)
        if request.startswith("PUT") and request.endswith("2.claim"):
            claimed.append(request)

    with pytest.raises(RecoveryError) as error:
        world.go(SOURCE, process=Process(gate=gate))
    return error.value


def test_what_is_released_after_the_claim_ends_the_attempt(world):
    world.dies_at_batch(4)
    release_after_the_claim(world)
    assert world.state().of(SOURCE).attempts[2].outcome.detail == "S@1 was released or reset"
    world.go(SOURCE)
    assert (base(world, 3), world.read_by(3)) == ((), "abcdef")
    assert world.result() == world.fresh()


def test_what_is_released_after_the_claim_is_not_finished_without_spark_either(world):
    world.go_killed(Process(gate=dies_before_its_finish))
    release_after_the_claim(world)
    assert world.ran == [(SOURCE, 1)]
    assert world.current(SOURCE) == 0


def fenced(attempt: int) -> Outcome:
    return Outcome(SOURCE, attempt, AttemptState.FENCED, "test", "now", cause=FenceCause.SUPERSEDED)


# killed at every point, once and twice


def steps(world: SplitWorld) -> list[str]:
    """The requests of an undisturbed try."""
    asked: list[str] = []
    world.go(SOURCE, process=Process(gate=asked.append))
    return asked


def killed_at(step: int) -> Process:
    process = Process()
    asked: list[str] = []

    def gate(request: str) -> None:
        asked.append(request)
        if len(asked) == step:
            process.kill()

    process.gate = gate
    return process


def new(names: str = "abc") -> SplitWorld:
    return SplitWorld(READ, splits(names))


POINTS = len(steps(new()))


@pytest.mark.parametrize("first", range(1, POINTS + 1))
def test_killed_at_every_point_nothing_is_lost_and_nothing_counted_twice(first):
    world = new()
    world.go_killed(killed_at(first))
    world.go(SOURCE)
    assert world.result() == world.fresh()
    assert len(world.read) <= 3 + 1  # at most one split had been read, and not committed


@pytest.mark.parametrize("first", range(1, POINTS + 1))
def test_killed_at_every_point_twice(first):
    for second in range(1, POINTS + 6):
        world = new()
        world.go_killed(killed_at(first))
        try:
            world.go_killed(killed_at(second))
        except AssertionError:
            break  # the second try has ended before
        world.go(SOURCE)
        assert world.result() == world.fresh(), (first, second)
    world.until_green()


# every protocol write loses its reply


class LosesReplies(MemoryStore):
    """Each object that is put if it is absent is there, and the caller is told of a time-out."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner.base_uri)
        self.objects = inner.objects

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        if key in self.objects:
            return super().put_if_absent(key, body)
        super().put_if_absent(key, body)
        raise StoreTimeout(f"no answer: {key}")


def test_fault_55_where_every_write_loses_its_reply_nothing_is_lost_and_nothing_counted_twice(world):
    world.between_process_and_journal = LosesReplies
    world.dies_at_batch(4)
    world.until_green()
    assert (world.read_by(1), world.read_by(2)) == ("abcd", "ef")
    assert world.result() == world.fresh()


# a zombie


def test_what_a_zombie_commits_after_the_claim_belongs_to_nobody(world):
    world.zombie_at(f"PUT {world.journal().layout.batch(SOURCE, 1, 2)}", lambda: world.dies_at_batch(1))
    # The zombie went on after attempt 2 was claimed, and has committed one batch more than that has adopted.
    assert base(world, 2) == (AdoptedBatches(1, 2),)
    assert world.state().of(SOURCE).attempts[1].batches == 3
    world.go(SOURCE)
    assert base(world, 3) == (AdoptedBatches(1, 2), AdoptedBatches(2, 1))
    assert world.result() == world.fresh()


def test_a_zombie_that_wakes_up_before_the_next_batch_is_told_that_it_was_fenced(world):
    world.zombie_at(f"GET {world.journal().layout.attempt(SOURCE, 1, 'outcome')}", lambda: world.go(SOURCE))
    assert world.state().of(SOURCE).attempts[1].batches == 0
    assert world.result() == world.fresh()


def second_look(driver: SplitDriver, claim: Claim) -> tuple[CommittedBatch, ...]:
    """The logs as they are now, and not as the claim has pinned them."""
    attempts = driver._journal.list([claim.region]).state.of(claim.region).attempts
    base = [AdoptedBatches(each.attempt, attempts[each.attempt].batches) for each in SplitClaim.of(claim).base]
    return driver._journal.read_committed_batches(claim.region, committed_batches.numbers_of(base))


def look_twice(world, monkeypatch) -> None:
    """A driver that looks once more when it finishes, and a zombie that has written since."""
    monkeypatch.setattr(SplitDriver, "_adopted", second_look)
    world.zombie_at(f"PUT {world.journal().layout.batch(SOURCE, 1, 2)}", lambda: world.dies_at_batch(2))


def test_control_where_the_base_is_looked_up_twice_a_zombies_batch_is_counted_twice(world, monkeypatch):
    look_twice(world, monkeypatch)
    monkeypatch.setattr(split_driver, "check_cover", lambda assigned, batches: None)
    world.go(SOURCE)
    assert len(world.result()) == len(world.fresh()) + 1


def test_the_cover_finds_a_base_that_is_looked_up_twice(world, monkeypatch):
    look_twice(world, monkeypatch)
    with pytest.raises(SplitsNotCovered, match=r"read twice: s3://lake/c.csv"):
        world.go(SOURCE)


def test_an_attempt_that_does_not_cover_its_assignment_does_not_finish(world, monkeypatch):
    monkeypatch.setattr(committed_batches.SplitWork, "todo", property(lambda self: self.assigned[:5]))
    with pytest.raises(SplitsNotCovered, match=r"not read: s3://lake/f.csv"):
        world.go(SOURCE)
    assert world.current(SOURCE) == 0


def test_control_without_the_cover_a_split_is_lost(world, monkeypatch):
    monkeypatch.setattr(committed_batches.SplitWork, "todo", property(lambda self: self.assigned[:5]))
    monkeypatch.setattr(split_driver, "check_cover", lambda assigned, batches: None)
    world.go(SOURCE)
    assert len(world.result()) == 5


def test_a_split_that_is_listed_by_another_etag_is_another_split():
    assert split("a").key != split("a", "2").key
