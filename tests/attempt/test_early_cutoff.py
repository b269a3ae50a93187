"""Determinism at work: which consumers run again after their producer has, and what is told of those that do not.

A region of `World` writes equal rows each time, unless the world calls it ``unstable``.
"""

from __future__ import annotations

import logging

import pytest
from fakes import CHAIN, DIAMOND, FORK, PAIR, PUBLISH, Process, World

from airflow_recovery import BLOCKING, job
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import InputLost
from airflow_recovery.journal.events import ConsumerKept, RegionKept
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.task.notes import note_of

FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})
ALWAYS, VERIFY, ASSUME = Determinism.ALWAYS, Determinism.VERIFY, Determinism.ASSUME
LEVELS = {"P": (), "C": ("P",), "E": ("C",), "G": ("E",)}


def ran_after_restart(world: World, region: str = "P") -> list[str]:
    """Which regions ran because a user restarts ``region`` of a finished run."""
    world.until_green()
    before = len(world.ran)
    world.restart(region)
    world.until_green()
    return [name for name, _ in world.ran[before:]]


# faults 51 and 52


@pytest.mark.parametrize(
    ("mode", "ran"),
    [(ALWAYS, ["P", "C", "E", "G"]), (VERIFY, ["P", "C", "E", "G"]), (ASSUME, ["P"])],
)
def test_fault_51_a_producer_that_is_not_deterministic_writes_other_rows(mode: Determinism, ran: list[str]) -> None:
    world = World(LEVELS, modes={"P": mode}, unstable=frozenset({"P"}))
    assert ran_after_restart(world) == ran


def test_fault_51_control_where_digests_are_not_compared_consumers_keep_rows_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Evaluation, "why_superseded", lambda self, consumer, pin: None)
    world = World(PAIR, modes={"P": VERIFY}, unstable=frozenset({"P"}))
    assert ran_after_restart(world) == ["P"]
    assert world.content("P") not in world.content("C")


@pytest.mark.parametrize(("mode", "ran"), [(ALWAYS, ["P", "C", "E", "G"]), (VERIFY, ["P"]), (ASSUME, ["P"])])
def test_fault_52_a_deterministic_producer_writes_the_same_rows(mode: Determinism, ran: list[str]) -> None:
    world = World(LEVELS, modes={"P": mode})
    assert ran_after_restart(world) == ran
    assert (world.attempts("P"), world.airflow.is_green) == (2, True)


def test_fault_51_under_assume_another_number_of_rows_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = World(PAIR, modes={"P": ASSUME})
    world.until_green()
    world.restart("P")
    caplog.clear()  # what the preparations have said, where another test has lowered the level
    with caplog.at_level(logging.WARNING, logger="tests.execution"):
        world.go("P", rows=2)
    assert caplog.messages == ["C keeps its result; assumed: C read P@1, now @2 (P had 1 rows, has 2)."]
    kept = [event for event in world.events if isinstance(event, ConsumerKept)]
    assert kept == [
        ConsumerKept(
            occurred_at="now", region="C", producer="P", read=1, now=2, by="assume", detail="P had 1 rows, has 2"
        )
    ]


# cut-off


def note_under_assume() -> str:
    """The note of C, which is kept though P was made again and has written other rows."""
    world = World(PAIR, modes={"P": ASSUME}, unstable=frozenset("P"))
    world.go_all("PC")
    world.restart("P")
    world.go("P")
    world.airflow.clear("C")
    return note_of(world.go("C"))


def test_under_assume_the_note_names_what_is_taken_to_be_equal() -> None:
    assert "; assumed: C read P@1, now @2" in note_under_assume()


@pytest.mark.control
def test_control_without_the_look_at_what_was_assumed_the_note_shows_a_valid_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Evaluation, "early_cutoffs", lambda self, region, basis: ())
    note = note_under_assume()
    assert note.startswith("kept")
    assert "assumed" not in note


def test_rows_that_differ_stop_differing_further_down() -> None:
    """P has other rows each time, and C makes the same of them: E and G never hear of it."""
    world = World(LEVELS, modes={"P": VERIFY, "C": VERIFY}, unstable=frozenset({"P"}), constant=frozenset({"C"}))
    assert ran_after_restart(world) == ["P", "C"]
    assert world.state().of("C").current.outcome.inputs[0].attempt == 2


def test_a_kept_consumer_says_why() -> None:
    world = World(CHAIN, modes={"P": VERIFY})
    ran_after_restart(world)
    world.airflow.clear("C")
    assert world.go("C").why.endswith("; digest equal: C read P@1, now @2")
    assert [event.region for event in world.events if isinstance(event, RegionKept)] == ["C"]


