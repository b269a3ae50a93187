"""A deletion that leaves the data readable is reported: by gc, release, withdraw and doctor, for each store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import MemoryStore, World, world_in
from s3_policy import Enforced, Statement

from airflow_recovery.console.main import main
from airflow_recovery.doctor.result import Status
from airflow_recovery.doctor.stores import check_deletion
from airflow_recovery.store import lifecycle
from airflow_recovery.store.azure import AzureStore
from airflow_recovery.store.google import GoogleStore
from airflow_recovery.store.lifecycle import kept_after_deletion
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_clients import new_session
from airflow_recovery.testing import MotoServer
from airflow_recovery.testing.s3_server import REGION
from scripts.s3_proxy import S3Proxy

KEPT = "older versions and take up space"
ALL = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject")


def described(store: Any) -> tuple[str, list[Status]]:
    return kept_after_deletion(store), [result.status for result in check_deletion(store)]


def test_fault_383_a_folder_keeps_nothing(tmp_path: Path) -> None:
    assert described(LocalStore(f"file://{tmp_path}")) == ("", [Status.OK])


@pytest.mark.parametrize(
    ("cloud", "how"),
    [
        (GoogleStore("gs://bucket/results"), "gcloud storage buckets describe"),
        (AzureStore("abfss://results@account.dfs.core.windows.net/x"), "blob-service-properties show"),
    ],
    ids=["google", "azure"],
)
def test_fault_383_of_a_store_that_is_not_asked_it_is_reported_as_unknown(cloud: Any, how: str) -> None:
    text, statuses = described(cloud)
    assert "is unknown here" in text
    assert how in text
    assert statuses == [Status.NOT_CHECKED]


class Versioned(LocalStore):
    """As a bucket with versioning answers; it counts how often it is asked."""

    asked = 0

    def keeps_deleted(self) -> str:
        Versioned.asked += 1
        return f"{self.base_uri} has versioning, so deleted objects stay readable as {KEPT}."


@pytest.fixture
def versioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """P@1 and C@1 were superseded. Their store keeps what is deleted."""
    world = world_in(tmp_path)
    world.go_all()
    world.restart("P")
    world.until_green()
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2)
    Versioned.asked = 0
    monkeypatch.setattr(LocalStore, "keeps_deleted", Versioned.keeps_deleted, raising=False)
    return world


def command(tmp_path: Path, *arguments: str) -> int:
    folder = f"file://{tmp_path}/journal"
    return main([*arguments, "--journal", folder, "--results", f"{folder}/_results"])


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["deletes", "dry run"])
def test_fault_383_gc_reports_it_once_in_text_and_json(
    versioned: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert command(tmp_path, "gc", "--grace", "0s", "--dry-run", "--json") == 0
    [kept] = json.loads(capsys.readouterr().out)["kept_after_deletion"]
    assert KEPT in kept
    Versioned.asked = 0
    assert command(tmp_path, "gc", "--grace", "0s", *more) == 0
    text = capsys.readouterr().out
    assert f"warning: {kept}" in text
    assert "2 deleted" in text
    assert Versioned.asked == 1


@pytest.mark.control
def test_fault_383_control_unasked_gc_says_no_more_than_deleted(
    versioned: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.results.sweep.kept_after_deletion", lambda store: "")
    assert command(tmp_path, "gc", "--grace", "0s") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("B deleted")


def test_fault_383_release_reports_it_in_text_and_json(
    versioned: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = (versioned.journal().identity.dag_id, versioned.journal().identity.run_key)
    assert command(tmp_path, "release", *run, "P", "--force", "--dry-run") == 0
    assert f"stay readable as {KEPT}" in capsys.readouterr().out
    assert command(tmp_path, "release", *run, "P", "--force", "--json") == 0
    assert KEPT in json.loads(capsys.readouterr().out)["kept_after_deletion"]


def test_fault_383_withdraw_says_that_no_file_is_deleted(
    versioned: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = (versioned.journal().identity.dag_id, versioned.journal().identity.run_key)
    assert command(tmp_path, "withdraw", *run, "C", "--reason", "wrong currency") == 0
    assert "No file was deleted" in capsys.readouterr().out


def test_a_sweep_that_deletes_nothing_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_in(tmp_path)
    world.go_all()
    Versioned.asked = 0
    monkeypatch.setattr(LocalStore, "keeps_deleted", Versioned.keeps_deleted, raising=False)
    assert command(tmp_path, "gc") == 0
    assert Versioned.asked == 0


def test_a_store_of_another_kind_has_nothing_to_report() -> None:
    assert lifecycle.kept_after_deletion(MemoryStore("memory://x")) == ""


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.mark.s3
def test_fault_383_a_bucket_is_asked_for_its_versioning(moto: MotoServer) -> None:
    moto.create_bucket("plain")
    store = S3Store("s3://plain/results", endpoint_url=moto.endpoint_url, session=moto.session())
    client: Any = moto.session().create_client("s3", endpoint_url=moto.endpoint_url)
    assert described(store) == ("", [Status.OK])

    client.put_bucket_versioning(Bucket="plain", VersioningConfiguration={"Status": "Enabled"})
    text, statuses = described(store)
    assert KEPT in text
    assert statuses == [Status.WARNING]
    store.put("x", b"rows")
    store.delete(["x"])
    assert not list(store.list())
    [version] = client.list_object_versions(Bucket="plain")["Versions"]
    read = client.get_object(Bucket="plain", Key="results/x", VersionId=version["VersionId"])["Body"].read()
    assert read == b"rows"  # so the warning is true

    client.put_bucket_versioning(Bucket="plain", VersioningConfiguration={"Status": "Suspended"})
    text, statuses = described(store)
    assert "is suspended" in text
    assert statuses == [Status.WARNING]


@pytest.mark.s3
def test_fault_383_a_role_that_may_not_ask_is_told_that_it_is_unknown(moto: MotoServer) -> None:
    moto.create_bucket("denied")
    allowed = Enforced({"worker": (Statement(ALL, ("denied", "denied/*")),)})
    with S3Proxy(moto, allowed) as proxy:
        session = new_session("worker", "x")
        store = S3Store("s3://denied/results", endpoint_url=proxy.endpoint_url, region_name=REGION, session=session)
        text, statuses = described(store)
    assert "is unknown: this role lacks s3:GetBucketVersioning." in text
    assert statuses == [Status.NOT_CHECKED]
