"""References to what attempts read: whole groups by one value, equal to the same references one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from expected_errors import fails_with
from hypothesis import given
from hypothesis import strategies as st
from region_groups import ALL_TO_ALL, POINTWISE, group

from airflow_recovery.model.codec import Unlike, canonical_json, from_json, to_json
from airflow_recovery.model.groups import WIDE, GroupedRegions
from airflow_recovery.model.inputs import (
    GroupAttempts,
    InputGroupRef,
    InputRef,
    Inputs,
    combined_digest,
    grouped,
)
from airflow_recovery.model.records import Claim, PlanRecord
from airflow_recovery.verify import groups as checker

KEYS = [str(key) for key in range(WIDE + 1)]
MADE = group("made", keys=KEYS)
PLAN = PlanRecord(
    "x:y",
    GroupedRegions([MADE, group("alone"), group("read", ("made", ALL_TO_ALL), ("alone", ALL_TO_ALL), keys=KEYS)]),
)


def refs_of(attempts: dict[int, int], digests: bool = False) -> list[InputRef]:
    made = [
        InputRef(name, attempts.get(at, 1), (("made", f"digest {at}"),) if digests else ())
        for at, name in enumerate(MADE.names)
    ]
    return [*made, InputRef("alone", 7)]


@pytest.mark.parametrize("seed", range(30))
def test_grouped_references_are_the_same_references(seed: int) -> None:
    draw = random.Random(seed)
    refs = refs_of({draw.randrange(len(KEYS)): draw.randint(1, 3) for _ in range(draw.randint(0, 80))})
    inputs = PLAN.grouped("read[3]", refs)
    assert isinstance(inputs, Inputs)
    assert inputs == tuple(refs)
    assert tuple(refs) == inputs
    assert (len(inputs), inputs[0], inputs[-1]) == (len(refs), refs[0], refs[-1])
    assert [inputs.attempt_of(ref.region) for ref in refs] == [ref.attempt for ref in refs]
    assert inputs.attempt_of("read[3]") is None
    assert PLAN.reads("read[3]", inputs)
    assert PLAN.reads("read[3]", refs)
    assert not PLAN.reads("made[3]", inputs)
    assert not PLAN.reads("read[3]", refs[1:])
    assert not PLAN.reads("read[3]", Inputs(inputs.parts[:1]))


def test_only_whole_and_wide_groups_are_named() -> None:
    refs = refs_of({})
    assert PLAN.grouped("read[3]", refs[1:]) == tuple(refs[1:])
    assert isinstance(PLAN.grouped("read[3]", refs[1:]), tuple)
    narrow = [group("made", keys=KEYS[:WIDE]), group("read", ("made", ALL_TO_ALL))]
    pointwise = [MADE, group("read", ("made", POINTWISE), keys=KEYS)]
    for groups, name in ((narrow, "read"), (pointwise, "read[3]")):
        plan = PlanRecord("x:y", GroupedRegions(groups))
        own = [InputRef(region, 1) for region in plan.by_name[name].inputs]
        assert isinstance(plan.grouped(name, own), tuple)
        assert plan.reads(name, own)
        assert not plan.reads(name, own[1:])


def test_what_was_read_one_by_one_is_read_by_a_grouped_plan_and_the_other_way_round() -> None:
    written_out = PlanRecord("x:y", tuple(PLAN.regions))
    refs = refs_of({5: 2})
    inputs = PLAN.grouped("read[3]", refs)
    assert PLAN.reads("read[3]", refs)
    assert written_out.reads("read[3]", inputs)
    assert written_out.grouped("read[3]", refs) == tuple(refs)
    other = PlanRecord("x:y", GroupedRegions([group("made", keys=[*KEYS, "more"]), *PLAN.groups[1:]]))
    assert not other.reads("read[3]", inputs)


def test_without_its_plan_a_reference_to_a_group_is_never_taken_for_nothing() -> None:
    known = PLAN.grouped("read[3]", refs_of({5: 2}))
    assert isinstance(known, Inputs)
    for unknown in (Inputs(known.parts), known.with_groups(lambda name, keys: group(name, keys=KEYS[::-1]))):
        assert not unknown.is_known
        assert len(unknown) == len(known)
        assert unknown
        assert unknown.attempt_of("alone") == 7
        assert not PLAN.reads("read[3]", Inputs(unknown.parts[1:]))
        for ask in (list, tuple, lambda inputs: inputs.attempt_of("made[3]"), lambda inputs: inputs[0]):
            with fails_with("group-not-recorded", group="made"):
                ask(unknown)
        assert unknown != tuple(known)
        assert unknown == Inputs(known.parts)
        assert unknown.with_groups(PLAN.find_group) == tuple(known)


def test_the_groups_that_were_seen_are_not_told_again() -> None:
    seen: set[InputGroupRef] = set()
    first, again, other = (PLAN.grouped("read[3]", refs_of(attempts)) for attempts in ({}, {}, {1: 2}))
    counts = [len(list(Inputs.of(inputs).unseen(seen))) for inputs in (first, again, other)]
    assert counts == [len(KEYS) + 1, 1, len(KEYS) + 1]


def test_digests_of_a_group_are_one_of_all_its_regions_in_any_order() -> None:
    inputs = PLAN.grouped("read[3]", refs_of({}, digests=True))
    assert isinstance(inputs, Inputs)
    pairs = [(name, f"digest {at}") for at, name in enumerate(MADE.names)]
    assert inputs.groups["made"].digests == (("made", combined_digest(reversed(pairs))),)
    assert combined_digest(pairs) != combined_digest([*pairs[:-1], (pairs[-1][0], "digest 0")])
    assert combined_digest([("a", "1"), ("b", "2")]) != combined_digest([("a", "2"), ("b", "1")])
    # One region without a digest: then the group has none.
    some = [*refs_of({}, digests=True)[:-2], InputRef(MADE.names[-1], 1), InputRef("alone", 7)]
    mixed = PLAN.grouped("read[3]", some)
    assert isinstance(mixed, Inputs)
    assert mixed.groups["made"].digests == ()


@pytest.mark.parametrize("seed", range(50))
def test_attempts_of_a_group_differ_where_their_lists_do(seed: int) -> None:
    draw = random.Random(seed)
    lists = [[draw.choice([1, 1, 1, 2, 0]) for _ in range(30)] for _ in range(2)]
    first, second = map(GroupAttempts.of, lists)
    assert list(first) == lists[0]
    assert [first[index] for index in range(30)] == lists[0]
    assert first.differences(second) == [at for at in range(30) if lists[0][at] != lists[1][at]]
    assert first.differences(first) == []


@pytest.mark.parametrize("others", [((30, 2),), ((3, 2), (3, 1)), ((4, 2), (3, 2))])
def test_exceptions_that_are_none_of_the_group_are_refused(others: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="indexes below 30"):
        GroupAttempts(30, 1, others)


def claim(inputs: object) -> Claim:
    return Claim("read[3]", 1, "w", "p" * 32, inputs, "run", 1, "ti", "tag", "2026-01-01T00:00:00+00:00")  # type: ignore[arg-type]


def test_a_claim_has_the_bytes_of_single_references_where_there_is_no_group() -> None:
    refs = refs_of({5: 2}, digests=True)
    assert to_json(claim(PLAN.grouped("made[3]", refs))) == to_json(claim(tuple(refs)))
    assert to_json(claim(tuple(refs)))["inputs"][5] == {
        "region": "made[5]",
        "attempt": 2,
        "digests": [["made", "digest 5"]],
    }


def test_a_claim_with_a_group_is_read_as_it_was_written() -> None:
    before = claim(PLAN.grouped("read[3]", refs_of({5: 2}, digests=True)))
    after = from_json(Claim, json.loads(canonical_json(to_json(before))))
    assert isinstance(after.inputs, Inputs)
    assert not after.inputs.is_known
    assert after == before
    assert after.inputs.with_groups(PLAN.find_group) == tuple(before.inputs)
    ref = to_json(before)["inputs"][0]
    assert ref == {
        "group": "made",
        "keys": MADE.keys_digest,
        "attempts": {"count": len(KEYS), "attempt": 1, "except": [[5, 2]]},
        "digests": [["made", combined_digest((name, f"digest {at}") for at, name in enumerate(MADE.names))]],
    }


ATTEMPTS: dict[str, Callable[[int], int]] = {
    "all alike": lambda at: 1,
    "the first 700 were made again": lambda at: 2 if at < 700 else 1,
    "every other one was made again": lambda at: 1 + at % 2,
    "none as its neighbour": lambda at: 1 + at * 7 % 52,
    "after 1,000 attempts": lambda at: 1_000 + at * 7 % 52,
}


@pytest.mark.parametrize("attempts", ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_claim_of_a_subtask_with_10_000_inputs_has_at_most_16_kib(attempts: Callable[[int], int]) -> None:
    made = group("made", keys=[str(key) for key in range(10_000)])
    own = [(f"result_{number}", "d" * 64) for number in range(4)]
    refs = [InputRef(name, attempts(at), tuple(own)) for at, name in enumerate(made.names)]
    inputs = grouped(refs, [made])
    assert isinstance(inputs, Inputs)
    assert len(inputs.groups["made"].digests) == 4
    written = canonical_json(to_json(claim(inputs)))
    assert len(written) <= 16 * 1024
    read = from_json(Claim, json.loads(written)).inputs
    assert isinstance(read, Inputs)
    assert list(read.groups["made"].attempts) == [attempts(at) for at in range(10_000)]


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 54), min_size=WIDE, max_size=200)
    | st.lists(st.integers(50, 70) | st.just(1_000), min_size=WIDE, max_size=200)
)
def test_the_attempts_of_a_group_are_read_as_they_were_written(numbers: list[int]) -> None:
    attempts = GroupAttempts.of(numbers)
    written = to_json(attempts)
    assert from_json(GroupAttempts, json.loads(json.dumps(written))) == attempts
    others = written.get("except", ())
    runs = others.rpartition(":")[2] if isinstance(others, str) else others
    assert len(runs) <= len(numbers)
    assert isinstance(others, str) == (len(attempts.others) > WIDE and len({n for _, n in attempts.others}) <= 52)
    if isinstance(others, str):
        assert checker._others(others) == dict(attempts.others)


@pytest.mark.parametrize(
    "damage",
    [
        {"group": ""},
        {"keys": 7},
        {"attempts": {"count": 3}},
        {"attempts": {"count": 3, "attempt": 1, "except": [[3, 1]]}},
        {"attempts": {"count": 3, "attempt": 1, "except": ".b2x"}},
        {"attempts": {"count": 3, "attempt": 1, "except": ".2 b"}},
        {"attempts": {"count": 3, "attempt": 1, "except": ""}},
        {"attempts": {"count": 3, "attempt": 1, "except": "60:.2b"}},
        {"attempts": {"count": 3, "attempt": 1, "except": "60,:.2a"}},
        {"digests": [["made"]]},
    ],
)
def test_a_damaged_reference_to_a_group_is_refused_with_its_place(damage: dict[str, object]) -> None:
    document = to_json(claim(PLAN.grouped("read[3]", refs_of({}))))
    document["inputs"][0] |= damage
    with pytest.raises(Unlike, match=rf"inputs\[0\]\.{next(iter(damage))}"):
        from_json(Claim, document)
