"""Dynamic assignment: how fast the log of its records folds, is read back, and is decided from."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median

from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.splits.log import (
    LOG_RECORD,
    Assign,
    Discovered,
    End,
    LogRecord,
    Return,
    SplitBook,
    fold,
)
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.store.local import LocalStore
from benchmarks.report import Figure, Report, Table, summary

SIZES = (1_000, 10_000, 100_000)
SUBTASKS = 32
KILLED_EVERY = 1_000
"""So many records after the last, an attempt dies."""

IN_HAND = 10
"""Splits that it had been given last, and had not committed: they go home."""

LINEAR = 1.5
"""A record of the largest log may cost so many times what one of a tenth of it costs."""

STORED = 1_000
IDENTITY = RunIdentity("splits", "date-2026-01-01T000000Z", "job")


def measure(folder: Path, repeats: int | None) -> Report:
    """In this process: the fold is pure. The log in the store is a folder, so its figure is without a network."""
    rounds = repeats or 5
    rows, samples, per_record_us = [], {}, {}
    read = LOG_RECORD.from_json
    for size in SIZES:
        records = history(size)
        folds = _timed(rounds, lambda records=records: fold(records))  # type: ignore[misc]
        lines = [json.dumps(LOG_RECORD.to_json(record)) for record in records]
        reads = _timed(rounds, lambda lines=lines: fold(read(json.loads(line), exact=True) for line in lines))  # type: ignore[misc]
        snapshot = json.dumps(fold(records).to_json())
        restores = _timed(rounds, lambda snapshot=snapshot: SplitBook.from_json(json.loads(snapshot)))  # type: ignore[misc]
        samples[str(size)] = {"fold": folds, "read and fold": reads, "from a snapshot": restores}
        per_record_us[size] = 1e6 * median(folds) / size
        rows.append((f"{size:,}", *(f"{1000 * median(each):,.1f}" for each in (folds, reads, restores))))
    times = per_record_us[SIZES[-1]] / per_record_us[SIZES[-2]]
    pulls = _stored(folder)
    return Report(
        name="split_log",
        title=f"The coordinator of a dynamic assignment: a log of {SIZES[-1]:,} records",
        method=(
            f"{SUBTASKS} subtasks pull one split a time in turn; every {KILLED_EVERY:,} records one of them dies, and "
            f"the last {IN_HAND} that it had go home. The fold alone is timed, then that of records that are JSON "
            "lines, then the same book from a snapshot, all in seconds of processor time. Beside it, in seconds of the "
            f"clock, {STORED:,} pulls over a store in a folder."
        ),
        figures=[
            Figure(f"fold of {SIZES[-1]:,} records", per_record_us[SIZES[-1]] * SIZES[-1] / 1e6, "s"),
            Figure(
                f"a record of {SIZES[-1]:,} against one of {SIZES[-2]:,}",
                times,
                "times",
                f"up to {LINEAR}",
                times <= LINEAR,
            ),
            Figure("a pull, with its LIST and PUT in a folder", 1000 * median(pulls), "ms"),
        ],
        tables=[
            Table("Milliseconds", ("records", "fold", "read and fold", "from a snapshot"), rows),
            Table(
                "Milliseconds a pull",
                ("", "median", "least", "most", "pulls"),
                [("pull", *summary([1000 * pull for pull in pulls]))],
            ),
        ],
        samples={**samples, "pulls": pulls},
    )


def history(size: int) -> list[LogRecord]:
    """``size`` records as the subtasks of a run write them."""
    splits = tuple(Split.of_file(f"s3://lake/{number:06d}.csv", 1, "e") for number in range(size))
    records: list[LogRecord] = [Discovered(splits)]
    book = fold(records)
    attempts = dict.fromkeys(range(SUBTASKS), 1)
    while len(records) < size:
        subtask = len(records) % SUBTASKS
        record: LogRecord
        if len(records) % KILLED_EVERY == 0:
            record = Return(subtask, attempts[subtask], book.held_by(subtask)[-IN_HAND:])
            attempts[subtask] += 1
        else:
            record = book.message_for(subtask, attempts[subtask], 1)
            assert isinstance(record, Assign), "there are as many splits as records"
        book.add(record)
        records.append(record)
    return records


def _stored(folder: Path) -> list[float]:
    log = SplitLogStore(LocalStore(f"file://{folder}/journal"), IDENTITY, "read", writer=uuid.uuid4().hex)
    splits = tuple(Split.of_file(f"s3://lake/{number:06d}.csv", 1, "e") for number in range(STORED))
    log.append(lambda book: Discovered(splits))
    times: list[float] = []
    while True:
        begun = time.perf_counter()
        record = log.append(lambda book: book.message_for(0, 1, 1))
        if isinstance(record, End):
            return times
        times.append(time.perf_counter() - begun)


def _timed(rounds: int, work: Callable[[], object]) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return times
