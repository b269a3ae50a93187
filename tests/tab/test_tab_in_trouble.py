"""What can't be shown or done: the tab says so in one line, and nothing is changed. See also `tests/api_server`.

         +--> by_route ----+
raw -----+                 +--> busiest
         +--> by_carrier --+
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe import serious_findings
from browser import Browser
from channel_consumer import ChannelConsumer
from night import MakeRest, bad_night
from pages import Site
from rest_world import RestWorld

from airflow_recovery.api_server import page
from airflow_recovery.errors import StoreAccessDenied, StoreTimeout
from airflow_recovery.journal.owner import own_prefix
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.producer import ChannelProducer, SegmentBody

pytestmark = pytest.mark.browser

ODD_NAMES = {
    "constructor": (),
    "toString": ("constructor",),
    "__proto__": ("toString",),
    "hasOwnProperty": ("__proto__",),
}


@pytest.fixture
def run(rest: MakeRest) -> Iterator[RestWorld]:
    """A run that is green. Nothing that a test looks at may change it."""
    found = rest()
    found.world.go_all()
    before: list[str] = []
    found.world.journal_store.delete([found.world.journal().layout.snapshot])
    yield found
    assert found.world.airflow.cleared == before
    assert found.audited == []


def told(browser: Browser, site: Site, status: int) -> str:
    """What the page says of a run that it can't show: one line, and nothing else."""
    browser.expects_in_console(str(status))
    browser.open(site.run_page())
    browser.wait(lambda: browser.text("#problem"), "the problem")
    said = browser.text("#problem")
    assert "\n" not in said
    assert "Traceback" not in said
    assert not browser.all("[data-box]")
    assert serious_findings(browser) == []
    return said


def put(run: RestWorld, body: bytes | Callable[[dict[str, Any]], None]) -> None:
    """In place of an outcome."""
    key = run.world.journal().layout.attempt("raw", 1, "outcome")
    if not isinstance(body, bytes):
        document = json.loads(run.world.journal_store.get(key).body)
        body(document)
        body = json.dumps(document).encode()
    run.world.journal_store.put(key, body)


def test_a_bucket_that_is_denied(run: RestWorld, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: Any, **named: Any) -> Any:
        raise StoreAccessDenied("The credentials may not list s3://bucket/journal. Grant s3:ListBucket.")

    monkeypatch.setattr(run.stores.journal, "list", denied)
    assert told(browser, site, 502) == "The credentials may not list s3://bucket/journal. Grant s3:ListBucket."
    browser.shoot("denied")


def test_a_store_that_does_not_answer_is_told_in_one_line_and_asked_ever_more_rarely(
    run: RestWorld, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*arguments: Any, **named: Any) -> Any:
        raise StoreTimeout("Could not list s3://bucket/journal: no complete answer.")

    monkeypatch.setattr(run.stores.journal, "list", silent)
    assert told(browser, site, 503) == "Could not list s3://bucket/journal: no complete answer."
    # The pauses that the page makes from now on, each of them cut short by somebody who comes back to the tab.
    browser.script("window.pauses = []; const real = window.setTimeout; window.setTimeout = (work, ms) => "
                   "{ window.pauses.push(ms); return real(work, ms); }")  # fmt: skip
    for asked in range(1, 5):
        browser.script("dispatchEvent(new Event('visibilitychange'))")
        browser.wait(lambda: len(browser.script("return window.pauses")) == asked, "the next pause")  # noqa: B023
    assert browser.script("return window.pauses") == [60000, 120000, 120000, 120000]
    assert "does not answer, and is asked again in" in browser.text("#problem")


def test_regions_named_like_what_every_object_has_are_drawn(rest: MakeRest, browser: Browser, site: Site) -> None:
    found = rest(ODD_NAMES)
    found.world.go_all()
    browser.open(site.run_page())
    for odd_name in ODD_NAMES:
        browser.box(odd_name)
    browser.reads("4 boxes.", "#graph")


