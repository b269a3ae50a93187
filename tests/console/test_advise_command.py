"""``airflow recovery advise``: histories in real journals whose best cuts are known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from written_night import MB, START_S, Night, region

from airflow_recovery.advice.history import shared_seconds
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.model.determinism import Determinism


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


def made_again(recorded, *sizes: int, determinism: Determinism = Determinism.ALWAYS) -> dict:
    """In each of three runs `load` is made once for each size; `report`, which reads it, takes much longer."""
    load = replace(region("load"), determinism=(("load", determinism),))
    for number in range(3):
        night = Night(recorded.uri, f"date-{number}", (load, region("report", reads=("load",), final=True)))
        for size in sizes:
            night.finishes("load", 300, size)
        night.finishes("report", 3000)
    return advised(recorded, "--mtbf", "2h")


def test_what_is_made_again_alike_is_verified(recorded):
    document = made_again(recorded, MB, MB)
    assert ("verify", "load") in told(document)
    (verify,) = (change for change in document["changes"] if change["what"] == "verify")
    assert verify["why"] == "made again 3 times in 3 runs, 3 times as large"
    # Once a run, its reader would not run again: its 3000 s, more with what may fail meanwhile.
    assert verify["before"]["recovery_s"] - verify["after"]["recovery_s"] > 3000
    assert verify["after"]["recovery_s"] == pytest.approx(document["best"]["recovery_s"])


@pytest.mark.parametrize(
    ("sizes", "determinism"),
    [((MB,), Determinism.ALWAYS), ((MB, 2 * MB), Determinism.ALWAYS), ((MB, MB), Determinism.VERIFY)],
    ids=["made once", "made again unlike", "verified already"],
)
def test_control_what_would_save_nothing_is_not_verified(recorded, sizes, determinism):
    assert "verify" not in {what for what, _ in told(made_again(recorded, *sizes, determinism=determinism))}


READERS = ("a", "b", "c", "d")


def test_a_large_result_with_many_readers_is_cached_where_little_fails(recorded):
    plan = (region("load"), *(region(name, reads=("load",), final=True) for name in READERS))
    night = Night(recorded.uri, "date-0", plan)
    night.finishes("load", 100, 5000 * MB)
    for name in READERS:
        night.finishes(name, 1050)
    rare = advised(recorded, "--mtbf", "3h")
    assert told(rare) == {("cache", "load")}
    (cache,) = rare["changes"]
    # Written once and read four times, at 100 MB/s.
    assert cache["before"]["run_s"] - cache["after"]["run_s"] == pytest.approx(5 * 50)
    assert cache["after"]["recovery_s"] > cache["before"]["recovery_s"]
    # Control: where more is lost with the server than it saves.
    assert ("cache", "load") not in told(advised(recorded, "--mtbf", "20m"))


@pytest.mark.parametrize(("objects", "advises"), [(40, True), (1, False), (0, False)])
def test_a_long_source_of_many_objects_is_committed_split_by_split(recorded, objects, advises):
    night = Night(recorded.uri, "date-0", (region("load"), region("report", reads=("load",), final=True)))
    night.finishes("load", 7200, objects=objects)
    night.finishes("report", 60)
    document = advised(recorded, "--mtbf", "1h")
    splits = [change for change in document["changes"] if change["what"] == "splits"]
    assert [change["of"] for change in splits] == ["load"] * advises
    for change in splits:
        # Young: sqrt(2 * 2 s * 3600 s).
        assert change["why"] == "40 objects: commit about every 120 s of work (Young)"
        assert change["after"]["run_s"] - change["before"]["run_s"] == 2 * 40
        assert change["after"]["recovery_s"] < change["before"]["recovery_s"] / 5


JOB = """
from airflow_recovery import job

day = job("day")


@day.source
def load(spark):
    raise AssertionError("no vertex is called")


@day.vertex
def sums(load):
    raise AssertionError("no vertex is called")


@day.sink
def report(load, sums):
    raise AssertionError("no vertex is called")
"""


def test_with_job_the_code_says_what_each_vertex_reads(recorded, tmp_path, monkeypatch):
    (tmp_path / "advised_day.py").write_text(JOB)
    monkeypatch.syspath_prepend(tmp_path)
    Night(recorded.uri, "date-0", (region("load", "sums", "report", final=True),)).finishes("report", 3600)

    def readers(document: dict) -> dict[str, list[str]]:
        return {boundary["result"]: boundary["readers"] for boundary in document["boundaries"]}

    by_journal = advised(recorded)
    assert readers(by_journal) == {"load": ["sums"], "sums": ["report"]}
    assert any("With --job the job's code says it" in note for note in by_journal["notes"])
    by_code = advised(recorded, "--job", "advised_day:day")
    assert readers(by_code) == {"load": ["sums", "report"], "sums": ["report"]}
    assert not any("--job" in note for note in by_code["notes"])


@pytest.mark.parametrize("reference", ["advised_nothing:day", "airflow_recovery:nothing", "day"])
def test_a_job_that_is_not_there_is_named(recorded, reference):
    Night(recorded.uri, "date-0", (region("load", final=True),)).finishes("load", 10)
    code, _ = recorded.call("advise", "d", "--job", reference)
    assert code == ExitCode.USAGE
    assert reference.partition(":")[0] in recorded.errors
    assert "Traceback" not in recorded.errors


def test_a_job_that_does_not_import_is_told_in_a_line(recorded, tmp_path, monkeypatch):
    (tmp_path / "advised_broken.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    Night(recorded.uri, "date-0", (region("load", final=True),)).finishes("load", 10)
    code, said = recorded.call("advise", "d", "--job", "advised_broken:day")
    assert (code, said) == (ExitCode.USAGE, "")
    assert "advised_broken:day" in recorded.errors
    assert "RuntimeError: no licence" in recorded.errors
    assert "Traceback" not in recorded.errors


def test_it_changes_nothing(recorded, tmp_path):
    night = Night(recorded.uri, "date-0", (region("load", "report", final=True),))
    night.finishes("report", 3600)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    advised(recorded, "--mtbf", "30m")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--runs", "0"), "Expected --runs of 1 or more, found 0."),
        (("--mtbf", "soon"), "found 'soon'"),
        (("--mtbf", "0s"), "found 0s"),
        (("--mb-per-s", "nan"), "Expected --mb-per-s as a number above 0, found nan."),
        (("--mb-per-s", "inf"), "Expected --mb-per-s as a number above 0, found inf."),
    ],
)
def test_options_that_mean_nothing(recorded, options, said):
    Night(recorded.uri, "date-0", (region("load", final=True),)).finishes("load", 10)
    assert recorded.call("advise", "d", *options)[0] == ExitCode.USAGE
    assert said in recorded.errors
    assert recorded.call("advise", "other")[0] == ExitCode.NOT_FOUND


def test_shares_fit_every_way_that_it_was_cut_and_are_equal_where_nothing_tells():
    cuts = [(frozenset("abc"), 100.0, 3), (frozenset("a"), 70.0, 1), (frozenset("bc"), 30.0, 1)]
    assert shared_seconds(cuts) == pytest.approx({"a": 70, "b": 15, "c": 15}, rel=1e-3)
