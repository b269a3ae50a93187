"""What tells a finished write: each kind of writer, as it leaves a folder when it has ended and when it was ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_recovery.results import finished_write
from airflow_recovery.results.finished_write import Earlier, leftovers, without_success, writes_success
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo, Upload
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, SECRET_KEY

UUID = "d9ea8b07-e9ec-4c79-96ad-5573948cb2c6"
PART = f"part-00000-{UUID}-c000.snappy.parquet"
OF_PARTITION = f"part-00000-{UUID}.c000.snappy.parquet"
FOLDER_OF_TASK = "_temporary/0/task_202611281832226623472485906372061_0000_m_000000"
NOTHING = Earlier()


def listed(*keys: str, at: float = 100.0) -> list[ObjectInfo]:
    """Objects in the order in which they were stored, a second after each other."""
    return [ObjectInfo(key, 0 if key.endswith("/") else 1, "etag", at + second) for second, key in enumerate(keys)]


WRITERS = {
    "file output committer 1, tasks have ended": ((f"{FOLDER_OF_TASK}/{PART}",), "_temporary/"),
    "file output committer 1, in its commit": (
        (PART, f"{FOLDER_OF_TASK}/{PART.replace('00000', '00001')}"),
        "_temporary/",
    ),
    "file output committer 2": ((PART, "_temporary/0/_temporary/attempt_1/"), "_temporary/"),
    "manifest committer": (("_temporary/manifest_job-1/0/manifests/task_0-manifest.json",), "_temporary/"),
    "magic committer": (("__magic/job-1/tasks/x.pending",), "__magic/"),
    "magic committer since Hadoop 3.4": ((f"__magic_job-{UUID}/job-1/01/x.pendingset",), f"__magic_job-{UUID}/"),
    "dynamic overwrite": (
        (f".spark-staging-{UUID}/_temporary/0/task_1/day=1/{OF_PARTITION}",),
        f".spark-staging-{UUID}/",
    ),
    "in a folder of the output": ((f"a/{PART}", "a/_SUCCESS", "b/_temporary/0/x"), "b/_temporary/"),
    "Hive": ((".hive-staging_hive_2026-11-28_1/-ext-10000/000000_0",), ".hive-staging_hive_2026-11-28_1/"),
    "Databricks": (("_started_71", f"part-00000-tid-71-{UUID}-1-1-c000.snappy.parquet"), "_started_71"),
    "Databricks, and another write": (("_started_71", "_started_72", "_committed_72", "_SUCCESS"), "_started_71"),
    "hadoop fs -put": (("rows.csv._COPYING_",), "rows.csv._COPYING_"),
    "distcp": ((".distcp.tmp.attempt_1_m_000000_0",), ".distcp.tmp.attempt_1_m_000000_0"),
    "Azure's rename": (("day=1-RenamePending.json",), "day=1-RenamePending.json"),
    "Flink's file sink": ((".part-0-0.inprogress.3f2e",), ".part-0-0.inprogress.3f2e"),
    "aws s3 cp": (("rows.csv.6eB2aC21",), "rows.csv.6eB2aC21"),
    "gsutil": (("rows.csv_.gstmp",), "rows.csv_.gstmp"),
    "rclone": (("rows.csv.3f2a1b9c.partial",), "rows.csv.3f2a1b9c.partial"),
    "a file that is renamed at the end": (("a.parquet", "b.parquet.tmp"), "b.parquet.tmp"),
    "WinSCP": (("rows.csv.gz.filepart",), "rows.csv.gz.filepart"),
    "a browser": (("rows.csv.crdownload",), "rows.csv.crdownload"),
    "azcopy": ((f".azDownload-{UUID}-rows.csv",), f".azDownload-{UUID}-rows.csv"),
    "rsync": ((".rows.csv.Ab12Cd",), ".rows.csv.Ab12Cd"),
}
"""What an unfinished write leaves of each writer, and the name under which it is found."""
FINISHED = {
    "file output committer": (PART, "_SUCCESS"),
    "without a marker": (PART,),
    "dynamic overwrite": (f"day=1/{OF_PARTITION}",),
    "cleanup is switched off": (f"{FOLDER_OF_TASK}/{PART}", PART, "_SUCCESS"),
    "magic committer, which cleans up last": ("__magic_job-1/x.pendingset", PART, "_SUCCESS"),
    "a marker of an empty folder that came late": (PART, "_SUCCESS", "_temporary/0/_temporary/"),
    "Databricks": ("_started_71", PART, "_committed_71", "_SUCCESS"),
    "a table's log": ("_delta_log/0.json", PART),
    "names that look alike": ("_temporary_rows/x", "magic/x", "started_1", "x.inprogress", "_started/x"),
    "names that end in a date or a hash": ("rows.csv.20261128", "rows.3f2a1b9c", "model.deadbeef", ".rows.csv.crc"),
    "an EMR marker": ("_temporary_$folder$", PART, "_SUCCESS"),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_fault_320_the_work_of_an_unfinished_write_is_found(kind: str) -> None:
    keys, name = WRITERS[kind]
    found = leftovers(listed(*keys), (), NOTHING)
    assert list(found.unfinished) == [name]
    assert found.unfinished[name][0] in keys


@pytest.mark.parametrize("kind", FINISHED)
def test_a_finished_write_has_no_such_work(kind: str) -> None:
    found = leftovers(listed(*FINISHED[kind]), (), NOTHING)
    assert (found.unfinished, found.passed_over) == ({}, {})


def test_fault_320_work_that_is_younger_than_the_marker_is_that_of_a_second_write() -> None:
    assert leftovers(listed(PART, "_SUCCESS", "_temporary/0/x"), (), NOTHING).unfinished
    assert not leftovers(listed(PART, "_temporary/0/x", "_SUCCESS"), (), NOTHING).unfinished


def test_fault_320_control_without_the_names_of_work_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_write, "_WORK", ())
    assert not leftovers(listed(*WRITERS["file output committer 2"][0]), (), NOTHING).unfinished


DOWNLOAD = """
import glob, os, sys, boto3
pieces = []

