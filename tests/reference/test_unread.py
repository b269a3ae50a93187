"""Flink's release rule, asked of the regions of a plan as the journal has it."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan
from airflow_recovery.planning.edges import Edges
from airflow_recovery.results.release_rule import ReadersLeft
from reference.unread import unread_regions


def region(name: str, inputs: Iterable[str] = (), *, final: bool = False) -> RegionPlan:
    """``p[jan]`` is the subtask of ``p`` of that key; the keys of a vertex are one letter and its index: a0, a1, ..."""
    vertex, _, key = name.rstrip("]").partition("[")
    subtask = SubtaskPlan(vertex, int(key[1:]), key) if key else None
    return RegionPlan(name, (vertex,), (vertex,), tuple(inputs), final, "code 1", subtask=subtask)


def unread(plan: list[RegionPlan], done: str) -> str:
    return " ".join(sorted(unread_regions(PlanRecord("job", tuple(plan)), done.split().__contains__)))


def test_a_region_goes_when_all_of_its_readers_are_done_and_a_final_one_never() -> None:
    #   p -> c -> e
    #     `-> d -'
    plan = [region("p"), region("c", "p"), region("d", "p"), region("e", "cd", final=True)]
    assert unread(plan, "p") == ""
    assert unread(plan, "p c") == ""
    assert unread(plan, "p c d") == "p"
    assert unread(plan, "p c d e") == "c d p"
    assert unread(plan, "e") == "c d"


def test_a_final_result_that_is_read_as_well_is_kept() -> None:
    assert unread([region("p", final=True), region("c", "p", final=True)], "p c") == ""


def test_pointwise_each_subtask_goes_with_its_own_reader() -> None:
    #   p[a0] -> c[a0]
    #   p[a1] -> c[a1]
    plan = [region("p[a0]"), region("p[a1]"), region("c[a0]", ["p[a0]"]), region("c[a1]", ["p[a1]"])]
    assert unread(plan, "c[a0]") == "p[a0]"
    assert unread(plan, "c[a0] c[a1]") == "p[a0] p[a1]"


def test_an_all_to_all_input_goes_as_a_whole() -> None:
    #   p[a0], p[a1] -> c[b0], c[b1], c[b2]
    every = ["p[a0]", "p[a1]"]
    plan = [*map(region, every), *(region(f"c[b{i}]", every) for i in range(3))]
    assert unread(plan, "c[b0] c[b2]") == ""
    assert unread(plan, "c[b0] c[b1] c[b2]") == "p[a0] p[a1]"


def test_what_is_neither_pointwise_nor_all_to_all_stays_until_the_last_subtask() -> None:
    #   c[b0] reads p[a1], and c[b1] reads p[a0]
    plan = [region("p[a0]"), region("p[a1]"), region("c[b0]", ["p[a1]"]), region("c[b1]", ["p[a0]"])]
    assert unread(plan, "c[b0]") == ""
    assert unread(plan, "c[b0] c[b1]") == "p[a0] p[a1]"


@st.composite
def plans(draw: st.DrawFn) -> list[RegionPlan]:
    """Vertices of one to three subtasks, each edge pointwise where that is possible, else all to all."""
    vertices: list[list[str]] = []
    regions: list[RegionPlan] = []
    for at in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 3))
        names = [f"v{at}"] if count == 1 else [f"v{at}[k{i}]" for i in range(count)]
        read = draw(st.lists(st.sampled_from(vertices), unique_by=tuple, max_size=3)) if vertices else []
        alike = [len(each) == count and draw(st.booleans()) for each in read]
        for i, name in enumerate(names):
            inputs = [
                one
                for each, pointwise in zip(read, alike, strict=True)
                for one in (each[i : i + 1] if pointwise else each)
            ]
            regions.append(region(name, inputs, final=at == 4))
        vertices.append(names)
    return regions


@given(plans(), st.data())
def test_flinks_rule_lets_go_what_has_no_reader_left(plan: list[RegionPlan], data: st.DataObject) -> None:
    done = data.draw(st.sets(st.sampled_from([region.name for region in plan])))
    record = PlanRecord("job", tuple(plan))
    read = {name for region in plan for name in region.inputs}
    left = ReadersLeft(Edges(record), done.__contains__)
    expected = {
        region.name for region in plan if not region.final and region.name in read and left.first(region.name) is None
    }
    assert unread_regions(record, done.__contains__) == expected
