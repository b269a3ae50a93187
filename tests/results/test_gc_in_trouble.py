"""The real ``gc`` over journals and results in which something is not as we write it, in every kind of store."""

from __future__ import annotations

import json
import re

import pytest
from expected_errors import fails_with
from kept_runs import Kept, data, kept, keys

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import main
from airflow_recovery.journal import layout as layout_module
from airflow_recovery.journal.codec import encode_record, resealed
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.owner import check_results, own_results
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results import sweep_found
from airflow_recovery.results.sweep_found import find_runs

__all__ = ["kept"]

SUPERSCRIPT = "²²²²²²²²"
ARABIC = "٠٠٠٠٠٠٠٩"


# the DAG that is meant


@pytest.mark.parametrize("more", [(), ("--purge", "--older-than", "30d")])
def test_fault_103_an_empty_dag_is_no_dag(kept: Kept, capsys, more) -> None:
    world = kept.superseded()
    with pytest.raises(SystemExit) as ended:
        kept.gc("--dag", "", "--grace", "0s", *more)
    assert ended.value.code == ExitCode.USAGE
    assert "expected a name, found ''" in capsys.readouterr().err
    assert data(world, "P", 1)


def test_fault_103_control_taken_for_no_dag_at_all_it_sweeps_every_dag(kept: Kept, monkeypatch) -> None:
    world = kept.superseded()
    monkeypatch.setattr("airflow_recovery.console.gc.name", lambda text: text or None)
    assert kept.gc("--dag", "", "--grace", "0s") == ExitCode.DONE
    assert not data(world, "P", 1)


def test_fault_103_a_dag_that_is_not_there_is_named_with_the_nearest(kept: Kept, capsys) -> None:
    world = kept.superseded()
    assert kept.gc("--dag", "dagg", "--grace", "0s") == ExitCode.NOT_FOUND
    said = capsys.readouterr()
    assert "has no DAG 'dagg'. The nearest DAGs of 1: dag." in said.err
    assert said.out == ""
    assert data(world, "P", 1)


# two journals over one place of results


def two_journals(kept: Kept):
    """The results are those of journal ``one``, whose final C@1 its publish names. In ``two``, C@1 was superseded."""
    first = kept.world("one")
    own_results(first.journal_store, first.results)
    first.go_all()
    kept.superseded("two")
    assert data(first, "C", 1)
    return first


def test_fault_102_results_of_another_journal_are_not_swept(kept: Kept, capsys) -> None:
    first = two_journals(kept)
    for arguments in (("--grace", "0s"), ("--dry-run",), ("--purge", "--older-than", "0s", "--force")):
        assert kept.gc(*arguments, journal="two") == ExitCode.USAGE
        said = capsys.readouterr()
        assert f"found that it holds those of the journal {kept.store.base_uri}/one" in said.err
        assert said.out == ""
    assert data(first, "C", 1)
    assert kept.gc("--grace", "0s", journal="one") == ExitCode.DONE
    assert data(first, "C", 1)


def test_fault_102_control_without_the_look_the_finals_of_the_other_journal_go(kept: Kept, monkeypatch) -> None:
    first = two_journals(kept)
    monkeypatch.setattr("airflow_recovery.console.gc.own_results", lambda journal, results: None)
    assert kept.gc("--grace", "0s", journal="two") == ExitCode.DONE
    assert not data(first, "C", 1)


def test_fault_102_gc_takes_the_results_that_nobody_has_but_not_in_a_dry_run(kept: Kept) -> None:
    """As the first process of a new version in a deployment of the version before."""
    world = kept.superseded()
    assert kept.gc("--dry-run") == ExitCode.DONE
    assert not keys(world.results, "_owner")
    assert kept.gc() == ExitCode.DONE
    check_results(world.journal_store, world.results)
    assert keys(world.results, "_owner")


# odd keys and records


