"""What is wrong with a journal, its store or its owner is told in one line, by every route, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rest_world import RestWorld

from airflow_recovery.api_server import changes, journals, rest_run
from airflow_recovery.api_server.shared_reads import KeptDocuments
from airflow_recovery.errors import StoreAccessDenied, StoreCredentialsExpired, StoreUnavailable
from airflow_recovery.journal.owner import own_prefix, own_results
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.results.places import Look, ResultPlaces
from airflow_recovery.store import open_store
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.producer import ChannelProducer, SegmentBody

ROUTES: dict[str, tuple[str, Any]] = {
    "": ("GET", None),
    "/channels": ("GET", None),
    "/plan": ("POST", {}),
    "/release/plan": ("POST", {"region": "raw"}),
    "/release": ("POST", {"region": "raw", "attempt": 1}),
    "/pin": ("POST", {"region": "raw", "attempt": 1}),
}
OF_RECORDS = [route for route in ROUTES if route != "/channels"]
"""The ledger has logs of its own: it can be read where the records can't."""


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    world = RestWorld(tmp_path, monkeypatch)
    world.world.go_all()
    return world


def ask(rest: RestWorld, route: str) -> Any:
    method, body = ROUTES[route]
    return rest.get() if route == "" else rest.client().request(method, f"{rest.path}{route}", json=body)


def refused(rest: RestWorld, route: str, status: int, code: str) -> str:
    """The one line. Nothing was changed."""
    before = sorted(each.key for each in rest.stores.journal.inner.list())  # type: ignore[attr-defined]
    answer = ask(rest, route)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert set(answer.json()) == {"detail", "code", "changed"}
    assert "\n" not in answer.json()["detail"]
    assert "Traceback" not in answer.text
    assert sorted(each.key for each in rest.stores.journal.inner.list()) == before  # type: ignore[attr-defined]
    return str(answer.json()["detail"])


class Refusing:
    """A store that raises ``error`` whatever it is asked for, once there is one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "base_uri" and self.error is not None:
            raise self.error
        return getattr(self.inner, name)


@pytest.fixture(autouse=True)
def refusing(rest: RestWorld) -> Refusing:
    found = Refusing(rest.stores.journal)
    rest.stores.journal = found
    return found


def put(rest: RestWorld, kind: str, change: Callable[[dict[str, Any]], None] | bytes, region: str = "raw") -> None:
    """Alter the outcome of a region; who has read it before has forgotten it."""
    layout = rest.world.journal().layout
    key = layout.attempt(region, 1, kind)
    journal = rest.world.journal_store
    body = change
    if not isinstance(body, bytes):
        document = json.loads(journal.get(key).body)
        body(document)
        body = json.dumps(document).encode()
    journal.put(key, body)
    journal.delete([layout.snapshot])


@pytest.mark.parametrize("route", OF_RECORDS)
def test_fault_83_a_journal_of_a_newer_version_says_upgrade(rest: RestWorld, route: str) -> None:
    put(rest, "outcome", b'{"format": 3}')
    assert "Upgrade airflow-recovery" in refused(rest, route, 502, "unreadable")


@pytest.mark.parametrize("route", OF_RECORDS)
def test_fault_86_a_path_that_leaves_its_place(rest: RestWorld, route: str) -> None:
    def climb(document: dict[str, Any]) -> None:
        document["body"]["outputs"][0]["location"] += "/../../etc"
        del document["crc"]

    put(rest, "outcome", climb)
    assert "stays where it begins" in refused(rest, route, 502, "unreadable")


def lie(rest: RestWorld, location: str, *, managed: bool, objects: Sequence[Any] = (["guess", 1, "e"],)) -> None:
    """The outcome of ``busiest`` says that its result lies there."""

    def change(document: dict[str, Any]) -> None:
        document["body"]["outputs"][0] |= {"location": location, "managed": managed, "objects": [*objects]}
        document.pop("crc", None)

    put(rest, "outcome", change, "busiest")


@pytest.fixture
def payroll(tmp_path: Path) -> Path:
    """A file that is nobody's business."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / "payroll.csv").write_text("names and numbers")
    return path


def test_fault_86_a_managed_result_outside_the_results_is_not_looked_for(rest: RestWorld, payroll: Path) -> None:
    lie(rest, payroll.as_uri(), managed=True)
    said = refused(rest, "/plan", 502, "unreadable")
    assert "nothing was asked there" in said
    assert "payroll.csv" not in said


