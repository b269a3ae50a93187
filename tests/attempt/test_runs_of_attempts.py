"""Runs of one date that are not the same run: another data interval, other conf, params or rendered fields.

The interval decides whether a run may replace what another run has made (fault 195). Everything else is named in the
reason for running again (fault 196).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from expected_errors import fails_with
from fakes import CHAIN, PAIR, Killed, Process, World
from sink_world import SINK, SinkWorld

from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.errors import ConfigurationError, RegionFailed
from airflow_recovery.model.committing import CommitMode
from airflow_recovery.model.dag_run import DagRunFacts
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.testing import CountingStore, Verb

DATE, NEXT, BEFORE = (f"2026-01-0{day}T01:00:00+00:00" for day in (2, 3, 1))
SCHEDULED = DagRunFacts(f"scheduled__{DATE}", "scheduled", DATE, DATE, NEXT, run_after=NEXT)
TRIGGERED = DagRunFacts("manual__1", "manual", DATE, BEFORE, DATE, run_after=DATE)
"""Of the same date, with the interval before it: as Airflow infers it for a run that is triggered for a date."""
SAME_INTERVAL = replace(SCHEDULED, run_id="manual__2", run_type="manual")
BACKFILL = replace(TRIGGERED, run_id=f"backfill__{DATE}", run_type="backfill")
"""Its timetable has been changed."""
CLEARED_BY_BACKFILL = replace(TRIGGERED, run_type="backfill")
"""A triggered run that a backfill has cleared: Airflow changes its type, and keeps its id and its interval."""
OTHER_CONF = replace(TRIGGERED, conf={"keys": 2})

FILE = ExternalObject("P", "s3://lake/a.csv", 1, "v1")


def made_by(facts: DagRunFacts, topology: Any = PAIR) -> World:
    """The regions are done, and Airflow has forgotten the run."""
    world = World(topology, dag_run=facts)
    world.go("P", externals=(FILE,))
    for region in list(topology)[1:]:
        world.go(region)
    world.new_airflow()
    world.ran.clear()
    return world


def code_changed(world: World) -> None:
    world.fingerprints["P"] = "rendered with the interval"
    world.go("P", externals=(FILE,))


def file_changed(world: World) -> None:
    world.go("P", externals=(replace(FILE, etag="v2"),))


def result_lost(world: World) -> None:
    world.delete_results("C", 1)
    world.go("P", externals=(FILE,))
    world.go("C")


def everything_asked_for(world: World) -> None:
    world.go("P", epoch="1", externals=(FILE,))


def input_made_again(world: World) -> None:
    world.dag_run = SCHEDULED
    world.restart("P")
    world.go("P", externals=(FILE,))
    world.new_airflow()
    world.dag_run = TRIGGERED
    world.go("P", externals=(FILE,))
    world.go("C")


REPLACES = [code_changed, file_changed, result_lost, everything_asked_for, input_made_again]


@pytest.mark.parametrize("replaces", REPLACES)
@pytest.mark.parametrize("triggered", [TRIGGERED, CLEARED_BY_BACKFILL])
def test_fault_195_a_run_with_another_interval_replaces_nothing_and_is_told_of_the_backfill(
    triggered: DagRunFacts, replaces: Callable[[World], None]
) -> None:
    world = made_by(SCHEDULED)
    world.dag_run = triggered
    before = dict(world.journal_store.objects)
    with pytest.raises(ConfigurationError) as caught:
        replaces(world)
    if replaces is not input_made_again:
        assert dict(world.journal_store.objects) == before
        assert world.ran == []
    for words in (
        f"run scheduled__{DATE} made. Expected that run's data interval, from {DATE} to {NEXT}",
        f"found manual__1 with the interval from {BEFORE} to {DATE}",
        f"airflow backfill create --dag-id dag --from-date {DATE} --to-date {DATE}",
        "airflow recovery restart dag",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("replaces", REPLACES)
def test_fault_195_control_without_the_check_it_replaces_the_result_of_the_date(
    monkeypatch: pytest.MonkeyPatch, replaces: Callable[[World], None]
) -> None:
    for module in ("recompute", "region_task"):
        monkeypatch.setattr(f"airflow_recovery.attempt.{module}.check_data_interval", lambda *given: None)
    world = made_by(SCHEDULED)
    world.dag_run = TRIGGERED
    replaces(world)
    assert world.ran


def test_fault_195_a_finish_that_waits_for_its_commit_is_not_given_up() -> None:
    """With other code it would be: the date's rows would never get to their target."""
    world = SinkWorld({SINK: ()}, commit_mode=CommitMode.REPLACE, dag_run=SCHEDULED)
    process = Process()
    with pytest.raises(Killed):
        world.go(SINK, process=process, on_finished=process.kill)
    world.new_airflow()
    world.dag_run = TRIGGERED
    world.fingerprints[SINK] = "rendered with the interval"
    with fails_with("interval-of-other-run", region=SINK):
        world.go(SINK)
    world.new_airflow()
    world.dag_run = SCHEDULED
    world.fingerprints.clear()
    assert (world.go(SINK).decision, world.ran) == (Decision.KEPT, [(SINK, 1)])


def test_fault_195_what_was_made_for_another_interval_is_not_joined_with_this_runs() -> None:
    world = World(PAIR, dag_run=SCHEDULED)
    world.go("P")
    world.new_airflow()
    world.dag_run = TRIGGERED
    assert world.go("P").decision is Decision.KEPT
    with fails_with("interval-of-other-run", region="C"):
        world.go("C")
    assert world.attempts("C") == 0


