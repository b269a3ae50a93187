"""Failover strategies `full` and `individual`: which regions run again, held against `region`."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from fakes import Killed, Process, World

from airflow_recovery.errors import InputLost, NotMine, RegionFailed, RestartsExhausted
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.planning.plan import Action
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.restart_budget import RestartLimits
from airflow_recovery.planning.restart_strategy import FixedDelay
from airflow_recovery.planning.scenario import PartitionGone, RegionFailure

# A ---> B ---> C       D has nothing to do with them
#        D ---> E
TWO_CHAINS = {"A": (), "B": ("A",), "C": ("B",), "D": (), "E": ("D",)}

FULL = FailoverStrategy.FULL


def boom() -> None:
    raise RegionFailed("boom")


def failed_at_c(strategy: FailoverStrategy, **given: object) -> World:
    """Everything but C is done; C has failed once."""
    world = World(TWO_CHAINS, strategy=strategy, **given)  # type: ignore[arg-type]
    world.go_all("ABDE")
    with pytest.raises(RegionFailed):
        world.go("C", on_start=boom)
    return world


def test_full_restarts_every_region_that_has_started():
    world = failed_at_c(FULL)
    world.until_green()
    assert sorted(world.ran[5:]) == [("A", 2), ("B", 2), ("C", 2), ("D", 2), ("E", 2)]


def test_control_region_restarts_the_failed_one_alone():
    world = failed_at_c(FailoverStrategy.REGION)
    world.until_green()
    assert world.ran[5:] == [("C", 2)]


def test_full_answers_a_failure_once():
    world = failed_at_c(FULL)
    world.until_green()
    assert world.airflow.is_green
    world.airflow.clear("C")
    world.until_green()
    assert len(world.ran) == 10, "a later clear keeps what that restart has made"


def test_full_restarts_everything_for_a_lost_result():
    world = World(TWO_CHAINS, strategy=FULL)
    world.go_all("ABDE")
    world.delete_results("B", 1)
    world.until_green()
    assert sorted(world.ran[4:]) == [("A", 2), ("B", 2), ("C", 1), ("D", 2), ("E", 2)]


def test_full_cancels_what_is_running():
    world = World(TWO_CHAINS, strategy=FULL)
    world.go_all("ABD")
    with pytest.raises(RegionFailed):
        world.go("C", on_start=boom)

    def c_retries() -> None:
        with fails_with("input-cleared", lost={"A": "RESET", "B": "RESET"}):
            world.go("C")

    with pytest.raises(NotMine):
        world.go("E", on_read=c_retries)
    world.until_green()
    assert [each for each in world.ran if each[0] == "E"][-1] == ("E", 2)


def test_a_crash_before_the_own_reset_restarts_everything_all_the_same():
    world = failed_at_c(FULL)
    process = Process()

    def killed(request: str) -> None:
        if request == "clear":
            raise Killed

    process.gate = killed
    own = world.airflow.start("C")
    with pytest.raises(Killed):
        world.region_task(own, process).execute()
    world.airflow.end(own, "failed")
    world.until_green()
    assert {name for name, n in world.ran if n == 2} == set(TWO_CHAINS), "who was not cleared is found by others"


def test_full_ends_with_the_budget():
    """A failover reset forgives no failure, or a job that always fails would restart for ever."""
    limits = RestartLimits.of(FixedDelay(attempts=2, delay_s=0))
    world = World(TWO_CHAINS, strategy=FULL, retries=50, limits=limits, now=lambda: "2026-01-01T00:00:00+00:00")
    seen: list[type[Exception]] = []
    while RestartsExhausted not in seen:
        task = world.airflow.ready()[0]
        try:
            world.go(task, **({"on_start": boom} if task == "C" else {}))  # type: ignore[arg-type]
        except (RegionFailed, RestartsExhausted, InputLost) as error:
            seen.append(type(error))
        assert len(world.ran) < 30, "it restarts for ever"
    assert [n for name, n in world.ran if name == "C"] == [1, 2, 3]


def test_individual_restarts_no_reader_where_any_finish_will_do():
    assumed = dict.fromkeys(TWO_CHAINS, Determinism.ASSUME)
    world = World(TWO_CHAINS, strategy=FailoverStrategy.INDIVIDUAL, modes=assumed)
    world.go_all()
    world.publish()
    world.delete_results("B", 1)
    world.restart("C")
    world.until_green()
    assert world.ran[5:] == [("B", 2), ("C", 2)]


@pytest.mark.parametrize("request_", [RegionFailure("C"), PartitionGone("B")])
def test_the_plan_says_so_beforehand(request_: object):
    world = World(TWO_CHAINS, strategy=FULL)
    world.go_all("ABDE")
    state = world.state()
    planned = plan(world.plan, state, lambda *asked: None, request_)  # type: ignore[arg-type]
    assert {region.name for region in planned.regions if region.action is Action.RUN} == set(TWO_CHAINS)
    world.strategy = FailoverStrategy.REGION
    control = plan(world.plan, state, lambda *asked: None, request_)  # type: ignore[arg-type]
    assert {region.name for region in control.regions if region.action is Action.RUN} <= {"B", "C"}
