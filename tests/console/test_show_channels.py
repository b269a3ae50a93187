"""What ``show`` says of the channels of a run, while it runs and afterwards."""

from __future__ import annotations

import json
import zipfile
from typing import Any

import pytest
from streaming_run import StreamingRun

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.store import open_store
from airflow_recovery.streaming.producing import give_up

RUN = ("flights", "2026-01-01")


def run_with_channels(recorded: Any, tmp_path: Any, **options: Any) -> StreamingRun:
    results = open_store(f"file://{tmp_path}/journal/_results")  # the command's default
    return StreamingRun(open_store(recorded.uri), results, **options)


def rows_of(said: str) -> dict[str, list[str]]:
    lines = said.partition("Channels (records):\n")[2].partition("\n\n")[0].splitlines()
    return {line.split()[0]: [cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines}


def test_a_live_run(recorded, tmp_path):
    run = run_with_channels(recorded, tmp_path, reconnect=Reconnect.LATEST, budget=LossBudget(max_lost_records=10))
    source, scorer = run.source(), run.scorer()
    run.emit(source, 6)
    scorer.work()
    run.emit(source, 4)
    scorer = run.scorer()
    run.emit(source, 6)
    scorer.work()
    run.emit(source, 1)
    code, said = recorded.call("show", *RUN)
    assert code == ExitCode.DONE
    raw = ["raw", "1", "open", "source@1", "scorer@2", "17", "12", "reconnect 4", "1", "4 of 10 records"]
    assert rows_of(said)["raw"] == raw
    assert rows_of(said)["scored"][:8] == ["scored", "1", "open", "scorer@2", "-", "12", "0", "0"]


def test_a_run_that_has_ended(recorded, tmp_path):
    run_with_channels(recorded, tmp_path).to_the_end()
    rows = rows_of(recorded.call("show", *RUN)[1])
    assert rows["scored"][2:] == ["drained", "scorer@1", "sink@1", "20", "20", "0", "0", "no budget was set"]
    channels = json.loads(recorded.call("show", *RUN, "--json")[1])["channels"]
    assert [
        (channel["edge"], channel["published"], channel["committed"], channel["lost_records"]) for channel in channels
    ] == [
        ("raw", 20, 20, 0),
        ("scored", 20, 20, 0),
    ]


def test_a_bundle_shows_the_channels_as_they_were(recorded, tmp_path):
    run = run_with_channels(recorded, tmp_path, reconnect=Reconnect.LATEST)
    run.emit(run.source(), 6)
    run.alter("source")
    run.emit(run.source(), 2)
    live = recorded.call("show", *RUN)[1]
    path = str(tmp_path / "bundle.zip")
    assert recorded.call("export", *RUN, "--out", path)[0] == ExitCode.DONE
    run.emit(run.source(), 5)
    packed = recorded.call("show", "--bundle", path)[1]
    assert rows_of(packed) == rows_of(live) != rows_of(recorded.call("show", *RUN)[1])
    with zipfile.ZipFile(path) as file:
        logs = [name for name in file.namelist() if "_channels" in name]
    assert logs
    assert all("/log/" in log for log in logs)  # no segment: those are data


def test_a_bundle_of_a_version_that_packed_no_logs_says_so(recorded, tmp_path):
    run_with_channels(recorded, tmp_path).to_the_end()
    whole, old = tmp_path / "bundle.zip", tmp_path / "old.zip"
    recorded.call("export", *RUN, "--out", str(whole))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(old, "w") as file:
        for name in source.namelist():
            index = json.loads(source.read(name)) if name == "bundle.json" else None
            if index is not None:
                del index["no_channels"]
            file.writestr(name, source.read(name) if index is None else json.dumps(index))
    code, said = recorded.call("show", "--bundle", str(old))
    assert code == ExitCode.DONE
    assert "Channels: they can't be read: an earlier version has made this bundle, without their logs" in said


def test_who_may_read_the_journal_alone_can_pack_that(recorded, tmp_path, monkeypatch):
    run_with_channels(recorded, tmp_path).to_the_end()

    def denied(*_: object) -> None:
        raise StoreAccessDenied("the results: 403")

    monkeypatch.setattr("airflow_recovery.streaming.describe.control_logs", denied)
    path = str(tmp_path / "bundle.zip")
    assert recorded.call("export", *RUN, "--out", path)[0] == ExitCode.DONE
    said = recorded.call("show", "--bundle", path)[1]
    assert "Channels: they can't be read: when the bundle was made: StoreAccessDenied: the results: 403" in said
    assert "Attempts:" in said


def test_fault_84_why_a_producer_gave_up_is_packed_without_its_secret(recorded, tmp_path):
    run = run_with_channels(recorded, tmp_path)
    run.emit(run.source(), 3)
    run.client("raw").append(lambda state: give_up(state, 1, "no way to jdbc:postgresql://ann:hunter2@db/x"))
    path = str(tmp_path / "bundle.zip")
    recorded.call("export", *RUN, "--out", path)
    with zipfile.ZipFile(path) as file:
        assert not any(b"hunter2" in file.read(name) for name in file.namelist())
    raw = rows_of(recorded.call("show", "--bundle", path)[1])["raw"]
    assert raw[:6] == ["raw", "1", "given up", "source@1", "-", "3"]


def test_what_nobody_knows_is_said_to_be_unknown(recorded, tmp_path):
    run = run_with_channels(recorded, tmp_path, replays=False)
    run.emit(run.source(), 3)
    run.source()
    assert rows_of(recorded.call("show", *RUN)[1])["raw"][7] == "unknown (@2 could not read again)"
    (raw, _) = json.loads(recorded.call("show", *RUN, "--json")[1])["channels"]
    assert (raw["lost_records"], raw["ledger_records"]) == (None, 0)


def test_a_run_without_channels_has_no_such_table(recorded):
    recorded.world().until_green()
    code, said = recorded.call("show", *RUN)
    assert code == ExitCode.DONE
    assert "Channels" not in said
    assert json.loads(recorded.call("show", *RUN, "--json")[1])["channels"] == []


def test_results_that_may_not_be_read_leave_the_rest(recorded, tmp_path, monkeypatch):
    run_with_channels(recorded, tmp_path).to_the_end()

    def denied(*_: object) -> None:
        raise StoreAccessDenied("the results: 403")

    monkeypatch.setattr("airflow_recovery.streaming.describe.channel_reports", denied)
    code, said = recorded.call("show", *RUN)
    assert code == ExitCode.DONE
    assert "Channels: they can't be read: StoreAccessDenied: the results: 403" in said
    assert "Attempts:" in said


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_slot_that_was_altered_is_told_and_nothing_is_summed(recorded, tmp_path, form):
    run = run_with_channels(recorded, tmp_path)
    run.to_the_end()
    slot = run.client("raw").folder.slot(3)
    body = json.loads(run.results.get(slot).body)
    body["body"]["attempt"] = 7
    run.results.put(slot, json.dumps(body).encode())
    said = recorded.call("show", *RUN, *form)[1]
    assert "the checksum does not match" in said
