"""A driver that pulls its splits from the log in the store: alone, and as four real processes of which one is killed.

The processes speak to moto and versitygw through a proxy that drops the reply of every protocol write after it took
effect. This file is also their program.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import AttemptLost, StoreTimeout
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    CommittedBatch,
    FenceCause,
    Outcome,
    RunIdentity,
)
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.splits.committed_batches import adoptable, check_cover, numbers_of, refs_of, usable
from airflow_recovery.splits.dynamic_assignment import discover, return_rest
from airflow_recovery.splits.log import LogRecord, SplitBook
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.splits.mode import CommittedBatchRef, SplitClaim, SplitOutcome
from airflow_recovery.splits.pull import PulledSplits
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import Fault, FaultKind, FaultyStore, S3Server, Verb
from airflow_recovery.testing.patience import HANG_S
from scripts.s3_proxy import LostReply, S3Proxy, S3Request

IDENTITY = RunIdentity("dag", "date-2026-01-01", "group")
REGIONS = tuple(f"read[{number}]" for number in range(4))
SPLITS = 16


def splits(count: int = SPLITS) -> tuple[Split, ...]:
    return tuple(Split.of_file(f"s3://lake/{number:04d}.csv", 10, "e") for number in range(count))


KEYS = {split.key for split in splits()}


def log_of(store: ObjectStore, writer: str = "me", **given: float) -> SplitLogStore:
    return SplitLogStore(store, IDENTITY, "read", writer=writer, **given)  # type: ignore[arg-type]


def listed(store: ObjectStore, splits: Iterable[Split]) -> SplitLogStore:
    log = log_of(store, "lister")

    discover(log, lambda: splits, vertex="read", parallelism=4, vanished=Vanished.DROP, log=logging.getLogger(__name__))
    return log


def pulls(log: SplitLogStore, subtask: int = 0, attempt: int = 1, **given: object) -> PulledSplits:
    return PulledSplits(log, subtask, attempt, **{"batch_bytes": 20, "suspicion": {}, "among": KEYS, **given})  # type: ignore[arg-type]


def names(pulled: PulledSplits) -> list[list[str]]:
    found = []
    while (batch := pulled.next_batch()) is not None:
        found.append([split.name[-8:-4] for split in batch.splits])
    return found


# one driver


def test_it_pulls_by_bytes_until_nothing_is_left(local_store: LocalStore):
    pulled = pulls(listed(local_store, splits(5)))
    assert names(pulled) == [["0000", "0001"], ["0002", "0003"], ["0004"]]
    assert pulled.next_batch() is None
    assert list(pulled.taken) == [split.key for split in splits(5)]


def test_suspects_are_parted_from_what_was_pulled_with_them(local_store: LocalStore):
    suspect = splits(5)[0]
    pulled = pulls(listed(local_store, splits(4)), batch_bytes=40, suspicion={suspect.key: 2})
    batches = [pulled.next_batch(), pulled.next_batch()]
    assert [batch is not None and batch.may_be_poison for batch in batches] == [False, True]
    assert batches[1] is not None
    assert batches[1].splits == (suspect,)


def test_fault_56_once_what_it_had_is_returned_it_is_fenced(local_store: LocalStore):
    log = listed(local_store, splits(6))
    pulled = pulls(log)
    pulled.next_batch()
    return_rest(log_of(local_store, "next try"), 0, 2, base=())
    with fails_with("split-attempt-fenced", attempt=1, subtask=0):
        pulled.next_batch()
    assert names(pulls(log_of(local_store, "next driver"), attempt=2))[0] == ["0000", "0001"]


def test_fault_56_control_without_the_look_a_fenced_driver_goes_on_pulling(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
):
    log = listed(local_store, splits(6))
    pulled = pulls(log)
    pulled.next_batch()
    return_rest(log_of(local_store, "next try"), 0, 2, base=())
    monkeypatch.setattr(SplitBook, "is_over", lambda self, subtask, attempt: False)
    assert pulled.next_batch() is not None  # two attempts of one subtask read on; with the rule on, nobody reads this:
    monkeypatch.undo()
    with fails_with("split-log-refuses", expected="an attempt that is not over"):
        log_of(local_store).read()


def test_fault_24_a_pull_whose_outcome_stayed_unknown_and_that_has_landed_is_taken(local_store: LocalStore):
    listed(local_store, splits(4))
    fault = Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY, key="log-00000002", times=1)
    pulled = pulls(log_of(FaultyStore(local_store, [fault]), deadline_s=0))
    with pytest.raises(StoreTimeout):
        pulled.next_batch()
    assert names(pulled) == [["0000", "0001"], ["0002", "0003"]]
    assert sorted(pulled.taken) == sorted(split.key for split in splits(4))


def test_fault_3_what_was_sent_and_never_heard_of_is_found_by_its_number_and_comes_home(local_store: LocalStore):
    listed(local_store, splits(6))
    fault = Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY, key="log-00000002", times=1)
    with pytest.raises(StoreTimeout):  # here the driver dies: that it was given something stands in the log alone
        pulls(log_of(FaultyStore(local_store, [fault]), deadline_s=0)).next_batch()
    assert names(pulls(log_of(local_store, "a neighbour"), subtask=1, batch_bytes=40))[0] == [
        "0002",
        "0003",
        "0004",
        "0005",
    ]
    return_rest(log_of(local_store, "next try"), 0, 2, base=())
    assert names(pulls(log_of(local_store, "next driver"), attempt=2)) == [["0000", "0001"]]


def test_fault_3_control_without_the_return_nobody_reads_what_the_dead_driver_was_sent(local_store: LocalStore):
    log = listed(local_store, splits(4))
    pulls(log).next_batch()
    assert names(pulls(log_of(local_store, "next driver"), attempt=2)) == [["0002", "0003"]]


def test_fault_55_a_split_that_others_discover_while_it_reads_is_left_to_them(local_store: LocalStore):
    pulled = pulls(listed(local_store, splits(2)), among={split.key for split in splits(2)})
    pulled.next_batch()
    log = listed(local_store, splits(3))
    assert names(pulled) == []
    assert names(pulls(log, subtask=1)) == [["0002"]]


def test_fault_92_what_was_given_back_and_has_vanished_since_it_was_put_is_the_zombie_s_last(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
):
    """Between its write and the reading of it a successor gives it back, and the listing has it no more."""
    pulled = pulls(listed(local_store, splits(2)), batch_bytes=10)
    append = SplitLogStore.append

    def then_overtaken(self: SplitLogStore, decide: Callable[[SplitBook], LogRecord | None]) -> LogRecord | None:
        record = append(self, decide)
        monkeypatch.undo()
        return_rest(log_of(local_store, "next try"), 0, 2, base=())
        listed(local_store, splits(2)[1:])
        return record

    monkeypatch.setattr(SplitLogStore, "append", then_overtaken)
    assert pulled.next_batch() is not None  # it is told by the next one, and what it commits is nobody's
    with fails_with("split-attempt-fenced", attempt=1, subtask=0):
        pulled.next_batch()


# four processes, one of which is killed


@pytest.mark.slow
def test_fault_56_four_processes_of_which_one_is_killed_while_every_write_loses_its_reply(one_s3_server: S3Server):
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    store = S3Store(uri, endpoint_url=one_s3_server.endpoint_url, session=one_s3_server.session())
    listed(store, splits())
    lost = Counter[str]()
    rule = loses_first_reply(lost)
    with S3Proxy(one_s3_server, rule) as proxy:
        workers = [start(uri, proxy.endpoint_url, 1, hangs_at=2)]
        try:
            said(workers[0], "hangs")  # with two batches, and one batch in its hands
            workers += [start(uri, proxy.endpoint_url, number) for number in (0, 2, 3)]
            workers[0].kill()
            for worker in workers[1:]:
                said(worker, "finished")
            workers.append(start(uri, proxy.endpoint_url, 1))
            said(workers[-1], "finished")
        finally:
            for candidate in workers:
                candidate.kill()
                candidate.wait()
                assert candidate.stdout is not None
                candidate.stdout.close()
    state = journal_of(store).load(journal_of(store).list(REGIONS))
    finishes = [state.of(region).current for region in REGIONS]
    read = Counter(
        key
        for finish in finishes
        if finish and finish.outcome
        for ref in SplitOutcome.of(finish.outcome).batches
        for key in ref.splits
    )
    assert read == Counter(split.key for split in splits())
    killed = finishes[1]
    assert killed is not None
    assert killed.outcome is not None
    assert killed.number == 2
    assert [ref.number for ref in SplitOutcome.of(killed.outcome).batches if ref.attempt == 1] == [
        0,
        1,
    ]  # what was committed
    # A snapshot is written once, or not at all.
    assert all(times >= 2 for key, times in lost.items() if "/snapshot-" not in key)
    assert any("/_splits/" in each for each in lost)
    assert any(each.endswith(".claim") for each in lost)
    assert any(each.endswith(".outcome") for each in lost)
    assert any(".part-" in each for each in lost)


@pytest.mark.slow
def test_fault_91_fewer_processes_more_again_and_code_back_and_forth_on_a_real_store(one_s3_server: S3Server):
    """Four subtasks read all, then two, then four; then code X is killed, code Y is killed, and X reads on."""
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    store = S3Store(uri, endpoint_url=one_s3_server.endpoint_url, session=one_s3_server.session())
    workers: list[subprocess.Popen[str]] = []

    def go(code: str, parallelism: int, *subtasks: int, hangs_at: int | None = None) -> None:
        begun = [
            start(uri, one_s3_server.endpoint_url, subtask, hangs_at=hangs_at, code=code, parallelism=parallelism)
            for subtask in subtasks
        ]
        workers.extend(begun)
        for each in begun:
            said(each, "finished" if hangs_at is None else "hangs")
            each.kill()

    try:
        go("X/4", 4, 3, hangs_at=9)  # subtask 3 has read nine of sixteen
        go("X/4", 4, 0, 1, 2, 3)
        assert read_by(store, 4) == Counter(split.key for split in splits())
        go("X/2", 2, 0, 1)
        assert read_by(store, 2) == Counter(split.key for split in splits())
        go("X/4", 4, 0, 1, 2, 3)
        assert read_by(store, 4) == Counter(split.key for split in splits())
        # Whoever is faster pulls more: a subtask may have read nothing, so the one that read most is taken.
        busiest = max(range(4), key=lambda subtask: len(batches_of_finish(store, subtask)))
        go("Y/4", 4, busiest, hangs_at=1)  # gives back all that X had of it, and reads one again
        go("X/4", 4, busiest)
        assert read_by(store, 4) == Counter(split.key for split in splits())
    finally:
        for each in workers:
            each.kill()
            each.wait()
            assert each.stdout is not None
            each.stdout.close()


def batches_of_finish(store: ObjectStore, subtask: int) -> tuple[CommittedBatchRef, ...]:
    """The batches that the subtask's current attempt finished with."""
    region = REGIONS[subtask]
    current = journal_of(store).load(journal_of(store).list([region])).of(region).current
    assert current is not None
    assert current.outcome is not None
    return SplitOutcome.of(current.outcome).batches


