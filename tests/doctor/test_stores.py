"""Rights, promises, clock and debris of a store: real ones, and broken in one point each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_results import wrongs
from s3_policy import Enforced, Statement, documented

from airflow_recovery.doctor.components import DRIVING, READING, Component, Right
from airflow_recovery.doctor.result import CheckResult, Status
from airflow_recovery.doctor.stores import check_expiry, check_owners, check_places, check_reach, check_store
from airflow_recovery.journal.owner import own_prefix, own_results
from airflow_recovery.store import ObjectStore, open_store
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import StoredObject
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_clients import new_session
from airflow_recovery.testing import Fault, FaultKind, FaultyStore, MotoServer, Verb
from airflow_recovery.testing.s3_server import REGION
from scripts.s3_proxy import S3Proxy

PAGE = Path(__file__).parents[2] / "docs" / "s3.md"
RACED = "_probe/raced"
"""The start-up probe's own note, which stays."""
RIGHTS, PROMISES = "rights on the journal", "conditional writes and listings of the journal"


def checked(store: ObjectStore, needed: Right = DRIVING, what: str = "journal") -> list[CheckResult]:
    return list(check_store(what, store, needed, "worker-journal"))


def test_a_store_as_it_should_be_and_nothing_is_left_in_it(store: ObjectStore) -> None:
    found = checked(store)
    assert {each.status for each in found} == {Status.OK}
    assert {RIGHTS, PROMISES, "clock of the journal"} < {each.check for each in found}
    assert [each.key for each in store.list() if each.key != RACED] == []


def test_reading_writes_nothing(store: ObjectStore) -> None:
    found = checked(FaultyStore(store, denying(Verb.PUT_IF_ABSENT, Verb.PUT, Verb.DELETE)), READING)
    assert [(each.check, each.status) for each in found] == [(RIGHTS, Status.OK)]


def denying(*verbs: Verb) -> list[Fault]:
    return [Fault(verb, FaultKind.DENIED, times=None) for verb in verbs]


@pytest.mark.parametrize(
    ("verb", "right"),
    [(Verb.PUT_IF_ABSENT, "put"), (Verb.GET, "get"), (Verb.LIST, "list"), (Verb.DELETE, "delete")],
)
def test_each_right_that_is_missing_is_named(local_store: LocalStore, verb: Verb, right: str) -> None:
    wrong = wrongs(checked(FaultyStore(local_store, denying(verb))))[RIGHTS]
    assert wrong.found.startswith(f"{right}: ")
    assert "docs/s3.md" in wrong.next_step


def test_a_journal_whose_role_may_not_delete_is_right_and_what_stays_is_told(local_store: LocalStore) -> None:
    found = checked(FaultyStore(local_store, denying(Verb.DELETE)), READING | Right.PUT)
    assert wrongs(found) == {}
    assert "a few bytes stay" in found[-1].found
    assert {"_doctor", "_probe"} == {each.key.partition("/")[0] for each in local_store.list()}


def test_results_that_stay_after_they_were_deleted(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_store, "delete", lambda keys: None)
    assert "in the listing" in wrongs(checked(local_store))["what this has written to the journal"].found


def test_a_store_that_overwrites(store: ObjectStore) -> None:
    found = wrongs(checked(FaultyStore(store, ignores_if_none_match=True)))
    assert list(found) == [PROMISES]
    assert "no conditional writes" in found[PROMISES].found


def test_a_store_with_stale_listings(store: ObjectStore) -> None:
    found = wrongs(checked(FaultyStore(store, hides_from_lists="_probe/")))
    assert "stale listings" in found[PROMISES].found


@pytest.mark.parametrize("apart_s", [3600.0, -3600.0])
def test_a_store_whose_clock_is_wrong(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch, apart_s: float) -> None:
    get = local_store.get

    def later(key: str) -> StoredObject:
        found = get(key)
        assert found.info.modified_s is not None
        return replace(found, info=found.info._replace(modified_s=found.info.modified_s + apart_s))

    monkeypatch.setattr(local_store, "get", later)
    clock = wrongs(checked(local_store))["clock of the journal"]
    assert ("ahead" if apart_s > 0 else "behind") in clock.found