def end_in_the_middle(count):
    # The first piece is written while the second one is read.
    pieces.append(count)
    if len(pieces) > 1:
        while not glob.glob(sys.argv[2] + ".*"):
            pass
        os._exit(0)

client = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1")
client.download_file("lake", "rows.csv", sys.argv[2], Callback=end_in_the_middle)
"""


@pytest.mark.s3
@pytest.mark.slow
def test_fault_320_a_download_that_ends_in_the_middle_leaves_a_part(
    start_s3_server: Callable[[str], S3Server], tmp_path: Path
) -> None:
    """By boto3, which renames the file when it is whole."""
    server = start_s3_server("moto")
    server.create_bucket("lake")
    store = S3Store("s3://lake", endpoint_url=server.endpoint_url, session=server.session())
    store.put("rows.csv", b"1,2\n" * 100_000)
    credentials = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    command = [sys.executable, "-c", DOWNLOAD, server.endpoint_url, str(tmp_path / "rows.csv")]
    subprocess.run(command, env={**os.environ, **credentials}, check=True, timeout=HANG_S)
    listed = list(LocalStore(str(tmp_path)).list())
    (found,) = leftovers(listed, (), NOTHING).unfinished.values()
    assert found[1] == "a download by boto3 or `aws s3 cp`"


# --- what an earlier attempt has left at a fixed location -------------------------------------------------------------


def before(*keys: str, at: float = 10.0) -> Earlier:
    return Earlier({info.key: info for info in listed(*keys, at=at)})


def test_fault_321_earlier_work_does_not_stop_an_attempt_that_writes() -> None:
    old = listed("_temporary/0/x", "old", at=10.0)
    found = leftovers([*old, *listed("new")], (), Earlier({info.key: info for info in old}))
    assert (found.unfinished, list(found.passed_over)) == ({}, ["_temporary/"])


def test_fault_321_where_nothing_was_written_the_data_may_be_that_of_the_unfinished_write() -> None:
    old = listed("_temporary/0/x", "half", at=10.0)
    assert list(leftovers(old, (), Earlier({info.key: info for info in old})).unfinished) == ["_temporary/"]


def test_fault_321_work_that_was_written_again_is_that_of_this_attempt() -> None:
    assert leftovers(listed("_temporary/0/x", "new"), (), before("_temporary/0/x")).unfinished


def test_fault_321_an_attempt_that_another_process_began_goes_by_time() -> None:
    claimed = Earlier(claimed_s=5000.0)
    old, mine = listed("_temporary/0/x", at=1000.0), listed("_temporary/0/x", at=4500.0)
    assert not leftovers([*old, *listed("new", at=5001.0)], (), claimed).unfinished
    assert leftovers([*mine, *listed("new", at=5001.0)], (), claimed).unfinished  # a clock may be so far behind


# --- uploads ----------------------------------------------------------------------------------------------------------


def upload(key: str, at: float = 105.0) -> Upload:
    return Upload(key, f"id of {key}", at)


def test_fault_322_an_upload_that_never_ended_is_an_unfinished_write() -> None:
    """What S3A's staging committers leave, and EMR's, if they are ended in the commit; or one file by pandas."""
    pending = upload(PART.replace("00000", "00001"))
    assert list(leftovers(listed(PART), [pending], NOTHING).unfinished) == [pending.key]


def test_fault_322_control_without_the_uploads_half_of_the_rows_look_finished() -> None:
    assert not leftovers(listed(PART), (), NOTHING).unfinished


def test_fault_322_uploads_of_tasks_that_were_given_up_are_none() -> None:
    pending = [upload(PART), upload("_temporary/0/x"), upload("other", at=100.5)]
    assert not leftovers(listed(PART, "_SUCCESS"), pending, NOTHING).unfinished  # at 100 and 101


def test_fault_322_an_upload_from_before_the_attempt_is_passed_over() -> None:
    pending = upload("other", at=10.0)
    earlier = Earlier(uploads={pending.upload_id})
    found = leftovers(listed("new"), [pending], earlier)
    assert (found.unfinished, list(found.passed_over)) == ({}, ["other"])
    assert leftovers(listed("new"), [replace(pending, upload_id="another")], earlier).unfinished


# --- the marker -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "uncovered"),
    [
        ((PART, "_SUCCESS"), None),
        (("a/b", "a/_SUCCESS"), None),
        (("a/b/c", "_SUCCESS"), None),
        (("a/b", "a/_SUCCESS", "c/d"), "c/d"),
        ((PART,), PART),
        ((), "_SUCCESS"),
        (("_SUCCESS",), None),
    ],
)
def test_fault_323_each_new_file_wants_a_marker_beside_it_or_above_it(keys: tuple[str, ...], uncovered: str) -> None:
    data = [key for key in keys if not key.endswith("_SUCCESS")]
    assert without_success(listed(*keys), data, NOTHING) == uncovered


def test_fault_323_a_marker_that_is_older_than_the_attempt_counts_for_nothing() -> None:
    old = listed("_SUCCESS", "old", at=10.0)
    earlier = Earlier({info.key: info for info in old})
    assert earlier.new_among([*old, *listed("new")], ["new", "old"]) == ["new"]
    assert without_success([*old, *listed("new")], ["new"], earlier) == "new"
    assert without_success(old, [], earlier) == "_SUCCESS"  # this attempt has written nothing
    assert without_success([*listed("new", "_SUCCESS"), old[1]], ["new"], earlier) is None
    assert without_success(listed("_SUCCESS", at=4999.0), [], Earlier(claimed_s=5000.0)) == "_SUCCESS"


SETTING = "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs"
PROTOCOL = "spark.sql.sources.commitProtocolClass"
MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.mark.parametrize(
    ("settings", "paths", "is_known"),
    [
        ({}, [PART], True),
        ({}, [f"a/{PART}", PART.replace(".snappy.parquet", ".csv.gz")], True),
        ({}, [f"day=1/{OF_PARTITION}"], True),
        ({}, [], False),
        ({}, ["rows.parquet"], False),  # pandas
        ({}, [PART, "rows.parquet"], False),
        ({}, [PART, "_delta_log/0.json"], False),
        ({}, [PART, "_spark_metadata/0"], False),
        ({}, [PART.removesuffix(".snappy.parquet")], False),  # Hive's
        ({}, [f"part-00000-tid-71-{UUID}-1-1-c000.snappy.parquet"], False),
        ({SETTING: "false"}, [PART], False),
        ({SETTING: False}, [PART], False),
        ({SETTING.removeprefix("spark.hadoop."): "FALSE"}, [PART], False),
        ({SETTING: "true"}, [PART], True),
        ({MODE: "dynamic"}, [f"day=1/{OF_PARTITION}"], False),
        ({MODE: "static"}, [f"day=1/{OF_PARTITION}"], True),
        ({PROTOCOL: "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"}, [PART], True),
        ({PROTOCOL: "com.databricks.sql.transaction.directory.DirectoryAtomicCommitProtocol"}, [PART], False),
        ({"spark.sql.parquet.output.committer.class": "our.DirectCommitter"}, [PART], False),
    ],
)
def test_fault_323_when_a_marker_is_known_to_come(
    settings: dict[str, object], paths: list[str], is_known: bool
) -> None:
    assert writes_success(settings, paths, managed=True, sees_all=True) is is_known


def test_fault_323_where_settings_are_out_of_sight_the_job_must_set_the_marker() -> None:
    assert not writes_success({}, [PART], managed=True, sees_all=False)
    assert writes_success({SETTING: "true"}, [PART], managed=True, sees_all=False)
    assert not writes_success({SETTING: "true"}, [f"day=1/{OF_PARTITION}"], managed=True, sees_all=False)
    # The marker of a write of partitions may lie above an output of the user's own.
    assert not writes_success({}, [f"day=1/{OF_PARTITION}"], managed=False, sees_all=True)
    assert writes_success({}, [PART], managed=False, sees_all=True)
