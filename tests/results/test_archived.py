"""Fault 334: an object is listed as it was registered, and nothing can read it: its storage class is an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from expected_errors import fails_with
from fakes import PAIR, ProcessStore, World

from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Outcome
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.results.availability import why_unreadable
from airflow_recovery.results.prober import OnAltered, ResultProber
from airflow_recovery.store import ObjectInfo
from airflow_recovery.store.lifecycle import ExpiryRule
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task.inventory import list_objects
from airflow_recovery.testing import S3Server
from airflow_recovery.verify.records import Manifest
from airflow_recovery.verify.registered import Registered

READABLE = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "REDUCED_REDUNDANCY", "INTELLIGENT_TIERING", "GLACIER_IR")


class Bucket:
    """One result of two files, which a lifecycle rule has moved since."""

    def __init__(self, server: S3Server, name: str) -> None:
        server.create_bucket(name)
        self.name = name
        self.client: Any = server.session().create_client("s3", endpoint_url=server.endpoint_url)
        self.store = S3Store(f"s3://{name}/base", endpoint_url=server.endpoint_url, session=server.session())
        infos = [self.store.put(f"out/part-{at}", b"rows") for at in range(2)]
        self.objects = tuple(ResultObject(info.key.rpartition("/")[2], info.size, info.etag) for info in infos)

    def open(self, location: str) -> S3Store:
        return self.store.sibling(location)

    def move(self, storage_class: str, part: int = 1) -> None:
        key = f"base/out/part-{part}"
        source = {"Bucket": self.name, "Key": key}
        self.client.copy_object(Bucket=self.name, Key=key, CopySource=source, StorageClass=storage_class)

    def listed(self) -> list[str]:
        return [info.archived for info in self.store.list("out/")]

    def why_gone(self, *, managed: bool = True, policy: OnAltered = OnAltered.STOP) -> Reason | None:
        manifest = PartitionManifest("p", f"{self.store.base_uri}/out", self.objects, 2, managed=managed)
        outcome = Outcome("P", 1, AttemptState.FINISHED, "w", "now", outputs=(manifest,))
        prober = ResultProber(lambda location: self.store, {"P": policy})
        return prober.why_gone("P", Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome))


@pytest.fixture
def bucket(start_s3_server: Callable[[str], S3Server], request: pytest.FixtureRequest) -> Bucket:
    return Bucket(start_s3_server("moto"), f"archived-{abs(hash(request.node.name)) % 10**9}")


@pytest.mark.s3
def test_fault_334_every_storage_class_of_a_listing(bucket: Bucket) -> None:
    for name in READABLE:
        bucket.move(name)
        assert (bucket.listed(), bucket.why_gone()) == (["", ""], None)
    for part, name in ((1, "GLACIER"), (0, "DEEP_ARCHIVE")):
        bucket.move(name, part)
        assert bucket.listed()[part] == name
        reason = bucket.why_gone()
        assert reason is not None
        assert reason.why is Why.OUTPUT_MISSING
        assert f"part-{part} is archived (storage class {name}), so it can't be read" in reason.text()


@pytest.mark.s3
def test_fault_334_at_a_users_own_location_nothing_is_overwritten_and_the_cure_is_named(bucket: Bucket) -> None:
    bucket.move("GLACIER")
    with fails_with("output-archived"):
        bucket.why_gone(managed=False)
    reason = bucket.why_gone(managed=False, policy=OnAltered.RECOMPUTE)
    assert reason is not None


@pytest.mark.s3
@pytest.mark.control
def test_fault_334_control_by_size_and_etag_alone_it_is_as_registered(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.move("GLACIER")
    listed = bucket.store.list
    monkeypatch.setattr(bucket.store, "list", lambda prefix: (info._replace(archived="") for info in listed(prefix)))
    assert bucket.why_gone() is None
    with pytest.raises(bucket.client.exceptions.InvalidObjectState):
        bucket.client.get_object(Bucket=bucket.name, Key="base/out/part-1")


@pytest.mark.s3
def test_fault_334_what_is_restored_for_a_time_can_be_read_meanwhile(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moto does not know the option of a listing that says so, so its answer is that of S3's documentation."""
    ask, asked = bucket.store._ask, []
    until = datetime(2030, 1, 1, tzinfo=timezone.utc)
    restored = {"IsRestoreInProgress": False, "RestoreExpiryDate": until}
    states = [(restored, ""), ({"IsRestoreInProgress": True}, "GLACIER"), (None, "GLACIER")]
    now: list[Any] = []

    def answer(name: str, arguments: dict[str, Any]) -> Any:
        asked.append(name)
        page = ask(name, {key: value for key, value in arguments.items() if key != "OptionalObjectAttributes"})
        if "OptionalObjectAttributes" not in arguments:
            return page
        return {"Contents": [{"Key": "base/out/part-1", "RestoreStatus": now[-1]}]}

    monkeypatch.setattr(bucket.store, "_ask", answer)
    assert (bucket.listed(), len(asked)) == (["", ""], 1)
    bucket.move("GLACIER")
    for state, archived in states:
        now.append(state)
        assert bucket.listed() == ["", archived]


