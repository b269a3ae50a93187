"""The fold of a listing into a state, and what each write-once object does to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import AttemptLost, ObjectMissing, PagesDisagree
from airflow_recovery.journal import journal as journal_module
from airflow_recovery.journal.codec import encode_record
from airflow_recovery.journal.journal import LISTING_ROUNDS, Journal, Listing, until_pages_agree
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import NEVER_STARTED, RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    CommittedBatch,
    FenceCause,
    Lost,
    Outcome,
    PlanRecord,
    Publish,
    PublishedRegion,
    Released,
    Reset,
    RunIdentity,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import CountingStore, Verb

IDENTITY = RunIdentity("dag", "date-2026-01-01", "group")
PLAN = PlanRecord(
    "job", (RegionPlan("P", ("P",), ("P",), (), False, "f"), RegionPlan("C", ("C",), ("C",), ("P",), True, "f"))
)


@pytest.fixture
def counting(local_store: LocalStore) -> CountingStore:
    return CountingStore(local_store)


@pytest.fixture
def journal(counting: CountingStore) -> Journal:
    return Journal(counting, IDENTITY, writer="w1")


def other(journal: Journal, writer: str = "w2") -> Journal:
    """Another process's view of the same journal."""
    return Journal(journal.store, IDENTITY, writer=writer)


def claim(region: str = "P", attempt: int = 1, writer: str = "w1", inputs: tuple[InputRef, ...] = ()) -> Claim:
    return Claim(region, attempt, writer, "0", inputs, "run", 1, "ti", "tag", "now")


def finished(region: str = "P", attempt: int = 1, writer: str = "w1", inputs: tuple[InputRef, ...] = ()) -> Outcome:
    return Outcome(region, attempt, AttemptState.FINISHED, writer, "now", fingerprint="f", inputs=inputs)


def fenced(region: str = "P", attempt: int = 1, writer: str = "w1") -> Outcome:
    return Outcome(region, attempt, AttemptState.FENCED, writer, "now", cause=FenceCause.SUPERSEDED)


def run_once(journal: Journal, region: str = "P", attempt: int = 1, inputs: tuple[InputRef, ...] = ()) -> None:
    journal.claim(claim(region, attempt, journal.writer, inputs))
    journal.finish(finished(region, attempt, journal.writer, inputs))


def state(journal: Journal, regions: str = "PC") -> RunState:
    return journal.load(journal.list(regions))


# the fold


def test_an_empty_journal_is_a_state_too(journal):
    assert state(journal) == RunState({"P": NEVER_STARTED, "C": NEVER_STARTED})


def test_open_then_finished(journal):
    journal.claim(claim())
    assert state(journal).of("P").open_attempt.claim == claim()
    assert state(journal).of("P").current is None
    info = journal.finish(finished())
    mine = state(journal).of("P")
    assert (mine.open_attempt, mine.current.outcome, mine.current.outcome_etag) == (None, finished(), info.etag)


def test_open_then_fenced(journal):
    journal.claim(claim())
    journal.fence(fenced())
    mine = state(journal).of("P")
    assert (mine.open_attempt, mine.current, mine.latest_attempt) == (None, None, 1)


def test_the_highest_finish_counts_and_a_later_claim_takes_nothing_away(journal):
    run_once(journal)
    run_once(journal, attempt=2)
    journal.claim(claim(attempt=3))
    mine = state(journal).of("P")
    assert (mine.current.number, mine.open_attempt.number, mine.latest_attempt) == (2, 3, 3)


@pytest.mark.parametrize("reset_first", [True, False])
def test_reset_and_finish_commute(journal, reset_first):
    """Hole 8: the reset names the attempt, so it does not matter which comes first."""
    journal.claim(claim())
    steps = [lambda: journal.reset(Reset("P", 1, "ann", "wrong")), lambda: journal.finish(finished())]
    for step in steps if reset_first else reversed(steps):
        step()
    mine = state(journal).of("P")
    assert (mine.reset_watermark, mine.current, mine.was_reset) == (1, None, True)
    run_once(journal, attempt=2)
    assert (state(journal).of("P").current.number, state(journal).of("P").was_reset) == (2, False)