def test_control_by_their_names_they_are_not(
    rest: MakeRest, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = page._pages()["layout_worker.js"].decode()
    by_number = "({ width, height }, at) => drawing.setNode(`${at}`"
    by_name = worker.replace(by_number, "({ id, width, height }) => drawing.setNode(id")
    by_name = by_name.replace("drawing.node(`${at}`)", "drawing.node(id)").replace("[id, `${at}`]", "[id, id]")
    assert "`${at}`" not in by_name
    monkeypatch.setitem(page._pages(), "layout_worker.js", by_name.encode())
    found = rest(ODD_NAMES)
    found.world.go_all()
    browser.expects_in_console("Uncaught TypeError: Cannot create property")
    browser.open(site.run_page())
    browser.reads("The graph can't be laid out", "#graph")
    assert not browser.all("[data-box]")


def test_a_graph_that_can_not_be_laid_out_says_so(
    run: RestWorld, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(page._pages(), "layout_worker.js", b"throw new Error('no dagre here');")
    browser.expects_in_console("no dagre here")
    browser.open(site.run_page())
    browser.reads("The graph can't be laid out (Uncaught Error: no dagre here).", "#graph")
    browser.reads("busiest", "#regions")


def test_a_damaged_journal(run: RestWorld, browser: Browser, site: Site) -> None:
    put(run, b"no json")
    assert "raw/00000001.outcome" in told(browser, site, 502)


def test_fault_83_a_newer_journal_says_upgrade(run: RestWorld, browser: Browser, site: Site) -> None:
    put(run, b'{"format": 3}')
    assert "Upgrade airflow-recovery" in told(browser, site, 502)


def test_fault_86_a_path_that_leaves_its_place(run: RestWorld, browser: Browser, site: Site) -> None:
    def climb(document: dict[str, Any]) -> None:
        document["body"]["outputs"][0]["location"] += "/../../etc"
        del document["crc"]

    put(run, climb)
    assert "stays where it begins" in told(browser, site, 502)


@pytest.mark.parametrize("hostile", [b'{"format": 1, "body": {"x": NaN}}', b'{"format": 1, "format": 1}', b"[" * 5000])
def test_fault_87_a_hostile_document(run: RestWorld, browser: Browser, site: Site, hostile: bytes) -> None:
    put(run, hostile)
    assert "raw/00000001.outcome" in told(browser, site, 502)


def test_fault_82_the_journal_of_another_deployment(run: RestWorld, browser: Browser, site: Site) -> None:
    own_prefix(run.world.journal_store, "production")
    run.deployment = "staging"
    assert "found that of 'production'" in told(browser, site, 502)


def test_a_run_and_a_group_that_are_not_there(run: RestWorld, browser: Browser, site: Site) -> None:
    browser.expects_in_console("404")
    browser.open(site.run_page(run_id="manual__never"))
    browser.reads("has no run 'manual__never'", "#problem")
    browser.open(f"{site.run_page()}&group=wether")
    browser.reads("has no group 'wether'. It has (operators).", "#problem")


def test_a_region_that_went_away_while_the_page_was_open(run: RestWorld, browser: Browser, site: Site) -> None:
    browser.open(site.run_page())
    browser.open_box("by_route")
    browser.script("window.fetch = ((real) => (url, asked) => real(url, asked.body ? "
                   "{...asked, body: asked.body.replace('by_route', 'by_rout')} : asked))(window.fetch)")  # fmt: skip
    browser.expects_in_console("404")
    browser.press("Restart this region", "#details")
    browser.reads("did you mean 'by_route'", "#problem")


def test_what_is_wrong_for_a_moment_goes_away_by_itself(
    run: RestWorld, browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, answers = run.stores.journal.list, [False]

    def sometimes(*arguments: Any, **named: Any) -> Any:
        if not answers[0]:
            raise StoreAccessDenied("not now")
        return real(*arguments, **named)

    monkeypatch.setattr(run.stores.journal, "list", sometimes)
    browser.expects_in_console("502")
    browser.open(site.run_page())
    browser.reads("not now", "#problem")
    answers[0] = True
    browser.script("dispatchEvent(new Event('visibilitychange'))")  # as who comes back to the tab sees it
    browser.box("busiest")
    assert browser.text("#problem") == ""
    browser.reads("✓ run: 4", "#legend")


def test_fault_36_a_hole_in_the_history_is_told(run: RestWorld, browser: Browser, site: Site) -> None:
    world = run.world
    stream = EventWriter(world.journal_store, world.identity, "writer", buffer_bytes=2000, flush_interval_s=3600)
    with stream._changed:  # so that nothing is written before all of it waits
        for event in world.events:
            stream.record(event)
    assert stream.close().failed is None
    world.journal_store.delete([sorted(each.key for each in world.journal_store.list("_streams/"))[1]])
    browser.open(site.run_page())
    browser.reads("The history has a hole; recovery is not affected.", "#history")
    browser.reads("✓ run: 4", "#legend")


def test_fault_85_a_file_that_was_exchanged_is_found_and_named(run: RestWorld, browser: Browser, site: Site) -> None:
    (file, *_) = [each.key for each in run.world.results.list() if "busiest" in each.key]
    run.world.results.put(file, b"forged by somebody who may write data")
    browser.open(site.run_page())
    browser.press("What must run?")
    browser.reads("4 regions: 1 run, 3 keep", "#details")
    browser.reads("will run", "#graph")


def test_fault_17_what_a_user_clears_meanwhile_leaves_no_vertex_between(
    rest: MakeRest, browser: Browser, site: Site
) -> None:
    night = bad_night(rest(retries=0))
    browser.open(site.run_page())
    browser.press("What must run?")
    browser.reads("2 run", "#details")
    night.world.airflow.clear("by_route")

    browser.expects_in_console("409")
    browser.press("Run this plan")
    browser.reads("The run has moved on", "#details")
    browser.reads("by_route", "#details")
    assert night.audited == []

    browser.press("What must run?")
    browser.press("Run this plan")
    browser.reads("Cleared: busiest", "#details")
    night.world.until_green()
    assert night.world.ran.count(("by_route", 2)) == 1


def test_the_loss_ledger_says_what_is_lost_and_what_is_not_known(run: RestWorld, browser: Browser, site: Site) -> None:
    store = run.world.results

    def client(edge: str, generation: int = 1) -> ChannelClient:
        return ChannelClient(store, ChannelIdentity(run.world.identity, edge, generation), f"writer of {edge}")

    def emit(producer: ChannelProducer, rows: int) -> None:
        producer.publish(producer.client.state.epoch + 1, [SegmentBody(0, rows, b"x" * rows)])

    def consume(edge: str, attempt: int, reconnect: Reconnect) -> None:
        consumer = ChannelConsumer(client(edge), attempt)
        consumer.connect(reconnect)
        while (batch := consumer.next_batch()) is not None:
            consumer.commit(batch, (sum(stop - start for segment in batch.slices for start, stop in segment.ranges),))

    scores = ChannelProducer(client("scores <b>"), 1)
    scores.open(subpartitions=1, schema="int", budget=LossBudget(max_lost_records=100))
    emit(scores, 1000)
    consume("scores <b>", 1, Reconnect.REWIND)
    emit(scores, 7)
    consume("scores <b>", 2, Reconnect.LATEST)
    emit(scores, 30)
    alerts = ChannelProducer(client("alerts"), 1)
    alerts.open(subpartitions=1, schema="int", replays=False)
    emit(alerts, 3)
    ChannelProducer(client("alerts"), 2).open(subpartitions=1, schema="int", replays=False)
    for generation in (1, 2):
        ChannelProducer(client("flows", generation), 1).open(subpartitions=1, schema="int")

    browser.open(site.run_page())

    browser.reads("Loss ledger", "#ledger")
    rows = {piece.split("\n")[0].split("\t")[0]: piece for piece in browser.text("#ledger tbody").split("\n")}
    assert rows["scores <b>"] == "scores <b>\t1,000\t7 (reconnect 7)\t\t30\twithin the budget"
    assert "flows, earlier generation 1, which does not count" in rows
    assert "flows, generation 2" in rows
    assert rows["alerts"].startswith("alerts\t0\tat least 0\twhat was not made again for producer attempt 2\t3")
    assert serious_findings(browser) == []
    browser.shoot("ledger")


def test_a_run_without_channels_has_no_ledger(run: RestWorld, browser: Browser, site: Site) -> None:
    browser.open(site.run_page())
    browser.box("busiest")
    assert not browser.find("#ledger").is_displayed()
