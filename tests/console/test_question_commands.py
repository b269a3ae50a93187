"""The commands of questions whose response classes have no text of their own: lines and tables."""

from __future__ import annotations

import json

from airflow_recovery.console.exit_codes import ExitCode

RUN = ("flights", "2026-01-01")


def test_what_runs_cost_is_printed_as_tables(recorded) -> None:
    recorded.world().until_green()
    code, said = recorded.call("costs", "flights")
    assert code == ExitCode.DONE
    assert "Dag id: flights" in said
    assert "Repeated: none" in said
    (row,) = [line.split() for line in said.splitlines() if line.startswith("date-")]
    assert (row[0], row[2], row[-1]) == ("date-2026-01-01T000000Z", "40.0", "4")
    _, document = recorded.call("costs", "flights", "--json")
    assert json.loads(document)["costs"][0]["seconds_spent"] == 40.0
    assert recorded.call("costs", "other")[0] == ExitCode.NOT_FOUND


def test_a_run_without_channels_says_so_also_from_a_bundle(recorded, tmp_path) -> None:
    recorded.world().until_green()
    path = tmp_path / "bundle.zip"
    recorded.call("export", *RUN, "--out", str(path))
    for which in (RUN, ("--bundle", str(path))):
        assert recorded.call("channels", *which) == (ExitCode.DONE, "Channels: none\n")
        assert json.loads(recorded.call("channels", *which, "--json")[1]) == {"channels": []}