def test_a_reset_before_any_attempt_is_a_reset_of_attempt_0(journal):
    journal.reset(Reset("P", 0, "run", "recompute, epoch 1", "1"))
    mine = state(journal).of("P")
    assert (mine.latest_attempt, mine.reset_watermark, mine.was_reset) == (0, 0, False)
    assert mine.attempts[0].reset.epoch == "1"
    run_once(journal)
    assert state(journal).of("P").current.number == 1


def test_markers_show_by_their_names_alone(journal, counting):
    run_once(journal)
    journal.report_lost(Lost("P", 1, "C", ("gone",)))
    journal.release(Released("P", 1, "sweeper"))
    journal.reset(Reset("P", 1, "ann", "wrong"))
    counting.clear()
    attempt = journal.list("PC").state.of("P").attempts[1]
    assert (attempt.is_claimed, attempt.has_outcome, attempt.is_lost, attempt.is_released, attempt.is_reset) == (
        True,
    ) * 5
    assert counting.counts() == {Verb.LIST: 1}


def test_loading_reads_outcomes_and_open_claims_and_resets_of_what_was_asked_for(journal, counting):
    run_once(journal)
    journal.claim(claim("C", 1, "w1", (InputRef("P", 1),)))
    listing = journal.list("PC")
    counting.clear()
    loaded = journal.load(listing, ["P"])
    assert [key.rpartition("/t/")[2] for _, key in counting.requests] == ["P/00000001.outcome"]
    assert loaded.of("C").attempts[1].claim is None
    journal.load(listing)
    assert counting.count(Verb.GET, "C/00000001.claim") == 1


def test_what_is_loaded_again_is_the_same_object_where_nothing_has_changed(journal):
    run_once(journal)
    run_once(journal, "C", inputs=(InputRef("P", 1),))
    before = state(journal)
    run_once(other(journal), attempt=2)
    after = state(journal)
    assert after.of("C") is before.of("C")
    assert list(after.of("P").attempts) == [1, 2]
    assert after.of("P").attempts[1].outcome is before.of("P").attempts[1].outcome
    assert state(other(journal)) == after


def test_an_object_that_was_overwritten_since_it_was_loaded_is_decoded_again(journal):
    run_once(journal)
    assert state(journal).of("P").current.outcome == finished()
    changed = replace(finished(), fingerprint="g")
    journal.store.put(journal.layout.attempt("P", 1, "outcome"), encode_record(IDENTITY, changed))
    assert state(journal).of("P").current.outcome == changed


def test_regions_that_are_not_asked_for_are_left_out(journal):
    run_once(journal)
    assert journal.list("C").state.regions.keys() == {"C"}


def test_plans_and_publishes_are_part_of_the_state(journal):
    journal.put_plan(PLAN)
    journal.put_plan(replace(PLAN, job="other"))
    for number in (1, 2):
        journal.publish(Publish(number, (PublishedRegion("P", number, "e", ("P",)),)))
    found = state(journal)
    assert found.plans == {plan_hash(PLAN), plan_hash(replace(PLAN, job="other"))}
    assert found.newest_publish == 2
    assert journal.read_plan(plan_hash(PLAN)) == PLAN


def test_a_closed_run_goes_on_above_the_attempts_it_names(journal):
    closed = Closed((InputRef("P", 4),))
    journal.store.put_if_absent(journal.layout.closed, encode_record(IDENTITY, closed))
    found = state(journal)
    assert found.is_closed
    assert (found.of("P").latest_attempt, found.of("C").latest_attempt) == (4, 0)
    run_once(journal, attempt=5)
    assert (state(journal).of("P").latest_attempt, state(journal).of("P").current.number) == (5, 5)


def test_a_late_claim_below_a_purge_does_not_bring_the_numbers_down(journal):
    journal.store.put_if_absent(journal.layout.closed, encode_record(IDENTITY, Closed((InputRef("P", 4),))))
    journal.claim(claim(attempt=2))
    assert state(journal).of("P").latest_attempt == 4


