"""I14, over journals of the real protocol code, and over spoiled ones: each part of it is found to be violated."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from split_world import SOURCE, SplitWorld, splits
from spoiled_journal import Spoiled

from airflow_recovery.model.records import Reset
from airflow_recovery.model.split import Split
from airflow_recovery.testing.simulation import TOPOLOGIES, Schedule, Settings, Trouble, job_of
from airflow_recovery.testing.simulation.jobs import IDENTITY, with_splits
from airflow_recovery.verify import verify_run
from airflow_recovery.verify.history import Region
from airflow_recovery.verify.reading import RunName, read_history
from airflow_recovery.verify.records import CommittedBatchRef, Named
from airflow_recovery.verify.splits import _of_subtasks, content_key

FINISH = "t/S/00000002.outcome"
CLAIM = "t/S/00000002.claim"


@pytest.fixture
def run() -> Spoiled:
    """S@1 died after four of six batches, S@2 took them over; a zombie has written a fifth one since."""
    world = SplitWorld({"S": (), "C": ("S",)}, splits("abcdef"))
    world.zombie_at(f"PUT {world.journal().layout.batch(SOURCE, 1, 4)}", lambda: world.go(SOURCE))
    world.until_green()
    return Spoiled(world)


def violated(run: Spoiled) -> tuple[int, ...]:
    return run.verify(ended=True).violated


def said(run: Spoiled) -> list[str]:
    (found,) = [answer for answer in run.verify(ended=True).answers if answer.invariant == 14]
    return [finding.found for finding in found.findings]


def test_a_run_that_took_over_batches_passes(run):
    report = run.verify(ended=True)
    assert report.violated == ()
    assert "6 splits in 6 batches; 1 claims that took over some" in report.text()


def test_a_listing_that_changed_and_a_lost_batch_pass(run):
    world = run.world
    world.listing = splits("abcdex", a="2")
    world.again()
    world.until_green()
    assert run.verify().violated == ()


def test_a_restart_of_what_was_taken_over_is_a_cause(run):
    run.world.journal().reset(Reset(SOURCE, 1, "user", "asked for"))
    assert run.world.current(SOURCE) == 0
    run.world.again()
    run.world.until_green()
    assert run.world.read_by(3) == "abcd"
    assert run.verify().violated == ()


def test_the_content_key_is_that_of_the_split():
    for split in (*splits("ab"), Split.of("orders 1", {"from": 1})):
        assert content_key(split.uri, split.size, split.etag) == split.key


def test_a_split_in_two_batches_is_found(run):
    def twice(body: dict[str, Any]) -> None:
        body["parts"][5]["splits"] = body["parts"][0]["splits"]

    run.edit(FINISH, twice)
    run.edit("t/S/00000002.part-0001", lambda body: body.update(splits=run.body(FINISH)["parts"][0]["splits"]))
    assert 14 in violated(run)
    assert "1 twice" in said(run)[0]
    assert "1 missing" in said(run)[0]


def test_a_batch_that_was_left_out_is_found(run):
    run.edit(FINISH, lambda body: body["parts"].pop())
    assert 14 in violated(run)
    assert any("1 missing" in each for each in said(run))


def test_a_split_that_was_never_assigned_is_found(run):
    run.edit(FINISH, lambda body: body["externals"].pop())
    assert any("1 not assigned" in each for each in said(run))


def test_an_object_that_is_in_no_batch_is_found(run):
    run.edit(FINISH, lambda body: body["outputs"][0]["objects"].append(body["outputs"][0]["objects"][0]))
    run.edit("t/S/00000002.part-0000", lambda body: body["outputs"][0]["objects"].clear())
    assert any("others" in each for each in said(run))


def test_a_base_that_is_longer_than_the_log_is_found(run):
    run.edit(CLAIM, lambda body: body["base"][0].update(length=9))
    assert "5 batches" in said(run)


def test_a_base_of_other_code_is_found(run):
    run.edit(CLAIM, lambda body: body.update(reading="other"))
    assert "an attempt that was made of other code or side inputs" in said(run)


def test_a_base_that_the_zombies_batch_was_put_into_is_found(run):
    run.edit(CLAIM, lambda body: body["base"][0].update(length=5))
    assert violated(run) == (14,)


def test_a_batch_that_somebody_deleted_is_found(run):
    run.delete("t/S/00000001.part-0003")
    assert 14 in violated(run)


def test_a_batch_that_was_copied_is_found(run):
    run.edit("t/S/00000002.part-0001", lambda body: None, to="t/S/00000002.part-0002")
    assert run.verify(ended=True).violated != ()


def test_subtasks_that_pull_have_each_split_once():
    """Two subtasks as the dynamic assignment leaves them: one has read a to c, the other one d to f."""
    world = SplitWorld({"S": (), "C": ("S",)}, splits("abcdef"))
    world.go(SOURCE)
    run = Spoiled(world)
    keys = [each.key for each in world.listing]
    assert _pulled(run, keys[:3], keys[3:]) == []
    assert "1 with two of them" in _pulled(run, keys[:4], keys[3:])[0]
    assert "1 with none" in _pulled(run, keys[:2], keys[3:])[0]


def _pulled(run: Spoiled, *given: list[str]) -> list[str]:
    history = read_history(run.journal, RunName("dag", "date 2026-01-01T00:00:00+00:00", "flights"))
    (found,) = history.regions[SOURCE].attempts.values()
    assert found.outcome is not None
    regions, planned = {}, []
    plan = next(iter(history.plans.values()))
    source = plan.region(SOURCE)
    assert source is not None
    for index, keys in enumerate(given):
        name = f"S[{index}]"
        outcome = replace(found.outcome, batches=(CommittedBatchRef(1, 0, tuple(keys)),))
        regions[name] = Region(name, {1: replace(found, of=Named(name, 1), outcome=outcome)})
        planned.append(replace(source, name=name, subtask=("S", str(index)), pulls_splits=True))
    spoiled = replace(
        history, regions=regions, plans={key: replace(plan, regions=tuple(planned)) for key in history.plans}
    )
    return [subtask.found for subtask in _of_subtasks(spoiled)]


@pytest.mark.parametrize("name", ["KILL", "HEARTBEAT", "SWEEP", "RESTART", "DEPLOY"])
def test_what_the_protocol_makes_of_any_order_of_requests_and_faults_passes(name):
    troubles = {Trouble[name]: 2, Trouble.PAUSE: 1}
    for seed in range(15):
        schedule = Schedule(seed, Settings(with_splits(job_of(TOPOLOGIES["pair"]), "PC"), troubles))
        schedule.run()
        found = verify_run(
            schedule.world.journal_store,
            partial(lambda results, location: results, schedule.world.results),
            dag_id=IDENTITY.dag_id,
            run_key=IDENTITY.run_key,
            group_id=IDENTITY.group_id,
        )
        assert found.violated == (), f"seed {seed}\n{found.text()}"
