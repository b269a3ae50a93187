"""The failover: who is reported, who is woken, who is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from expected_errors import fails_with
from fakes import CHAIN, FORK, PAIR, PUBLISH, TRIDENT, Hooks, Process, World

from airflow_recovery.attempt import clear_producers as wake
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import FINISHED_STATES, REMOVED_STATE, Observation, TaskTry
from airflow_recovery.errors import InputLost, InputUnreachable, NotMine
from airflow_recovery.model.records import Lost
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.results.prober import ResultProber


def test_one_lost_input_wakes_its_producer_once():
    world = World(PAIR)
    world.go("P")
    world.delete_results("P", 1)
    with pytest.raises(InputLost) as failed:
        world.go("C")
    assert "P: result is missing" in str(failed.value)
    assert world.airflow.cleared == ["P"]
    report = world.journal().read_lost("P", 1)
    assert (report.reporter, report.plan[0][0]) == ("C", "P")
    assert world.until_green() == ["P", "C", PUBLISH]
    assert world.ran == [("P", 1), ("P", 2), ("C", 1)]


def three_notice_at_once(world: World) -> None:
    """C1, C2 and C3 all evaluate before any of them clears P."""
    world.go("P")
    world.delete_results("P", 1)
    own = {name: world.airflow.start(name) for name in ("C1", "C2", "C3")}

    def next_one(at: int) -> None:
        """Runs C<at> up to its clear, then the next, then clears."""
        process = Process()
        names = ("C1", "C2", "C3")

        def gate(request: str) -> None:
            if request == "clear" and at + 1 < 3:
                process.gate = lambda request: None
                next_one(at + 1)

        process.gate = gate
        with pytest.raises(InputLost):
            world.region_task(own[names[at]], process).execute()
        world.airflow.end(own[names[at]], "failed")

    next_one(0)


def test_a_loss_that_three_consumers_notice_at_once_wakes_the_producer_once():
    world = World(TRIDENT)
    three_notice_at_once(world)
    assert world.airflow.cleared == ["P"]
    world.until_green()
    assert [each for each in world.ran if each[0] == "P"] == [("P", 1), ("P", 2)]
    assert sorted(world.ran[2:]) == [("C1", 1), ("C2", 1), ("C3", 1)]


def test_control_without_comparing_the_producer_is_cleared_by_each():
    world = World(TRIDENT)
    world.airflow.compares = False
    three_notice_at_once(world)
    assert world.airflow.cleared == ["P", "P", "P"]


def test_a_second_clear_does_not_hit_the_producer_at_its_re_run():
    """Hole 9: C woke P, P is running; D decided from the same loss and clears late."""
    world = World(FORK)
    world.go("P")
    world.delete_results("P", 1)
    own = world.airflow.start("D")
    process = Process()

    def others_first(request: str) -> None:
        if request == "clear":
            process.gate = lambda request: None
            with pytest.raises(InputLost):
                world.go("C")
            p_again.append(world.airflow.start("P"))

    p_again: list[Any] = []
    process.gate = others_first
    with fails_with("input-cleared", cleared=[]):
        world.region_task(own, process).execute()
    world.airflow.end(own, "failed")
    assert world.airflow.is_mine(p_again[0])
    world.region_task(p_again[0], Process()).execute()
    world.airflow.end(p_again[0], "success")
    world.until_green()
    assert world.attempts("P") == 2


def test_the_try_is_the_one_observed_in_airflow_not_the_one_in_the_journal():
    """Hole 5: the run was cleared and P kept by a later try; its journal still names the first."""
    world = World(CHAIN)
    world.go_all()
    for region in (*CHAIN,):
        world.airflow.clear(region)
    world.go_all("PC")
    world.delete_results("C", 1)
    world.delete_results("E", 1)
    with pytest.raises(InputLost):
        world.go("E")
    assert world.airflow.cleared == ["C"]


def test_consumers_that_rest_on_what_is_made_again_are_stopped():
    """P -> C, P -> D: D is running on P@1 when C finds it gone: forward cancellation."""
    world = World(FORK)
    world.go("P")
    d = world.airflow.start("D")
    task = world.region_task(d, Process(), Hooks(on_read=lambda: c_finds_it_gone()))

    def c_finds_it_gone() -> None:
        world.delete_results("P", 1)
        with pytest.raises(InputLost):
            world.go("C")

    with pytest.raises(NotMine):
        task.execute()
    assert world.airflow.cleared == ["P", "D"]
    assert not world.airflow.end(d, "success")
    world.until_green()
    assert world.state().of("D").current.outcome.inputs[0].attempt == 2


def test_unreachable_is_not_lost_and_ends_the_ping_pong():
    """C's worker does not see what P's worker sees."""
    world = World(PAIR)
    world.go("P")
    seen_by = {"who": "C"}
    prober = ResultProber.__call__

    def blind(self: ResultProber, region: str, attempt: Any, result: str) -> Reason | None:
        if seen_by["who"] == "C" and region == "P":
            return Reason("P", Why.OUTPUT_MISSING, "not here")
        return prober(self, region, attempt, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResultProber, "__call__", blind)
        with pytest.raises(InputLost):
            world.go("C")
        seen_by["who"] = "P"
        assert world.go("P").decision is Decision.KEPT
        seen_by["who"] = "C"
        with fails_with("input-seen-elsewhere"):
            world.go("C")
    assert world.airflow.cleared == ["P"]
    assert world.go("C").attempt == 1


@pytest.mark.parametrize(("whose", "error"), [("another run", InputLost), (None, InputUnreachable)])
def test_what_another_run_of_the_key_has_reported_was_cleared_there_alone(whose, error):
    world = World(PAIR)
    world.go("P")
    world.journal().report_lost(Lost("P", 1, "C", ("gone",), "its own task instance of P", airflow_run_id=whose))
    world.delete_results("P", 1)
    with pytest.raises(error):
        world.go("C")
    assert world.airflow.cleared == (["P"] if whose else [])


def test_control_without_that_check_producer_and_consumer_play_ping_pong(monkeypatch):
    world = World(PAIR, retries=50)
    world.go("P")
    prober = ResultProber.__call__
    seen_by = {"who": "C"}

    def blind(self: ResultProber, region: str, attempt: Any, result: str) -> Reason | None:
        if seen_by["who"] == "C" and region == "P":
            return Reason("P", Why.OUTPUT_MISSING, "not here")
        return prober(self, region, attempt, result)

    monkeypatch.setattr(ResultProber, "__call__", blind)
    monkeypatch.setattr(wake, "_check_reachable", lambda *args: None)
    for _ in range(10):
        seen_by["who"] = "C"
        with pytest.raises(InputLost):
            world.go("C")
        seen_by["who"] = "P"
        world.go("P")
    assert world.airflow.cleared == ["P"] * 10


@pytest.mark.parametrize("can_clear", [True, False])
def test_fault_64_a_skipped_input_skips_its_reader_and_wakes_nobody(can_clear):
    """P was skipped (branching); C starts all the same, since its trigger rule is all_done."""
    world = World(PAIR, can_clear=can_clear)
    world.airflow.mark("P", "skipped")
    world.airflow.upstream["C"] = ()
    with fails_with("lost-input-was-skipped", skipped=["P"]):
        world.go("C")
    assert world.airflow.cleared == []
    assert world.airflow.state("C") == "skipped"


def test_fault_64_a_skipped_producer_with_a_result_from_an_earlier_attempt_is_read():
    world = World(PAIR)
    world.go("P")
    world.new_airflow()
    world.airflow.mark("P", "skipped")
    world.airflow.upstream["C"] = ()
    assert world.go("C").attempt == 1


def test_fault_64_a_skipped_producer_whose_earlier_result_does_not_count_is_named_with_the_reason():
    world = World(PAIR)
    world.go("P")
    world.fingerprints["P"] = "code 2"
    world.airflow.mark("P", "skipped")
    world.airflow.upstream["C"] = ()
    with fails_with("lost-input-was-skipped", caller="C", skipped=["P"]):
        world.go("C")


def test_fault_64_control_where_a_skip_is_no_event_the_reader_waits_for_data_that_nobody_makes(monkeypatch):
    tries = Run.tries

    def without_skips(self: Run, observation: Observation) -> dict[str, TaskTry]:
        return {name: replace(each, state="success") for name, each in tries(self, observation).items()}

    monkeypatch.setattr(Run, "tries", without_skips)
    world = World(PAIR)
    world.airflow.mark("P", "skipped")
    world.airflow.upstream["C"] = ()
    for _ in range(3):
        with fails_with("input-cleared", cleared=[]):
            world.go("C")


def test_a_producer_that_airflow_has_removed_is_named_and_not_cleared():
    """The run's version of the DAG has no such task: a clear would only have it removed again."""
    world = World(PAIR)
    world.go("P")
    world.delete_results("P", 1)
    world.airflow.upstream["C"] = ()
    world.airflow.mark("P", "removed")
    with fails_with("input-removed-from-run", removed=["P"]):
        world.go("C")
    assert world.airflow.cleared == []


