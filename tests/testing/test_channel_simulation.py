"""Faults at every step and at pairs of steps of channels, and each rule switched off, which is found.

To see one again: `PYTHONPATH=tests:. python -m channel_simulation --seed N --schedules 1`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from channel_simulation import (
    Fault,
    Settings,
    Tally,
    Violation,
    every_pair,
    every_pair_of_records,
    every_single,
    programs,
    simulate,
)
from channel_simulation.drill import main
from channel_simulation.programs import RegionAttempt, _Channel
from channel_simulation.settings import STRATEGIES
from channel_simulation.world import World

from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.store.log import PutAnswer, PutSlot, ReadSlot
from airflow_recovery.streaming import channel_folding as folding
from airflow_recovery.streaming import channel_retention as retention
from airflow_recovery.streaming.appending import ChannelLog
from airflow_recovery.streaming.channel_records import Consumed, Released
from airflow_recovery.streaming.consuming import commit_batch, create_view
from airflow_recovery.streaming.producing import publish

SMALL = Settings(batches=2, subpartitions=1)
PAIR = replace(SMALL, regions=2, batches=1, batch_records=3)
DROPS = replace(SMALL, overflow=Overflow.DROP, max_bytes=2)
LATEST = replace(SMALL, reconnect=Reconnect.LATEST)


def test_an_undisturbed_chain_delivers_everything_once():
    report = simulate(1, Settings())
    assert report.attempts == {"source": 1, "scorer1": 1, "sink": 1}
    assert (report.committed, report.lost, report.ended) == (12, 0, "drained")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        replace(SMALL, regions=2),
        pytest.param(SMALL, marks=pytest.mark.drill),
        replace(DROPS, regions=2),
        replace(LATEST, regions=2),
        replace(LATEST, batches=1, regions=2, strategy=FailoverStrategy.APPROXIMATE_SINK),
        pytest.param(replace(LATEST, batches=1, strategy=FailoverStrategy.APPROXIMATE_SINK), marks=pytest.mark.drill),
        replace(SMALL, batches=1, strategy=FailoverStrategy.APPROXIMATE_DOWNSTREAM),
    ],
    ids=["rewind-block", "chain of three", "rewind-drop", "latest-block", "sink", "chain to a sink", "downstream"],
)
def test_every_fault_at_every_step_keeps_the_account(settings):
    tally = every_single(settings)
    assert tally.schedules > 250
    assert tally.ended.keys() == {"drained"}


@pytest.mark.slow
def test_every_pair_of_steps_keeps_the_account():
    assert every_pair(PAIR).schedules > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        (PAIR, tuple(Fault)),
        pytest.param(
            replace(PAIR, reconnect=Reconnect.LATEST, overflow=Overflow.DROP, max_bytes=2),
            tuple(Fault),
            marks=pytest.mark.drill,
        ),
        pytest.param(
            replace(PAIR, regions=3, batch_records=2),
            (Fault.KILL, Fault.FREEZE, Fault.LOSE_REPLY, Fault.WAKE),
            marks=pytest.mark.drill,
        ),
    ],
    ids=["rewind-block", "latest-drop", "chain"],
)
def test_every_pair_of_faults_at_every_pair_of_records_keeps_the_account(settings, faults):
    tally = every_pair_of_records(settings, faults=faults)
    assert tally.schedules > 1000
    assert tally.ended.keys() == {"drained"}


@pytest.mark.slow
def test_what_is_frozen_wakes_at_any_step_and_changes_nothing():
    steps = simulate(1, PAIR).steps
    woken = [
        simulate(1, replace(PAIR, faults={first: Fault.FREEZE, second: Fault.WAKE}))
        for first in range(steps)
        for second in range(first + 1, steps)
    ]
    assert {each.ended for each in woken} == {"drained"}
    assert {each.committed for each in woken} == {3}


@pytest.mark.slow
def test_pairs_of_faults_in_a_chain_keep_the_account():
    assert every_pair(replace(LATEST, overflow=Overflow.DROP, max_bytes=3), stride=9).schedules > 100


@pytest.mark.slow
def test_drawn_schedules_keep_the_account():
    tally = Tally()
    for seed in range(100):
        tally.add(simulate(seed, Settings.drawn(seed)))
    assert tally.ended["drained"] > 60
    assert tally.lost > 0
    assert tally.lost_races > 0


def test_a_schedule_is_replayed_by_its_seed():
    assert simulate(7, Settings.drawn(7)) == simulate(7, Settings.drawn(7))


@pytest.mark.slow
def test_who_restarts_is_what_the_planner_says():
    step = simulate(1, SMALL).steps // 2
    attempts = {
        strategy: max(
            sum(simulate(1, replace(SMALL, strategy=strategy, faults={number: Fault.KILL})).attempts.values())
            for number in range(step, step + 20)
        )
        for strategy in STRATEGIES
    }
    assert attempts == {
        FailoverStrategy.APPROXIMATE_SINK: 6,
        FailoverStrategy.APPROXIMATE_DOWNSTREAM: 6,
        FailoverStrategy.APPROXIMATE_SINGLE: 4,
    }


def test_the_command_line_runs_seeds(capsys):
    assert main(["--seed", "3", "--schedules", "5"]) == 0
    assert "5 schedules" in capsys.readouterr().out


def test_the_command_line_names_the_seed_of_what_it_finds(capsys, monkeypatch):
    monkeypatch.setattr(folding, "is_void", lambda state, record: False)
    assert main(["--schedules", "300"]) == 1
    assert "again: --seed" in capsys.readouterr().out


# --- controls: a rule is switched off, and the simulation finds it ---------------------------------------------------


def schedules(settings: Settings, faults: Iterable[Fault]) -> Iterable[Settings]:
    """One fault at each step, then drawn ones of this job."""
    length = simulate(1, settings).steps
    for fault in faults:
        yield from (replace(settings, faults={step: fault}) for step in range(length))
    for seed in range(200):
        yield replace(settings, faults=Settings.drawn(seed).faults)


def violation_of(number: int, settings: Settings) -> str | None:
    try:
        simulate(number if len(settings.faults) > 1 else 1, settings)
    except Violation as violation:
        return str(violation).splitlines()[0]
    return None


@pytest.fixture
def found(monkeypatch) -> Callable[..., str]:
    """The first violation once ``owner.name`` is ``value``."""

    def find(owner: object, name: str, value: object, settings: Settings = SMALL, faults=tuple(Fault)) -> str:
        steps = list(schedules(settings, list(faults)))  # drawn before anything is switched off
        assert not any(map(violation_of, *zip(*list(enumerate(steps))[:: max(1, len(steps) // 10)], strict=True)))
        monkeypatch.setattr(owner, name, value)
        told = next(filter(None, map(violation_of, *zip(*enumerate(steps), strict=True))), None)
        assert told is not None, "nothing was found"
        return told

    return find


def test_control_of_fault_59_a_fold_that_does_not_ask_whose_record_it_is(found):
    assert found(folding, "is_void", lambda state, record: False, faults=[Fault.STRAY])


@pytest.mark.slow
def test_control_of_fault_11_a_woken_attempt_that_takes_the_view_although_a_newer_one_had_it(monkeypatch):
    """Frozen before its view, woken when the new attempt is at work."""

    def late(state, attempt, reconnect, *, published=None):
        return create_view(state, max(attempt, state.view + 1), reconnect, published=published)

    pairs = [
        (seed, replace(PAIR, faults={first: Fault.FREEZE, second: Fault.WAKE}))
        for seed in range(2, 6)
        for first in simulate(seed, PAIR).records
        for second in range(first + 1, simulate(seed, PAIR).steps)
    ]
    assert not any(violation_of(*pair) for pair in pairs)
    monkeypatch.setattr(programs, "create_view", late)
    told = next(filter(None, (violation_of(*pair) for pair in pairs)), "nothing was found")
    assert "is the newest attempt, and was refused" in told


def test_control_of_fault_24_a_lost_reply_that_is_not_read_back(found):
    def put(self, slot, body):
        return (yield PutSlot(slot, body)) is PutAnswer.CREATED

    # Its own view is in the log, and refuses it.
    told = found(ChannelLog, "_put", put, faults=[Fault.LOSE_REPLY])
    assert "is the newest attempt, and was refused" in told


def test_control_of_fault_24_an_unknown_outcome_that_is_taken_for_success(found):
    def put(self, slot, body):
        return (yield PutSlot(slot, body)) is not PutAnswer.EXISTS

    assert found(ChannelLog, "_put", put, faults=[Fault.LOSE_REQUEST])


def test_control_of_fault_25_a_store_that_ignores_the_condition(found):
    def put(self, identity, request):
        if request.slot == len(self.channel(identity).slots):
            self._fill(identity, request.body)
        return PutAnswer.CREATED

    assert found(World, "_put", put)


def test_control_a_replayed_batch_that_is_published_under_a_new_number(found):
    def again(state, attempt, epoch, written, consumed=()):
        return publish(state, attempt, max(epoch, state.epoch + 1), written, consumed)

    assert "once" in found(programs, "publish", again, faults=[Fault.KILL])


def test_control_of_death_between_two_logs_an_output_that_is_not_adopted(found):
    told = found(programs, "published_of", lambda output, identity: None, faults=[Fault.KILL])
    assert "committed twice" in told


def test_control_of_death_between_two_logs_the_input_is_committed_first(found):
    def input_first(self, source, out, batch, rows, plan):
        counts = tuple(map(len, rows))
        outputs: tuple[str, ...] = () if out is not None else (f"out/{self.attempt}/{batch}",)
        if out is None:
            yield programs.PutRows(source.identity, outputs[0], [each for sub in rows for each in sub])
        yield from source.append(lambda state: commit_batch(state, self.attempt, batch, counts, outputs))
        if out is not None:
            consumed = (Consumed(source.identity.edge, source.identity.generation, plan.end),)
            yield from out.publish(batch, rows, consumed)

    assert "vanished" in found(RegionAttempt, "_commit", input_first, faults=[Fault.KILL])


@pytest.mark.slow
def test_control_of_death_between_two_logs_the_output_is_read_before_it_is_opened(found, monkeypatch):
    opened = RegionAttempt._opened

    def read_first(self):
        early = _Channel(self, self.feeds)
        yield from early.refresh()
        seen = copy.copy(early.log.state)
        seen.consumed = dict(seen.consumed)
        out = yield from opened(self)
        cast(Any, out.log.state).seen = seen
        return out

    published_of = programs.published_of
    monkeypatch.setattr(
        programs, "published_of", lambda output, identity: published_of(getattr(output, "seen", output), identity)
    )
    settings = replace(SMALL, max_records=1, batches=3)
    assert "committed twice" in found(RegionAttempt, "_opened", read_first, settings=settings, faults=[Fault.FREEZE])


def test_control_segments_that_are_dropped_though_the_plan_reads_them(found):
    told = found(retention, "_is_pinned", lambda state, segment: False, settings=replace(DROPS, regions=2, batches=4))
    assert "was refused: seg/" in told


def test_control_a_release_before_the_checkpoint(found):
    def early(state, attempt, upto):
        return Released(attempt, state.ends)

    assert "neither retained nor dropped" in found(programs, "release", early)


def test_control_back_pressure_that_waits_for_the_release(found):
    def retained(state):
        return sum(each.bytes for each in state.retained.values())

    settings = replace(SMALL, max_bytes=4, batches=3)
    assert "all wait for each other" in found(retention, "backlog_bytes", retained, settings=settings)


@pytest.mark.slow
def test_control_a_slot_that_is_not_the_next_one(found):
    def refresh(self):
        body = yield ReadSlot(self.state.slots)
        if body is not None:
            self._take(body)
        return self.state

    # Whoever reads one record only prepares against an old state, and loses every race without ever catching up.
    assert found(ChannelLog, "refresh", refresh, faults=[])


def test_control_of_fault_58_a_budget_that_nobody_checks(found):
    settings = replace(LATEST, budget=LossBudget(max_lost_records=1))
    told = found(LossBudget, "excess", lambda self, lost, records: None, settings=settings)
    assert "the budget is 1" in told


def test_control_a_loss_at_the_origin_that_is_reported_as_nothing(found):
    opened = folding._open

    def forgets(state, record):
        opened(state, record)
        state.unknown.clear()

    told = found(folding, "_open", forgets, settings=replace(SMALL, replays=False))
    assert "the loss is reported as known" in told


def test_control_a_ledger_that_forgets_what_was_dropped(found):
    drop = folding._drop

    def forgets(state, record):
        drop(state, record)
        for sub in state.subs:
            sub.dropped = ()

    assert "neither retained nor dropped" in found(folding, "_drop", forgets, settings=DROPS)
