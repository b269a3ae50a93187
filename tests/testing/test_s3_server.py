"""Servers start on a free port, and no process stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.errors import StoreUnavailable
from airflow_recovery.store import open_store
from airflow_recovery.testing import SERVERS, S3Server
from airflow_recovery.testing.patience import HANG_S, wait_until


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_second_server_beside_the_first(s3_server: S3Server, tmp_path: Path) -> None:
    with type(s3_server)(tmp_path / "second") as other:
        assert other.endpoint_url != s3_server.endpoint_url
        other.create_bucket("bucket")
        other.create_bucket("bucket")
        store = open_store("s3://bucket/a", endpoint_url=other.endpoint_url, region_name="us-east-1")
        store.put("k", b"x")
        assert store.get("k").body == b"x"
        pid = other.pid
    assert pid is not None
    assert not is_alive(pid)
    other.stop()


def test_a_server_without_a_folder_leaves_none(s3_server: S3Server) -> None:
    with type(s3_server)() as other:
        folder = other.folder
        assert folder.is_dir()
    assert not folder.exists()


def test_a_taken_port_is_an_error_though_somebody_answers_there(s3_server: S3Server, tmp_path: Path) -> None:
    other = type(s3_server)(tmp_path, port=s3_server.port)
    with pytest.raises(StoreUnavailable, match="taken by another process"):
        other.start()
    assert other.pid is None


def test_a_server_that_ends_at_once_is_an_error_with_its_log(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = type(s3_server)(tmp_path)
    monkeypatch.setattr(other, "_command", lambda: [sys.executable, "-c", "import sys; sys.exit('out of luck')"])
    with pytest.raises(StoreUnavailable, match="out of luck"):
        other.start()
    assert other.pid is None


def test_the_server_dies_with_a_parent_that_was_killed(s3_server: S3Server, tmp_path: Path) -> None:
    code = (
        "import sys, time; from airflow_recovery.testing import SERVERS; "
        "server = SERVERS[sys.argv[1]](sys.argv[2]).start(); print(server.pid, flush=True); time.sleep(86400)"
    )
    command = [sys.executable, "-c", code, s3_server.name, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait(HANG_S)
    wait_until(lambda: not is_alive(pid), "the end of the server")


def test_both_kinds_are_known_by_name() -> None:
    assert {name: kind.name for name, kind in SERVERS.items()} == {"moto": "moto", "versitygw": "versitygw"}
