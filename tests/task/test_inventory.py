"""Which objects an external input names: as Spark would read it, and nothing hidden."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import globs
from airflow_recovery.errors import (
    ConfigurationError,
    StoreAccessDenied,
    StoreMisconfigured,
)
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.store import open_store
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task import inventory
from airflow_recovery.testing import MotoServer, S3Server

KEYS = [
    "in/2013/a.csv",
    "in/2013/b.csv",
    "in/2013/b.csv.gz",
    "in/2013/_SUCCESS",
    "in/2013/.a.csv.crc",
    "in/2014/a.csv",
    "in/2014/deep/c.csv",
    "in/_tmp/x.csv",
    "in/day=1/_x=2/d.csv",
    "in/a.csv",
    "in/[1].csv",
    "other.csv",
]


@pytest.fixture
def folder(local_store: LocalStore) -> str:
    for key in KEYS:
        local_store.put(key, key.encode())
    return local_store.base_uri.removeprefix("file://")


def list_objects(pattern: str, *, endpoint_url: str | None = None, **more: Any) -> tuple[ExternalObject, ...]:
    return inventory.list_objects(pattern, open_location=partial(open_store, endpoint_url=endpoint_url), **more)


def names(base: str, pattern: str) -> list[str]:
    return [file.uri.removeprefix(f"file://{base}/") for file in list_objects(f"{base}/{pattern}", vertex="raw")]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("in/2013/a.csv", ["in/2013/a.csv"]),
        ("in/2013/*.csv", ["in/2013/a.csv", "in/2013/b.csv"]),
        ("in/2013/b*", ["in/2013/b.csv", "in/2013/b.csv.gz"]),
        ("in/2013", ["in/2013/a.csv", "in/2013/b.csv", "in/2013/b.csv.gz"]),
        ("in/2013/", ["in/2013/a.csv", "in/2013/b.csv", "in/2013/b.csv.gz"]),
        ("in/201?/a.csv", ["in/2013/a.csv", "in/2014/a.csv"]),
        ("in/*/a.csv", ["in/2013/a.csv", "in/2014/a.csv"]),
        ("in/*/x.csv", ["in/_tmp/x.csv"]),
        ("in/*.csv", ["in/[1].csv", "in/a.csv"]),
        ("in/\\[1\\].csv", ["in/[1].csv"]),
        ("in/201[45]", ["in/2014/a.csv", "in/2014/deep/c.csv"]),
        ("in/201[^4]/a.csv", ["in/2013/a.csv"]),
        ("in/{2013,2014}/a.csv", ["in/2013/a.csv", "in/2014/a.csv"]),
        ("in/{2013,201[4]}/a.csv", ["in/2013/a.csv", "in/2014/a.csv"]),
        ("in/{2013-*,2014}/*.csv", ["in/2014/a.csv"]),
        ("in/{2013/b,2014/a}.csv", ["in/2013/b.csv", "in/2014/a.csv"]),
        ("{in/{2013,2014},no}/{a,{c,d}}.csv", ["in/2013/a.csv", "in/2014/a.csv"]),
        ("in/2013/{a,b}.csv*", ["in/2013/a.csv", "in/2013/b.csv", "in/2013/b.csv.gz"]),
        ("in/day=*", ["in/day=1/_x=2/d.csv"]),
        ("in/_tmp/*", ["in/_tmp/x.csv"]),
        ("in/2013/_SUCCESS", ["in/2013/_SUCCESS"]),
        ("*.csv", ["other.csv"]),
        ("other.csv", ["other.csv"]),
    ],
)
def test_a_pattern_names_what_spark_would_read(folder: str, pattern: str, expected: list[str]) -> None:
    assert names(folder, pattern) == expected


def test_an_object_has_vertex_size_and_the_identity_of_its_content(folder: str) -> None:
    [before] = list_objects(f"file://{folder}/other.csv", vertex="raw")
    assert (before.vertex, before.uri, before.size) == ("raw", f"file://{folder}/other.csv", 9)
    Path(f"{folder}/other.csv").write_bytes(b"rehto.csv")
    [after] = list_objects(f"file://{folder}/other.csv", vertex="raw")
    assert after.size == before.size
    assert after.etag != before.etag


@pytest.mark.parametrize("pattern", ["in/2015/*.csv", "in/201", "in/2013/a.cs", "no/such/folder", "in/*/[z]"])
def test_no_object_is_an_error_that_names_the_pattern(folder: str, pattern: str) -> None:
    with fails_with("input-names-no-object", vertex="raw"):
        list_objects(f"{folder}/{pattern}", vertex="raw")


@pytest.mark.parametrize("pattern", ["relative/*.csv", "hdfs://host/a", ""])
def test_other_uris_are_refused(pattern: str) -> None:
    with fails_with("store-unknown"):
        list_objects(pattern, vertex="raw")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_patterns_on_s3(s3_store: S3Store, s3_server: S3Server, scheme: str) -> None:
    for key in KEYS:
        s3_store.put(key, key.encode())
    base = s3_store.base_uri
    pattern = f"{scheme}{base.removeprefix('s3')}/in/201?/*.csv"
    found = list_objects(pattern, vertex="raw", endpoint_url=s3_server.endpoint_url)
    assert [file.uri for file in found] == [
        f"{base}/in/2013/a.csv",
        f"{base}/in/2013/b.csv",
        f"{base}/in/2014/a.csv",
    ]
    assert found[0].etag == s3_store.get("in/2013/a.csv").info.etag


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("in/*/*.csv", ["in/2013/b.csv"]),
        ("in/*", ["in/2013/b.csv", "in/b.csv"]),
        ("in", ["in/2013/b.csv", "in/b.csv"]),
        ("*/b.csv", ["in/b.csv"]),
    ],
)
def test_keys_that_hadoop_cannot_name_are_not_read(
    start_s3_server: Callable[[str], S3Server], pattern: str, expected: list[str]
) -> None:
    server = start_s3_server(MotoServer.name)  # in versitygw's folders two slashes are one
    base = f"s3://two-slashes/{uuid.uuid4().hex}"
    server.create_bucket("two-slashes")
    client = S3Store(base, endpoint_url=server.endpoint_url, session=server.session())._clients.sending(1)
    for key in ("in/b.csv", "in/2013/b.csv", "in//b.csv", "in/2013//b.csv", "/b.csv", "in/"):
        client.put_object(Bucket="two-slashes", Key=f"{base.rpartition('/')[2]}/{key}", Body=b"")
    found = list_objects(f"{base}/{pattern}", vertex="raw", endpoint_url=server.endpoint_url)
    assert [file.uri.removeprefix(f"{base}/") for file in found] == expected


def test_a_missing_bucket_is_not_an_empty_input(s3_server: S3Server) -> None:
    with pytest.raises(StoreMisconfigured):
        list_objects("s3://no-such-bucket/*.csv", vertex="raw", endpoint_url=s3_server.endpoint_url)


TABLES = {
    "Delta": ("_delta_log/00000000000000000000.json", "_delta_log/00000000000000000001.json"),
    "Iceberg": ("metadata/00000-a.metadata.json", "metadata/00001-b.metadata.json"),
    "Hudi": (".hoodie/20260101000000000.commit", ".hoodie/20260102000000000.replacecommit"),
    "Hudi 1.0": (".hoodie/timeline/20260101_20260102.commit", ".hoodie/timeline/20260102_20260103.commit"),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "orders",
            "orders/",
            "orders/*.parquet",
            "*/day=1",
            "orders/day=1",
            "orders/day=1/",
            "orders/day=1/*.parquet",
        ),
        *(
            "orders/day=*",
            "orders/day={1,2}/*",
            "orders/part-1.parquet",
            "orders/part-*",
            "orders/day=1/part-0.parquet",
        ),
    ],
)
def test_fault_296_files_of_a_table_are_no_splits_and_the_table_is_named(
    local_store: LocalStore, kind: str, pattern: str
) -> None:
    for key in ("orders/day=1/part-0.parquet", "orders/part-1.parquet", *(f"orders/{log}" for log in TABLES[kind])):
        local_store.put(key, b"x")
    with fails_with("input-is-a-table"):
        list_objects(f"{local_store.base_uri}/{pattern}", vertex="raw")


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("is_empty", [False, True])
def test_fault_296_of_a_table_given_as_a_folder_the_newest_commit_counts(
    s3_server: S3Server, kind: str, is_empty: bool
) -> None:
    base = f"s3://recovery-tests/{uuid.uuid4().hex}"
    store = S3Store(base, endpoint_url=s3_server.endpoint_url)
    logs = [f"orders/{log}" for log in TABLES[kind]]
    for key in (*logs, *(() if is_empty else ("orders/part-1.parquet",)), f"orders2/{TABLES['Delta'][1]}"):
        store.put(key, b"x")
    found = list_objects(f"{base}/orders", vertex="raw", endpoint_url=s3_server.endpoint_url, reads_tables=True)
    names = [one.uri.removeprefix(f"{base}/") for one in found]
    assert [name for name in names if name.endswith(".parquet")] == ([] if is_empty else ["orders/part-1.parquet"])
    assert logs[1] in names
    assert not [name for name in names if name.startswith("orders2")]


@pytest.mark.parametrize("pattern", ["data", "data/day=1", "data/day=1/*", "data/day=*/part-0.parquet"])
def test_fault_296_so_are_those_of_icebergs_folder_of_data(local_store: LocalStore, pattern: str) -> None:
    for key in ("orders/data/day=1/part-0.parquet", *(f"orders/{log}" for log in TABLES["Iceberg"])):
        local_store.put(key, b"x")
    with fails_with("input-is-a-table"):
        list_objects(f"{local_store.base_uri}/orders/{pattern}", vertex="raw")


@pytest.mark.parametrize("pattern", ["in/day=1", "in/day=1/*.csv", "in/day=1/a.csv", "in/day=*", "in"])
def test_partitions_of_no_table_are_files(local_store: LocalStore, pattern: str) -> None:
    for key in ("in/day=1/a.csv", f"other/{TABLES['Delta'][0]}"):
        local_store.put(key, b"x")
    [found] = list_objects(f"{local_store.base_uri}/{pattern}", vertex="raw")
    assert found.uri.endswith("in/day=1/a.csv")


@pytest.mark.parametrize(
    ("pattern", "listings"),
    [("in/day=1/", 1 + 3), ("in/day=1/a.parquet", 1 + 3), ("in/*.parquet", 1), ("in/day=1/x.csv", 1)],
)
def test_the_log_of_a_table_costs_three_listings_if_it_may_lie_above(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch, pattern: str, listings: int
) -> None:
    for key in ("in/day=1/a.parquet", "in/b.parquet", "in/day=1/x.csv"):
        local_store.put(key, b"x")
    if pattern == "in/day=1/":
        local_store.delete(["in/day=1/x.csv"])
    asked: list[str] = []
    real = LocalStore.list

    def counted(store: LocalStore, prefix: str = "", **options: Any) -> Any:
        asked.append(prefix)
        return real(store, prefix, **options)

    monkeypatch.setattr(LocalStore, "list", counted)
    assert list_objects(f"{local_store.base_uri}/{pattern}", vertex="raw")
    assert len(asked) == listings


def test_who_may_not_list_above_a_partition_reads_its_files(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("in/day=1/a.parquet", b"x")
    real = LocalStore.list

    def limited(store: LocalStore, prefix: str = "", **options: Any) -> Any:
        if prefix == "_delta_log/":
            raise StoreAccessDenied("no right")
        return real(store, prefix, **options)

    monkeypatch.setattr(LocalStore, "list", limited)
    [found] = list_objects(f"{local_store.base_uri}/in/day=1/", vertex="raw")
    assert found.uri.endswith("in/day=1/a.parquet")


def test_files_beside_a_table_are_files(local_store: LocalStore) -> None:
    for key in ("lake/orders/_delta_log/00000000000000000000.json", "lake/orders/part-0.parquet", "lake/a.csv"):
        local_store.put(key, b"x")
    [found] = list_objects(f"{local_store.base_uri}/lake/*.csv", vertex="raw")
    assert found.uri.endswith("lake/a.csv")


@pytest.mark.parametrize("piece", ["{a/b,c/d}", "{a/b,a/b}", "{a/{b,c},d}"])
def test_fault_408_a_pattern_of_a_run_does_not_use_up_the_memory(piece: str) -> None:
    with pytest.raises(ConfigurationError, match="at most 1000 alternatives"):
        list_objects(f"/in/{piece * 40}/x.csv", vertex="raw")


@pytest.mark.control
def test_fault_408_control_without_the_limit_each_pair_of_braces_multiplies_the_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(globs, "MOST_ALTERNATIVES", 2**12)
    assert [len(globs.alternatives("{a/b,c/d}" * times)) for times in (10, 11, 12)] == [2**10, 2**11, 2**12]