@pytest.mark.parametrize("again", [SCHEDULED, SAME_INTERVAL, BACKFILL, OTHER_CONF])
def test_any_other_run_of_the_date_runs_what_has_changed(again: DagRunFacts) -> None:
    world = made_by(SCHEDULED)
    world.dag_run = again
    code_changed(world)
    assert world.ran == [("P", 2)]


def test_a_triggered_run_keeps_what_has_not_changed() -> None:
    world = made_by(SCHEDULED, CHAIN)
    world.dag_run = TRIGGERED
    assert [world.go(region, externals=(FILE,) if region == "P" else ()).decision for region in CHAIN] == (
        [Decision.KEPT] * 3
    )


def test_a_restart_by_a_person_lets_the_new_interval_in() -> None:
    world = made_by(SCHEDULED)
    world.dag_run = TRIGGERED
    world.restart("P")
    world.go("P", externals=(FILE,))
    assert world.ran == [("P", 2)]


def test_of_a_journal_of_an_earlier_version_nothing_is_known() -> None:
    world = World(PAIR)
    world.go("P")
    world.new_airflow()
    world.dag_run = TRIGGERED
    world.fingerprints["P"] = "other"
    assert world.go("P").attempt == 2


# what stands in the records


def records_of(world: World) -> tuple[Any, Any]:
    attempt = max(world.state().of("P").attempts.values(), key=lambda attempt: attempt.number)
    return world.journal().read_claim("P", attempt.number).dag_run, attempt.outcome.dag_run


FULL = replace(
    SCHEDULED,
    partition_key="eu",
    conf={"keys": "k-7", "recovery": {"mode": "recover"}},
    params={"limit": 7},
    fields={"P": {"arguments": ["--password", "k-7"]}, "C": {"other": 1}},
)


def test_fault_196_the_run_stands_readable_in_claim_and_finish_and_no_value_of_conf_or_params_does() -> None:
    world = World(PAIR, dag_run=FULL)
    world.go("P")
    claimed, finished = records_of(world)
    assert claimed == finished
    assert (finished.run_id, finished.run_type, finished.run_after) == (FULL.run_id, "scheduled", NEXT)
    assert (finished.logical_date, finished.interval, finished.partition_key) == (DATE, (DATE, NEXT), "eu")
    names = [[name for name, _ in digests] for digests in (finished.conf, finished.params, finished.fields)]
    assert names == [["keys"], ["limit"], ["arguments"]]
    assert not any(b"k-7" in body for key, body in world.journal_store.objects.items())
    # Equal values under two names, or in two journals, have other digests.
    other = World(PAIR, dag_run=FULL)
    other.go("P")
    assert finished.conf != records_of(other)[1].conf


def test_a_few_names_are_recorded_and_the_others_share_one_digest() -> None:
    many = replace(SCHEDULED, conf={f"key {n:03d} " + "x" * 200: n for n in range(1000)})
    world = World(PAIR, dag_run=many)
    world.go("P")
    conf = records_of(world)[1].conf
    assert (len(conf), conf[-1][0]) == (65, "(936 others)")
    assert len(json.dumps(conf)) < 10_000
    world.new_airflow()
    world.fingerprints["P"] = "other"
    world.dag_run = replace(many, conf={**many.conf, "key 999 " + "x" * 200: "other"})
    assert "; other now: conf.(936 others)" in world.go("P").cause


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"conf": {"keys": 2, "new": 1}}, "conf.keys, conf.new"),
        ({"conf": {}}, "conf.keys"),
        ({"params": {"limit": 8}}, "params.limit"),
        ({"fields": {"P": {"arguments": ["--since", "another run's end"]}}}, "arguments"),
        ({"run_id": "manual__1", "run_type": "manual"}, "run_type (then scheduled, now manual)"),
        ({"data_interval_end": BEFORE}, f"data_interval_end (then {NEXT}, now {BEFORE})"),
        ({"conf": {"keys": 1, "recovery": {"mode": "recover"}}}, ""),
        ({}, ""),
    ],
)
def test_fault_196_the_reason_names_what_has_changed(changes: dict[str, Any], told: str) -> None:
    facts = replace(SCHEDULED, conf={"keys": 1}, params={"limit": 7}, fields={"P": {"arguments": ["--since", NEXT]}})
    world = made_by(facts)
    world.dag_run = replace(facts, **changes)
    world.fingerprints["P"] = "other"
    cause = world.go("P", externals=(FILE,)).cause
    assert cause == "P: code or parameters changed (since attempt 1" + (f"; other now: {told})" if told else ")")


def test_a_run_without_values_costs_no_request_and_one_with_values_one() -> None:
    counts = []
    for facts in (None, SCHEDULED, replace(SCHEDULED, params={"limit": 7})):
        world = World(PAIR, dag_run=facts)
        world.go("P")
        world.journal_store = counting = CountingStore(world.journal_store)
        world.go("C")
        counts.append([verb for verb, _ in counting.requests].count(Verb.GET))
    assert counts == [1, 1, 2]


def test_fault_196_a_plan_names_the_changed_keys_once_a_task_has_begun_with_them() -> None:
    """As the log of that task does; a plan is evaluated without a task's DAG run."""
    world = World(PAIR, by_operators=True, dag_run=replace(SCHEDULED, conf={"keys": 1}))
    world.go_all()
    world.dag_run, world.fingerprints["P"] = replace(SCHEDULED, conf={"keys": 2}), "rendered with 2"

    def fail() -> None:
        raise RegionFailed("broken")

    world.airflow.clear("P")
    with pytest.raises(RegionFailed):
        world.go("P", on_start=fail)
    evaluation = Evaluation(world.plan, world.state(), available=lambda *asked: None)
    why = evaluation.invalid_because("P")
    assert why is not None
    assert "other now: conf.keys" in why.text()