@pytest.mark.parametrize(
    ("journal", "results"),
    [
        ("s3://b/recovery", "s3://b/recovery"),
        ("s3://b/recovery", "s3a://b/recovery/data"),
        ("s3://b/recovery/journal", "s3://b/recovery"),
    ],
)
def test_places_that_are_in_each_others_way(journal: str, results: str) -> None:
    assert "prefix of its own" in wrongs(check_places(journal, results))["journal and results"].next_step


@pytest.mark.parametrize(
    ("journal", "results"),
    [("s3://b/journal", "s3://b/results"), ("s3://b/r", "s3://b/r/_results"), ("s3://b/r", "s3://b/r2")],
)
def test_places_that_are_not(journal: str, results: str) -> None:
    assert wrongs(check_places(journal, results)) == {}


def test_a_folder_is_warned_of_where_several_machines_need_it() -> None:
    journal, results = check_reach("file:///data/journal", "s3://b/results")
    assert (journal.status, results.status) == (Status.WARNING, Status.OK)
    assert "each machine has a journal of its own" in journal.next_step
    journal, results = check_reach("s3://b/journal", "file:///data/results")
    assert (journal.status, results.status) == (Status.OK, Status.WARNING)
    assert "lost for the next" in results.next_step


@pytest.mark.slow
@pytest.mark.s3
def test_a_lifecycle_rule_over_the_journal(server: MotoServer) -> None:
    store = S3Store("s3://expiring/recovery", endpoint_url=server.endpoint_url, session=server.session())
    server.create_bucket("expiring")
    assert [each.status for each in check_expiry(store)] == [Status.OK]
    client: Any = server.session().create_client("s3", endpoint_url=server.endpoint_url)
    rule: Any = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "recovery/"}, "Expiration": {"Days": 30}}
    client.put_bucket_lifecycle_configuration(Bucket="expiring", LifecycleConfiguration={"Rules": [rule]})
    wrong = wrongs(check_expiry(store))["lifecycle rules of the journal"]
    assert "'tidy' deletes what is older than 30 days below 'recovery/'" in wrong.found
    assert list(check_expiry(LocalStore("file:///nowhere"))) == []


def owners_of(folder: Path, journal: str = "journal", deployment: str | None = None) -> dict[str, CheckResult]:
    places = [open_store(f"file://{folder}/{each}") for each in (journal, "results")]
    return wrongs(check_owners(places[0], places[1], deployment))


def test_the_journal_of_another_deployment_and_the_results_of_another_journal(tmp_path: Path) -> None:
    assert owners_of(tmp_path) == {}
    journal, results = (open_store(f"file://{tmp_path}/{name}") for name in ("journal", "results"))
    own_prefix(journal, "production")
    own_results(journal, results)
    before = sorted(each.key for store in (journal, results) for each in store.list())
    assert owners_of(tmp_path, deployment="production") == {}
    assert "'production'" in owners_of(tmp_path, deployment="staging")["owner of the journal"].found
    assert list(owners_of(tmp_path, "other")) == ["owner of the results"]
    assert sorted(each.key for store in (journal, results) for each in store.list()) == before


# The policies of docs/s3.md


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with MotoServer() as server:
        for bucket in ("my-journal", "my-results"):
            server.create_bucket(bucket)
        yield server


def as_documented(
    server: MotoServer, component: Component, statements: tuple[Statement, ...], needed: Right, what: str
) -> list[CheckResult]:
    """What the check says to a role that has exactly ``statements``."""
    with S3Proxy(server, Enforced({"role": statements})) as proxy:
        session = new_session("role", "x")
        uri = f"s3://my-{what}/recovery"
        store = S3Store(uri, endpoint_url=proxy.endpoint_url, region_name=REGION, session=session)
        needs, which = component.needs, what == "results"
        advised = needs.advised if which else Right.NONE
        policy, buttons = needs.policies[which], needs.buttons[which]
        return list(check_store(what, store, needed, policy, buttons=buttons, advised=advised))


