"""``rebuild``: what it asks of Airflow, and what it leaves. The transaction: `plugins/test_rebuild_request.py`."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from fakes import Hooks, Killed, Process

from airflow_recovery.attempt.clear_protocol import MAX_NOTE
from airflow_recovery.attempt.rebuild import RebuildRequest, Rebuilt, finished_tasks
from airflow_recovery.console import rebuild
from airflow_recovery.console.deployment import StandaloneDeployment
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.records import AttemptState, ExternalObject, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.prober import ResultProber

RUN = ("flights", "2026-01-01")


class WithAirflow(StandaloneDeployment):
    """An Airflow that sets whatever it is asked, but `by_carrier`, which has begun."""

    asked: RebuildRequest

    def rebuild(self, dag_id: str, request: RebuildRequest) -> Rebuilt:  # type: ignore[override]
        assert dag_id == "flights"
        self.asked = request
        begun = {note: "it is running, try 1" for note in request.notes if note.endswith("by_carrier")}
        return Rebuilt("manual", tuple(note for note in request.notes if note not in begun), begun)


def call(recorded: Any, *options: str) -> WithAirflow:
    """The command inside an Airflow."""
    parser = argparse.ArgumentParser()
    rebuild.add_arguments(parser)
    args = parser.parse_args([*RUN, *options])
    deployment = WithAirflow(recorded.uri)
    args.open_deployment = lambda args: deployment
    assert rebuild.run(args) == ExitCode.DONE
    return deployment


def test_what_need_not_run_is_set_with_its_attempt_and_evidence(recorded, capsys):
    world = recorded.world()
    world.go_all(["raw", "by_carrier"])
    world.go("by_route")
    world.restart("by_route")
    world.go("by_route")
    world.new_airflow()
    asked = call(recorded).asked
    assert (asked.run_key, asked.dry_run) == ("date-2026-01-01T000000Z", False)
    assert list(asked.notes) == ["flights.raw", "flights.by_route", "flights.by_carrier"]
    note = asked.notes["flights.by_route"]
    assert note.startswith(f"Rebuilt from {recorded.uri}/flights/date-2026-01-01T000000Z/flights/: by_route: attempt 2")
    said = capsys.readouterr().out
    assert "Run manual: 2 tasks were set to success." in said
    assert "  flights.by_route: by_route: attempt 2 is valid" in said
    assert "  flights.busiest: must run: busiest: never finished" in said
    assert "  flights.by_carrier: it is running, try 1" in said


def test_as_json_and_dry(recorded, capsys):
    recorded.world().go("raw")
    assert call(recorded, "--dry-run", "--json").asked.dry_run
    document = json.loads(capsys.readouterr().out)
    assert (document["airflow_run_id"], document["dry_run"], document["set"]) == ("manual", True, ["flights.raw"])
    assert set(document["left"]) == {"flights.by_route", "flights.by_carrier", "flights.busiest"}


def test_what_is_lost_and_wanted_is_left(recorded):
    world = recorded.world()
    world.go_all(["raw", "by_route"])
    world.delete_results("raw", 1)
    # `by_route` stands until raw is made again, whose settling clears it then.
    assert list(call(recorded).asked.notes) == ["flights.by_route"]


def test_what_is_lost_and_nobody_wants_is_set(recorded):
    world = recorded.world()
    world.until_green()
    world.delete_results("raw", 1)
    assert len(call(recorded).asked.notes) == 4


def test_an_open_attempt_is_left(recorded):
    world = recorded.world()
    world.go("raw")
    world.restart("raw")
    process = Process()
    with pytest.raises(Killed):
        world.region_task(world.airflow.start("raw"), process, Hooks(on_start=process.kill)).execute()
    assert list(call(recorded).asked.notes) == []


def test_without_airflow_nothing_is_done_and_nothing_is_lost(recorded):
    recorded.world().until_green()
    assert recorded.call("rebuild", *RUN)[0] == ExitCode.USAGE
    assert "Use `airflow recovery rebuild` where Airflow is configured." in recorded.errors


# what only its own task can look at


def finished(region: RegionPlan, **outcome: Any) -> tuple[PlanRecord, RunState]:
    done = Outcome(region.name, 1, AttemptState.FINISHED, "w", "now", fingerprint=region.fingerprint, **outcome)
    attempts = {1: Attempt(1, is_claimed=True, has_outcome=True, outcome=done)}
    return PlanRecord("job", (region,)), RunState({region.name: RegionState(attempts)})


def left(*found: tuple[PlanRecord, RunState], available: Any = lambda *asked: None) -> dict[str, str]:
    plan = PlanRecord("job", tuple(region for each, _ in found for region in each.regions))
    state = RunState({name: region for _, each in found for name, region in each.regions.items()})
    evaluation = Evaluation(plan, state, available=available)
    return dict(finished_tasks(evaluation, key_of, "s3://j").left)


def key_of(region: RegionPlan) -> str:
    return region.name if region.subtask is None else f"{region.subtask.of}|{region.subtask.map_index}"


def region(name: str, **settings: Any) -> RegionPlan:
    given = {"vertices": (name,), "results": (name,), "inputs": (), "final": True, "fingerprint": "f", **settings}
    return RegionPlan(name=name, **given)


FILE = ExternalObject("a", "s3://lake/a.csv", 1, "e")


def test_external_files_an_operators_code_and_map_indexes_are_left_to_the_own_task():
    found = left(
        finished(region("a"), externals=(FILE,)),
        finished(region("b", fingerprint=None)),
        finished(region("c.subtasks", vertices=(), results=()), subtasks=("x",)),
        finished(region("d")),
    )
    assert found == {
        "a": "only its own task lists the 1 external files that it read",
        "b": "only its own task knows its code and arguments",
        "c.subtasks": "it tells Airflow the map indexes of other tasks",
    }


def test_fault_62_a_subtask_is_set_by_its_map_index_and_a_batch_only_as_a_whole():
    def subtask(at: int, batch: int | None) -> RegionPlan:
        return region(f"m[{at}]", vertices=("m",), subtask=SubtaskPlan("m", at, str(at), batch))

    never = (PlanRecord("job", (subtask(3, 1),)), RunState())
    states = [finished(subtask(at, at // 2)) for at in range(3)]
    assert list(left(*states, never)) == ["m|1"]
    evaluation = Evaluation(
        PlanRecord("j", (subtask(5, None),)), finished(subtask(5, None))[1], available=lambda *asked: None
    )
    assert list(finished_tasks(evaluation, key_of, "s3://j").notes) == ["m|5"]


def test_fault_27_a_store_that_denies_sets_nothing(recorded):
    def denied(location: str) -> Any:
        raise StoreAccessDenied(location)

    world = recorded.world()
    world.until_green()
    evaluation = Evaluation(world.plan, world.state(), available=ResultProber(denied))
    with pytest.raises(StoreAccessDenied):
        finished_tasks(evaluation, key_of, "s3://j")


def test_a_note_is_as_long_as_airflow_lets_it_be():
    many = [finished(region(f"m[{at}]", subtask=SubtaskPlan("m", at, str(at), 0))) for at in range(50)]
    plan = PlanRecord("job", tuple(region for one, _ in many for region in one.regions))
    state = RunState({name: one for _, each in many for name, one in each.regions.items()})
    evaluation = Evaluation(plan, state, available=lambda *asked: None)
    (note,) = finished_tasks(evaluation, key_of, "s3://j").notes.values()
    assert len(note) == MAX_NOTE


@pytest.mark.parametrize("value", [None, {}, {"run_key": "k", "notes": [], "dry_run": False}])
def test_a_request_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"RebuildRequest.*: expected"):
        from_json(RebuildRequest, value)


def test_values_and_their_json():
    request, answer = RebuildRequest("k", {"a|1": "note"}, True), Rebuilt("r", ("a",), {"b": "why"})
    assert from_json(RebuildRequest, json.loads(json.dumps(to_json(request)))) == request
    assert from_json(Rebuilt, json.loads(json.dumps(to_json(answer)))) == answer
