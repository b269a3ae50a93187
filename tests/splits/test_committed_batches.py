"""The pure rules of parts: what is taken over, what covers an assignment, and what a result is put together of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.errors import Failure, ManifestInvalid, SplitsNotCovered
from airflow_recovery.journal.plans import reading_of
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim, InputRef, Part
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
from airflow_recovery.splits.mode import AdoptedParts, PartRef, SplitClaim

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


def part(attempt: int, number: int, names: str, **given: object) -> Part:
    keys = tuple(KEYS[name] for name in names)
    return Part("S", attempt, number, "w", keys, (manifest(attempt, number, **given),), "now", 1.0)


def claim(attempt: int, *base: AdoptedParts, reading: str = "x") -> Claim:
    return Claim("S", attempt, "w", "0", (), "run", 1, "ti", "tag", "now", mode=SplitClaim(base=base, reading=reading))


def state(*parts: int, reset: int = 0, released: int = 0, closed_at: int = 0) -> RegionState:
    """Attempts 1, 2, ... with so many parts each."""
    attempts = {
        n: Attempt(n, is_claimed=True, has_outcome=True, parts=count, is_reset=n == reset, is_released=n == released)
        for n, count in enumerate(parts, 1)
    }
    return RegionState(attempts, closed_at)


# what the next claim may adopt


def test_the_newest_attempt_and_what_it_had_taken_over():
    claims = {1: claim(1), 2: claim(2, AdoptedParts(1, 3))}
    assert adoptable(state(5, 2), claims, "x") == (AdoptedParts(1, 3), AdoptedParts(2, 2))


def test_of_a_log_that_has_grown_since_only_what_was_pinned():
    claims = {1: claim(1), 2: claim(2, AdoptedParts(1, 3))}
    assert adoptable(state(9, 0), claims, "x") == (AdoptedParts(1, 3),)


def test_nothing_of_another_reading_but_of_an_older_attempt_with_the_same():
    claims = {1: claim(1), 2: claim(2, reading="y")}
    assert adoptable(state(5, 2), claims, "x") == (AdoptedParts(1, 5),)
    assert adoptable(state(5, 2), claims, "z") == ()


@pytest.mark.parametrize("given", [{"reset": 2}, {"closed_at": 2}])
def test_nothing_up_to_a_reset_or_a_purge(given):
    claims = {1: claim(1), 2: claim(2, AdoptedParts(1, 3))}
    assert adoptable(state(5, 2, **given), claims, "x") == ()


def test_nothing_of_what_was_released():
    claims = {1: claim(1), 2: claim(2, AdoptedParts(1, 3))}
    assert adoptable(state(5, 2, released=1), claims, "x") == (AdoptedParts(2, 2),)


def test_a_part_goes_as_a_whole_where_a_split_of_it_is_not_wanted_or_its_objects_are_gone():
    base = (AdoptedParts(1, 3), AdoptedParts(2, 1))
    parts = [part(1, 0, "ab"), part(1, 1, "cd"), part(1, 2, "e"), part(2, 0, "f")]
    found = usable(base, parts, {KEYS[each] for each in "abdef"}, gone={(1, 2)})
    assert found == (AdoptedParts(1, 3, dropped=(1, 2)), AdoptedParts(2, 1))
    assert numbers_of(found) == [(1, 0), (2, 0)]
    assert [each.splits for each in taken(found, parts)] == [parts[0].splits, parts[3].splits]


def test_an_attempt_of_which_nothing_is_left_is_not_named():
    assert usable((AdoptedParts(1, 1),), [part(1, 0, "a")], set()) == ()


def test_of_two_parts_with_one_split_the_first_stays():
    base = (AdoptedParts(1, 1), AdoptedParts(2, 1))
    assert usable(base, [part(1, 0, "a"), part(2, 0, "a")], KEYS.values()) == (AdoptedParts(1, 1),)


def test_what_was_dropped_stays_dropped():
    base = (AdoptedParts(1, 3, dropped=(0,)),)
    parts = [part(1, 1, "b"), part(1, 2, "c")]
    assert usable(base, parts, {KEYS["b"]}) == (AdoptedParts(1, 3, dropped=(0, 2)),)


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
def test_it_is_exact_only_where_each_split_is_in_one_part(groups, assigned):
    parts = [part(1, number, "".join(names)) for number, names in enumerate(groups)]
    flat = sorted(name for names in groups for name in names)
    found = cover([KEYS[each] for each in sorted(assigned)], parts)
    assert found.is_exact is (flat == sorted(assigned))
    left = to_read([SPLITS[each] for each in sorted(assigned)], parts)
    assert {each.key for each in left} == set(found.missing)


def test_what_is_not_covered_is_named():
    with pytest.raises(SplitsNotCovered) as error:
        check_cover([SPLITS["a"], SPLITS["b"]], [part(1, 0, "b"), part(2, 0, "bh")])
    said = str(error.value)
    assert "not read: s3://lake/a" in said
    assert "read twice: s3://lake/b" in said
    assert f"not assigned: {KEYS['h']}" in said


# the whole


def test_the_union_has_the_objects_of_all_parts_below_the_regions_folder():
    parts = [part(1, 0, "a"), part(2, 0, "b"), part(2, 1, "c")]
    (found,) = union_of(folder_of(parts), ["r"], parts)
    assert found.location == FOLDER
    assert found.uris() == [f"{FOLDER}/{name}/p" for name in ("00000001/r/0000", "00000002/r/0000", "00000002/r/0001")]
    assert (found.rows, found.schema, found.digest) == (4, "{}", "k-1-3-6-2d")
    assert refs_of(parts)[1] == PartRef(2, 0, (KEYS["b"],))


def test_where_one_part_does_not_know_its_rows_or_digest_the_whole_does_not():
    parts = [part(1, 0, "a"), part(1, 1, "b", rows=None, digest=None)]
    (found,) = union_of(FOLDER, ["r"], parts)
    assert (found.rows, found.digest) == (None, None)


def test_a_part_that_was_given_up_has_no_objects_and_is_told():
    lost = replace(part(1, 1, "b"), outputs=(), lost=Failure("ValueError", "no day"))
    (found,) = union_of(FOLDER, ["r"], [part(1, 0, "a"), lost])
    assert len(found.objects) == 1
    (told,) = lost_splits_of([lost], SPLITS.values())
    assert (told.key, told.uri, told.message) == (KEYS["b"], "s3://lake/b", "ValueError: no day")


@pytest.mark.parametrize(
    ("spoiled", "match"),
    [
        (part(1, 1, "b", schema="{1}"), "expected the columns of the parts before it"),
        (replace(part(1, 1, "b"), outputs=()), "expected one manifest of 'r', found 0"),
        (replace(part(1, 1, "b"), outputs=(replace(manifest(1, 1), location="s3://other/r"),)), "expected 'r' below"),
        (part(1, 1, "b", digest="j-1-1-1-1"), "digests of the same columns"),
    ],
)
def test_parts_that_do_not_fit_are_refused(spoiled, match):
    with pytest.raises(ManifestInvalid, match=match):
        union_of(FOLDER, ["r"], [part(1, 0, "a"), spoiled])


def test_what_parts_have_counted_is_summed():
    parts = [replace(part(1, number, "a"), accumulators=(("bad", 2), ("s", 0.5))) for number in range(2)]
    assert accumulated(parts) == (("bad", 4), ("s", 1.0))


# an attempt's work


def test_work_is_done_where_nothing_is_left():
    assigned = (SPLITS["a"], SPLITS["b"])
    half, whole = (part(1, 0, "a"),), (part(1, 0, "a"), part(1, 1, "b"))
    assert [split.key for split in SplitWork(assigned, adopted=half).todo] == [KEYS["b"]]
    assert SplitWork(assigned, adopted=half).text() == "1 of 2 splits kept"
    assert not SplitWork(assigned, adopted=half).is_done
    assert SplitWork(assigned, adopted=whole).is_done
    # Which splits a subtask pulls, nobody knows before.
    assert not SplitWork(assigned, adopted=whole, is_pulled=True).is_done
    # Results without a single object come of an application alone.
    lost = (replace(part(1, 0, "ab"), outputs=(), lost=Failure("E", "m")),)
    assert not SplitWork(assigned, adopted=lost).is_done
