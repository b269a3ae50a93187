"""Seeded schedules of results that are snapshots of tables, and what their catalogs, logs and others do to them.

Iceberg's catalog is simulated below pyiceberg's own client, Delta's log below delta-rs' reader and Spark's writer; our
code above them is that which runs. See docs/tables.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from simulated_controls import SAFE, finds

from airflow_recovery.driver import delta_result, iceberg_result
from airflow_recovery.errors import HoldsOther
from airflow_recovery.model.retention import Retention
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results import tables
from airflow_recovery.results.tables import TableLost, _Delta, _Iceberg
from airflow_recovery.testing.simulation import TOPOLOGIES, Settings, Trouble, job_of, simulate
from airflow_recovery.testing.simulation.delta_lake import _Frame
from airflow_recovery.testing.simulation.jobs import with_folders, with_tables

PAIR, DIAMOND = job_of(TOPOLOGIES["pair"]), job_of(TOPOLOGIES["diamond"])
JOBS = {
    "vertices": with_tables(DIAMOND, "PCDE"),
    "jobs that commit by themselves": with_tables(with_folders(DIAMOND, "PCDE"), "PCDE"),
    "both, and files": with_tables(with_folders(DIAMOND, "C"), "PC"),
    "vertices of Delta": with_tables(DIAMOND, "PCDE", "PCDE"),
    "jobs that commit to Delta": with_tables(with_folders(DIAMOND, "PCDE"), "PCDE", "PCDE"),
    "both formats": with_tables(with_folders(DIAMOND, "CD"), "PCDE", "CE"),
}
TROUBLES = {
    "kills": {Trouble.KILL: 2, Trouble.KILL_TASK: 1},
    "zombies": {Trouble.HEARTBEAT: 2, Trouble.PAUSE: 2},
    "people": {Trouble.RESTART: 2, Trouble.CLEAR: 1, Trouble.DEPLOY: 1},
    "maintenance": {Trouble.EXPIRE: 3, Trouble.RESTART: 1, Trouble.HEARTBEAT: 1},
    "others": {Trouble.TABLE: 3, Trouble.HEARTBEAT: 1},
    "sweeper": {Trouble.SWEEP: 2, Trouble.EXPIRE: 2, Trouble.RESTART: 1},
    "purge": {Trouble.PURGE: 1, Trouble.EXPIRE: 1, Trouble.HEARTBEAT: 1},
    "other runs": {Trouble.NEIGHBOUR: 2, Trouble.TABLE: 1, Trouble.KILL: 1},
    "twins": {Trouble.TWIN: 1, Trouble.PAUSE: 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("troubles", TROUBLES)
@pytest.mark.parametrize("job", JOBS)
def test_what_counts_is_in_its_table_whatever_the_catalog_answers_and_others_do(job, troubles):
    for seed in range(8):
        settings = Settings(
            JOBS[job],
            TROUBLES[troubles],
            publishes=seed % 2 == 0,
            store_faults=seed % 4 * 2,
            releases=(None, Retention.as_consumed())[seed % 4 == 3],
        )
        simulate(seed, settings)


ALONE: dict[str, Any] = {"publishes": False, "detached_share": 0.0}
KEPT = Settings(with_tables(PAIR, "P"), {Trouble.EXPIRE: 3, Trouble.NEIGHBOUR: 2}, max_attempts={"P": 1}, **ALONE)


@pytest.mark.slow
def test_maintenance_has_nothing_made_again_that_is_read():
    for seed in range(40):
        simulate(seed, KEPT)


# Controls


def control(monkeypatch: pytest.MonkeyPatch, settings: Settings, what: str, off: tuple[object, str, object]) -> None:
    for seed in range(SAFE):
        simulate(seed, settings)
    monkeypatch.setattr(*off)
    finds(settings, what)


committed, why_lost = iceberg_result._committed, _Iceberg.why_lost


def knows_no_commit_of_its_own(*given):
    committed(*given)  # a later attempt's it knows


def refuses_nobody(*given):
    try:
        return committed(*given)
    except HoldsOther:
        return None


def asks_whether_it_is_there(self: _Iceberg, version: str) -> TableLost | None:
    lost = why_lost(self, version)
    return lost if lost is not None and "has expired" in lost.text else None


def test_control_where_a_commit_without_a_reply_is_not_looked_for_it_is_made_twice(monkeypatch):
    settings = Settings(with_tables(PAIR, "PC"), store_faults=10, **ALONE)
    off = iceberg_result, "_committed", knows_no_commit_of_its_own
    control(monkeypatch, settings, "was committed to its table twice", off)


@pytest.mark.slow
def test_control_where_a_table_refuses_nobody_a_zombie_replaces_a_later_attempt(monkeypatch):
    settings = Settings(with_tables(PAIR, "PC"), {Trouble.HEARTBEAT: 2}, **ALONE)
    control(monkeypatch, settings, "was put in place of", (iceberg_result, "_committed", refuses_nobody))


def test_control_where_the_branch_is_not_looked_at_a_rollback_is_missed(monkeypatch):
    settings = Settings(with_tables(PAIR, "PC"), {Trouble.TABLE: 2}, **ALONE)
    control(monkeypatch, settings, "its data is not there", (_Iceberg, "why_lost", asks_whether_it_is_there))


@pytest.mark.slow
def test_control_without_a_tag_what_is_read_expires_and_is_made_again(monkeypatch):
    control(monkeypatch, KEPT, "waste: P", (_Iceberg, "keep", lambda self, version, tag: True))


@pytest.mark.slow
def test_control_where_the_newest_snapshot_is_registered_it_is_a_zombies(monkeypatch):
    settings = Settings(with_tables(with_folders(PAIR, "PC"), "PC"), {Trouble.HEARTBEAT: 3, Trouble.PAUSE: 2}, **ALONE)
    what = "is given as its result what"
    control(monkeypatch, settings, what, (_Iceberg, "committed_by", lambda self, token: self.newest()))


@pytest.mark.slow
def test_fault_177_control_where_code_comes_back_its_table_has_what_was_given_up(monkeypatch):
    troubles = {Trouble.DEPLOY: 3, Trouble.KILL: 2, Trouble.HEARTBEAT: 2}
    settings = Settings(with_tables(PAIR, "PC"), troubles, **ALONE)
    control(monkeypatch, settings, "I10: db.", (Evaluation, "_why_overwritten", lambda self, *given: None))


DELTA = with_tables(PAIR, "PC", "PC")
option = _Frame.option


def tells_no_attempt(self: _Frame, name: str, value: str) -> _Frame:
    return self if name in ("txnAppId", "txnVersion") else option(self, name, value)


def takes_the_newest(spark, path, commit, met):
    if met is not None:
        raise met
    newest = delta_result._described(spark, f"DESCRIBE HISTORY {delta_result._quoted(path)} LIMIT 1")[0]
    return newest["version"], newest["operationMetrics"]


@pytest.mark.slow
def test_control_where_delta_is_told_no_attempt_a_zombie_replaces_a_later_one(monkeypatch):
    settings = Settings(DELTA, {Trouble.HEARTBEAT: 2}, **ALONE)
    control(monkeypatch, settings, "was put in place of", (_Frame, "option", tells_no_attempt))


@pytest.mark.slow
def test_control_where_deltas_newest_version_is_taken_it_is_of_others(monkeypatch):
    settings = Settings(DELTA, {Trouble.TABLE: 3}, **ALONE)
    control(monkeypatch, settings, "which is not there like that", (delta_result, "_committed", takes_the_newest))


def test_control_where_deltas_history_is_not_looked_at_a_restore_is_missed(monkeypatch):
    settings = Settings(DELTA, {Trouble.TABLE: 2}, **ALONE)
    control(monkeypatch, settings, "its data is not there", (tables, "_goes_before", lambda commit, number: False))


def test_control_where_deltas_files_are_not_looked_at_a_vacuum_is_missed(monkeypatch):
    settings = Settings(DELTA, {Trouble.TABLE: 2, Trouble.EXPIRE: 2}, **ALONE)
    control(monkeypatch, settings, "storm: C has more than", (tables, "_files", lambda table: {}))


def test_control_where_a_tables_silence_has_no_name_a_task_does_not_know_it(monkeypatch):
    settings = Settings(with_tables(with_folders(PAIR, "PC"), "PC", "PC"), store_faults=4, **ALONE)
    control(monkeypatch, settings, "raises OSError", (tables, "_asked", lambda uri, question: question()))


def test_control_where_deltas_newest_version_is_registered_it_is_a_zombies(monkeypatch):
    settings = Settings(
        with_tables(with_folders(PAIR, "PC"), "PC", "PC"), {Trouble.HEARTBEAT: 3, Trouble.PAUSE: 2}, **ALONE
    )
    what = "is given as its result what"
    control(monkeypatch, settings, what, (_Delta, "committed_by", lambda self, token: self.newest()))