def odd_objects(kept: Kept, journal: Journal) -> None:
    """What somebody who may write one prefix can leave there; no process of ours does."""
    layout, store = journal.layout, journal.store
    claim = store.get(layout.attempt("P", 1, "claim")).body
    store.put(f"{layout.prefix}t/P/{ARABIC}.claim", claim)
    store.put(f"{layout.prefix}t/P/{ARABIC}.outcome", claim)
    results = kept.world().results
    results.put(f"{layout.data}P/{SUPERSCRIPT}/x", b"?")
    results.put(f"{layout.data}P/{ARABIC}/x", b"?")
    for dag, region in (("empty", ""), ("half", "\ud800")):
        document = json.loads(claim)
        document["dag_id"], document["body"]["region"] = dag, region
        other = JournalLayout(RunIdentity(dag, journal.identity.run_key, journal.identity.group_id))
        store.put(other.attempt("P", 1, "claim"), resealed(document))
        store.put(other.plan("00"), encode_record(other.identity, plan_of("P")))
    unknown = JournalLayout(RunIdentity("unknown input", "run-1", "g"))
    store.put(unknown.plan("00"), encode_record(unknown.identity, plan_of("P", "Q")))


def plan_of(name: str, *inputs: str) -> PlanRecord:
    return PlanRecord("job", (RegionPlan(name, (name,), (name,), inputs, True, "f"),))


def test_fault_105_what_is_odd_in_one_run_keeps_no_other_from_being_swept(kept: Kept, capsys) -> None:
    world = kept.superseded()
    odd_objects(kept, world.journal())
    assert kept.gc("--grace", "0s") == ExitCode.NO_ANSWER
    said = capsys.readouterr()
    assert said.err == ""
    assert not data(world, "P", 1)
    assert data(world, "P", 2)
    for run in ("empty / date", "half / date", "unknown input / run-1"):
        assert re.search(rf"^warning: {run}.* was left as it is: RecordInvalid: .*invalid body", said.out, re.MULTILINE)
    for name in (SUPERSCRIPT, ARABIC):
        assert f"/P/{name}/x (1 objects, 1 B): it is no attempt's" in said.out


def test_fault_105_the_tasks_of_the_run_go_on_beside_it(kept: Kept) -> None:
    world = kept.superseded()
    odd_objects(kept, world.journal())
    world.restart("C")
    world.until_green()
    assert (world.current("P"), world.current("C")) == (2, 3)


def test_fault_105_verify_takes_it_for_no_record(kept: Kept, capsys) -> None:
    world = kept.superseded()
    odd_objects(kept, world.journal())
    base, identity = kept.store.base_uri, world.journal().identity
    uris = ("--journal", f"{base}/journal", "--results", f"{base}/results")
    assert main(["verify", identity.dag_id, identity.run_key, *uris, *kept.options]) == ExitCode.DONE
    assert ARABIC not in capsys.readouterr().out


def test_fault_105_control_numbers_in_any_script_leave_the_run_unswept(kept: Kept, capsys, monkeypatch) -> None:
    world = kept.superseded()
    odd_objects(kept, world.journal())
    monkeypatch.setattr(
        sweep_found, "parse_folder", lambda text: int(text) if len(text) == 8 and text.isdigit() else None
    )
    assert kept.gc("--grace", "0s") == ExitCode.NO_ANSWER
    assert "dag / date 2026-01-01T00:00:00+00:00 was left as it is: ValueError" in capsys.readouterr().out
    assert data(world, "P", 1)


def test_fault_105_control_numbers_in_any_script_stop_the_tasks(kept: Kept, monkeypatch) -> None:
    world = kept.superseded()
    odd_objects(kept, world.journal())
    loose = layout_module._ATTEMPT_NAME.pattern.replace("[0-9]", r"\d")
    monkeypatch.setattr(layout_module, "_ATTEMPT_NAME", re.compile(loose))
    monkeypatch.setattr(layout_module, "_parts_of_name", layout_module._parts_of_name.__wrapped__)
    with pytest.raises(KeyError):
        world.state()


def test_fault_105_whatever_one_run_raises_the_others_are_swept(kept: Kept, capsys, monkeypatch) -> None:
    world = kept.superseded()
    other = JournalLayout(RunIdentity("a", "run-1", "g"))
    world.journal_store.put(other.plan("00"), encode_record(other.identity, plan_of("P")))
    read = Journal.read_plan

    def fails(journal: Journal, hash_: str) -> PlanRecord:
        if journal.identity.dag_id == "a":
            raise ZeroDivisionError("a mistake of ours")
        return read(journal, hash_)

    monkeypatch.setattr(Journal, "read_plan", fails)
    assert kept.gc("--grace", "0s") == ExitCode.NO_ANSWER
    assert "warning: a / run-1 was left as it is: ZeroDivisionError: a mistake of ours" in capsys.readouterr().out
    assert not data(world, "P", 1)


