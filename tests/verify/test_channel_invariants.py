"""I9 and I15, on the journals and the control logs of whole runs; each with a log that was spoiled.

source ==raw==> scorer ==scored==> sink
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from channel_consumer import ChannelConsumer
from fakes import MemoryStore
from streaming_run import RUN, StreamingRun, parquet

from airflow_recovery.errors import LossBudgetExceeded
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.streaming.producer import ChannelProducer
from airflow_recovery.testing import CountingStore, Verb
from airflow_recovery.verify import Report, verify_run
from airflow_recovery.verify.finding import Verdict

Change = Callable[[dict[str, Any]], object]


def run_of(**options: Any) -> StreamingRun:
    return StreamingRun(MemoryStore("memory://journal"), MemoryStore("memory://results"), **options)


@pytest.fixture
def ended() -> StreamingRun:
    run = run_of()
    run.to_the_end()
    return run


def verify(run: StreamingRun, **settings: Any) -> Report:
    given: dict[str, Any] = {"results": run.results, **settings}
    identity: dict[str, Any] = {"dag_id": RUN.dag_id, "run_key": RUN.run_key, "group_id": RUN.group_id}
    return verify_run(run.journal_store, lambda location: run.results, **identity, **given)


def said(report: Report, invariant: int) -> str:
    answer = next(answer for answer in report.answers if answer.invariant == invariant)
    return "; ".join([answer.said, *(f"{finding.expected} / {finding.found}" for finding in answer.findings)])


def spoil(run: StreamingRun, kind: str, change: Change, edge: str = "scored", *, last: bool = True) -> None:
    """Rewrite the last (or first) record of a kind, with a checksum that fits: as a faulty writer of ours would."""
    folder = run.client(edge).folder
    slots = [each.key for each in run.results.list(f"{folder.prefix}/log/")]
    for key in reversed(slots) if last else slots:
        document = json.loads(run.results.get(key).body)
        if document["kind"] == kind:
            change(document["body"])
            canonical = json.dumps(document["body"], sort_keys=True, separators=(",", ":")).encode()
            document["crc"] = zlib.crc32(canonical)
            run.results.put(key, json.dumps(document).encode())
            return
    raise AssertionError(f"no {kind} in the log of {edge}")


def test_an_undisturbed_run(ended: StreamingRun) -> None:
    report = verify(ended, ended=True, deep=True)
    assert report.violated == (), report.text()
    assert said(report, 15).startswith("40 records in 2 channels, ")
    assert said(report, 9) == "raw#1 lost 0, scored#1 lost 0"


@pytest.mark.parametrize("reconnect", list(Reconnect))
def test_a_run_whose_regions_died(reconnect: Reconnect) -> None:
    run = run_of(reconnect=reconnect, budget=LossBudget(max_lost_records=20))
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    run.emit(source, 6)
    scorer.work()
    run.sink_all(sink)
    run.emit(source, 5)
    scorer = run.scorer()
    run.emit(source, 4)
    scorer.work()
    sink = run.sink()
    run.emit(source, 7)
    scorer.work()
    run.sink_all(sink)
    report = verify(run)
    assert report.violated == (), report.text()
    lost = 0 if reconnect is Reconnect.REWIND else 5
    assert f"raw#1 lost {lost}" in said(report, 9)


def test_records_of_those_who_had_lost_their_end_count_for_nothing() -> None:
    run = run_of()
    source, scorer = run.source(), run.scorer()
    run.emit(source, 6)
    scorer.work()
    folder = run.client("raw").folder
    slots = [each.key for each in run.results.list(f"{folder.prefix}/log/")]
    zombie = next(key for key in slots if json.loads(run.results.get(key).body)["kind"] == "plan")
    run.scorer()
    document = json.loads(run.results.get(zombie).body)
    document["slot"] = len([*run.results.list(f"{folder.prefix}/log/")])
    run.results.put(folder.slot(document["slot"]), json.dumps(document).encode())
    report = verify(run)
    assert report.violated == (), report.text()
    assert "1 of them by attempts that had lost their end" in said(report, 15)


def widen(body: dict[str, Any]) -> None:
    """A record too many is said to be read."""
    body["read"][0][-1][1] += 1


def leave_out(body: dict[str, Any]) -> None:
    """A record is neither read nor lost."""
    body["read"][0][0][0] += 1


def lose_what_is_read(body: dict[str, Any]) -> None:
    start, stop = body["read"][0][0]
    body["lost"] = [{"sub": 0, "start": start, "stop": stop, "cause": "overflow"}]


@pytest.mark.parametrize("change", [widen, leave_out, lose_what_is_read])
def test_a_record_that_is_not_committed_or_lost_exactly_once(ended: StreamingRun, change: Change) -> None:
    spoil(ended, "plan", change)
    report = verify(ended)
    assert 15 in report.violated
    assert "of subpartition 0 read or lost once" in said(report, 15)


def test_the_same_records_in_two_commits(ended: StreamingRun) -> None:
    def again(body: dict[str, Any]) -> None:
        body["read"] = [[[0, end]] for end in body["end"]]

    spoil(ended, "plan", again)
    assert 15 in verify(ended).violated


def test_a_hole_in_the_log(ended: StreamingRun) -> None:
    ended.results.delete([ended.client("raw").folder.slot(4)])
    report = verify(ended)
    assert 15 in report.violated
    assert "slot 4 before it / a hole" in said(report, 15)


def test_a_slot_without_its_checksum(ended: StreamingRun) -> None:
    key = ended.client("raw").folder.slot(4)
    ended.results.put(key, ended.results.get(key).body.replace(b'"crc":', b'"crc":1'))
    assert "checksum does not match" in said(verify(ended), 15)


def test_records_that_nobody_published(ended: StreamingRun) -> None:
    spoil(ended, "epoch", lambda body: body["segments"][0].update(first=99))
    report = verify(ended)
    assert "of subpartition 0 next / 99" in said(report, 15)


def test_an_owner_that_has_not_claimed_the_channel(ended: StreamingRun) -> None:
    spoil(ended, "view", lambda body: body.update(attempt=7))
    report = verify(ended)
    assert "a claim of sink@7 that names scored, generation 1 / none" in said(report, 15)


def test_a_consumer_that_leaves_a_generation_has_claimed_the_next_one() -> None:
    run = run_of()
    source, scorer = run.source(), run.scorer()
    run.emit(source, 5)
    scorer.work()
    run.alter("source")
    run.claim("source")
    attempt = run.claim("scorer")
    left = ChannelConsumer(run.client("raw", 1), attempt)
    left.connect()
    assert verify(run).violated == ()


def test_a_producer_that_opens_another_generation_than_it_has_claimed() -> None:
    run = run_of()
    run.emit(run.source(), 5)
    run.alter("source")
    attempt = run.claim("source")
    ChannelProducer(run.client("raw", 1), attempt).open(subpartitions=2, schema="v bigint")
    assert "a claim of source@2 that names raw, generation 1 / none" in said(verify(run), 15)


def test_a_consumer_that_finished_before_the_end_of_its_channel() -> None:
    run = run_of()
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    run.emit(source, 5)
    scorer.work()
    run.sink_all(sink)
    run.emit(source, 5)
    scorer.work()
    run.register()
    report = verify(run)
    assert "scored, generation 1 read to its end by sink@1 / 10 published, 5 done" in said(report, 15)


def test_a_consumer_whose_producer_has_begun_another_generation_since(ended: StreamingRun) -> None:
    ended.journal().reset(reset_of("scorer"))
    ended.claim("scorer")
    ended.finish("scorer")
    report = verify(ended)
    assert "sink@1 on generation 2 of scored, which counts now / it has read generation 1" in said(report, 15)


def reset_of(region: str) -> Any:
    from airflow_recovery.model.records import Reset

    return Reset(region, 1, "failover", "another schema", altered=True)


def test_a_result_with_fewer_rows_than_were_committed(ended: StreamingRun) -> None:
    key = next(iter(ended.committed))
    whole = f"{ended.client('scored').folder.prefix}/{key}"
    ended.results.put(whole, parquet([*ended.committed[key], 1, 2, 3]))
    assert verify(ended).violated == ()  # only --deep counts
    report = verify(ended, deep=True)
    assert "23 rows as committed, or 5 of the newest batch / 20 rows in totals of sink@1" in said(report, 15)


def test_a_result_whose_batches_were_swept_is_not_compared(ended: StreamingRun) -> None:
    prefix = f"{ended.client('scored').folder.prefix}/out/"
    ended.results.delete([each.key for each in ended.results.list(prefix)])
    assert verify(ended, deep=True).violated == ()


def test_a_ledger_over_its_budget() -> None:
    run = run_of(reconnect=Reconnect.LATEST, budget=LossBudget(max_lost_records=5))
    source, scorer = run.source(), run.scorer()
    run.emit(source, 6)
    scorer.work()
    run.emit(source, 4)
    scorer = run.scorer()
    run.emit(source, 2)
    scorer.work()
    assert verify(run).violated == ()
    spoil(run, "producer", lambda body: body["budget"].update(max_lost_records=3), "raw")
    report = verify(run)
    assert report.violated == (9,)
    assert "at most 3 lost records / 4" in said(report, 9)


def test_the_product_would_not_have_written_it() -> None:
    run = run_of(reconnect=Reconnect.LATEST, budget=LossBudget(max_lost_records=3))
    source, scorer = run.source(), run.scorer()
    run.emit(source, 6)
    scorer.work()
    run.emit(source, 4)
    scorer = run.scorer()
    run.emit(source, 2)
    with pytest.raises(LossBudgetExceeded):
        scorer.work()


def test_a_loss_that_nobody_knows_is_said() -> None:
    run = run_of(replays=False)
    run.emit(run.source(), 6)
    run.source()
    assert "raw#1 lost 0 and an unknown number at 1 restarts" in said(verify(run), 9)


def test_without_the_store_of_results_it_says_so(ended: StreamingRun) -> None:
    report = verify(ended, results=None)
    answers = {answer.invariant: answer for answer in report.answers}
    assert answers[15].verdict is answers[9].verdict is Verdict.NOT_APPLICABLE
    assert answers[15].said == "the store of 2 channels was not given"


def test_it_reads_every_slot_once_and_writes_nothing(ended: StreamingRun) -> None:
    store = CountingStore(ended.results)
    verify(ended, results=store)
    read = [key for verb, key in store.requests if verb is Verb.GET]
    assert len(read) == len(set(read))
    assert set(store.counts()) == {Verb.LIST, Verb.GET}
    assert store.count(Verb.LIST) == 2
