"""The pure rules of batches: what is taken over, what covers an assignment, and what a result is put together of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from expected_errors import fails_with
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.errors import Failure, SplitsNotCovered
from airflow_recovery.journal.plans import reading_of
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim, CommittedBatch
from airflow_recovery.model.split import Split
from airflow_recovery.splits.committed_batches import (
    SplitWork,
    accumulated,
    adoptable,
    check_cover,
    cover,
    folder_of,
    lost_splits_of,
    numbers_of,
    refs_of,
    taken,
    to_read,
    union_of,
    usable,
)
from airflow_recovery.splits.mode import AdoptedBatches, CommittedBatchRef, SplitClaim

FOLDER = "s3://data/dag/run/group/S"


def split(name: str) -> Split:
    return Split.of_file(f"s3://lake/{name}", 1, name)


SPLITS = {name: split(name) for name in "abcdefgh"}
KEYS = {name: each.key for name, each in SPLITS.items()}
NAMES = st.sampled_from(sorted(KEYS))


def manifest(attempt: int, number: int, **given: object) -> PartitionManifest:
    given = {"rows": number + 1, "schema": "{}", "digest": f"k-{number:x}-1-2-f", **given}
    location = f"{FOLDER}/{attempt:08d}/r/{number:04d}"
    return PartitionManifest("r", location, (ResultObject("p", 5, f"e{attempt}{number}"),), **given)  # type: ignore[arg-type]


def batch(attempt: int, number: int, names: str, **given: object) -> CommittedBatch:
    keys = tuple(KEYS[name] for name in names)
    return CommittedBatch("S", attempt, number, "w", keys, (manifest(attempt, number, **given),), "now", 1.0)


def claim(attempt: int, *base: AdoptedBatches, reading: str = "x") -> Claim:
    return Claim("S", attempt, "w", "0", (), "run", 1, "ti", "tag", "now", mode=SplitClaim(base=base, reading=reading))


def state(*batches: int, reset: int = 0, released: int = 0, closed_at: int = 0) -> RegionState:
    """Attempts 1, 2, ... with so many batches each."""
    attempts = {
        n: Attempt(n, is_claimed=True, has_outcome=True, batches=count, is_reset=n == reset, is_released=n == released)
        for n, count in enumerate(batches, 1)
    }
    return RegionState(attempts, closed_at)


# what the next claim may adopt


def test_the_newest_attempt_and_what_it_had_taken_over():
    claims = {1: claim(1), 2: claim(2, AdoptedBatches(1, 3))}
    assert adoptable(state(5, 2), claims, "x") == (AdoptedBatches(1, 3), AdoptedBatches(2, 2))


def test_of_a_log_that_has_grown_since_only_what_was_pinned():
    claims = {1: claim(1), 2: claim(2, AdoptedBatches(1, 3))}
    assert adoptable(state(9, 0), claims, "x") == (AdoptedBatches(1, 3),)


def test_nothing_of_another_reading_but_of_an_older_attempt_with_the_same():
    claims = {1: claim(1), 2: claim(2, reading="y")}
    assert adoptable(state(5, 2), claims, "x") == (AdoptedBatches(1, 5),)
    assert adoptable(state(5, 2), claims, "z") == ()


@pytest.mark.parametrize("given", [{"reset": 2}, {"closed_at": 2}])
def test_nothing_up_to_a_reset_or_a_purge(given):
    claims = {1: claim(1), 2: claim(2, AdoptedBatches(1, 3))}
    assert adoptable(state(5, 2, **given), claims, "x") == ()


def test_nothing_of_what_was_released():
    claims = {1: claim(1), 2: claim(2, AdoptedBatches(1, 3))}
    assert adoptable(state(5, 2, released=1), claims, "x") == (AdoptedBatches(2, 2),)


def test_a_batch_goes_as_a_whole_where_a_split_of_it_is_not_wanted_or_its_objects_are_gone():
    base = (AdoptedBatches(1, 3), AdoptedBatches(2, 1))
    batches = [batch(1, 0, "ab"), batch(1, 1, "cd"), batch(1, 2, "e"), batch(2, 0, "f")]
    found = usable(base, batches, {KEYS[each] for each in "abdef"}, gone={(1, 2)})
    assert found == (AdoptedBatches(1, 3, dropped=(1, 2)), AdoptedBatches(2, 1))
    assert numbers_of(found) == [(1, 0), (2, 0)]
    assert [each.splits for each in taken(found, batches)] == [batches[0].splits, batches[3].splits]


def test_an_attempt_of_which_nothing_is_left_is_not_named():
    assert usable((AdoptedBatches(1, 1),), [batch(1, 0, "a")], set()) == ()


def test_of_two_batches_with_one_split_the_first_stays():
    base = (AdoptedBatches(1, 1), AdoptedBatches(2, 1))
    assert usable(base, [batch(1, 0, "a"), batch(2, 0, "a")], KEYS.values()) == (AdoptedBatches(1, 1),)


def test_what_was_dropped_stays_dropped():
    base = (AdoptedBatches(1, 3, dropped=(0,)),)
    batches = [batch(1, 1, "b"), batch(1, 2, "c")]
    assert usable(base, batches, {KEYS["b"]}) == (AdoptedBatches(1, 3, dropped=(0, 2)),)


# what it is made of


def test_a_side_input_is_the_same_by_its_rows_else_by_its_attempt():
    def told(attempt: int, *digests: tuple[str, str]) -> str:
        return reading_of("f", [InputRef("P", attempt, digests)])

    assert told(1, ("P", "d")) == told(2, ("P", "d"))
    assert told(1, ("P", "d")) != told(1, ("P", "e"))
    assert told(1) != told(2)
    assert reading_of("f", []) != reading_of("g", [])
    pins = [InputRef("P", 1), InputRef("Q", 2)]
    assert reading_of("f", pins) == reading_of("f", reversed(pins))


# covering


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.sampled_from(sorted(KEYS)), max_size=3), max_size=6), st.sets(st.sampled_from(sorted(KEYS)))
)
def test_it_is_exact_only_where_each_split_is_in_one_batch(groups, assigned):
    batches = [batch(1, number, "".join(names)) for number, names in enumerate(groups)]
    flat = sorted(name for names in groups for name in names)
    found = cover([KEYS[each] for each in sorted(assigned)], batches)
    assert found.is_exact is (flat == sorted(assigned))
    left = to_read([SPLITS[each] for each in sorted(assigned)], batches)
    assert {each.key for each in left} == set(found.missing)


def test_what_is_not_covered_is_named():
    with pytest.raises(SplitsNotCovered) as error:
        check_cover([SPLITS["a"], SPLITS["b"]], [batch(1, 0, "b"), batch(2, 0, "bh")])
    said = str(error.value)
    assert "not read: s3://lake/a" in said
    assert "read twice: s3://lake/b" in said
    assert f"not assigned: {KEYS['h']}" in said


# the whole


def test_the_union_has_the_objects_of_all_batches_below_the_regions_folder():
    batches = [batch(1, 0, "a"), batch(2, 0, "b"), batch(2, 1, "c")]
    (found,) = union_of(folder_of(batches), ["r"], batches)
    assert found.location == FOLDER
    assert found.uris() == [f"{FOLDER}/{name}/p" for name in ("00000001/r/0000", "00000002/r/0000", "00000002/r/0001")]
    assert (found.rows, found.schema, found.digest) == (4, "{}", "k-1-3-6-2d")
    assert refs_of(batches)[1] == CommittedBatchRef(2, 0, (KEYS["b"],))


def test_where_one_batch_does_not_know_its_rows_or_digest_the_whole_does_not():
    batches = [batch(1, 0, "a"), batch(1, 1, "b", rows=None, digest=None)]
    (found,) = union_of(FOLDER, ["r"], batches)
    assert (found.rows, found.digest) == (None, None)


def test_a_batch_that_was_given_up_has_no_objects_and_is_told():
    lost = replace(batch(1, 1, "b"), outputs=(), lost=Failure("ValueError", "no day"))
    (found,) = union_of(FOLDER, ["r"], [batch(1, 0, "a"), lost])
    assert len(found.objects) == 1
    (told,) = lost_splits_of([lost], SPLITS.values())
    assert (told.key, told.uri, told.message) == (KEYS["b"], "s3://lake/b", "ValueError: no day")


@pytest.mark.parametrize(
    ("spoiled", "code"),
    [
        (batch(1, 1, "b", schema="{1}"), "batch-columns-differ"),
        (replace(batch(1, 1, "b"), outputs=()), "batch-without-manifest"),
        (replace(batch(1, 1, "b"), outputs=(replace(manifest(1, 1), location="s3://other/r"),)), "batch-elsewhere"),
        (batch(1, 1, "b", digest="j-1-1-1-1"), "batch-digests-differ"),
    ],
)
def test_batches_that_do_not_fit_are_refused(spoiled, code):
    with fails_with(code):
        union_of(FOLDER, ["r"], [batch(1, 0, "a"), spoiled])


def test_what_batches_have_counted_is_summed():
    batches = [replace(batch(1, number, "a"), accumulators=(("bad", 2), ("s", 0.5))) for number in range(2)]
    assert accumulated(batches) == (("bad", 4), ("s", 1.0))


# an attempt's work


def test_work_is_done_where_nothing_is_left():
    assigned = (SPLITS["a"], SPLITS["b"])
    half, whole = (batch(1, 0, "a"),), (batch(1, 0, "a"), batch(1, 1, "b"))
    assert [split.key for split in SplitWork(assigned, adopted=half).todo] == [KEYS["b"]]
    assert SplitWork(assigned, adopted=half).text() == "1 of 2 splits kept"
    assert not SplitWork(assigned, adopted=half).is_done
    assert SplitWork(assigned, adopted=whole).is_done
    # Which splits a subtask pulls, nobody knows before.
    assert not SplitWork(assigned, adopted=whole, is_pulled=True).is_done
    # Results without a single object come of an application alone.
    lost = (replace(batch(1, 0, "ab"), outputs=(), lost=Failure("E", "m")),)
    assert not SplitWork(assigned, adopted=lost).is_done