# runs that nobody can read


def damaged(kept: Kept) -> str:
    """A run beside ours of which every record is cut short. Its folder."""
    world = kept.superseded()
    layout = JournalLayout(RunIdentity("cut", "run-1", "g"))
    for key in (layout.plan("00"), layout.attempt("P", 1, "claim"), layout.attempt("P", 1, "outcome")):
        world.journal_store.put(key, b'{"body":')
    # What is no record says nothing of anybody's run.
    world.journal_store.put("lost+found/a/b/c", b"?")
    world.journal_store.put("notes/README.md", b"?")
    return layout.prefix.rstrip("/")


def test_fault_110_a_run_that_says_nowhere_whose_it_is_is_told_of(kept: Kept, capsys) -> None:
    folder = damaged(kept)
    assert kept.gc("--grace", "0s", "--dry-run", "--json") == ExitCode.NO_ANSWER
    (unread,) = json.loads(capsys.readouterr().out)["unread"]
    assert re.search(rf"/journal/{folder} was left as it is, and nothing says whose run it is: .*not a valid", unread)


def test_fault_110_a_run_that_was_copied_from_elsewhere_is_told_of(kept: Kept, capsys) -> None:
    world = kept.superseded()
    body = world.journal_store.get(world.journal().layout.attempt("P", 1, "claim")).body
    world.journal_store.put("copy/run-1/g/t/P/00000001.claim", body)
    assert kept.gc("--dry-run") == ExitCode.NO_ANSWER
    assert "expected a record of the run in whose folder it lies, found one of ['dag', " in capsys.readouterr().out


def test_fault_110_control_where_only_what_can_be_read_is_told_it_is_passed_over(
    kept: Kept, capsys, monkeypatch
) -> None:
    damaged(kept)
    monkeypatch.setattr("airflow_recovery.results.sweep.find_runs", lambda *given: (find_runs(*given)[0], []))
    assert kept.gc("--grace", "0s", "--dry-run") == ExitCode.DONE
    assert "cut" not in capsys.readouterr().out


# what a later version has written


def voided(kept: Kept, name: str = "voided"):
    """A version to come marks P@1 with a record of a new kind: perhaps that it is to be kept."""
    world = kept.superseded()
    world.journal_store.put(f"{world.journal().layout.attempt('P', 1, name)}", b'{"format": 99}')
    return world


@pytest.mark.parametrize("name", ["voided", "voided-0001", "hold-0", "claimed"])
def test_fault_108_a_record_of_a_kind_to_come_is_not_passed_over(kept: Kept, capsys, name: str) -> None:
    world = voided(kept, name)
    assert kept.gc("--grace", "0s") == ExitCode.NO_ANSWER
    assert f"found {name.partition('-')[0]!r}: a newer version has written it. Upgrade" in capsys.readouterr().out
    assert data(world, "P", 1)
    world.airflow.clear("C")
    with fails_with("record-kind-unknown"):
        world.go("C")


@pytest.mark.parametrize("name", ["sealed/00000001", "sealed-00000001"])
def test_fault_108_nor_is_one_of_the_run(kept: Kept, capsys, name: str) -> None:
    """A version to come says something of the whole run, as a publish and a tombstone do."""
    world = kept.superseded()
    world.journal_store.put(f"{world.journal().layout.prefix}{name}", b'{"format": 99}')
    assert kept.gc("--grace", "0s") == ExitCode.NO_ANSWER
    assert "found 'sealed': a newer version has written it. Upgrade" in capsys.readouterr().out
    assert data(world, "P", 1)
    world.airflow.clear("C")
    with fails_with("record-kind-unknown", found="sealed"):
        world.go("C")


def test_fault_108_control_passed_over_what_it_keeps_is_deleted(kept: Kept, monkeypatch) -> None:
    world = voided(kept)
    monkeypatch.setattr(JournalLayout, "unknown_kind", lambda layout, key: None)
    assert kept.gc("--grace", "0s") == ExitCode.DONE
    assert not data(world, "P", 1)


