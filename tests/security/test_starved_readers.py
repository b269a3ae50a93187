"""The process that reads a large run: what it may have, and what is told if it is stopped. Over a folder."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from expected_errors import fails_with
from large_run import PLAN, finished
from rest_world import DAG, KEY, RestWorld

from airflow_recovery.api_server import journals, readings
from airflow_recovery.api_server.journals import Apart
from airflow_recovery.api_server.reader_process import NICENESS, Question
from airflow_recovery.api_server.readers import Readers
from airflow_recovery.api_server.readings import KnownRun, Tries, read_answer, read_regions, read_runs
from airflow_recovery.attempt.task_instances import Observation, TaskTry
from airflow_recovery.errors import ConfigurationError, ReadingStopped
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.story.asked import AskedDag
from airflow_recovery.story.question import QUESTIONS, MayAsk
from airflow_recovery.story.what_if import WhatIf

REGIONS = {"of": None, "status": None, "search": "", "offset": 0, "limit": 3}
GROUP = None
NO_TRIES = Observation({})
MIB = 1024 * 1024


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    world = RestWorld(tmp_path, monkeypatch)
    finished(world, PLAN.regions[:10])
    return world


@pytest.fixture
def readers() -> Iterator[Readers]:
    made = Readers()
    yield made
    made.close()


def question(rest: RestWorld, **more: Any) -> Question:
    found: dict[str, Any] = {
        "module": readings.__name__,
        "function": read_regions.__name__,
        "arguments": {"dag_id": DAG, "run_key": KEY, "group": GROUP, **REGIONS},
        "tries": Tries.of(NO_TRIES),
        "asked_at": time.monotonic(),
        "journal": StoreSpec(rest.stores.journal.base_uri),
        "results": StoreSpec(rest.stores.results.base_uri),
        "environment": {"GIVEN": "with the question"},
        "waits": {},
        "budget_bytes": 10 * MIB,
    }
    return Question(**(found | more))


def no_location(kind: str, about: Any) -> Any:
    raise AssertionError(about)


def test_fault_373_it_answers_as_this_process_does_and_is_kept(rest: RestWorld, readers: Readers) -> None:
    asked = question(rest)
    here = read_regions(journals.deployment_access(), observation=NO_TRIES, **asked.arguments)
    assert readers.ask(DAG, asked, no_location) == here
    (process,) = readers._idle.values()
    assert readers.ask(DAG, asked, no_location) == here
    assert list(readers._idle.values()) == [process]


@pytest.mark.parametrize("name", [name for name, each in QUESTIONS.items() if each.who is MayAsk.READERS])
def test_each_question_with_a_route_is_answered_there_as_here(rest: RestWorld, readers: Readers, name: str) -> None:
    asked = QUESTIONS[name]
    run = {} if asked.shape.reads is AskedDag else {"run_key": KEY}
    given = {"region": "source[1]"} if name == "why" else {}
    arguments: dict[str, Any] = {"question": asked, "dag_id": DAG, "group": GROUP, "arguments": given, **run}
    here = read_answer(journals.deployment_access(), **arguments)
    there = question(rest, function=read_answer.__name__, arguments=arguments, tries=None)
    assert readers.ask(DAG, there, no_location) == here


def test_fault_374_it_uses_no_listing_from_before_the_question(rest: RestWorld, readers: Readers) -> None:
    before = time.monotonic()
    first = readers.ask(DAG, question(rest, asked_at=before), no_location)
    rest.world.journal_store.delete([rest.world.journal().layout.attempt("source[1]", 1, "outcome")])
    # Control: with the moment of the first question, its listing counts as new.
    assert readers.ask(DAG, question(rest, asked_at=before), no_location) == first
    assert readers.ask(DAG, question(rest), no_location) != first


def test_fault_373_it_has_no_socket_and_nothing_of_airflow(
    rest: RestWorld, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://user:secret@host/db")
    readers.ask(DAG, question(rest), no_location)
    (process,) = readers._idle.values()
    found = psutil.Process(process._process.pid)
    assert found.net_connections("all") == []
    assert not [name for name in found.environ() if name.startswith("AIRFLOW_")]
    assert found.nice() == min(19, psutil.Process().nice() + NICENESS)
    maps = Path(f"/proc/{found.pid}/maps").read_text()
    assert "/airflow/" not in maps


def test_an_error_is_raised_as_it_was_there(rest: RestWorld, readers: Readers) -> None:
    nothing = question(rest)
    nothing.arguments["run_key"] = "date-2026-02-02T000000Z"
    with fails_with("run-has-not-begun"):
        readers.ask(DAG, nothing, no_location)
    with fails_with("request-budget-used"):
        readers.ask(DAG, question(rest, budget_bytes=500), no_location)
    assert len(readers._idle) == 1


def test_fault_373_what_takes_too_long_is_killed_and_said(rest: RestWorld) -> None:
    readers = Readers(most_s=0.0)
    with pytest.raises(
        ReadingStopped, match="within 0 s, found none: the process that worked on this large run was stopped"
    ):
        readers.ask(DAG, question(rest), no_location)
    assert readers._idle == {}
    assert not [each for each in psutil.Process().children() if "reader_process" in " ".join(each.cmdline())]


def test_fault_373_what_needs_too_much_memory_ends_and_is_said(rest: RestWorld) -> None:
    readers = Readers(most_bytes=8 * MIB)
    with pytest.raises(ReadingStopped, match="memory limit is 8 MiB"):
        readers.ask(DAG, question(rest), no_location)
    assert readers._idle == {}


def test_a_process_that_has_ended_is_replaced(rest: RestWorld, readers: Readers) -> None:
    first = readers.ask(DAG, question(rest), no_location)
    (process,) = readers._idle.values()
    process._process.kill()
    process._process.wait()
    assert readers.ask(DAG, question(rest), no_location) == first


def test_whether_a_location_may_be_opened_is_decided_here(rest: RestWorld, readers: Readers) -> None:
    asked: list[str] = []

    def refuse(kind: str, about: Any) -> Any:
        asked.append(about)
        raise ConfigurationError("not allowed")

    plan = {"question": WhatIf(), "user": "ann", "otherwise": {}}
    arguments = {"dag_id": DAG, "run_key": KEY, "group": GROUP, **plan}
    module = "airflow_recovery.api_server.plan_readings"
    found = question(rest, module=module, function="read_plan", arguments=arguments)
    assert b'"plan_id"' in readers.ask(DAG, found, refuse)
    assert asked == []  # all lies below the results
    elsewhere = question(
        rest, module=module, function="read_plan", arguments=arguments, results=StoreSpec("file:///somewhere/else")
    )
    with fails_with("result-elsewhere"):
        readers.ask(DAG, elsewhere, refuse)


def test_what_changes_a_run_has_the_api_server_write_the_audit_log_first(rest: RestWorld, readers: Readers) -> None:
    said: list[tuple[str, Any]] = []

    def hear(kind: str, about: Any) -> None:
        assert "source[0]@1" not in pinned(rest)
        said.append((kind, about))

    of_run = {"dag_id": DAG, "run_key": KEY, "group": GROUP}
    pin = {"region": "source[0]", "attempt": 1, "pinned": True, "why": "w"}
    arguments = {**of_run, "who": "ann", "asked": pin}
    asked = question(
        rest, module="airflow_recovery.api_server.changes", function="pin_attempt", arguments=arguments, tries=None
    )
    assert readers.ask(DAG, asked, hear).who == "ann"
    assert said == [("audit", pin)]
    assert pinned(rest) == ["source[0]@1"]


def pinned(rest: RestWorld) -> list[str]:
    state = journals.deployment_access().view_of(DAG, KEY, GROUP).in_use.state
    current = {name: region.current for name, region in state.regions.items() if region.current is not None}
    return [f"{name}@{attempt.number}" for name, attempt in current.items() if attempt.is_pinned]


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
def test_fault_373_a_large_journal_is_not_read_in_the_api_server(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    monkeypatch.setattr(journals, "READS_LARGE_RUNS_APART", is_protected)
    monkeypatch.setattr("airflow_recovery.journal.sharded_listing.PAGE_KEYS", 5)
    found = journals.read(read_regions, Tries.of(NO_TRIES), **question(rest).arguments)
    assert isinstance(found, Apart) is is_protected


def task_tries_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, TaskTry) for each in gc.get_objects())


def test_fault_373_the_tasks_of_a_large_run_are_no_objects_of_the_api_server(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.journal.sharded_listing.PAGE_KEYS", 5)
    monkeypatch.setattr(journals, "READS_LARGE_RUNS_APART", True)
    before = task_tries_in_memory()
    known = Tries.of(Observation({f"t{at}": TaskTry(f"t{at}", -1, 1, str(at), "success") for at in range(100)}))
    asked = journals.read(read_regions, known, **question(rest).arguments)
    assert isinstance(asked, Apart)
    assert task_tries_in_memory() == before
    kept = known.observation()  # Control: for a small run they are.
    assert len(kept.tries) == 100
    assert task_tries_in_memory() == before + 100


@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
def test_fault_373_many_runs_that_are_large_together_are_not_read_in_the_api_server(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch, is_protected: bool
) -> None:
    monkeypatch.setattr(journals, "READS_LARGE_RUNS_APART", is_protected)
    access = journals.deployment_access()
    objects = len(access.listed(access.journal_of(DAG, KEY, GROUP)))
    monkeypatch.setattr("airflow_recovery.journal.sharded_listing.PAGE_KEYS", 2 * objects)
    run = KnownRun("run", KEY, "success", None, Tries.of(NO_TRIES))
    assert isinstance(journals.read(read_runs, dag_id=DAG, runs=[run, run]), bytes)
    assert isinstance(journals.read(read_runs, dag_id=DAG, runs=[run, run, run]), Apart) is is_protected


def test_a_small_journal_is_read_in_the_api_server(rest: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "READS_LARGE_RUNS_APART", True)
    assert isinstance(journals.read(read_regions, Tries.of(NO_TRIES), **question(rest).arguments), bytes)
    assert not journals._large