def test_fault_334_an_archived_result_is_made_again_for_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PAIR)
    world.go("P")
    [key] = [info.key for info in world.results.list() if info.key.endswith("part-0")][:1] or [""]
    assert key
    whole = type(world.results).list

    def listed(store: Any, *given: Any, **named: Any) -> Iterator[ObjectInfo]:
        for info in whole(store, *given, **named):
            yield info._replace(archived="GLACIER") if info.key == key else info

    monkeypatch.setattr(type(world.results), "list", listed)
    rules = (ExpiryRule("tidy", "", 3), ExpiryRule("cold", "", 30, "GLACIER"))
    world.results.expiry_rules = lambda: rules
    monkeypatch.setattr(ProcessStore, "expiry_rules", lambda self: self._inner.expiry_rules(), raising=False)
    with fails_with("input-cleared") as lost:
        world.go("C")
    assert "rule 'cold' moves what is older than 30 days to GLACIER" in str(lost.value)
    assert "tidy" not in str(lost.value)
    world.until_green()
    assert world.ran == [("P", 1), ("P", 2), ("C", 1)]


# --- readers outside of the run ---------------------------------------------------------------------------------------


def why(bucket: Bucket, *, managed: bool = True, results: str = "base") -> str | None:
    """Why a consumer outside of the run can't read the published result."""
    manifest = PartitionManifest("p", f"{bucket.store.base_uri}/out", bucket.objects, 2, managed=managed)
    return why_unreadable([manifest], f"s3://{bucket.name}/{results}", lambda location: bucket.store)


@pytest.mark.s3
def test_fault_362_a_published_result_in_an_archive_is_named_with_the_cure(bucket: Bucket) -> None:
    assert why(bucket) is None
    bucket.move("DEEP_ARCHIVE")
    said = why(bucket)
    assert said is not None
    assert "part-1 is archived (storage class DEEP_ARCHIVE), so it can't be read. Clear the tasks of that run" in said
    assert "Restore its objects (aws s3api restore-object)" in str(why(bucket, managed=False, results="other"))
    # No record makes a process look outside of the results (fault 86).
    assert why(bucket, results="other") is None


@pytest.mark.s3
def test_fault_362_the_checker_reads_the_storage_class_as_well(bucket: Bucket) -> None:
    objects = {file.path: (file.size, file.etag) for file in bucket.objects}
    manifest = Manifest("p", f"{bucket.store.base_uri}/out", objects, 2, True, None)
    assert Registered(lambda location: bucket.store, [manifest]).wrong(manifest) == []
    bucket.move("GLACIER")
    (wrong,) = Registered(lambda location: bucket.store, [manifest]).wrong(manifest)
    assert wrong.endswith("part-1 is archived (storage class GLACIER), so it can't be read")


@pytest.mark.s3
def test_fault_363_a_file_of_an_input_in_an_archive_is_found_by_its_listing(bucket: Bucket) -> None:
    archived: dict[str, str] = {}

    def listed() -> int:
        pattern = f"s3://{bucket.name}/base/out/*"
        return len(list_objects(pattern, vertex="raw", open_location=bucket.open, archived=archived))

    assert (listed(), archived) == (2, {})
    bucket.move("GLACIER")
    assert (listed(), archived) == (2, {f"s3://{bucket.name}/base/out/part-1": "GLACIER"})
