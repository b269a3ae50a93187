from __future__ import annotations

import random

from expected_errors import fails_with
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.model.result_type import BLOCKING, PIPELINED, ResultType
from airflow_recovery.planning.graph import JobGraph, JobVertex
from airflow_recovery.planning.regions import MAX_NAME_LENGTH, Region, RegionInput, region_graph, region_name


def source(name: str, result: ResultType = PIPELINED) -> JobVertex:
    return JobVertex(name, (), result)


def blocking(name: str, *inputs: str) -> JobVertex:
    return JobVertex(name, inputs, BLOCKING)


def pipelined(name: str, *inputs: str) -> JobVertex:
    return JobVertex(name, inputs, PIPELINED)


def sink(name: str, *inputs: str) -> JobVertex:
    return JobVertex(name, inputs, BLOCKING, is_sink=True)


def flights(*more: JobVertex) -> JobGraph:
    # raw ~> cleaned ~> by_route -> delays            ~> pipelined, -> blocking
    #              `~~> by_day  -> days
    # airports -> delays
    return JobGraph(
        "flights",
        (
            source("raw"),
            pipelined("cleaned", "raw"),
            blocking("by_route", "cleaned"),
            blocking("by_day", "cleaned"),
            source("airports", BLOCKING),
            sink("delays", "by_route", "airports"),
            sink("days", "by_day"),
            *more,
        ),
    )


def test_a_region_is_named_after_its_results() -> None:
    graph = region_graph(flights())
    assert graph.names == ("by_day.by_route", "airports", "delays", "days")
    assert graph.region("by_day.by_route") == Region(
        "by_day.by_route", ("raw", "cleaned", "by_route", "by_day"), ("by_route", "by_day"), (), is_final=False
    )
    assert graph.region("delays") == Region(
        "delays",
        ("delays",),
        ("delays",),
        (RegionInput("by_route", "by_day.by_route"), RegionInput("airports", "airports")),
        is_final=True,
    )


def test_look_ups_name_neighbours_and_refuse_strangers() -> None:
    graph = region_graph(flights())
    assert graph.region_of("cleaned").name == "by_day.by_route"
    assert graph.region("delays").upstream == ("by_day.by_route", "airports")
    assert graph.consumers("by_day.by_route") == ("delays", "days")
    assert graph.consumers("days") == ()
    for look_up in (graph.region, graph.consumers, graph.region_of):
        with fails_with("region-not-in-job", "vertex-in-no-region", found="nobody"):
            look_up("nobody")


def test_a_region_read_through_two_results_is_one_upstream() -> None:
    # a ~> (b, c) -> d
    graph = region_graph(JobGraph("j", (source("a"), blocking("b", "a"), blocking("c", "a"), sink("d", "b", "c"))))
    assert graph.region("d").upstream == ("b.c",)
    assert graph.consumers("b.c") == ("d",)


def test_a_sink_that_is_read_is_final_and_an_input() -> None:
    graph = region_graph(JobGraph("j", (source("a"), sink("b", "a"), sink("c", "b"))))
    assert [(region.name, region.results, region.is_final) for region in graph.regions] == [
        ("b", ("b",), True),
        ("c", ("c",), True),
    ]


def test_a_blocking_result_inside_a_merged_region_is_not_registered() -> None:
    #    ,~> a -> b -.
    #  s              -> d      {s, a, c, d} waits for {b}, and {b} for a
    #    `~> c ~~~~~~'
    graph = region_graph(
        JobGraph("j", (source("s"), blocking("a", "s"), blocking("b", "a"), pipelined("c", "s"), sink("d", "b", "c")))
    )
    assert [(region.vertices, region.results) for region in graph.regions] == [(("s", "a", "b", "c", "d"), ("d",))]


def test_unrelated_vertices_leave_names_alone() -> None:
    before = region_graph(flights())
    after = region_graph(flights(source("weather"), pipelined("hourly", "weather"), sink("storms", "hourly")))
    assert [region for region in after.regions if region.name in before.names] == list(before.regions)
    assert set(after.names) - set(before.names) == {"storms"}


def test_many_results_are_cut_to_a_readable_name() -> None:
    name = region_name([f"a_rather_long_result_name_{number}" for number in range(9)])
    assert name.startswith("a_rather_long_result_name_0.and-8-more.")
    assert len(name) <= MAX_NAME_LENGTH


def test_one_long_name_stays_whole() -> None:
    assert region_name(["x" * 200]) == "x" * 200


names = st.from_regex(r"[a-z][a-z_-]{0,29}", fullmatch=True)


@given(st.lists(st.sets(names, min_size=1, max_size=6), max_size=20).filter(bool))
def test_region_names_are_injective(families: list[set[str]]) -> None:
    distinct = {frozenset(family) for family in families}
    assert len({region_name(family) for family in distinct}) == len(distinct)


@given(st.sets(names, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_region_names_do_not_depend_on_order(family: set[str], rng: random.Random) -> None:
    ordered = list(family)
    rng.shuffle(ordered)
    assert region_name(ordered) == region_name(family)


def test_two_regions_that_would_share_a_name_are_refused() -> None:
    # Dots are legal in ids of other makers of graphs (drop-in operators), so that joins may clash.
    graph = JobGraph("j", (source("s"), sink("a", "s"), sink("b", "s"), source("t"), sink("a.b", "t")))
    with fails_with("regions-of-one-name", region="a.b"):
        region_graph(graph)


def test_fault_79_cycle_is_refused_by_name() -> None:
    with fails_with("cycle", job="j"):
        JobGraph("j", (blocking("a", "c"), blocking("b", "a"), blocking("c", "b"), sink("d", "c")))


def test_fault_79_duplicate_vertex_is_refused_by_name() -> None:
    with fails_with("vertex-name-twice", job="j", vertex="a"):
        JobGraph("j", (source("a"), source("a"), sink("b", "a")))


def test_fault_79_dangling_edge_is_refused_by_name_with_the_closest_one() -> None:
    with fails_with("input-of-no-vertex", vertex="b", input="cleand"):
        JobGraph("j", (source("cleaned"), sink("b", "cleand")))


def test_fault_79_empty_graph_is_refused() -> None:
    with fails_with("job-without-vertex"):
        JobGraph("j", ())


def test_fault_79_a_result_that_nobody_reads_is_refused() -> None:
    with fails_with("vertex-unread", vertex="b"):
        JobGraph("j", (source("a"), pipelined("b", "a"), sink("c", "a")))


def test_fault_79_the_same_input_twice_is_refused() -> None:
    with fails_with("input-twice"):
        JobGraph("j", (source("a"), sink("c", "a", "a")))


def test_fault_79_twenty_thousand_vertices_in_4_000_regions() -> None:
    vertices: list[JobVertex] = []
    for chain in range(4_000):
        vertices += [
            JobVertex(f"a{chain}", (f"d{chain - 1}",) if chain else (), PIPELINED),
            pipelined(f"b{chain}", f"a{chain}"),
            pipelined(f"c{chain}", f"a{chain}"),
            blocking(f"d{chain}", f"b{chain}", f"c{chain}"),
            sink(f"e{chain}", f"d{chain}"),
        ]
    graph = region_graph(JobGraph("long", tuple(vertices)))
    assert len(graph.regions) == 8_000
