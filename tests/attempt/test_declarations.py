"""A consumer that is cleared alone, and a producer whose operator is declared otherwise since (faults 240 and 241)."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from expected_errors import fails_with
from fakes import CHAIN, PAIR, PUBLISH, Process, World

from airflow_recovery.attempt import declarations, first_attempt, region_task
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.attempt.run import DeclaredOperators
from airflow_recovery.errors import InputLost, RegionFailed
from airflow_recovery.model.determinism import Determinism


class Deployed:
    """What a DAG's file declares. ``code``: what the operator's own task makes of it, where that differs."""

    def __init__(self, upstream=PAIR, **options) -> None:
        self.now: dict[str, str | None] = {}
        self.world = World(upstream, by_operators=True, declares=self.declares, **options)

    def declares(self, region: str) -> str | None:
        return self.now.get(region, "declared 1")

    def deploy(self, region: str, declared: str, code: str | None = None) -> None:
        """``code``: the fingerprint of what it computes, once it is rendered; by default, another one."""
        self.now[region] = declared
        self.world.fingerprints[region] = code or f"code of {declared}"


def records(world: World) -> list[str]:
    keys = [info.key.rpartition("/t/")[2] for info in world.journal_store.list("")]
    return [key for key in keys if ".declared-" in key]


@pytest.fixture(params=["cleared", "first try"])
def green(request) -> Deployed:
    """P is a success; C is to run, as its first try or after a clear of it alone."""
    deployed = Deployed()
    deployed.world.go("P")
    if request.param == "cleared":
        deployed.world.go("C")
        deployed.world.airflow.clear("C")
    return deployed


def test_fault_240_a_producer_with_new_code_runs_before_a_consumer_that_was_cleared_alone(green):
    world = green.world
    green.deploy("P", "declared 2")
    with fails_with("input-cleared", lost={"P": "DECLARED_OTHERWISE"}):
        world.go("C")
    assert world.airflow.cleared == ["P"]
    assert world.until_green() == ["P", "C", PUBLISH]
    assert (world.current("P"), records(world)) == (2, ["P/00000001.declared-0001"])
    assert world.state().of("C").current.outcome.inputs[0].attempt == 2
    assert world.verify().violated == ()


@pytest.mark.control
def test_fault_240_control_without_the_digest_a_consumer_goes_green_on_the_old_rows(green, monkeypatch):
    monkeypatch.setattr(region_task, "declared_otherwise", lambda run, state, regions: {})
    monkeypatch.setattr(first_attempt, "is_as_declared", lambda run, region, outcome: True)
    green.deploy("P", "declared 2")
    green.world.go("C")
    assert green.world.attempts("P") == 1


def test_fault_240_code_of_an_operator_further_up_runs_first(green):
    deployed = Deployed(CHAIN)
    world = deployed.world
    world.go_all("PC")
    deployed.deploy("P", "declared 2")
    with fails_with("input-cleared", lost={"P": "DECLARED_OTHERWISE", "C": "INPUT_INVALID"}):
        world.go("E")
    world.until_green()
    assert [world.current(name) for name in "PCE"] == [2, 2, 1]


def test_fault_240_the_task_that_publishes_looks_as_well():
    deployed = Deployed()
    world = deployed.world
    world.go_all()
    deployed.deploy("C", "declared 2")
    with fails_with("input-cleared", lost={"C": "DECLARED_OTHERWISE"}):
        world.publish()
    world.until_green()
    assert world.current("C") == 2


def new_code_above(without: list[str], have_one_now: list[str]) -> Deployed:
    """P, C1, C2 and E are a chain. All but E have run, and P has new code since.

    ``without``: the operators that had no digest when they ran. ``have_one_now``: those of them that have one today.
    """
    deployed = Deployed({"P": (), "C1": ("P",), "C2": ("C1",), "E": ("C2",)})
    deployed.now.update(dict.fromkeys(without))
    deployed.world.go_all(["P", "C1", "C2"])
    deployed.now.update(dict.fromkeys(have_one_now, "declared 1"))
    deployed.deploy("P", "declared 2")
    return deployed


WITHOUT_DIGESTS = pytest.mark.parametrize(
    ("without", "have_one_now"),
    [(["C2"], []), (["C1", "C2"], []), (["C2"], ["C2"])],
    ids=["of its input", "of all between", "of its input at that time"],
)


@WITHOUT_DIGESTS
def test_fault_410_the_first_try_looks_above_an_input_whose_operator_has_no_digest(without, have_one_now):
    deployed = new_code_above(without, have_one_now)
    with fails_with("input-cleared") as failure:
        deployed.world.go("E")
    assert failure.value.fields["lost"]["P"] == "DECLARED_OTHERWISE"
    deployed.world.until_green()
    assert [deployed.world.current(name) for name in ("P", "C1", "C2", "E")] == [2, 2, 2, 1]


@pytest.mark.control
@WITHOUT_DIGESTS
def test_fault_410_control_where_an_unknown_digest_is_as_declared_it_goes_green_on_old_rows(
    without, have_one_now, monkeypatch
):
    def compares_its_input_alone(run, region, outcome):
        now = run.declaration(region)
        return now is None or outcome.declared in (None, now)

    monkeypatch.setattr(first_attempt, "is_as_declared", compares_its_input_alone)
    deployed = new_code_above(without, have_one_now)
    deployed.world.go("E")
    assert deployed.world.attempts("P") == 1


def test_what_only_its_own_task_can_judge_it_finds_valid_and_is_asked_once(green):
    """Another text, which its own task renders to the same arguments."""
    world = green.world
    green.deploy("P", "declared 2", "code 1")
    with pytest.raises(InputLost):
        world.go("C")
    assert world.go("P").decision is Decision.KEPT
    world.go("C")
    assert records(world) == ["P/00000001.declared-0001", "P/00000001.declared-0002"]
    for _ in range(2):
        world.airflow.clear("C")
        world.airflow.clear("P")
        assert world.go("P").decision is Decision.KEPT
        assert world.go("C").decision is Decision.KEPT
    assert len(records(world)) == 2
    green.deploy("P", "declared 3", "code 1")
    world.airflow.clear("C")
    with pytest.raises(InputLost):
        world.go("C")
    assert world.verify().violated == ()


def test_its_own_task_that_looks_first_spares_the_question(green):
    world = green.world
    green.deploy("P", "declared 2", "code 1")
    world.airflow.clear("P")
    world.go("P")
    world.go("C")
    assert records(world) == ["P/00000001.declared-0001"]


def test_a_rollback_between_question_and_answer_closes_the_question(green):
    world = green.world
    green.deploy("P", "declared 2", "code 2")
    with pytest.raises(InputLost):
        world.go("C")
    green.deploy("P", "declared 1", "code 1")
    assert world.go("P").decision is Decision.KEPT
    world.go("C")
    assert len(records(world)) == 2


def test_a_consumer_whose_rows_are_the_same_keeps_its_result():
    deployed = Deployed(modes={"P": Determinism.VERIFY})
    world = deployed.world
    world.go_all()
    world.airflow.clear("C")
    deployed.deploy("P", "declared 2")
    with pytest.raises(InputLost):
        world.go("C")
    world.go("P")
    assert world.go("C").decision is Decision.KEPT


def test_no_way_to_clear_names_the_producer(green):
    green.world.can_clear = False
    green.deploy("P", "declared 2")
    with fails_with("no-way-to-clear", lost={"P": "DECLARED_OTHERWISE"}):
        green.world.go("C")


def test_a_try_makes_no_more_requests_if_nothing_differs(green):
    def asked(declares) -> list[str]:
        world = Deployed().world
        world.declares = declares
        world.go("P")
        requests: list[str] = []
        own = world.airflow.start("C")
        world.region_task(own, Process(requests.append)).execute()
        return requests

    assert asked(green.declares) == asked(None)


# what is other each time the file is read


def test_fault_241_arguments_that_are_other_each_time_cause_no_clear(caplog):
    readings = count()
    world = World(CHAIN, by_operators=True, declares=lambda region: f"{region} at {next(readings)}")
    world.go_all()
    world.airflow.clear("E")
    world.go("E")
    assert (world.airflow.cleared, records(world)) == ([], [])
    assert "is other each time the file is read" in caplog.text


@pytest.mark.control
def test_fault_241_control_without_a_second_reading_they_do(monkeypatch):
    readings = count()
    world = World(CHAIN, by_operators=True, declares=lambda region: f"{region} at {next(readings)}")
    of_run = world._declared

    def read_once():
        declared = of_run()
        return DeclaredOperators(declared.own, declared.own)

    monkeypatch.setattr(world, "_declared", read_once)
    with pytest.raises(InputLost):
        world.go_all()


class Workers:
    """Each task reads another folder, so that each process has another digest, and another fingerprint."""

    def __init__(self, upstream) -> None:
        self.worker = 0
        self.world = World(upstream, by_operators=True, declares=self.declares)

    def declares(self, region: str) -> str | None:
        return f"{region} at worker {self.worker}"

    def until_green(self) -> None:
        while ready := self.world.airflow.ready():
            self.worker += 1
            self.world.fingerprints = dict.fromkeys(self.world.upstream, f"code at worker {self.worker}")
            assert self.worker < 20, "a storm"
            with suppress(InputLost):
                self.world.publish() if ready[0] == PUBLISH else self.world.go(ready[0])


def test_fault_241_workers_that_read_different_files_ask_once(caplog):
    workers = Workers(PAIR)
    workers.until_green()
    assert workers.world.attempts("P") == 2
    assert "has found another declaration than the task that asked" in caplog.text
    workers.world.airflow.clear("C")
    workers.until_green()
    assert workers.world.attempts("P") == 2


@pytest.mark.control
def test_fault_241_control_without_the_look_at_answers_all_retries_are_used_up(monkeypatch):
    monkeypatch.setattr(declarations, "_was_answered_otherwise", lambda run, name, state, current: False)
    workers = Workers(PAIR)
    workers.until_green()
    assert (workers.world.attempts("P"), workers.world.airflow.state("C")) == (5, "failed")


def test_a_producer_that_fails_with_its_new_code_is_asked_once(green):
    world = green.world
    green.deploy("P", "declared 2")

    def fail() -> None:
        raise RegionFailed("broken")

    with pytest.raises(InputLost):
        world.go("C")
    with pytest.raises(RegionFailed):
        world.go("P", on_start=fail)
    assert records(world) == ["P/00000001.declared-0001"]
    world.until_green()
    assert world.current("P") == 3
