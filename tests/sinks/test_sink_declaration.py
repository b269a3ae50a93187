"""``@job.sink(commit=...)``: what may be declared, and what plans and outcomes hold of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest
from expected_errors import fails_with
from staging import Resources, token

from airflow_recovery import BLOCKING, job
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import SinkNotApplied
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.sinks import (
    CommitKind,
    CommitMode,
    Committable,
    CommittingSink,
    DeltaTable,
    PostgresTable,
    Probe,
    ProbedSink,
    sink_of,
    spec_of,
)

FACTS = RunFacts("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00", {}, {})
TABLE = PostgresTable(conn_id="warehouse", table="mart.delays", mode="replace", run_column="run_key")
DONE: list[str] = []


def apply(committable, resources):
    DONE.append(committable.token.text)


def is_applied(committed, resources):
    return committed.text in DONE


def refuses(committable, resources):
    raise SinkNotApplied("closed")


def breaks(*given):
    raise OSError("reset by peer")


PROBED = ProbedSink(apply=apply, is_applied=is_applied)


def flights(commit: Any, **options: Any):
    found = job("flights")

    @found.source(result=BLOCKING)
    def raw(spark): ...

    @found.sink(commit=commit, **options)
    def delays(raw): ...

    return found


@pytest.mark.parametrize("sink", [TABLE, DeltaTable(uri="s3://lake/delays"), PROBED])
def test_a_declaration_survives_the_journal(sink):
    spec = spec_of(sink, "delays")
    assert sink_of(spec) == sink
    assert "password" not in spec.config


def test_the_plan_has_it_and_the_fingerprint_too():
    with_sink, without = flights(TABLE), flights(None)
    regions = {region.name: region for region in plan_job(with_sink, "jobs:flights", FACTS).record.regions}
    assert regions["delays"].commit == spec_of(TABLE, "delays")
    assert regions["raw"].commit is None
    other = flights(replace(TABLE, table="mart.other"))
    found = {vertex_fingerprint(each, "delays", {}) for each in (with_sink, without, other)}
    assert len(found) == 3


def test_a_job_without_such_a_sink_has_the_plan_that_it_had():
    region = plan_job(flights(None), "jobs:flights", FACTS).record.regions[-1]
    assert region.commit is None


@pytest.mark.parametrize(
    ("declare", "code"),
    [
        (lambda: PostgresTable(conn_id="w", table="t", mode="upsert"), "mode-unfit"),
        (lambda: PostgresTable(conn_id="", table="t"), "argument-unfit"),
        (lambda: PostgresTable(conn_id="w", table="a.b.c"), "table-name-unfit"),
        (lambda: DeltaTable(uri=" "), "location-unfit"),
        (lambda: ProbedSink(apply=lambda *given: None, is_applied=is_applied), "function-not-at-top"),
        (lambda: flights("mart.delays"), "commit-no-sink"),
        (lambda: flights(TABLE, parallelism=2), "replace-by-subtasks"),
    ],
)
def test_what_is_refused_names_what_to_change(declare, code):
    with fails_with(code):
        declare()


def test_two_sinks_that_commit_need_regions_of_their_own():
    found = job("flights")

    @found.source
    def raw(spark): ...

    @found.sink(commit=TABLE)
    def one(raw): ...

    @found.sink(commit=PROBED)
    def two(raw): ...

    with fails_with("two-sinks-in-a-region"):
        found.validate()


def test_a_sink_that_is_gone_or_changed_is_named():
    spec = spec_of(TABLE, "delays")
    with fails_with("function-not-importable"):
        sink_of(replace(spec, sink="airflow_recovery.sinks:Nothing"))
    with fails_with("sink-config-unfit"):
        sink_of(replace(spec, config='{"conn_id":"w","tabel":"t"}'))
    with fails_with("sink-unknown"):
        sink_of(replace(spec, sink="json:dumps"))


def committable() -> Committable:
    return Committable(token(), PartitionManifest("delays", "/results", ()))


def test_a_probed_sink_calls_the_users_functions_by_their_names():
    DONE.clear()
    into = sink_of(spec_of(PROBED, "delays")).open(Resources())
    assert into.probe(token()) is Probe.NOT_APPLIED
    assert into.commit(committable()) == token().text
    assert into.probe(token()) is Probe.APPLIED


def test_of_a_users_error_only_one_says_that_nothing_was_done():
    module = sys.modules[__name__].__name__
    sure = ProbedSink(apply=f"{module}:refuses", is_applied=is_applied).open(Resources())
    with pytest.raises(SinkNotApplied):
        sure.commit(committable())
    unsure = ProbedSink(apply=breaks, is_applied=breaks).open(Resources())
    for ask in (lambda: unsure.commit(committable()), lambda: unsure.probe(token())):
        with fails_with("apply-raised", "is-applied-raised"):
            ask()


def test_a_sink_of_ones_own():
    @dataclass(frozen=True, kw_only=True)
    class Mine(CommittingSink):
        topic: str
        kind = CommitKind.TOKEN

    spec = spec_of(Mine(topic="delays"), "delays")
    assert (spec.kind, spec.mode) == (CommitKind.TOKEN, CommitMode.APPEND)
    assert spec.config == '{"mode":"append","topic":"delays"}'
