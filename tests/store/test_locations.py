"""Journal and results at a place of another kind, or at none: refused by name, and nothing is made anywhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.console import deployment
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import main
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores
from airflow_recovery.store import open_store
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.scheme import StoreSpec

OTHER_KINDS = [
    "wasbs://c@account.blob.core.windows.net/x",
    "http://host/x",
    "https://host/x",
    "hdfs://host/x",
    "hdfs:/x",
    "S3://b",
]
NO_PLACE = ["s3://", "s3:///x", "s3://b/../x", "s3://b/./x", "s3://b//x", "s3://b/x//y", "s3a://", "file://host/x"]
NO_PLACE += ["gs://", "gs:///x", "gs://b//x", "abfss://c@host/x", "abfss://c/x"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, in which nothing may appear."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("uri", [*OTHER_KINDS, *NO_PLACE])
def test_no_store_is_opened_at_another_place(uri: str, here: Path) -> None:
    refused = pytest.raises(
        ConfigurationError,
        match=rf"Expected (s3://<bucket>|gs://<bucket>|abfss://<container>|file:///).*found {re.escape(repr(uri))}",
    )
    with refused:
        open_store(uri)
    with refused:
        open_spec_store(StoreSpec(uri))
    with refused:
        _ = Stores(RecoverySettings(uri, uri)).journal
    with refused:
        _ = Stores(RecoverySettings(uri, uri)).results


@pytest.mark.parametrize("uri", [uri for uri in NO_PLACE if uri.startswith("s3")])
def test_a_connection_opens_no_such_place(uri: str) -> None:
    with fails_with("s3-uri-unfit"):
        S3Store("s3://any").sibling(uri)


@pytest.mark.parametrize("command", [["gc"], ["show", "dag", "2026-01-01"]])
@pytest.mark.parametrize("uri", [*OTHER_KINDS, *NO_PLACE])
def test_the_command_line_takes_no_uri_for_a_folder(
    uri: str, command: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["--journal", uri], ["--journal", f"{here}/journal", "--results", uri]):
        assert main([*command, *options]) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert said.startswith("error: Expected ")
        assert repr(uri) in said
        assert said.count("\n") == 1
    assert os.listdir(here) == []


def test_control_taken_for_a_folder_it_is_written_to(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "_SCHEME", re.compile("(s3|s3a|file):"))
    assert main(["gc", "--journal", "hdfs://bucket/x"]) == 0
    assert os.listdir(here) == ["hdfs:"]


def test_a_folder_beside_the_caller_is_still_one(here: Path) -> None:
    assert main(["gc", "--journal", "journal/"]) == 0
    assert main(["gc", "--journal", f"file://{here}/journal"]) == 0
    assert open_store("s3://bucket/a/b/").base_uri == "s3://bucket/a/b"
