"""Results that go as soon as their policy allows, in the task that made it possible."""

from __future__ import annotations

import pytest
from clocked import DAY_S, HOUR_S, Clock, clocked_world, has_data, sweep, told
from expected_errors import fails_with
from fakes import CHAIN, DIAMOND, FORK, PUBLISH, Process, World

from airflow_recovery.attempt.release import release_consumed, release_published
from airflow_recovery.errors import StoreTimeout
from airflow_recovery.job import job
from airflow_recovery.model.records import Reset
from airflow_recovery.model.retention import ReleasePolicy, Retention, duration_text, parse_duration_s
from airflow_recovery.results import release_rule

AS_CONSUMED = Retention.as_consumed()
ON_RUN_SUCCESS = Retention.on_run_success()


def go(world: World, regions: str, retention: Retention) -> None:
    """One try of each region, and what its operator does afterwards."""
    for region in regions:
        world.go(region)
        run = world.run(world.airflow.now(region), Process(), "releaser")
        release_consumed(run, region, world.results, retention)


def publish(world: World, retention: Retention) -> None:
    world.publish()
    release_published(world.run(world.airflow.now(PUBLISH), Process(), "releaser"), world.results, retention)


def left(world: World) -> str:
    return "".join(each for each in world.upstream if has_data(world, each, 1))


@pytest.fixture
def world() -> World:
    return clocked_world(DIAMOND, Clock())


def test_as_consumed_goes_with_the_last_of_its_consumers(world):
    go(world, "PC", AS_CONSUMED)
    assert left(world) == "PC"
    go(world, "D", AS_CONSUMED)
    assert left(world) == "CD"
    go(world, "E", AS_CONSUMED)
    assert left(world) == "E"


def test_control_without_flinks_rule_an_input_goes_before_its_second_consumer_has_read_it(world, monkeypatch):
    monkeypatch.setattr(release_rule.ReadersLeft, "first", lambda self, region: None)
    go(world, "PC", AS_CONSUMED)
    assert left(world) == "C"
    with fails_with("input-cleared", lost={"P": "OUTPUT_RELEASED"}):
        world.go("D")


def test_on_run_success_goes_with_the_publish_and_final_results_stay(world):
    go(world, "PCDE", ON_RUN_SUCCESS)
    assert left(world) == "PCDE"
    publish(world, ON_RUN_SUCCESS)
    assert left(world) == "E"


def test_keep_and_grace_times_are_left_to_the_sweeper(world):
    for retention in (Retention.keep("0s"), Retention.as_consumed("1h")):
        go(world, "PCDE", retention)
        publish(world, retention)
        assert left(world) == "PCDE"
        world.new_airflow()


def test_the_job_decides_and_not_the_configuration(world, monkeypatch):
    plan = world.plan.__class__(world.plan.job, world.plan.regions, AS_CONSUMED)
    monkeypatch.setattr(World, "plan", property(lambda self: plan))
    go(world, "PCDE", Retention.keep())
    assert left(world) == "E"


def test_nothing_runs_again_after_a_release_and_a_wanted_result_is_made_again(world):
    go(world, "PCDE", AS_CONSUMED)
    world.ran.clear()
    world.new_airflow()
    world.until_green()
    assert world.ran == []
    world.restart("E")
    world.until_green()
    assert world.ran == [("P", 2), ("C", 2), ("D", 2), ("E", 2)]


def test_a_consumer_that_reads_keeps_its_input():
    """C@2 has claimed P@1 when D, the other consumer, finishes and would let P go."""
    world = clocked_world(FORK, Clock())
    go(world, "PC", AS_CONSUMED)
    world.journal().reset(Reset("C", 1, "user", "asked for"))

    def d_finishes() -> None:
        go(world, "D", AS_CONSUMED)
        assert has_data(world, "P", 1)

    world.airflow.clear("C")
    world.go("C", on_start=d_finishes)
    assert world.current("C") == 2