def read_by(store: ObjectStore, parallelism: int) -> Counter[str]:
    """The splits in the finishes of so many subtasks; all of which stand by the log."""
    book = log_of(store).read()
    read: Counter[str] = Counter()
    for subtask in range(parallelism):
        batches = batches_of_finish(store, subtask)
        assert book.invalid_because(subtask, parallelism, batches) is None
        read.update(key for ref in batches for key in ref.splits)
    return read


def loses_first_reply(seen: Counter[str]) -> Callable[[S3Request], LostReply | None]:
    """Of every conditional write, whoever makes it: it has its effect, and nobody hears of it."""

    def rule(request: S3Request) -> LostReply | None:
        if not request.is_conditional:
            return None
        seen[request.key] += 1
        return LostReply() if seen[request.key] == 1 else None

    return rule


def start(
    uri: str,
    endpoint_url: str,
    subtask: int,
    *,
    hangs_at: int | None = None,
    code: str = "reading",
    parallelism: int = len(REGIONS),
) -> subprocess.Popen[str]:
    given = (uri, endpoint_url, subtask, -1 if hangs_at is None else hangs_at, code, parallelism)
    command = [sys.executable, __file__, *map(str, given)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


def said(process: subprocess.Popen[str], word: str) -> None:
    """Wait until it says so. A process that says nothing is killed after a while, which ends its output."""
    timer = threading.Timer(HANG_S, process.kill)
    timer.start()
    assert process.stdout is not None
    heard = []
    for line in process.stdout:
        heard.append(line)
        if line.strip() == word:
            timer.cancel()
            return
    timer.cancel()
    raise AssertionError(f"expected {word!r} of {process.args!r}, found {heard}")


def journal_of(store: ObjectStore, writer: str = "reader") -> Journal:
    return Journal(store, IDENTITY, writer=writer)


def work(store: ObjectStore, subtask: int, hangs_at: int, code: str, parallelism: int) -> None:
    """One try: list, fence, claim, return, then pull, commit batch by batch, and finish."""
    region, writer = REGIONS[subtask], uuid.uuid4().hex
    journal = journal_of(store, writer)
    log = SplitLogStore(store, IDENTITY, "read", writer=writer, snapshot_every=5)
    listing = {"vertex": "read", "vanished": Vanished.DROP, "log": logging.getLogger(__name__)}
    discover(log, splits, parallelism=parallelism, **listing)  # type: ignore[arg-type]
    mine = journal.load(journal.list([region])).of(region)
    if mine.open_attempt is not None:
        fence = Outcome(
            region,
            mine.latest_attempt,
            AttemptState.FENCED,
            writer,
            "now",
            "code",
            (),
            cause=FenceCause.SUPERSEDED,
            failure=None,
        )
        with suppress(AttemptLost):
            journal.fence(fence)
        mine = journal.load(journal.list([region])).of(region)
    claims = {n: journal.read_claim(region, n) for n in mine.attempts}
    base = adoptable(mine, claims, code)
    book = log.book
    batches = journal.read_committed_batches(region, numbers_of(base))
    base = usable(base, batches, KEYS, is_own=lambda batch: book.has(subtask, batch.attempt, batch.splits))
    number = mine.latest_attempt + 1
    claim = Claim(
        region, number, writer, "plan", (), "run", 1, "ti", "tag", "now", mode=SplitClaim(base=base, reading=code)
    )
    journal.claim(claim)
    adopted = journal.read_committed_batches(region, numbers_of(base))
    kept = {key for batch in adopted for key in batch.splits}
    return_rest(log, subtask, number, adopted)
    pulled = PulledSplits(log, subtask, number, batch_bytes=10, suspicion={}, among=KEYS)
    own: list[CommittedBatch] = []
    while (batch := pulled.next_batch()) is not None:
        if len(own) == hangs_at:
            print("hangs", flush=True)
            threading.Event().wait()  # until it is killed
        keys = tuple(split.key for split in batch.splits)
        own.append(CommittedBatch(region, number, len(own), writer, keys, (), "now"))
        journal.commit_batch(own[-1])
    batches = (*adopted, *own)
    known = log.read().known
    check_cover((*(known[key] for key in kept), *pulled.taken.values()), batches)
    finish = Outcome(
        region, number, AttemptState.FINISHED, writer, "now", "code", (), mode=SplitOutcome(batches=refs_of(batches))
    )
    journal.finish(finish)
    print("finished", flush=True)


if __name__ == "__main__":
    given_uri, given_endpoint, given_subtask, given_hangs_at, given_code, given_parallelism = sys.argv[1:]
    given_store = S3Store(given_uri, endpoint_url=given_endpoint)
    work(given_store, int(given_subtask), int(given_hangs_at), given_code, int(given_parallelism))