def test_a_producer_that_airflow_never_made_in_this_run_is_named():
    """The DAG has grown, and the reader alone was cleared."""
    world = World(PAIR)
    world.go_all()
    world.upstream = {"P": (), "N": (), "C": ("P", "N")}
    world.fingerprints = {"C": "code 2"}
    world.airflow.clear("C")
    with fails_with("input-not-in-run", absent=["N"]):
        world.go("C")


def test_control_where_removed_counts_as_finished_it_is_cleared_again_and_again(monkeypatch):
    removed = FINISHED_STATES | {REMOVED_STATE}
    monkeypatch.setattr("airflow_recovery.testing.fake_airflow.FINISHED_STATES", removed)
    monkeypatch.setattr(wake, "REMOVED_STATE", "")
    world = World(PAIR)
    world.go("P")
    world.delete_results("P", 1)
    world.airflow.upstream["C"] = ()
    for _ in range(3):
        world.airflow.mark("P", "removed")  # as Airflow's scheduler does, at once
        with pytest.raises(InputLost):
            world.go("C")
    assert world.airflow.cleared == ["P"] * 3


def test_fault_65_what_stayed_upstream_failed_is_cleared_with_the_repair():
    world = World(CHAIN, retries=0)

    def fail() -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        world.go("P", on_read=fail)
    assert world.airflow.ready() == []
    assert [world.airflow.state(each) for each in "PCE"] == ["failed", "upstream_failed", "upstream_failed"]
    world.airflow.clear("P")  # a user clears P alone
    assert world.until_green() == ["P", "C", "E", PUBLISH]


