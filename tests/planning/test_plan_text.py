"""A plan as a person reads it."""

from __future__ import annotations

from dataclasses import replace

from plan_cases import ALWAYS, CHAIN, DIAMOND, FORK, RunCase

from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.region_plan import SubtaskPlan
from airflow_recovery.planning.plan_text import brief, count_text, plan_line, plan_table, plan_text, plan_tree, ranges
from airflow_recovery.planning.scenario import RecomputeAll, RestartRegion


def months(count: int = 12) -> RunCase:
    """``raw`` -> ``by_month``, one subtask a month -> ``busiest``."""
    names = [f"by_month[{at}]" for at in range(count)]
    case = RunCase({"raw": (), **dict.fromkeys(names, ("raw",)), "busiest": tuple(names)})
    regions = tuple(
        replace(region, subtask=SubtaskPlan("by_month", names.index(region.name), "key"))
        if region.name in names
        else region
        for region in case.topology.regions
    )
    case.topology = replace(case.topology, regions=regions)
    return case.finish_all()


def test_ranges_of_indexes():
    assert ranges([0, 1, 2, 3, 7]) == "0..3,7"
    assert ranges([5]) == "5"
    assert ranges([9, 2, 1]) == "1..2,9"


def test_a_table_of_the_request_the_count_and_the_causes():
    assert plan_text(RunCase(DIAMOND).finish_all().plan(RestartRegion("C", "ann"))) == "\n".join(
        [
            "Asked: restart C",
            "",
            "region  action  attempt  why",
            "------  ------  -------  ----------------------------------------",
            "P       keep    @1       attempt 1 is valid, 1 files are as registered",
            "C       run     @1       reset (ann: restart C)",
            "D       keep    @1       attempt 1 is valid, 1 files are as registered",
            "E       run     @1       input is not valid (C)",
            "",
            "4 regions: 2 run, 2 keep.",
            "",
            "Why:",
            "C: reset (ann: restart C)",
            "│   asked reset of C@1: ann: restart C",
            "└── E: input is not valid (C)",
        ]
    )


def test_subtasks_of_one_region_are_folded():
    case = months().lose("by_month[3]").reset("busiest")
    found = case.plan()
    assert "\nby_month[0..11]  keep 11, run 1  @1       [3] result is missing (gone)\n" in plan_table(found)
    assert plan_line(found, 14) == "run by_month[3], busiest; leave 12 of 14 as they are"
    assert plan_tree(found).startswith("by_month[3]: result is missing (gone)\n")


def test_subtasks_with_different_reasons():
    case = months().lose("by_month[3]").reset("busiest").reset("by_month[7]").reset("by_month[8]")
    row = next(line for line in plan_table(case.plan()).splitlines() if line.startswith("by_month"))
    assert row.split("  ")[1:3] == ["keep 9, run 3", "@0..1"]
    assert row.endswith("[3] result is missing (gone); [7..8] reset (ann: asked for)")


def test_a_restart_of_all_subtasks_by_the_name_of_their_region():
    found = months(3).plan(RestartRegion("by_month"))
    assert found.running == ("by_month[0]", "by_month[1]", "by_month[2]", "busiest")
    assert len(found.resets) == 3
    assert plan_tree(found) == "\n".join(
        [
            "by_month[0..2]: [0..2] reset (you: restart by_month)",
            "│   asked reset of by_month[0]@1: you: restart by_month",
            "└── busiest: input is not valid (by_month[0])",
        ]
    )


def test_what_waits_is_told_with_its_condition():
    found = RunCase(CHAIN, {"P": Determinism.VERIFY}).finish_all().plan(RestartRegion("P"))
    assert count_text(found) == "3 regions: 1 run, 2 wait (run only where the rows made again differ)."
    assert "└── C waits: input is not valid (P)" in plan_tree(found)
    assert dict(brief(found))["C"] == "waits: input is not valid (P)"


def test_the_tree_shows_what_runs_and_each_region_once():
    tree = plan_tree(RunCase(FORK, {"P": ALWAYS}).finish_all().plan(RestartRegion("P"))).splitlines()
    assert [line.split(":")[0] for line in tree if "asked" not in line] == ["P", "├── C", "└── D"]
    assert plan_tree(RunCase(FORK).finish_all().plan()) == ""


def test_a_long_tree_and_a_long_record_are_cut():
    names = tuple(f"r{at}" for at in range(1_100))
    case = RunCase(dict.fromkeys(names, ()))
    case.attempts = {name: RunCase({name: ()}).finish(name).attempts[name] for name in names}
    found = case.plan(RecomputeAll())
    assert plan_tree(found).splitlines()[-1].startswith("... ")
    assert brief(found)[-1] == ("...", "100 more")
    assert len(brief(found)) == 1_001
