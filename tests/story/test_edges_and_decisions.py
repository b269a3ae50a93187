"""Edges by result type, and the history as decisions."""

from __future__ import annotations

from airflow_recovery.journal.events import FailoverPlanned, JobEvent, RecordWritten, StreamEnded
from airflow_recovery.journal.history import Recorded
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, Declared, Lost, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.story.decisions import decisions_of
from airflow_recovery.story.edges import edges_of
from airflow_recovery.story.run_events import RunEvents


def events(*found: JobEvent) -> RunEvents:
    return RunEvents(tuple(Recorded("w", number, each) for number, each in enumerate(found, 1)))


def test_edges_tell_what_is_read_and_of_which_type() -> None:
    #   raw (raw, errors) --> kept (cached) --> total       shared (persistent) --> total
    plan = PlanRecord(
        "job",
        (
            RegionPlan("raw", ("raw",), ("raw", "errors"), (), False, "f"),
            RegionPlan("shared", ("shared",), ("shared",), (), False, "f", persistent=True),
            RegionPlan("kept", ("kept",), ("kept",), ("raw",), False, "f", reads=("errors",)),
            RegionPlan("total", ("total",), ("total",), ("kept", "shared"), True, "f"),
        ),
    )
    view = PartitionManifest("kept", "spark-connect://host:1/app/view", (), 3, "{}")
    done = Outcome("kept", 1, AttemptState.FINISHED, "w", "now", outputs=(view,))
    state = RunState({"kept": RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=done)})})

    assert [(edge.producer, edge.consumer, edge.results, edge.type) for edge in edges_of(plan, state)] == [
        ("raw", "kept", ("errors",), "BLOCKING"),
        ("kept", "total", ("kept",), "CACHED"),
        ("shared", "total", ("shared",), "BLOCKING_PERSISTENT"),
    ]


def test_decisions_are_told_newest_first_and_once_with_their_plan() -> None:
    lost = Lost("raw", 1, "total", ("part-0 is gone",), plan=(("raw", "result is missing"),))
    decisions = decisions_of(
        events(
            RecordWritten(occurred_at="1", record=lost),
            RecordWritten(occurred_at="1", record=lost),
            FailoverPlanned(occurred_at="2", region="total", lost=(InputRef("raw", 1),), plan=lost.plan),
            RecordWritten(occurred_at="3", record=Reset("raw", 1, "ann", "asked for")),
            RecordWritten(occurred_at="5", record=Declared("raw", 2, 1, "total", "f" * 32)),
            RecordWritten(occurred_at="6", record=Declared("raw", 2, 2, "raw", "f" * 32)),
            StreamEnded(occurred_at="4"),
        )
    )

    assert [(decision.kind, decision.region, decision.text, decision.plan) for decision in decisions] == [
        ("compared", "raw", "@2 is what its operator makes as it is declared today: its own task has looked", ()),
        (
            "compared",
            "raw",
            "@2: total has read another declaration of its operator, so its own task looks first",
            (),
        ),
        ("restart", "raw", "@1 was reset by ann: asked for", ()),
        ("failover", "total", "can't read raw@1; runs raw", lost.plan),
        ("lost", "raw", "@1 was reported lost by total: part-0 is gone", lost.plan),
    ]
