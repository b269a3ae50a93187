"""``airflow recovery advise``: histories in real journals whose best cuts are known."""

from __future__ import annotations

import json

import pytest
from written_night import MB, START_S, Night, region

from airflow_recovery.advice.history import shared_seconds
from airflow_recovery.console.exit_codes import ExitCode


def advised(recorded, *options: str) -> dict:
    code, said = recorded.call("advise", "d", "--json", *options)
    assert code == ExitCode.DONE, recorded.errors
    return json.loads(said)


def told(document: dict) -> set[tuple[str, str]]:
    return {(change["what"], change["of"]) for change in document["changes"]}


def test_a_long_producer_before_one_that_fails_is_cut_off(recorded):
    """Cut once in the past, so that the share of each is known; glued since."""
    whole = (region("load", "report", final=True),)
    apart = (region("load"), region("report", reads=("load",), final=True))
    night = Night(recorded.uri, "date-0", apart)
    night.finishes("load", 3000, 5 * MB)
    night.finishes("report", 600)
    for number in range(1, 6):
        night = Night(recorded.uri, f"date-{number}", whole)
        night.fails("report", "report")
        night.finishes("report", 3600)
    document = advised(recorded)
    assert ("cut", "load") in told(document)
    (cut,) = (change for change in document["changes"] if change["what"] == "cut")
    assert cut["after"]["recovery_s"] < cut["before"]["recovery_s"] / 2
    assert cut["after"]["run_s"] == pytest.approx(cut["before"]["run_s"] + START_S + 0.1, abs=1)
    assert "5 failures in 6 runs" in cut["how_sure"]
    assert document["region_s"] == START_S
    assert document["kinds"] == {"executor lost": 5}
    assert any("5 of 6" not in note and "1 of 6 runs were cut differently" in note for note in document["notes"])
    text = recorded.call("advise", "d")[1]
    assert "cut load" in text
    assert "cut differently" in text


def test_a_huge_result_that_nothing_fails_behind_is_glued(recorded):
    for number in range(5):
        night = Night(recorded.uri, f"date-{number}", (region("tiny"), region("sums", reads=("tiny",), final=True)))
        night.finishes("tiny", 520, 50_000 * MB)
        if number == 0:
            night.fails("sums", "sums")
        night.finishes("sums", 600)
    document = advised(recorded)
    assert told(document) == {("glue", "tiny")}
    assert document["best"]["run_s"] == pytest.approx(document["now"]["run_s"] - 1000 - START_S, rel=0.01)
    (boundary,) = document["boundaries"]
    assert (boundary["moved_bytes"], boundary["is_cut"], boundary["advised"]) == (100_000 * MB, True, False)


def test_what_is_good_as_it_is_stays(recorded):
    for number in range(5):
        night = Night(recorded.uri, f"date-{number}", (region("load"), region("report", reads=("load",), final=True)))
        night.finishes("load", 3000)
        night.fails("report", "report")
        night.finishes("report", 600)
    document = advised(recorded, "--mtbf", "2h")
    assert not {what for what, _ in told(document)} & {"cut", "glue"}
    assert document["is_given"]


def test_without_a_failure_it_says_so_and_takes_the_rate_that_is_given(recorded):
    night = Night(recorded.uri, "date-0", (region("load", "report", final=True),))
    night.finishes("report", 3600)
    document = advised(recorded)
    assert document["changes"] == []
    assert document["mtbf_s"] is None
    assert "nothing has failed" in document["first_line"]
    assert any("give a rate with --mtbf" in note for note in document["notes"])
    assert any("is taken to read the one before" in note for note in document["notes"])
    given = advised(recorded, "--mtbf", "30m")
    assert told(given) == {("cut", "load")}
    assert given["mtbf_s"] == 1800


def test_nothing_finished_is_told_with_what_has_failed(recorded):
    night = Night(recorded.uri, "date-0", (region("load"), region("report", reads=("load",), final=True)))
    night.fails("load", "load", "user code")
    document = advised(recorded)
    assert document["kinds"] == {"user code": 1}
    assert told(document) == set()
    assert any("No run has finished load, report" in note for note in document["notes"])


def test_two_jobs_of_one_dag_id_are_told_apart(recorded):
    other = Night(recorded.uri, "date-0", (region("orders", final=True),), job="shop:orders")
    other.finishes("orders", 9999)
    night = Night(recorded.uri, "date-1", (region("load"), region("report", reads=("load",), final=True)))
    night.finishes("load", 10)
    night.finishes("report", 10)
    document = advised(recorded)
    assert document["runs"] == 1
    assert any("another job under this DAG id, 'shop:orders'" in note for note in document["notes"])


def test_several_groups_have_to_be_named(recorded):
    for group in ("day", "night"):
        Night(recorded.uri, "date-0", (region("load", final=True),), group=group).finishes("load", 10)
    assert recorded.call("advise", "d")[0] == ExitCode.NOT_FOUND
    assert "day, night" in recorded.errors
    assert advised(recorded, "--group", "day")["group_id"] == "day"


def test_applications_of_a_users_own_are_not_advised_to_be_glued(recorded):
    plan = (region("tiny"), region("sums", reads=("tiny",), final=True))
    night = Night(recorded.uri, "date-0", plan, job="operators of d")
    night.finishes("tiny", 520, 50_000 * MB)
    night.finishes("sums", 600)
    document = advised(recorded, "--mtbf", "90d")
    assert document["changes"] == []
    assert document["boundaries"][0]["fixed"] == "an application of your own"


def test_it_changes_nothing(recorded, tmp_path):
    night = Night(recorded.uri, "date-0", (region("load", "report", final=True),))
    night.finishes("report", 3600)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    advised(recorded, "--mtbf", "30m")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--runs", "0"), ExitCode.USAGE), (("--mtbf", "soon"), ExitCode.USAGE), (("--mtbf", "0s"), ExitCode.USAGE)],
)
def test_options_that_mean_nothing(recorded, options, code):
    Night(recorded.uri, "date-0", (region("load", final=True),)).finishes("load", 10)
    assert recorded.call("advise", "d", *options)[0] == code
    assert recorded.call("advise", "other")[0] == ExitCode.NOT_FOUND


def test_shares_fit_every_way_that_it_was_cut_and_are_equal_where_nothing_tells():
    cuts = [(frozenset("abc"), 100.0, 3), (frozenset("a"), 70.0, 1), (frozenset("bc"), 30.0, 1)]
    assert shared_seconds(cuts) == pytest.approx({"a": 70, "b": 15, "c": 15}, rel=1e-3)
