"""``--connect``: who is asked for cached results, and what is said where nobody is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.driver.cached import CacheServer
from airflow_recovery.errors import CacheUnreachable
from airflow_recovery.journal.codec import encode_record
from airflow_recovery.results.cached import cached_view_name

RUN = ("flights", "2026-01-01")
URL = "sc://spark:15002"
KEPT = "spark-connect://spark:15002/app-1/airflow_recovery_by_route_1_00"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("SPARK_REMOTE", raising=False)


@pytest.fixture
def world(recorded):
    """A finished run whose `by_route` is kept by a server."""
    world = recorded.world()
    world.until_green()
    outcome = world.journal().read_outcome("by_route", 1)
    outputs = tuple(replace(output, location=KEPT, objects=()) for output in outcome.outputs)
    key = world.journal().layout.attempt("by_route", 1, "outcome")
    world.journal_store.put(key, encode_record(world.identity, replace(outcome, outputs=outputs)))
    return world


def test_a_cached_result_that_nobody_wants_is_not_asked_for(recorded, world):
    code, said = recorded.call("plan", *RUN)
    assert code == ExitCode.DONE, recorded.errors
    assert "4 regions: 4 keep." in said


def test_without_a_server_it_is_said_that_it_could_not_be_asked(recorded, world):
    code, said = recorded.call("plan", *RUN, "--failed", "busiest")
    assert (code, said) == (ExitCode.NO_ANSWER, "")
    assert "whether 'by_route' is still cached" in recorded.errors
    assert "--connect sc://host:port" in recorded.errors


@pytest.mark.parametrize(("answer", "run"), [(None, "3 keep"), ("it was restarted", "2 run, 2 keep")])
def test_the_server_that_is_named_is_asked(recorded, world, monkeypatch, answer, run):
    asked = []
    monkeypatch.setattr(CacheServer, "ask", lambda server, manifest: asked.append(server._url) or answer)
    code, said = recorded.call("plan", *RUN, "--failed", "busiest", "--connect", URL)
    assert code == ExitCode.DONE
    assert run in said
    assert ("by_route: result is missing (attempt 1: it was restarted)" in said) is (answer is not None)
    monkeypatch.setenv("SPARK_REMOTE", f"{URL}/;token=t")
    recorded.call("plan", *RUN, "--failed", "busiest")
    assert asked == [URL, f"{URL}/;token=t"]


def test_another_scheme_is_refused(recorded, world):
    code, _ = recorded.call("gc", "--connect", "http://spark:4040")
    assert code == ExitCode.USAGE
    assert "as sc://host:port" in recorded.errors


def test_gc_drops_by_the_names_in_the_journal_and_no_others(recorded, world, monkeypatch):
    mine = cached_view_name(world.journal_store.base_uri, world.identity, "raw", 1, "raw")
    dropped = []
    monkeypatch.setattr(CacheServer, "names", lambda server: frozenset({mine, "airflow_recovery_of_a_stranger"}))
    monkeypatch.setattr(CacheServer, "drop", lambda server, views: dropped.extend(views))
    arguments = ("--retention", "as-consumed", "--grace", "0s")
    code, said = recorded.call("gc", "--connect", URL, *arguments)
    assert code == ExitCode.DONE
    assert "raw@1 (1 cached)" in said
    assert dropped == [mine]


def test_a_server_that_is_gone_is_told_at_the_end(recorded, world, monkeypatch):
    def names(server):
        raise CacheUnreachable("no answer from spark:15002")

    monkeypatch.setattr(CacheServer, "names", names)
    code, said = recorded.call("gc", "--connect", URL)
    assert code == ExitCode.NO_ANSWER
    assert "cached results were left as they are: no answer from spark:15002" in said