@pytest.mark.parametrize("what", ["list", "delete"])
def test_a_store_that_does_not_answer_fails_no_good_task(world, monkeypatch, what):
    def fails(*args, **options):
        raise StoreTimeout("no answer")

    go(world, "PCD", ON_RUN_SUCCESS)
    world.go("E")
    run = world.run(world.airflow.now("E"), Process(), "releaser")
    monkeypatch.setattr(world.results, what, fails)
    release_consumed(run, "E", world.results, AS_CONSUMED)
    monkeypatch.undo()
    assert has_data(world, "C", 1)
    # Marked before the store failed, so nobody reads it; gc does the rest.
    assert world.state().of("C").attempts[1].is_released
    assert told(sweep(world, retention=AS_CONSUMED))["C@1"].startswith("deleted: consumed")
    assert not has_data(world, "C", 1)


def test_grace_times_are_counted_from_what_the_policy_waits_for():
    clock = Clock()
    world = clocked_world(CHAIN, clock)
    world.go("P")
    clock.passes(DAY_S)
    world.go("C")
    hour = Retention.as_consumed("1h")
    assert told(sweep(world, retention=hour))["P@1"] == "kept: consumed 0s ago, grace time 1h"
    clock.passes(2 * HOUR_S)
    assert told(sweep(world, retention=hour))["P@1"] == "deleted: consumed 119m ago"
    assert told(sweep(world, retention=hour))["C@1"] == "kept: E still needs it"
    world.go("E")
    success = Retention.on_run_success("1h")
    clock.passes(2 * HOUR_S)
    assert told(sweep(world, retention=success))["C@1"] == "kept: the run has not published it"
    world.publish()
    clock.passes(HOUR_S / 2)
    assert told(sweep(world, retention=success))["C@1"] == "kept: published 29m ago, grace time 1h"
    clock.passes(HOUR_S)
    assert told(sweep(world, retention=success))["C@1"] == "deleted: published 89m ago"


def test_control_without_the_rule_an_input_goes_before_its_second_consumer_has_read_it(world, monkeypatch):
    monkeypatch.setattr(
        release_rule.ReleaseRule, "verdict", lambda self, region, number: release_rule.Verdict(True, "everything goes")
    )
    go(world, "PC", AS_CONSUMED)
    assert left(world) == "C"


# the declaration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", Retention(ReleasePolicy.KEEP, 604_800)),
        ("keep 12h", Retention(ReleasePolicy.KEEP, 43_200)),
        ("on-run-success", Retention(ReleasePolicy.ON_RUN_SUCCESS, 0)),
        ("as-consumed 90s", Retention(ReleasePolicy.AS_CONSUMED, 90)),
    ],
)
def test_a_retention_is_read_from_a_setting(text, expected):
    assert Retention.parse(text) == expected
    assert Retention.parse(expected.text()) == expected


@pytest.mark.parametrize("text", ["", "keep", "forever", "7 d", "as-consumed 1h 2h", "-1d", "1w"])
def test_what_is_no_retention_is_refused(text):
    with fails_with("retention-setting-unfit"):
        Retention.parse(text)


@pytest.mark.parametrize("seconds", [0, 59, 60, 90, 119, 3600, 5400, 86_400, 129_600, 604_800])
def test_a_duration_that_is_told_can_be_read(seconds):
    told = parse_duration_s(duration_text(seconds))
    assert told <= seconds < told + max(60, told)


def test_a_job_declares_its_retention_and_nothing_else():
    assert job("flights", retention=AS_CONSUMED).retention is AS_CONSUMED
    assert job("flights").retention is None
    assert job("flights", retention="as-consumed 1h").retention == Retention.as_consumed("1h")
    with fails_with("retention-unfit"):
        job("flights", retention="7days")
    with fails_with("age-unfit"):
        Retention.keep("-1d")
