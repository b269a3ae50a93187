"""``withdraw``: a person takes a published result from readers outside the run, and gives it back."""

from __future__ import annotations

import json

import pytest
from expected_errors import fails_with

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import NotPublished
from airflow_recovery.hooks.result import RecoveryResultHook, RegisteredResult
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.journal import published
from airflow_recovery.model.record_kinds import RECORD_KINDS
from airflow_recovery.model.records import Withdrawal

RUN = ("flights", "2026-01-01")
REASON = ("--reason", "the prices are wrong")


@pytest.fixture
def world(recorded):
    """raw -> by_route and by_carrier -> busiest have run, and are published."""
    found = recorded.world()
    found.until_green()
    return found


@pytest.fixture
def given(recorded):
    """What another DAG is given of a result."""
    hook = RecoveryResultHook(RecoverySettings(recorded.uri, f"{recorded.uri}/_results"))

    def given(result: str) -> RegisteredResult:
        return hook.get_result("flights", result, group_id="flights", logical_date="2026-01-01T00:00:00Z")

    return given


def refused(given, result: str) -> str:
    with pytest.raises(NotPublished) as error:
        given(result)
    return str(error.value)


def test_fault_203_readers_get_the_reason_until_a_newer_attempt_is_published(recorded, world, given):
    assert given("busiest").attempt == 1
    code, said = recorded.call("withdraw", *RUN, "busiest", *REASON)
    assert code == ExitCode.DONE
    assert said.startswith("Withdrawn: busiest@1, by ")
    assert "was withdrawn: busiest@1, by " in refused(given, "busiest")
    assert "the prices are wrong. Expected a publish that names a newer attempt" in refused(given, "busiest")
    for command in ("show", "plan"):
        assert "Withdrawn, so that other DAGs are not given it: busiest@1" in recorded.call(command, *RUN)[1]
    assert "withdrawn from other DAGs by" in recorded.call("show", *RUN)[1]
    assert "withdrawn by" in recorded.call("events", *RUN)[1]
    assert recorded.call("verify", *RUN)[0] == ExitCode.DONE

    world.new_airflow()
    world.until_green()  # everything is kept, and the same cut is not published again
    assert world.state().newest_publish == 1
    assert "was withdrawn" in refused(given, "busiest")

    world.restart("busiest")
    world.new_airflow()
    world.until_green()
    assert (given("busiest").publish, given("busiest").attempt) == (2, 2)
    assert "Withdrawn" not in recorded.call("show", *RUN)[1].partition("Attempts:")[0]
    assert recorded.call("verify", *RUN)[0] == ExitCode.DONE


def test_what_rests_on_a_withdrawn_result_is_withdrawn_with_it(recorded, world, given):
    recorded.call("withdraw", *RUN, "by_route", *REASON)
    assert "'busiest' of publish 1 was withdrawn: by_route@1" in refused(given, "busiest")
    assert given("raw").attempt == 1


def test_without_a_region_all_that_is_published_is_withdrawn_and_given_back(recorded, world, given):
    turns = json.loads(recorded.call("withdraw", *RUN, *REASON, "--json")[1])["attempts"]
    assert [(turn["region"], turn["turn"], turn["withdrawn"]) for turn in turns] == [
        (name, 1, True) for name in ("raw", "by_route", "by_carrier", "busiest")
    ]
    assert json.loads(recorded.call("withdraw", *RUN, "--reason", "again", "--json")[1])["attempts"] == turns
    assert "was withdrawn" in refused(given, "raw")
    code, said = recorded.call("withdraw", *RUN, "--off", "--reason", "they were right")
    assert (code, said.splitlines()[0]) == (ExitCode.DONE, "Readers are given raw@1.")
    assert given("busiest").attempt == 1
    recorded.call("withdraw", *RUN, "raw", *REASON)
    assert world.journal().list(["raw"]).state.of("raw").attempts[1].withdrawn_turn == 3


def test_what_is_not_published_is_refused_by_name(recorded, world):
    assert recorded.call("withdraw", *RUN, "nobody", *REASON)[0] == ExitCode.NOT_FOUND
    assert "expected a region or a result that publish 1 names, found 'nobody'. It names" in recorded.errors
    recorded.world(key="date-2026-01-02T000000Z").go("raw")
    assert recorded.call("withdraw", "flights", "2026-01-02", *REASON)[0] == ExitCode.NOT_FOUND
    assert "expected a publish, found none: no reader outside this run is given anything" in recorded.errors


def test_fault_203_control_without_the_look_readers_are_given_it(recorded, world, given, monkeypatch):
    recorded.call("withdraw", *RUN, "busiest", *REASON)
    monkeypatch.setattr(published, "_check_given", lambda *_: None)
    assert given("busiest").attempt == 1


def test_a_version_that_does_not_know_withdrawals_refuses_the_run(recorded, world, given, monkeypatch):
    recorded.call("withdraw", *RUN, "busiest", *REASON)
    monkeypatch.delitem(RECORD_KINDS, "withdrawn")
    with fails_with("record-kind-unknown"):
        given("busiest")


def test_the_checker_finds_withdrawals_with_a_hole(recorded, world):
    world.journal().withdraw(Withdrawal("busiest", 1, 3, "ann", "the second time"))
    code, said = recorded.call("verify", *RUN)
    assert code == ExitCode.VIOLATED
    assert "withdrawals of busiest@1 that follow a finish" in said
