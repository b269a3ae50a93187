"""The policies of docs/s3.md, enforced on every request of tasks, readers and gc: not one too few, not one too many.

Those of Spark drivers are held against a real Spark in tests/driver/test_s3a.py.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from expected_errors import fails_with
from fakes import CHAIN, FakeApplication, Process, World
from s3_policy import Enforced, Statement, documented

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.release import release_consumed
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import main
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.journal.owner import own_results
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.retention import ReleasePolicy, Retention
from airflow_recovery.results.availability import probe_manifest
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store import probe
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, StoredObject, Upload
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_clients import S3Clients, new_session
from airflow_recovery.task.left_in_airflow import LeftInAirflow, read_left, read_pushed, store_left, store_pushed
from airflow_recovery.testing import MotoServer
from airflow_recovery.testing.s3_server import REGION
from scripts.s3_proxy import S3Proxy

pytestmark = pytest.mark.s3

PAGE = Path(__file__).parents[2] / "docs" / "s3.md"
JOURNAL, RESULTS = "s3://my-journal/recovery", "s3://my-results/recovery"


def policies() -> dict[str, tuple[Statement, ...]]:
    found = documented(PAGE.read_text())
    worker, driver = (found[f"{name}-journal"] + found[f"{name}-results"] for name in ("worker", "driver"))
    return {"worker": worker, "driver": driver, "reader": found["reader"], "gc": found["gc"]}


class ByRole:
    """A store as the present role of the process reaches it: it signs with the role's name as access key."""

    def __init__(self, stores: Mapping[str, S3Store], uri: str, roles: list[str]) -> None:
        self.base_uri = uri
        self._roles = roles
        self._stores = stores

    @property
    def _store(self) -> S3Store:
        return self._stores[self._roles[-1]].sibling(self.base_uri)

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        return self._store.put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        return self._store.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        return self._store.get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(prefix, start_after=start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        return self._store.uploads(prefix)

    def expiry_rules(self) -> object:
        return self._store.expiry_rules()


class Deployment:
    """A run of three regions whose every request goes through the policies."""

    def __init__(self, proxy: S3Proxy, policy: Enforced, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proxy = proxy
        self.policy = policy
        self.roles = ["worker"]
        self.identity = RunIdentity(f"dag-{uuid.uuid4().hex}", "date=2026-01-01", "flights")
        monkeypatch.setattr("fakes.IDENTITY", self.identity)
        runs = FakeApplication.run

        def run(application: FakeApplication, attempt: ClaimedAttempt) -> object:
            return self.as_role("driver", lambda: runs(application, attempt))

        monkeypatch.setattr(FakeApplication, "run", run)
        self.world = World(CHAIN)
        stores = {
            policy: S3Store(
                JOURNAL, endpoint_url=proxy.endpoint_url, region_name=REGION, session=new_session(policy, "x")
            )
            for policy in policies()
        }
        self.world.journal_store = ByRole(stores, JOURNAL, self.roles)
        self.world.results = ByRole(stores, RESULTS, self.roles)

    def as_role(self, role: str, act: Callable[[], object]) -> object:
        self.roles.append(role)
        try:
            return act()
        finally:
            self.roles.pop()

    def plays_the_worker(self) -> None:
        world = self.world
        probe(world.journal_store)
        own_results(world.journal_store, world.results)
        assert list(world.results.uploads()) == []  # as a task looks whether an operator's write is finished
        folder = f"{self.identity.dag_id}/date=2026-01-01/operators/P/1-x"
        left = LeftInAirflow({"job": "42"})
        stored = store_left(world.results, folder, left)
        assert stored is not None
        assert read_left(world.results, folder, stored) == left
        assert read_pushed(world.results, folder, store_pushed(world.results, folder, left)) == left
        world.go_all()
        world.publish()
        self.as_role("gc", lambda: world.delete_results("C", 1))
        lost = ResultProber(lambda location: world.results).why_gone("C", world.state().of("C").attempts[1])
        assert lost is not None
        world.restart("E")
        world.until_green()
        world.airflow.clear("E")
        run = world.run(world.airflow.start("E"), Process(), "writer-release")
        release_consumed(run, "E", world.results, Retention(ReleasePolicy.AS_CONSUMED, grace_s=0))
        events = EventWriter(world.journal_store, self.identity, "writer")
        for event in world.events:
            events.record(event)
        assert events.close().failed is None

    def calls(self, role: str, *arguments: str) -> int:
        options = ("--journal", JOURNAL, "--results", RESULTS, "--endpoint-url", self.proxy.endpoint_url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", role)
            patch.setenv("AWS_SECRET_ACCESS_KEY", "x")
            return main([*arguments, *options, "--s3-region", REGION])

    def plays_a_person(self) -> None:
        """The commands that write; the Recovery tab's buttons do the same with the API server's credentials."""
        run = (self.identity.dag_id, self.identity.run_key)
        for command, *more in (["pin"], ["pin", "--off"], ["release", "--force"], ["restart"]):
            assert self.calls("worker", command, *run, "E", *more) in (ExitCode.DONE, ExitCode.CLEAR_BY_HAND)

    def plays_the_reader(self) -> None:
        run = (self.identity.dag_id, self.identity.run_key)
        for command in ("plan", "show", "verify"):
            assert self.calls("reader", command, *run) in (0, 1)

    def plays_gc(self) -> None:
        bucket, _, prefix = RESULTS.removeprefix("s3://").partition("/")
        key = f"{prefix}/{self.world.data_of('C', 1)}/out/part-1"
        driver = S3Clients(new_session("driver", "x"), region_name=REGION, endpoint_url=self.proxy.endpoint_url)
        driver.sending(1).create_multipart_upload(Bucket=bucket, Key=key)
        assert self.calls("gc", "gc", "--grace", "0s") == 0
        assert self.calls("gc", "gc", "--grace", "0s", "--purge", "--older-than", "0s", "--force") == 0


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with MotoServer() as server:
        for bucket in ("my-journal", "my-results"):
            server.create_bucket(bucket)
        yield server


@contextlib.contextmanager
def deployment(
    server: MotoServer, allowed: dict[str, tuple[Statement, ...]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    policy = Enforced(allowed)
    with S3Proxy(server, policy) as proxy:
        yield Deployment(proxy, policy, monkeypatch)


@pytest.mark.slow
def test_the_documented_policies_are_enough_and_not_more(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with deployment(server, policies(), monkeypatch) as played:
        played.plays_the_worker()
        played.plays_a_person()
        played.plays_the_reader()
        played.plays_gc()
        said = capsys.readouterr().out
        # The probe's clean-up alone: whoever may write to a journal may not delete from it.
        (denied,) = played.policy.denied
        assert denied.startswith("worker: s3:DeleteObject on my-journal/recovery/_probe/"), said
        left = {role: played.policy.unused(role) for role in ("worker", "reader", "gc")}
        assert left == {"worker": set(), "reader": set(), "gc": set()}


@pytest.mark.parametrize(("role", "action"), [("worker", "s3:PutObject"), ("reader", "s3:GetObject")])
def test_control_without_one_action_something_is_denied(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch, role: str, action: str
) -> None:
    less = tuple(replace(policy, actions=tuple(set(policy.actions) - {action})) for policy in policies()[role])
    with deployment(server, {**policies(), role: less}, monkeypatch) as played:
        if role == "worker":
            with fails_with("credentials-refused"):
                played.plays_the_worker()
        else:
            played.world.go("P")
            assert played.calls(role, "show", played.identity.dag_id, played.identity.run_key) not in (0, 1)
        assert any(each.startswith(f"{role}: {action}") for each in played.policy.denied)


def test_fault_85_who_may_write_data_only_can_not_make_recovery_believe_it(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forger = documented(PAGE.read_text())["driver-results"]
    with deployment(server, {**policies(), "reader": forger}, monkeypatch) as played:
        world = played.world
        world.go("P")
        (manifest,) = world.state().of("P").attempts[1].outcome.outputs
        key = f"{manifest.location.removeprefix(f'{RESULTS}/')}/{manifest.objects[0].path}"
        forged = b"F" * manifest.objects[0].size
        played.as_role("reader", lambda: world.results.put(key, forged))

        outcome = world.journal().layout.attempt("P", 1, "outcome")
        for forge in (world.journal_store.put, world.journal_store.put_if_absent):
            with pytest.raises(StoreAccessDenied):
                played.as_role("reader", lambda forge=forge: forge(outcome, b"{}"))  # type: ignore[misc]
        store = played.world.results
        assert probe_manifest(store, manifest).altered == (manifest.objects[0].path,)
        with fails_with("input-cleared", lost={"P": "OUTPUT_ALTERED"}):
            world.go("C")
        world.go("P")
        world.go("C")
        assert world.ran == [("P", 1), ("P", 2), ("C", 1)]
        (read,) = world.state().of("C").attempts[1].outcome.outputs
        path = f"{read.location.removeprefix(f'{RESULTS}/')}/part-0"
        found = played.as_role("driver", lambda: store.get(path).body)
        assert found == b"C of ['P of []']"


def test_fault_85_control_where_the_manifest_lay_beside_the_data_the_forged_rows_were_read(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the forger would register what it wrote: etag and size prove nothing."""
    with deployment(server, policies(), monkeypatch) as played:
        world = played.world
        world.go("P")
        (manifest,) = world.state().of("P").attempts[1].outcome.outputs
        key = f"{manifest.location.removeprefix(f'{RESULTS}/')}/{manifest.objects[0].path}"
        info = played.as_role("driver", lambda: world.results.put(key, b"F" * manifest.objects[0].size))
        forged = replace(manifest, objects=(replace(manifest.objects[0], etag=info.etag),))  # type: ignore[attr-defined]
        assert probe_manifest(world.results, forged).is_available
