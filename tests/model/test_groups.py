"""Plans of groups: the same regions as written out one by one, without one value for each input of each region."""

from __future__ import annotations

from itertools import pairwise

import pytest
from region_groups import ALL_TO_ALL, POINTWISE, group, random_groups, written_out

from airflow_recovery.model.groups import WIDE, GroupedRegions, RegionGroup
from airflow_recovery.model.records import PlanRecord


@pytest.mark.parametrize("seed", range(200))
def test_a_grouped_plan_has_the_regions_that_are_written_out(seed: int) -> None:
    groups = random_groups(seed, widest=5 if seed % 20 else WIDE + 5)
    regions = written_out(groups)
    plan, flat = PlanRecord("x:y", GroupedRegions(groups)), PlanRecord("x:y", regions)
    assert plan == flat
    assert flat == plan
    assert len(plan.regions) == len(regions)
    assert dict(plan.by_name) == flat.by_name
    assert plan.position == flat.position == {region.name: at for at, region in enumerate(regions)}
    assert list(plan.by_name) == list(plan.readers) == [region.name for region in regions]
    assert {name: tuple(names) for name, names in plan.readers.items()} == {
        name: tuple(region.name for region in regions if name in region.inputs) for name in plan.by_name
    }
    assert {name: list(members) for name, members in plan.subtasks.items()} == flat.subtasks
    assert plan.read == flat.read
    assert plan.regions[1:3] == regions[1:3]
    assert plan.regions[-1] == regions[-1]
    assert list(reversed(plan.regions)) == list(reversed(regions))


@pytest.mark.parametrize("seed", range(50))
def test_groups_and_their_edges_say_who_reads_whom(seed: int) -> None:
    groups = random_groups(seed)
    for plan in (PlanRecord("x:y", GroupedRegions(groups)), PlanRecord("x:y", written_out(groups))):
        assert [name for each in plan.groups for name in each.names] == list(plan.by_name)
        for each in plan.groups:
            assert plan.groups_by_name[each.name] is each
            assert [plan.group_of(name) for name in each.names] == [each] * len(each)
            assert [each.index_of[name] for name in each.names] == list(range(len(each)))
            assert [each.fingerprint(index) for index in range(len(each))] == [
                plan.by_name[name].fingerprint for name in each.names
            ]
            edges = [(edge.group, each.name, edge.pattern) for edge in each.inputs]
            assert edges == [
                (producer, each.name, pattern)
                for producer, _, _ in edges
                for reader, pattern in plan.reading_groups[producer]
                if reader is each
            ]


def test_all_consumers_of_a_group_share_one_list_of_inputs() -> None:
    keys = [str(key) for key in range(10_000)]
    made = group("made", keys=keys)
    plan = PlanRecord("x:y", GroupedRegions([made, group("read", ("made", ALL_TO_ALL), keys=keys)]))
    first, last = plan.by_name["read[0]"], plan.by_name["read[9999]"]
    assert first.inputs is last.inputs is made.names
    assert plan.readers["made[0]"] is plan.readers["made[9999]"]
    assert len(plan.regions) == 20_000
    assert plan.group_of("read[77]").index_of["read[77]"] == 77


def test_a_long_list_of_inputs_beside_a_pointwise_one_is_not_copied_for_each_region() -> None:
    keys = [str(key) for key in range(WIDE + 1)]
    other = [*keys, "more"]
    groups = [
        group("a", keys=keys),
        group("b", keys=other),
        group("c", ("b", ALL_TO_ALL), ("a", POINTWISE), keys=keys),
    ]
    inputs = PlanRecord("x:y", GroupedRegions(groups)).by_name["c[3]"].inputs
    assert not isinstance(inputs, tuple)
    assert inputs == (*(f"b[{key}]" for key in other), "a[3]")
    assert inputs[-1] == "a[3]"
    assert "a[4]" not in inputs
    with pytest.raises(IndexError):
        inputs[len(other) + 1]


def test_the_digest_of_keys_is_of_the_name_and_of_the_order() -> None:
    digests = {
        group(name, keys=keys).keys_digest for name in ("a", "b") for keys in (["1", "2"], ["2", "1"], ["1"], ["12"])
    }
    assert len(digests) == 8
    assert {len(digest) for digest in digests} == {16}
    assert group("a").keys_digest not in digests


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([group("a"), group("a")], "'a' a second time"),
        ([group("b", ("a", ALL_TO_ALL)), group("a")], "'b', which reads 'a' before it"),
        ([group("a", keys=["1"]), group("b", ("a", POINTWISE), keys=["2"])], "equal keys"),
        ([group("a", keys=["1"]), group("b", ("a", POINTWISE))], "equal keys"),
    ],
)
def test_groups_that_are_no_plan_are_refused(groups: list[RegionGroup], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GroupedRegions(groups)


def test_a_chain_of_groups_finds_each_region_by_its_name() -> None:
    names = [f"a{number}" for number in range(1_000)]
    groups = [group(names[0]), *(group(name, (before, ALL_TO_ALL)) for before, name in pairwise(names))]
    plan = PlanRecord("x:y", GroupedRegions(groups))
    assert plan.by_name["a999"].inputs == ("a998",)
    assert plan.readers["a0"] == ("a1",)
    assert plan.readers["a999"] == ()
    with pytest.raises(KeyError):
        plan.group_of("a1000")