# pages


def without(listing: Listing, journal: Journal, *keys: str) -> Listing:
    """The listing as it would be had a page been read before these objects were written."""

    class Early:
        base_uri = journal.store.base_uri

        def list(self, prefix: str, **kwargs: object):
            return [each for each in journal.store.list(prefix) if not each.key.endswith(keys)]

        def __getattr__(self, name: str):
            return getattr(journal.store, name)

    return Journal(cast(ObjectStore, Early()), IDENTITY, writer="w1").list("PC")


def half_a_listing(journal: Journal) -> Listing:
    run_once(journal)
    run_once(journal, attempt=2)
    run_once(journal, "C", 1, (InputRef("P", 2),))
    return without(journal.list("PC"), journal, "P/00000002.claim", "P/00000002.outcome")


def test_a_record_that_names_an_unlisted_attempt_means_list_again(journal):
    with fails_with("listing-lacks-attempt", region="C", attempt=1):
        journal.load(half_a_listing(journal))


def test_an_open_claim_can_tell_it_as_well(journal):
    run_once(journal)
    journal.claim(claim("C", 1, "w1", (InputRef("P", 1),)))
    with pytest.raises(PagesDisagree):
        journal.load(without(journal.list("PC"), journal, "P/00000001.outcome"))


def test_control_without_the_check_half_a_listing_says_that_a_made_input_was_never_made(journal, monkeypatch):
    listing = half_a_listing(journal)
    monkeypatch.setattr(journal_module, "_check_pages", lambda state, regions: None)
    found = journal.load(listing)
    assert (found.of("P").current.number, found.of("C").current.outcome.inputs) == (1, (InputRef("P", 2),))


# writes


def test_a_claim_that_is_taken_is_lost_and_ones_own_is_not(journal):
    journal.claim(claim())
    journal.claim(claim())  # the same process again: its first answer was lost
    with pytest.raises(AttemptLost):
        other(journal).claim(claim(writer="w2"))


def test_an_attempt_has_one_outcome(journal):
    journal.claim(claim())
    other(journal).fence(fenced(writer="w2"))
    with pytest.raises(AttemptLost):
        journal.finish(finished())
    assert journal.read_outcome("P", 1) == fenced(writer="w2")


def test_a_finish_is_not_undone_by_a_fence_of_the_same_process(journal):
    journal.claim(claim())
    journal.finish(finished())
    with pytest.raises(AttemptLost):
        journal.fence(fenced())


def test_finish_and_fence_take_their_own_kind(journal):
    with pytest.raises(ValueError, match="expected an outcome that is FINISHED"):
        journal.finish(fenced())
    with pytest.raises(ValueError, match="expected an outcome that is FENCED"):
        journal.fence(finished())


def test_the_same_plan_report_reset_and_release_of_others_are_as_good(journal):
    for each in (journal, other(journal)):
        each.put_plan(PLAN)
        each.report_lost(Lost("P", 1, each.writer, ()))
        each.reset(Reset("P", 1, each.writer, "why"))
        each.release(Released("P", 1, each.writer))
    assert journal.read_lost("P", 1).reporter == "w1"


def test_a_publish_number_is_taken_by_another_cut_only(journal):
    cut = Publish(1, (PublishedRegion("P", 1, "e", ("P",)),), (), "now")
    journal.publish(cut)
    other(journal).publish(replace(cut, published_at="later"))
    with pytest.raises(AttemptLost):
        other(journal).publish(replace(cut, skipped=("C",)))


def test_what_is_not_there_is_missing(journal):
    assert journal.read_outcome("P", 1) is None
    for read in (journal.read_claim, journal.read_lost):
        with pytest.raises(ObjectMissing):
            read("P", 1)


# what is refused


def test_fault_44_a_journal_of_another_run_under_the_same_prefix_is_refused(journal):
    foreign = RunIdentity("other", "date-2026-01-01", "group")
    journal.store.put_if_absent(journal.layout.attempt("P", 1, "claim"), encode_record(foreign, claim()))
    with fails_with("record-of-other-journal"):
        state(journal)


