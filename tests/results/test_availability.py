"""What one listing says of a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import StoreAccessDenied, StoreError, StoreTimeout
from airflow_recovery.results import AvailabilityState, PartitionManifest, ResultObject, probe_manifest
from airflow_recovery.store import ObjectInfo, ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}")


@pytest.fixture
def manifest(store: ObjectStore) -> PartitionManifest:
    objects = []
    for name in ("part-0", "part-1"):
        info = store.put_if_absent(f"run/r/1/by_route/{name}", name.encode())
        objects.append(ResultObject(name, info.size, info.etag))
    return PartitionManifest("by_route", f"{store.base_uri}/run/r/1/by_route", tuple(objects), 2)


def test_all_there(store: ObjectStore, manifest: PartitionManifest) -> None:
    found = probe_manifest(store, manifest)
    assert found.is_available
    assert (found.state, found.evidence) == (AvailabilityState.AVAILABLE, ())


def test_fault_48_success_marker_decides_nothing(store: ObjectStore, manifest: PartitionManifest) -> None:
    store.put("run/r/1/by_route/_SUCCESS", b"")
    assert probe_manifest(store, manifest).is_available
    store.delete(["run/r/1/by_route/part-1"])
    assert probe_manifest(store, manifest).state is AvailabilityState.MISSING


def test_missing_object_is_named(store: ObjectStore, manifest: PartitionManifest) -> None:
    store.delete(["run/r/1/by_route/part-1"])
    found = probe_manifest(store, manifest)
    assert (found.state, found.missing, found.altered) == (AvailabilityState.MISSING, ("part-1",), ())
    assert found.evidence == (f"{manifest.location}/part-1 is gone (listed without it)",)


def test_fault_47_object_of_the_same_size_with_other_content_is_altered(
    store: ObjectStore, manifest: PartitionManifest
) -> None:
    store.put("run/r/1/by_route/part-1", b"PART-1")
    found = probe_manifest(store, manifest)
    assert (found.state, found.altered) == (AvailabilityState.ALTERED, ("part-1",))

    # Negative control: by size alone it is as it was.
    (listed,) = [each for each in store.list("run/") if each.key.endswith("part-1")]
    assert listed.size == manifest.objects[1].size


def test_missing_and_altered_is_missing(store: ObjectStore, manifest: PartitionManifest) -> None:
    store.delete(["run/r/1/by_route/part-0"])
    store.put("run/r/1/by_route/part-1", b"other")
    found = probe_manifest(store, manifest)
    assert found.state is AvailabilityState.MISSING
    assert (found.missing, found.altered) == (("part-0",), ("part-1",))


def test_added_objects_count_wherever_a_folder_is_read(store: ObjectStore, manifest: PartitionManifest) -> None:
    store.put("run/r/1/by_route/part-2", b"late")
    store.put("run/r/1/by_route/_temporary/0/part-3", b"unfinished")
    store.put("run/r/1/by_route_2/part-0", b"a neighbour whose name begins alike")

    for managed in (True, False):
        found = probe_manifest(store, replace(manifest, managed=managed))
        assert (found.state, found.added) == (AvailabilityState.AVAILABLE, ("part-2",))
        assert found.evidence == (f"{manifest.location}/part-2 was added",)


def test_beside_batches_others_may_lie(store: ObjectStore, manifest: PartitionManifest) -> None:
    """Their manifest has files in the folders of several attempts, and these hold what no batch names."""
    location = manifest.location.rpartition("/")[0]
    for folder in ("00000001", "00000002-0a1b2c3d"):
        info = store.put(f"run/r/1/{folder}/by_route/0000/part-0", b"a batch")
        store.put(f"run/r/1/{folder}/by_route/0001/part-0", b"not committed")
        objects = (ResultObject(f"{folder}/by_route/0000/part-0", info.size, info.etag),)
        found = probe_manifest(store, replace(manifest, location=location, objects=objects))
        assert (found.is_available, found.added) == (True, ())


def test_location_that_is_the_store_itself(store: ObjectStore, manifest: PartitionManifest) -> None:
    assert probe_manifest(open_store(manifest.location), manifest).is_available


def test_location_of_another_store_is_refused(store: ObjectStore, manifest: PartitionManifest) -> None:
    with fails_with("location-of-other-store"):
        probe_manifest(store, replace(manifest, location=store.base_uri + "2/run"))


def test_fault_50_empty_result_is_available(store: ObjectStore) -> None:
    assert probe_manifest(store, PartitionManifest("r", f"{store.base_uri}/run/r/1/empty", (), 0)).is_available


class Refusing:
    """A store whose listing gives no answer, at once or after its first page."""

    base_uri = "s3://lake"

    def __init__(self, error: StoreError, pages: tuple[ObjectInfo, ...] = ()) -> None:
        self._error, self._pages = error, pages

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        yield from self._pages
        raise self._error


@pytest.mark.parametrize("error", [StoreAccessDenied("denied"), StoreTimeout("no answer")])
@pytest.mark.parametrize("pages", [(), (ObjectInfo("r/part-0", 1, "e"),)])
def test_fault_27_no_answer_is_not_missing(error: StoreError, pages: tuple[ObjectInfo, ...]) -> None:
    manifest = PartitionManifest("r", "s3://lake/r", (ResultObject("part-0", 1, "e"), ResultObject("part-1", 1, "e")))
    with pytest.raises(type(error)):
        probe_manifest(Refusing(error, pages), manifest)  # type: ignore[arg-type]

    # Negative control: a listing that took the silence for its end would say "missing".
    class Silent(Refusing):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            yield from self._pages

    assert probe_manifest(Silent(error, pages), manifest).state is AvailabilityState.MISSING  # type: ignore[arg-type]


def test_locations_are_compared_across_spellings() -> None:
    class S3(Refusing):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            assert prefix == "r/"
            yield ObjectInfo("r/part-0", 1, "e")

    manifest = PartitionManifest("r", "s3a://lake/r", (ResultObject("part-0", 1, "e"),))
    assert probe_manifest(S3(StoreTimeout("unused")), manifest).is_available  # type: ignore[arg-type]
