"""What is deleted of regions that commit split by split: what no finish and no base names, and never by its attempt."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any, cast

from clocked import DAY_S, HOUR_S, MINUTE_S, Clock, clocked_world, has_data, sweep, told
from fakes import Killed, Process, World
from split_world import SOURCE, SplitWorld, splits

from airflow_recovery.attempt.release import release_consumed
from airflow_recovery.driver import ModeSpec
from airflow_recovery.driver import cleanup as scratch
from airflow_recovery.journal.codec import resealed
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome
from airflow_recovery.model.retention import Retention
from airflow_recovery.results import readers, release
from airflow_recovery.results import sweep as sweep_module
from airflow_recovery.results.release_rule import ReleaseRule
from airflow_recovery.splits.mode import AdoptedBatches
from airflow_recovery.splits.spec import SplitSpec
from airflow_recovery.testing import CountingStore, Verb


def objects(world: SplitWorld, attempt: int) -> list[str]:
    """The batches that an attempt has data of, by the number of their folder."""
    prefix = world.journal().layout.data_of_number(SOURCE, attempt)
    return [info.key.split("/")[-2] for info in world.results.list(prefix)]


def fenced() -> Outcome:
    return Outcome(SOURCE, 1, AttemptState.FENCED, "test", "now", cause=FenceCause.SUPERSEDED)


def layout(world: SplitWorld) -> JournalLayout:
    return world.journal().layout


# adopted batches


def test_what_a_finish_has_adopted_stays_though_its_attempt_was_fenced(world, clock):
    world.dies_at_batch(4)
    world.until_green()
    clock.passes(2 * HOUR_S)
    assert told(sweep(world))["S@1"] == "kept: 4 of its batches are in use"
    assert world.result() == world.fresh()


def test_control_by_attempt_the_adopted_batches_go_and_the_result_is_lost(world, clock, monkeypatch):
    monkeypatch.setattr(ReleaseRule, "used_batches", lambda self, region, but_finish=None: {})
    monkeypatch.setattr(release.Releaser, "_made_of", lambda self, *looked_at: [])
    world.dies_at_batch(4)
    world.until_green()
    clock.passes(2 * HOUR_S)
    sweep(world)
    assert objects(world, 1) == []


def test_what_the_next_claim_may_adopt_stays_however_long_its_task_waits(world, clock):
    world.dies_at_batch(4)
    world.journal().fence(fenced())
    clock.passes(100 * DAY_S)
    sweep(world)
    world.go(SOURCE)
    assert world.read_by(2) == "ef"


def test_what_an_open_attempt_has_adopted_stays(world, clock):
    world.dies_at_batch(4)
    world.dies_at_batch(1)
    clock.passes(100 * DAY_S)
    found = told(sweep(world))
    assert (found["S@1"], found["S@2"]) == ("kept: 4 of its batches are in use", "kept: it is open")
    world.go(SOURCE)
    assert world.result() == world.fresh()


def test_what_other_code_has_left_goes(world, clock):
    world.dies_at_batch(4)
    world.fingerprints[SOURCE] = "code 2"
    world.go(SOURCE)
    clock.passes(2 * HOUR_S)
    assert told(sweep(world))["S@1"].startswith("deleted: fenced")
    world.fingerprints[SOURCE] = "code 1"
    world.again()
    assert world.read_by(3) == "abcdef"


# what is in no batch that counts


def zombie(world: SplitWorld) -> None:
    """Attempt 1 has committed one batch beyond what attempt 2, which has finished, took over."""
    world.zombie_at(f"PUT {layout(world).batch(SOURCE, 1, 2)}", lambda: world.go(SOURCE))


def test_a_zombies_batch_beyond_the_base_goes_and_adopted_ones_stay(world, clock):
    zombie(world)
    assert world.journal().read_claim(SOURCE, 2).mode.base == (AdoptedBatches(1, 2),)
    assert objects(world, 1) == ["0000", "0001", "0002", "0003"]  # the last one it could not commit
    clock.passes(30 * MINUTE_S)
    sweep(world)
    assert objects(world, 1) == ["0000", "0001", "0002", "0003"]
    clock.passes(HOUR_S)
    report = sweep(world)
    assert ("S@1", "in no batch that is used", 2) in [
        (entry.what.rpartition(" / ")[2], entry.why, entry.objects) for entry in report.entries
    ]
    assert objects(world, 1) == ["0000", "0001"]
    assert world.result() == world.fresh()
    assert sweep(world).deleted_bytes == 0


def test_of_the_newest_attempt_nothing_goes_that_a_zombie_may_still_commit(world, clock):
    # It has written the data of its third batch, and is frozen before it commits it.
    world.zombie_at(f"PUT {layout(world).batch(SOURCE, 1, 2)}", lambda: fenced_and_swept(world, clock))
    assert objects(world, 1) == ["0000", "0001", "0002", "0003"]
    world.go(SOURCE)
    assert world.journal().read_claim(SOURCE, 2).mode.base == (AdoptedBatches(1, 3),)
    assert world.result() == world.fresh()


def test_control_where_it_goes_a_batch_is_adopted_only_to_be_found_lost(world, clock, monkeypatch):
    monkeypatch.setattr(sweep_module, "is_decided", lambda state, number: True)
    world.zombie_at(f"PUT {layout(world).batch(SOURCE, 1, 2)}", lambda: fenced_and_swept(world, clock))
    world.go(SOURCE)
    assert world.journal().read_claim(SOURCE, 2).mode.base == (AdoptedBatches(1, 3, dropped=(2,)),)


def test_a_batch_that_was_dropped_goes(world, clock):
    world.go(SOURCE)
    world.listing = splits("abcdef", c="2")
    world.again()
    clock.passes(2 * HOUR_S)
    sweep(world)
    assert objects(world, 1) == ["0000", "0001", "0003", "0004", "0005"]
    assert world.result() == world.fresh()


def test_what_the_publish_names_stays_though_it_was_dropped(world, clock):
    world.until_green()
    world.listing = splits("abcdef", c="2")
    world.again()
    clock.passes(2 * HOUR_S)
    sweep(world)
    assert len(objects(world, 1)) == 6


def fenced_and_swept(world: SplitWorld, clock: Clock) -> None:
    world.journal().fence(fenced())
    clock.passes(100 * DAY_S)
    sweep(world)


# release


def go(world: SplitWorld, region: str) -> None:
    world.go(region)
    run = world.run(world.airflow.now(region), Process(), "releaser")
    release_consumed(run, region, world.results, Retention.as_consumed())


def test_a_result_of_several_attempts_is_released_as_one(world):
    world.dies_at_batch(4)
    go(world, SOURCE)
    assert (has_data(world, SOURCE, 1), has_data(world, SOURCE, 2)) == (True, True)
    go(world, "C")
    assert (has_data(world, SOURCE, 1), has_data(world, SOURCE, 2)) == (False, False)
    attempts = world.state().of(SOURCE).attempts
    assert (attempts[1].is_released, attempts[2].is_released) == (True, True)


def test_a_finish_that_wrote_nothing_itself_lets_go_of_what_it_took_over(world, clock):
    world.go_killed(Process(gate=dies_before_its_finish))
    world.until_green()
    assert world.ran[0] == (SOURCE, 1)
    assert objects(world, 2) == []
    clock.passes(2 * HOUR_S)
    sweep(world, retention=Retention.on_run_success())
    assert objects(world, 1) == []


def dies_before_its_finish(request: str) -> None:
    if request.startswith("PUT") and request.endswith("outcome"):
        raise Killed(request)


def test_what_was_released_and_is_wanted_again_is_an_ordinary_loss(world):
    world.dies_at_batch(4)
    go(world, SOURCE)
    go(world, "C")
    world.restart("C")
    world.until_green()
    assert world.read_by(3) == "abcdef"
    assert world.result() == world.fresh()


def claim_while_releasing(world: SplitWorld, monkeypatch) -> None:
    """The listing has grown, and the next attempt is claimed between the marker and the look for readers."""
    world.dies_at_batch(4)
    go(world, SOURCE)
    world.go("C")
    world.listing = splits("abcdefg")
    world.airflow.clear(SOURCE)
    before = release.look_for_readers
    claimed: list[Any] = []

    def claims_first(journal):
        if not claimed:
            claimed.append(journal)
            world.dies_at_batch(0)
        return before(journal)

    # It has looked for markers before there were any: as if it had listed them a moment earlier.
    monkeypatch.setattr(RegionState, "may_be_gone", lambda self, number: False)
    monkeypatch.setattr(release, "look_for_readers", claims_first)
    run = world.run(world.airflow.now("C"), Process(), "releaser")
    release_consumed(run, "C", world.results, Retention.as_consumed())


def test_a_claim_that_has_adopted_batches_is_seen_before_they_are_deleted(world, monkeypatch):
    claim_while_releasing(world, monkeypatch)
    assert (has_data(world, SOURCE, 1), has_data(world, SOURCE, 2)) == (True, True)


def test_control_where_bases_are_not_read_the_data_goes_below_an_open_attempt(world, monkeypatch):
    monkeypatch.setattr(readers, "_read_singly", lambda claim: {(ref.region, ref.attempt) for ref in claim.inputs})
    claim_while_releasing(world, monkeypatch)
    assert world.journal().read_claim(SOURCE, 3).mode.base == (AdoptedBatches(1, 4), AdoptedBatches(2, 2))
    assert not has_data(world, SOURCE, 1)


def finish_while_releasing(world: SplitWorld, monkeypatch) -> None:
    """As `claim_while_releasing`, and the next attempt has even finished when readers are looked for."""
    world.dies_at_batch(4)
    go(world, SOURCE)
    world.go("C")
    run = world.run(world.airflow.now("C"), Process(), "releaser")
    loaded = run.journal.load
    state = run.journal.load(run.list())
    world.listing = splits("abcdefg")
    world.again()
    # The releaser has read the journal before all that.
    answers = [state]
    monkeypatch.setattr(run.journal, "load", lambda *given: answers.pop() if answers else loaded(*given))
    release_consumed(run, "C", world.results, Retention.as_consumed())
    assert world.current(SOURCE) == 3


def test_a_finish_that_has_adopted_batches_is_seen_before_they_are_deleted(world, monkeypatch):
    finish_while_releasing(world, monkeypatch)
    assert world.result() == world.fresh()


def test_control_without_the_look_at_finishes_the_new_result_loses_its_batches(world, monkeypatch):
    monkeypatch.setattr(release.Releaser, "_made_of", lambda self, *looked_at: [])
    finish_while_releasing(world, monkeypatch)
    assert objects(world, 1) == []


def copied(world: SplitWorld, many: int) -> World:
    """The same run, of so many regions as S."""
    copy = clocked_world({}, world.journal_store.clock)
    for key, body in world.journal_store.objects.items():
        document = json.loads(body)
        texts = [json.dumps(document["body"]).replace('"S"', f'"S{n}"').replace("/S/", f"/S{n}/") for n in range(many)]
        bodies = list(map(json.loads, texts))
        if "/plan/" in key:
            regions = [region for body in bodies for region in body["regions"] if region["name"] != "C"]
            copy.journal_store.put(key, resealed({**document, "body": {**document["body"], "regions": regions}}))
        elif "/t/S/" in key:
            for n, body in enumerate(bodies):
                copy.journal_store.put(key.replace("/t/S/", f"/t/S{n}/"), resealed({**document, "body": body}))
    for key, body in world.results.objects.items():
        for n in range(many):
            copy.results.put(key.replace("/S/", f"/S{n}/"), body)
    return copy


def test_whether_somebody_reads_batches_is_looked_for_once_however_many_regions_have_some(world, clock):
    world.dies_at_batch(4)
    go(world, SOURCE)
    world.restart(SOURCE)
    go(world, SOURCE)
    lists = []
    for many in (2, 7):
        run = copied(world, many)
        clock.passes(2 * HOUR_S)
        run.journal_store = CountingStore(run.journal_store)
        report = sweep(run)
        assert report.unread == []
        assert sum(action.startswith("deleted") for action in told(report).values()) == 2 * many
        lists.append(run.journal_store.count(Verb.LIST))
    assert lists[0] == lists[1]


# purge, and drivers that were fenced


def test_a_purge_leaves_only_who_reads_which_split(world, clock):
    """A task that comes back has read that before its claim."""
    world.until_green()
    store = world.journal_store
    store.put(f"{layout(world).splits}S/assignment-00000001", b"{}")
    clock.passes(100 * DAY_S)
    sweep(world, purge_older_than_s=DAY_S)
    clock.passes(2 * DAY_S)
    sweep(world, purge_older_than_s=DAY_S)
    assert [info.key for info in store.list()] == [
        f"{layout(world).splits}S/assignment-00000001",
        layout(world).closed,
    ]
    assert list(world.results.list()) == []


def test_a_fenced_driver_deletes_nothing_of_a_region_that_commits_split_by_split(monkeypatch):
    deleted: list[str] = []
    monkeypatch.setattr(scratch, "_delete", lambda spec, locations, what, log: deleted.extend(locations))
    log = logging.getLogger("test")
    scratch.delete_results(cast(Any, SimpleNamespace(mode=SplitSpec(), location="here")), log)
    assert deleted == []
    scratch.delete_results(cast(Any, SimpleNamespace(mode=ModeSpec(), location="here")), log)
    assert deleted == ["here"]