def test_a_record_that_was_copied_to_another_key_is_refused(journal):
    journal.claim(claim(attempt=2))
    body = encode_record(IDENTITY, finished(attempt=1))
    journal.store.put_if_absent(journal.layout.attempt("P", 2, "outcome"), body)
    with fails_with("record-copied"):
        state(journal)


def test_a_batch_that_was_copied_to_another_key_is_refused(journal):
    journal.commit_batch(batch(0))
    body = journal.store.get(journal.layout.batch("P", 1, 0)).body
    journal.store.put_if_absent(journal.layout.batch("P", 1, 1), body)
    with fails_with("record-copied"):
        journal.read_batch_log("P", 1, 2)


# batches


def batch(number, writer="w1", splits=("k",)):
    return CommittedBatch("P", 1, number, writer, splits, (), "2026-01-01T00:01:00+00:00")


def test_batches_are_read_back_in_order_and_their_number_is_in_the_names(journal):
    journal.claim(claim())
    batches = tuple(batch(number, splits=(f"k{number}",)) for number in range(12))
    for candidate in batches:
        journal.commit_batch(candidate)
    assert state(journal).of("P").attempts[1].batches == 12
    assert journal.read_batch_log("P", 1, 12) == batches
    assert journal.read_batch_log("P", 1, 3) == batches[:3]


def test_a_part_of_another_process_is_not_mine_and_the_same_one_again_is(journal):
    journal.commit_batch(batch(0))
    journal.commit_batch(batch(0))
    with pytest.raises(AttemptLost):
        journal.commit_batch(batch(0, writer="w2"))


def test_a_log_ends_before_its_first_hole(journal):
    # An early page lacks what was written since; a late one has it.
    journal.claim(claim())
    for number in (0, 1, 3):
        journal.commit_batch(batch(number))
    assert state(journal).of("P").attempts[1].batches == 2


def test_a_base_that_the_listing_lacks_is_listed_again(journal):
    journal.claim(claim())
    journal.fence(fenced())
    journal.commit_batch(batch(0))
    journal.claim(replace(claim(attempt=2), mode=SplitClaim((AdoptedBatches(1, 2),))))
    with fails_with("listing-lacks-batches", attempt=2):
        state(journal)
    journal.commit_batch(batch(1))
    assert SplitClaim.of(state(journal).of("P").attempts[2].claim).base == (AdoptedBatches(1, 2),)


def test_a_damaged_record_is_refused_and_named(journal):
    journal.claim(claim())
    journal.store.put_if_absent(journal.layout.attempt("P", 1, "outcome"), b'{"format": 1')
    with fails_with("record-no-json"):
        state(journal)


@pytest.mark.parametrize("marked", ["reset", "part", "released"])
def test_fault_106_whatever_there_is_of_an_attempt_says_that_its_number_is_taken(journal, marked):
    """The claim is the oldest of its objects, and the first one that a rule deletes."""
    {
        "reset": lambda: journal.reset(Reset("P", 3, "user", "why")),
        "part": lambda: journal.commit_batch(replace(batch(0), attempt=3)),
        "released": lambda: journal.release(Released("P", 3, "gc")),
    }[marked]()
    assert state(journal).of("P").latest_attempt == 3


def test_where_pages_disagree_all_is_looked_at_again() -> None:
    disagree = PagesDisagree("C@1 names P@2")
    looks: Iterator[PagesDisagree | str] = iter([disagree, disagree, "agreed"])
    assert until_pages_agree(lambda: raised_or_returned(next(looks))) == "agreed"
    assert next(looks, None) is None


def test_where_pages_always_disagree_it_says_in_what() -> None:
    looks = [PagesDisagree("C@1 names P@2.")] * LISTING_ROUNDS
    with fails_with("journal-busy"):
        until_pages_agree(lambda: raised_or_returned(looks.pop()))
    assert not looks


def raised_or_returned(what: PagesDisagree | str) -> str:
    if isinstance(what, PagesDisagree):
        raise what
    return what