def test_fault_86_a_location_that_no_plan_names_is_not_looked_at(rest: RestWorld, payroll: Path) -> None:
    lie(rest, payroll.as_uri(), managed=False)
    answer = ask(rest, "/plan")
    assert answer.status_code == 200
    assert "payroll.csv" not in answer.text
    assert [each for each in answer.json()["warnings"] if "Not asked" in each and "busiest" in each]


def test_fault_86_control_without_a_look_at_the_place_a_viewer_is_told_what_lies_there(
    rest: RestWorld, payroll: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie(rest, payroll.as_uri(), managed=True)
    monkeypatch.setattr(ResultPlaces, "look_at", lambda self, manifest: Look.OPEN)
    told = rest.post("plan", {}, "viewer")
    assert (told.status_code, f"{payroll.as_uri()}/guess is gone" in told.text) == (200, True)
    lie(rest, payroll.as_uri(), managed=False, objects=())
    assert "payroll.csv" in rest.post("plan", {}, "viewer").text


@pytest.mark.parametrize(
    "hostile",
    [
        b'{"format": 1, "body": {"x": NaN}}',
        b'{"format": 1, "format": 1}',
        b'{"body": ' + b"[" * 40 + b"]" * 40 + b"}",
        b"\x00\xff",
        b"",
    ],
    ids=["nan", "a key twice", "too deep", "no text", "empty"],
)
@pytest.mark.parametrize("route", OF_RECORDS)
def test_fault_87_a_document_that_no_writer_of_ours_leaves(rest: RestWorld, route: str, hostile: bytes) -> None:
    put(rest, "outcome", hostile)
    refused(rest, route, 502, "unreadable")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreAccessDenied("the credentials may not list s3://bucket/journal"), 502, "store_denied"),
        (StoreCredentialsExpired("the credentials have expired"), 502, "store_denied"),
        (StoreUnavailable("no answer"), 503, "no_answer"),
    ],
)
def test_a_store_that_refuses(
    rest: RestWorld, refusing: Refusing, route: str, error: Exception, status: int, code: str
) -> None:
    refusing.error = error
    answer = ask(rest, route)
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (status, code, str(error))


@pytest.mark.parametrize("route", ROUTES)
def test_fault_82_the_journal_of_another_deployment_is_neither_shown_nor_touched(rest: RestWorld, route: str) -> None:
    own_prefix(rest.world.journal_store, "production")
    rest.deployment = "staging"
    assert "found that of 'production'" in refused(rest, route, 502, "misconfigured")