ROLES = {
    Component.WORKER: ("worker-journal", "worker-results"),
    Component.API_SERVER: ("reader", "reader"),
    Component.TRIGGERER: ("reader", "reader"),
    Component.GC: ("gc", "gc"),
}


@pytest.mark.s3
@pytest.mark.parametrize("component", ROLES)
def test_the_documented_policies_are_enough(server: MotoServer, component: Component) -> None:
    policies = documented(PAGE.read_text())
    journal, results = ROLES[component]
    needs = component.needs
    assert wrongs(as_documented(server, component, policies[journal], needs.journal, "journal")) == {}
    assert wrongs(as_documented(server, component, policies[results], needs.results, "results")) == {}


@pytest.mark.s3
@pytest.mark.parametrize(
    ("role", "status"), [("reader", Status.WARNING), ("worker", Status.OK)], ids=["to-look-at", "to-press"]
)
def test_whether_the_buttons_of_the_recovery_tab_work_is_said_where_the_api_server_runs(
    server: MotoServer, role: str, status: Status
) -> None:
    policies = documented(PAGE.read_text())
    needs, api_server = Component.API_SERVER.needs, Component.API_SERVER
    for what, needed, buttons in (
        ("journal", needs.journal, "restart, pin and release buttons"),
        ("results", needs.results, "release button"),
    ):
        allowed = policies.get(f"{role}-{what}", policies["reader"])
        found = {each.check: each for each in as_documented(server, api_server, allowed, needed, what)}
        assert wrongs(found.values()) == {}
        told = found[f"{buttons} of the Recovery tab"]
        assert told.status is status, told
        assert (f"the policy worker-{what} of docs/s3.md" in told.next_step) is (status is Status.WARNING)


@pytest.mark.s3
@pytest.mark.parametrize("role", ["reader", "gc"])
def test_each_role_that_is_asked_for_the_owners_may_read_them(server: MotoServer, role: str) -> None:
    places = [
        S3Store(f"s3://my-{what}/recovery", endpoint_url=server.endpoint_url, session=server.session())
        for what in ("journal", "results")
    ]
    own_prefix(places[0], "production")
    own_results(*places)
    with S3Proxy(server, Enforced({"role": documented(PAGE.read_text())[role]})) as proxy:
        journal, results = (
            S3Store(
                each.base_uri, endpoint_url=proxy.endpoint_url, region_name=REGION, session=new_session("role", "x")
            )
            for each in places
        )
        assert {each.status for each in check_owners(journal, results, "production")} == {Status.OK}


@pytest.mark.s3
@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize(
    ("check", "action", "follows"),
    [
        ("unfinished uploads to the results", "s3:ListBucketMultipartUploads", "some of the rows are missing"),
        ("XComs in the results", "s3:PutObject", "fails after its job has succeeded"),
        ("XComs in the results", "s3:GetObject", "fails after its job has succeeded"),
    ],
)
def test_a_worker_without_a_right_that_is_advised_is_told_what_follows(
    server: MotoServer, check: str, action: str, follows: str, *, may: bool
) -> None:
    statements = documented(PAGE.read_text())["worker-results"]
    if not may:
        statements = tuple(replace(each, actions=tuple({*each.actions} - {action})) for each in statements)
    found = as_documented(server, Component.WORKER, statements, Component.WORKER.needs.results, "results")
    (told,) = (each for each in found if each.check == check)
    assert told.status is (Status.OK if may else Status.WARNING)
    assert (follows in told.next_step) is not may
    assert wrongs(found) == {}


@pytest.mark.s3
def test_a_driver_on_the_worker_needs_the_drivers_policies_as_well(server: MotoServer) -> None:
    policies = documented(PAGE.read_text())
    worker, driver = policies["worker-results"], policies["driver-results"]
    assert wrongs(as_documented(server, Component.WORKER, worker + driver, DRIVING, "results")) == {}
    wrong = wrongs(as_documented(server, Component.WORKER, worker, DRIVING, "results"))["rights on the results"]
    for right in ("put: ", "abort uploads: "):
        assert right in wrong.found
    assert "worker-results and driver-results" in wrong.next_step