def test_fault_65_control_without_unblocking_they_stay_stuck(monkeypatch):
    monkeypatch.setattr("airflow_recovery.attempt.final_check._is_blocked", lambda observation: False)
    world = World(CHAIN, retries=0)

    def fail() -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        world.go("P", on_read=fail)
    world.airflow.ready()
    world.airflow.clear("P")
    world.go("P")
    assert world.airflow.ready() == []
    assert world.airflow.state("C") == "upstream_failed"


def test_fault_66_a_producer_marked_success_by_hand_still_has_to_have_a_result():
    world = World(PAIR)
    world.airflow.mark("P", "success")
    with fails_with("input-cleared", lost={"P": "NEVER_FINISHED"}, cleared=["P"]):
        world.go("C")
    assert world.until_green() == ["P", "C", PUBLISH]
    assert world.ran == [("P", 1), ("C", 1)]


def test_fault_66_a_leaf_marked_success_by_hand_is_not_published():
    world = World(PAIR)
    world.go("P")
    world.airflow.mark("C", "success")
    with fails_with("input-cleared", lost={"C": "NEVER_FINISHED"}, cleared=["C"]):
        world.publish()
    assert world.until_green() == ["C", PUBLISH]


def test_fault_66_control_where_the_mark_is_believed_nothing_is_read(monkeypatch):
    monkeypatch.setattr("airflow_recovery.attempt.publish.PublishTask._lost", lambda self, evaluation, skipped: {})
    world = World(PAIR)
    world.go("P")
    world.airflow.mark("C", "success")
    assert "C" not in [region.region for region in world.publish().regions]


def message_of_a_loss(monkeypatch, waits_for_past):
    """What the consumer says when the result of its producer is lost."""
    made = World.run
    monkeypatch.setattr(World, "run", lambda self, *given: replace(made(self, *given), waits_for_past=waits_for_past))
    world = World(PAIR)
    world.go("P")
    world.delete_results("P", 1)
    with fails_with("input-cleared") as error:
        world.go("C")
    return str(error.value)


def test_fault_339_a_cleared_producer_that_waits_for_its_previous_run_is_named(monkeypatch):
    said = message_of_a_loss(monkeypatch, {"P"})
    assert "P has depends_on_past: Airflow starts it only after its task of the previous run has succeeded" in said


@pytest.mark.control
def test_fault_339_control_without_a_look_at_the_dag_the_error_promises_a_retry_that_never_comes(monkeypatch):
    """The producer has ``depends_on_past``, and its previous run has failed."""
    said = message_of_a_loss(monkeypatch, ())
    assert said.endswith("This task retries by itself when they are done.")