def test_fault_82_control_without_a_look_at_the_owner_its_data_goes(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_prefix(rest.world.journal_store, "production")
    rest.deployment = "staging"
    monkeypatch.setattr(journals, "check_owner", lambda store, name: None)
    assert ask(rest, "/release").status_code == 200


@pytest.mark.parametrize("route", OF_RECORDS)
def test_fault_116_a_journal_that_is_larger_than_a_request_may_read(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    assert ask(rest, "").status_code == 200, "control: within the budget it is read"
    monkeypatch.setattr(journals, "REQUEST_BYTES", 500)
    monkeypatch.setattr(rest_run, "kept_documents", KeptDocuments())
    detail = refused(rest, route, 502, "unreadable")
    assert "no more than 500 bytes to be read for one request" in detail
    assert "airflow recovery show" in detail


def test_its_own_journal_is_served(rest: RestWorld) -> None:
    own_prefix(rest.world.journal_store, "production")
    rest.deployment = "production"
    assert ask(rest, "").status_code == 200


def test_fault_16_control_without_the_comparison_a_stale_page_runs_a_region_again(
    rest: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = rest.plan(restart=["by_route"])
    rest.world.restart("by_route")
    rest.world.until_green()
    assert rest.world.current("by_route") == 2
    monkeypatch.setattr(changes, "changes", lambda *arguments: ())
    assert rest.run_plan(old).status_code == 200
    rest.world.until_green()
    assert rest.world.current("by_route") == 3


@pytest.mark.slow
def test_fault_36_a_hole_in_the_history_is_told_and_nothing_beyond_it(rest: RestWorld) -> None:
    world = rest.world
    stream = EventWriter(world.journal_store, world.identity, "writer", buffer_bytes=2000, flush_interval_s=3600)
    with stream._changed:  # so that nothing is written before all of it waits
        for event in world.events:
            stream.record(event)
    assert stream.close().failed is None
    whole = rest.get().json()["run"]
    segments = [each.key for each in world.journal_store.list("_streams/")]
    assert len(segments) > 2
    world.journal_store.delete([segments[1]])

    torn = rest.get().json()["run"]

    assert whole["holes"] == []
    (hole,) = torn["holes"]
    assert "a segment is missing" in hole
    assert [each["status"] for each in torn["regions"]] == [each["status"] for each in whole["regions"]]


def test_fault_85_files_that_were_exchanged_are_found_by_the_plan(rest: RestWorld) -> None:
    (file, *_) = [each.key for each in rest.world.results.list() if "busiest" in each.key]
    rest.world.results.put(file, b"forged by somebody who may write data")
    found = {each["name"]: each["action"] for each in rest.plan()["plan"]["regions"]}
    assert found == {"raw": "keep", "by_route": "keep", "by_carrier": "keep", "busiest": "run"}


@pytest.mark.parametrize("question", [{"restart": ["nobody"]}, {"from": ["nobody"]}, {"lost": ["nobody"]}])
def test_a_plan_for_what_is_not_there(rest: RestWorld, question: Any) -> None:
    answer = rest.post("plan", question)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "nobody" in answer.json()["detail"]


def test_the_ledger_of_a_run_with_a_channel(rest: RestWorld) -> None:
    assert ask(rest, "/channels").json() == {"channels": []}
    identity = ChannelIdentity(rest.world.identity, "raw", 1)
    producer = ChannelProducer(ChannelClient(rest.world.results, identity, "w"), 1)
    producer.open(subpartitions=1, schema="int")
    producer.publish(0, [SegmentBody(0, 3, b"rows")])
    (found,) = ask(rest, "/channels").json()["channels"]
    assert (found["edge"], found["behind"], found["lost"], found["unknown"]) == ("raw", 3, 0, [])
    assert found["counts"] is False  # no plan of this run has such a channel


def test_a_ledger_whose_records_are_damaged(rest: RestWorld) -> None:
    identity = ChannelIdentity(rest.world.identity, "raw", 1)
    ChannelProducer(ChannelClient(rest.world.results, identity, "w"), 1).open(subpartitions=1, schema="int")
    for each in list(rest.world.journal_store.list("")):
        if "/plan/" in each.key:
            rest.world.journal_store.put(each.key, b"{")
    (found,) = ask(rest, "/channels").json()["channels"]
    assert (found["edge"], found["counts"]) == ("raw", None)


@pytest.mark.parametrize("route", OF_RECORDS)
def test_fault_105_a_plan_that_names_an_unknown_input(rest: RestWorld, route: str) -> None:
    layout, store = rest.world.journal().layout, rest.world.journal_store
    (plan,) = [each.key for each in store.list(f"{layout.prefix}plan/")]
    store.put(plan, store.get(plan).body.replace(b'"inputs":["raw"]', b'"inputs":["war"]'))
    document = json.loads(store.get(plan).body)
    del document["crc"]
    store.put(plan, json.dumps(document).encode())
    assert "which reads 'war'" in refused(rest, route, 502, "unreadable")


@pytest.mark.parametrize("route", OF_RECORDS)
def test_fault_108_a_record_of_a_kind_to_come(rest: RestWorld, route: str) -> None:
    rest.world.journal_store.put(rest.world.journal().layout.attempt("raw", 1, "voided"), b"{}")
    assert "found 'voided': a newer version has written it. Upgrade" in refused(rest, route, 502, "unreadable")


def test_fault_102_the_results_of_another_journal_are_not_released(rest: RestWorld, tmp_path: Path) -> None:
    own_results(open_store(f"file://{tmp_path}/another"), rest.world.results)
    before = [each.key for each in rest.world.results.list()]
    assert "found that it holds those of the journal" in refused(rest, "/release", 502, "misconfigured")
    assert [each.key for each in rest.world.results.list()] == before


def test_fault_102_control_without_the_look_they_go(
    rest: RestWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_results(open_store(f"file://{tmp_path}/another"), rest.world.results)
    monkeypatch.setattr(changes, "check_results", lambda journal, results: None)
    before = [each.key for each in rest.world.results.list()]
    assert ask(rest, "/release").status_code == 200
    assert [each.key for each in rest.world.results.list()] != before
