"""What splits cost before anything is read: enumeration, matching, assignment and a fold of 100,000 content keys."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from airflow_recovery.attempt.assignment_log import AssignmentLog
from airflow_recovery.job.enumerators import date_splits, key_range_splits, yielded_splits
from airflow_recovery.journal.codec import decode_record, encode_record
from airflow_recovery.model.records import RunIdentity, SplitGeneration
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import Assignment, advance, batches
from airflow_recovery.model.split_matching import Vanished, match
from airflow_recovery.splits.log import Assign, Discovered, LogRecord, fold
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.task import inventory
from benchmarks.report import Figure, Report, Table, summary

KEYS = 100_000
SUBTASKS = 16
FILE_BYTES = 8 * 1024 * 1024
FOLD = f"fold the log of a dynamic assignment: {KEYS:,} records"
BATCH_BYTES = 256 * 1024 * 1024
IDENTITY = RunIdentity("benchmark", "run", "splits")
log = logging.getLogger("benchmarks.splits")


def measure(folder: Path, repeats: int | None) -> Report:
    """In this process; the object store's listing is answered from memory."""
    rounds = repeats or 5
    files = listed_files()
    # One in a hundred is new, one is overwritten, one is gone.
    changed = [each for at, each in enumerate(files) if at % 100 != 7]
    changed = [Split.of_file(each.uri, each.size, "e2") if at % 100 == 13 else each for at, each in enumerate(changed)]
    changed += [file(KEYS + at) for at in range(KEYS // 100)]
    first = advance(None, files, SUBTASKS).assignment
    body = encode_record(IDENTITY, first.record("raw", 0, "w"))
    assignments = AssignmentLog(LocalStore(f"file://{folder}/journal"), IDENTITY, "raw", writer="w")

    def pre_check() -> Assignment:
        return assignments.advanced(lambda: files, SUBTASKS, vanished=Vanished.DROP, log=log)

    pre_check()
    records = dynamic_log(files)
    steps: dict[str, Callable[[], Any]] = {
        "enumerate files: a listing, matched with a glob": listed_files,
        "enumerate key ranges": lambda: key_range_splits(
            table="t", column="id", lower=0, upper=KEYS * 1000, width=1000, as_of="2026-01-01"
        ),
        "enumerate days": lambda: date_splits(datetime(1800, 1, 1), datetime(1800, 1, 1) + timedelta(KEYS)),
        "enumerate what a function yields": lambda: yielded_splits(orders, {}, where="benchmark"),
        "content keys": lambda: [Split(candidate.uri, candidate.size, candidate.etag).key for candidate in files],
        "match with the listing before, of which 3 in 100 differ": lambda: match(files, changed),
        "assign for the first time": lambda: advance(None, files, SUBTASKS),
        "assign where 3 in 100 differ": lambda: advance(first, changed, SUBTASKS),
        "write the record": lambda: encode_record(IDENTITY, first.record("raw", 0, "w")),
        "read the record": lambda: Assignment.of_record(decode_record(IDENTITY, SplitGeneration, body, where="here")),
        "one subtask's pre-check, nothing changed": pre_check,
        "batches of one subtask": lambda: batches(first.of(0), batch_bytes=BATCH_BYTES),
        FOLD: lambda: fold(records),
    }
    samples = {name: _timed(rounds, work) for name, work in steps.items()}
    enumeration = median(samples["enumerate files: a listing, matched with a glob"])
    assignment = median(samples["assign for the first time"])
    return Report(
        name="splits",
        title=f"{KEYS:,} splits, {SUBTASKS} subtasks: before anything is read",
        method=(
            "In one process. The store's listing is answered from memory and the journal is a folder, so the figures "
            "are our own; a real listing adds a request for every 1,000 objects."
        ),
        figures=[
            Figure("enumeration of files", enumeration, "s"),
            Figure("first assignment", assignment, "s"),
            Figure(
                "a subtask's pre-check beside the listing",
                median(samples["one subtask's pre-check, nothing changed"]),
                "s",
            ),
            Figure("fold of a dynamic log", median(samples[FOLD]), "s"),
            Figure("size of the record", len(body) / 1e6, "MB"),
        ],
        tables=[
            Table(
                "Milliseconds",
                ("step", "median", "least", "most", "rounds"),
                [(name, *summary([1000 * candidate for candidate in times])) for name, times in samples.items()],
            )
        ],
        samples=samples,
    )


class Listed:
    """A store that only lists: `KEYS` files of `FILE_BYTES`."""

    base_uri = "s3://lake/in"

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As S3 does, in key order."""
        del prefix, start_after
        return (ObjectInfo(f"day-{at:07d}.csv", FILE_BYTES + at % 1000, f"{at:032x}") for at in range(KEYS))


def listed_files() -> list[Split]:
    """What ``files("s3://lake/in/*.csv")`` enumerates."""
    with patch.object(inventory, "open_store", lambda *_, **__: Listed()):
        external = inventory.list_objects("s3://lake/in/*.csv", vertex="raw")
    return [Split.of_external(listed) for listed in external]


def file(at: int) -> Split:
    """A file that came later."""
    return Split.of_file(f"s3://lake/in/day-{at:07d}.csv", FILE_BYTES, "e1")


def orders() -> Iterator[Split]:
    """An enumerator as a user writes one."""
    for at in range(KEYS):
        yield Split.of(f"order-{at:07d}", {"from": at * 100, "to": (at + 1) * 100}, size=1_000_000)


def dynamic_log(splits: list[Split]) -> list[LogRecord]:
    """Every split was handed out by itself, to one subtask after the other."""
    handed = [Assign(at % SUBTASKS, 1, at // SUBTASKS, (each.key,)) for at, each in enumerate(splits)]
    return [Discovered(tuple(splits)), *handed]


def _timed(rounds: int, work: Callable[[], Any]) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return times