@pytest.mark.parametrize(
    "name",
    [
        "P_$folder$",
        "P/.DS_Store",
        "P/._00000001.claim",
        "P/desktop.ini",
        "P/00000001.claim_$folder$",
        "P/00000001.claim~",
        "P/00000001.claim.bak",
        "P/00000001",
        "P/00000001.x-note",
        "P/00000001.x-note-0001",
        "gone/00000001.voided",
        f"P/{ARABIC}.voided",
    ],
)
def test_fault_108_what_file_systems_and_tools_leave_stops_nobody(local_store, name: str) -> None:
    """And of what a later version adds, what begins with ``x-``; and the kinds of regions that the job has not."""
    kept = Kept(local_store, ())
    world = kept.superseded()
    world.journal_store.put(f"{world.journal().layout.prefix}t/{name}", b"?")
    world.restart("C")
    world.until_green()
    assert world.current("C") == 3


@pytest.mark.parametrize("name", ["x-note/00000001", "x-note-00000001", "note", "backup/00000001.bak", "Thumbs.db"])
def test_fault_108_what_lies_beside_the_records_of_the_run_stops_nobody(local_store, name: str) -> None:
    world = Kept(local_store, ()).superseded()
    world.journal_store.put(f"{world.journal().layout.prefix}{name}", b"?")
    world.restart("C")
    world.until_green()
    assert world.current("C") == 3


def test_fault_108_a_folder_of_a_version_to_come_beside_the_runs_stays_and_stops_nobody(kept: Kept) -> None:
    world = kept.superseded()
    for store in (world.journal_store, world.results):
        store.put("_sealed/dag/run/group/00000001", b"?")
    assert kept.gc("--grace", "0s") == ExitCode.DONE
    assert not data(world, "P", 1)
    assert [keys(store, "_sealed/") for store in (world.journal_store, world.results)] == [
        ["_sealed/dag/run/group/00000001"]
    ] * 2
    world.restart("C")
    world.until_green()
    assert world.current("C") == 3


# attempts without their claims


def test_fault_106_the_number_of_an_attempt_that_has_lost_its_claim_is_not_given_out_again(kept: Kept) -> None:
    world = kept.world()
    world.go_all()
    before = {key: world.results.get(key).body for key in data(world, "P", 1)}
    layout = world.journal().layout
    world.restart("P")
    world.journal_store.delete([layout.attempt("P", 1, "claim")])
    with fails_with("claim-vanished", region="P", attempt=1):
        world.go("P")
    assert not keys(world.journal_store, layout.attempt("P", 1, "claim"))
    assert before == {key: world.results.get(key).body for key in data(world, "P", 1)} != {}


def test_fault_106_control_counted_by_claims_alone_it_is_claimed_and_written_again(kept: Kept, monkeypatch) -> None:
    world = kept.world()
    world.unstable = frozenset("P")
    world.go_all()
    layout = world.journal().layout
    world.restart("P")
    world.journal_store.delete([layout.attempt("P", 1, "claim"), layout.snapshot])
    monkeypatch.setattr(Journal, "_confirm_claimed", lambda journal, region, attempt: False)
    only_claims(monkeypatch)
    (file,) = data(world, "P", 1)
    world.results.delete([file])
    with fails_with("fenced-while-running"):
        world.go("P")
    assert keys(world.journal_store, layout.attempt("P", 1, "claim"))
    (again,) = data(world, "P", 1)
    assert again != file


def test_fault_106_a_claim_that_an_early_page_lacks_is_looked_for(kept: Kept) -> None:
    """Pages of a listing are of different moments: that alone says nothing."""
    world = kept.world()
    world.go_all()
    claim = world.journal().layout.attempt("P", 1, "claim")
    store = world.journal_store
    listed = type(store).list

    class Late:
        base_uri = store.base_uri
        get, put_if_absent = store.get, store.put_if_absent

        def list(self, prefix: str = "", *, start_after: str = ""):
            return (info for info in listed(store, prefix, start_after=start_after) if info.key != claim)

    journal = Journal(Late(), world.journal().identity, writer="w")  # type: ignore[arg-type]
    assert journal.list(["P"]).state.of("P").attempts[1].is_claimed


def only_claims(monkeypatch) -> None:
    """The highest number as it was counted before."""
    from airflow_recovery.journal.run_state import RegionState

    latest_attempt = property(
        lambda state: max([state.closed_at, *(n for n, each in state.attempts.items() if each.is_claimed)])
    )
    monkeypatch.setattr(RegionState, "latest_attempt", latest_attempt)