def test_the_trace_names_the_digests_of_what_was_read() -> None:
    world = World(PAIR, modes={"P": VERIFY})
    world.until_green()
    (pin,) = world.state().of("C").current.outcome.inputs
    assert pin == InputRef("P", 1, (("P", world.state().of("P").current.outcome.outputs[0].digest),))


def test_it_survives_a_later_crash_and_the_loss_of_the_metadata_database() -> None:
    world = World(LEVELS, modes={"P": VERIFY})
    assert ran_after_restart(world) == ["P"]
    before = len(world.ran)
    world.new_airflow()
    world.until_green()
    assert world.ran[before:] == []


def test_it_survives_that_the_attempt_which_was_read_is_gone() -> None:
    world = World(LEVELS, modes={"P": VERIFY})
    assert ran_after_restart(world) == ["P"]
    world.release("P", 1)
    world.delete_results("P", 1)
    world.new_airflow()
    before = len(world.ran)
    world.until_green()
    assert world.ran[before:] == []


def test_what_runs_later_reads_the_new_attempt_beside_one_that_read_the_old() -> None:
    #  P -> C, D -> E: D runs again and reads P@2, C stays with P@1; E stands on both
    world = World(DIAMOND, modes={"P": VERIFY, "D": VERIFY}, publish_keys=(PUBLISH,))
    assert ran_after_restart(world) == ["P"]
    assert ran_after_restart(world, "D") == ["D"]
    reads = {name: world.state().of(name).current.outcome.inputs[0].attempt for name in ("C", "D")}
    assert reads == {"C": 1, "D": 2}
    newest = world.journal().read_publish(world.state().newest_publish)
    assert {region.region: region.attempt for region in newest.regions} == {"P": 2, "C": 1, "D": 2, "E": 1}


def test_a_mode_that_is_declared_later_holds_for_what_is_read_from_then_on() -> None:
    world = World(PAIR)
    world.until_green()
    world.modes = {"P": VERIFY}
    assert ran_after_restart(world) == ["P", "C"]  # C@1 has no digest to compare
    assert ran_after_restart(world) == ["P"]


# while the producer has not finished


@pytest.mark.parametrize(("mode", "cleared"), [(ALWAYS, ["P", "C"]), (VERIFY, ["P"]), (ASSUME, ["P"])])
def test_a_finished_consumer_is_cancelled_forward_only_if_it_must_run_in_any_case(
    mode: Determinism, cleared: list[str]
) -> None:
    world = World(FORK, modes={"P": mode})
    world.go("P")
    world.go("C")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("D")
    assert world.airflow.cleared == cleared


def test_control_where_every_consumer_is_cancelled_forward_one_that_would_be_kept_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Evaluation, "always_follows", lambda self, region, producer: True)
    world = World(FORK, modes={"P": VERIFY})
    world.go("P")
    world.go("C")
    world.delete_results("P", 1)
    with pytest.raises(InputLost):
        world.go("D")
    assert world.airflow.cleared == ["P", "C"]


@pytest.mark.parametrize(("unstable", "counts"), [(False, True), (True, False)])
def test_a_running_consumer_is_left_alone_until_the_digest_is_known(unstable: bool, counts: bool) -> None:
    """C has read P@1 and runs on, while P@2 is made; C's success counts if P@2 has the same rows."""
    world = World(PAIR, modes={"P": VERIFY}, unstable=frozenset({"P"} if unstable else ()))
    world.go("P")
    c = world.airflow.start("C")
    world.region_task(c, Process()).execute()
    world.restart("P")
    assert world.airflow.state("C") == "running"
    world.go("P")
    assert world.airflow.end(c, "success") is counts


# from the declaration to the plan


def made(spark: object) -> object:
    return spark


def read(made: object) -> object:
    return made


def test_the_plan_says_what_is_read_and_which_results_are_not_always() -> None:
    declared = job("declared", deterministic="verify")
    declared.source(name="made", result=BLOCKING)(made)
    declared.sink(name="read", deterministic="always")(read)
    regions = {region.name: region for region in plan_job(declared, "ref", FACTS).record.regions}
    assert (regions["made"].reads, regions["made"].determinism) == ((), (("made", VERIFY),))
    assert (regions["read"].reads, regions["read"].determinism) == (("made",), ())


def test_declaring_it_otherwise_is_no_change_of_the_code() -> None:
    fingerprints = set()
    for mode in Determinism:
        declared = job("declared", deterministic=mode)
        declared.source(name="made", result=BLOCKING)(made)
        declared.sink(name="read")(read)
        fingerprints.add(tuple(region.fingerprint for region in plan_job(declared, "ref", FACTS).record.regions))
    assert len(fingerprints) == 1
