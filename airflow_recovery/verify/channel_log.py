"""One channel's control log, read and folded by the checker's own rules: who owned it, what was read and what was lost.

A record of a former owner counts for nothing, whatever slot it has won. What is wrong is collected and not raised: an
account that is broken in one place is looked at to its end.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.verify.names import encoded
from airflow_recovery.verify.reading import CONNECTIONS, RunName
from airflow_recovery.verify.records import Channel

FORMAT = 1
_SLOT = re.compile("log/([0-9]{8})")
Range = tuple[int, int]


@dataclass
class Sub:
    """One subpartition: how many records are published, and how many of them are behind the checkpoint."""

    published: int = 0
    done: int = 0
    committed: int = 0
    lost: int = 0


@dataclass
class ChannelAccount:
    """What the records of a log come to. ``wrong``: (slot's key, expected, found), for everything that can't be.

    ``opened`` and ``viewed`` are the attempts that have owned an end. ``outputs``: what commits name, by batch.
    """

    channel: Channel
    subs: list[Sub] = field(default_factory=list)
    opened: dict[int, str] = field(default_factory=dict)
    viewed: dict[int, str] = field(default_factory=dict)
    retained: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Key -> subpartition and range."""
    outputs: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    """By (batch, attempt)."""
    causes: dict[str, int] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)
    max_records: int | None = None
    max_fraction: float | None = None
    epoch: int = -1
    batch: int = -1
    is_finished: bool = False
    slots: int = 0
    void: int = 0
    plan: tuple[int, dict[str, Any]] | None = None
    """The plan of the checkpoint that is pending, and the attempt that wrote it."""
    over_budget: list[tuple[str, str, str]] = field(default_factory=list)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def published(self) -> int:
        """How many records the producer has published, in all subpartitions."""
        return sum(sub.published for sub in self.subs)

    @property
    def committed(self) -> int:
        """How many records checkpoints have committed, in all subpartitions."""
        return sum(sub.committed for sub in self.subs)

    @property
    def lost(self) -> int:
        """How many records checkpoints have counted as lost, in all subpartitions."""
        return sum(sub.lost for sub in self.subs)

    @property
    def is_drained(self) -> bool:
        """Its producer has finished, and every record is committed or lost."""
        return self.is_finished and all(sub.done == sub.published for sub in self.subs)


def folder_of(run: RunName, channel: Channel) -> str:
    """The prefix of a channel in the store of results, with a slash at the end."""
    return f"_channels/{run.prefix}{encoded(channel.result)}/{channel.generation}/"


def read_account(results: ObjectStore, run: RunName, channel: Channel) -> ChannelAccount:
    """The log as it is listed now. Raises the store's errors."""
    account = ChannelAccount(channel)
    prefix = folder_of(run, channel)
    keys = {
        int(match[1]): info.key
        for info in results.list(f"{prefix}log/")
        if (match := _SLOT.match(info.key, len(prefix)))
    }
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="verify") as pool:
        bodies = pool.map(lambda slot: results.get(keys[slot]).body, sorted(keys))
        for slot, body in zip(sorted(keys), bodies, strict=True):
            if slot != account.slots:
                account.wrong.append((keys[slot], f"slot {account.slots} before it", "a hole"))
                break
            _take(account, keys[slot], slot, body, run)
    return account


def _take(account: ChannelAccount, key: str, slot: int, raw: bytes, run: RunName) -> None:
    account.slots += 1
    try:
        document = json.loads(raw)
        place = [document[name] for name in ("format", "dag_id", "run_key", "group_id", "edge", "generation", "slot")]
        body = document["body"]
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        channel = (account.channel.result, str(account.channel.generation), slot)
        if place != [FORMAT, run.dag_id, run.run_key, run.group_id, *channel] or document["crc"] != zlib.crc32(
            canonical
        ):
            raise ValueError("it belongs elsewhere, or its checksum does not match")
        _RECORDS[document["kind"]](account, key, body)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        account.wrong.append((key, "a record of this channel", f"{type(error).__name__}: {error}"))


def _opened(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    attempt = body["attempt"]
    if attempt <= max(account.opened, default=0):
        account.void += 1
        return
    if account.opened and not body["replays"] and not account.is_finished:
        account.unknown.append(attempt)
    if not account.subs:
        account.subs = [Sub() for _ in range(body["subpartitions"])]
    elif len(account.subs) != body["subpartitions"]:
        account.wrong.append((key, f"{len(account.subs)} subpartitions", str(body["subpartitions"])))
    account.opened[attempt] = key
    account.max_records = body["budget"]["max_lost_records"]
    account.max_fraction = body["budget"]["max_lost_fraction"]


def _published(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    if not _is_producer(account, body) or body["epoch"] <= account.epoch or account.is_finished:
        account.void += 1
        return
    account.epoch = body["epoch"]
    for segment in body["segments"]:
        number, first = segment["sub"], segment["first"]
        sub = account.subs[number]
        if first != sub.published:
            account.wrong.append((key, f"record {sub.published} of subpartition {number} next", str(first)))
        sub.published = first + segment["count"]
        account.retained[segment["key"]] = (number, first, sub.published)


def _dropped(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    if not _is_producer(account, body):
        account.void += 1
        return
    for segment in body["keys"]:
        if account.retained.pop(segment, None) is None:
            account.wrong.append((key, "segments that are kept", f"{segment}, which is not"))


def _finished(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    if _is_producer(account, body):
        account.is_finished = True
    else:
        account.void += 1


def _viewed(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    before = max(account.viewed, default=0)
    if body["attempt"] <= before:
        account.void += 1
        return
    if body["adopt"] is not None:
        # The evicted attempt had published what it made of its plan, so the plan is carried out.
        _complete(account, key, before, body["adopt"], ())
    account.viewed[body["attempt"]] = key
    account.plan = None


def _planned(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    if _is_consumer(account, body):
        account.plan = body["attempt"], body
    else:
        account.void += 1


def _committed(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    is_new = _is_consumer(account, body) and body["batch"] > account.batch
    if not is_new or account.plan is None or account.plan[1]["end"] != body["end"]:
        account.void += 1
    else:
        _complete(account, key, body["attempt"], body["batch"], tuple(body["outputs"]))


def _complete(account: ChannelAccount, key: str, attempt: int, batch: int, outputs: tuple[str, ...]) -> None:
    if account.plan is None:
        account.wrong.append((key, f"a plan that batch {batch} carries out", "none"))
        return
    _, plan = account.plan
    for number, sub in enumerate(account.subs):
        read: list[Range] = [(start, stop) for start, stop in plan["read"][number]]
        lost: list[Range] = [(loss["start"], loss["stop"]) for loss in plan["lost"] if loss["sub"] == number]
        end = plan["end"][number]
        if not _tiles(sub.done, end, [*read, *lost]):
            expected = f"every record of [{sub.done}, {end}) of subpartition {number} read or lost once"
            account.wrong.append((key, expected, f"read {sorted(read)}, lost {sorted(lost)}"))
        if end > sub.published:
            account.wrong.append((key, f"records below {sub.published}, which are published", f"up to {end}"))
        kept = [(first, stop) for at, first, stop in account.retained.values() if at == number]
        gone = [span for span in read if not _covers(kept, span)]
        if gone:
            account.wrong.append((key, f"records of kept segments of subpartition {number}", f"read {gone}"))
        sub.done = max(sub.done, end)
        sub.committed += sum(stop - start for start, stop in read)
        sub.lost += sum(stop - start for start, stop in lost)
    for loss in plan["lost"]:
        account.causes[loss["cause"]] = account.causes.get(loss["cause"], 0) + loss["stop"] - loss["start"]
    account.batch, account.plan = batch, None
    if outputs:
        account.outputs[batch, attempt] = outputs
    _hold_budget(account, key)


def _hold_budget(account: ChannelAccount, key: str) -> None:
    lost, records = account.lost, account.lost + account.committed
    if account.max_records is not None and lost > account.max_records:
        account.over_budget.append((key, f"at most {account.max_records} lost records", str(lost)))
    if account.max_fraction is not None and lost > account.max_fraction * records:
        account.over_budget.append((key, f"at most {account.max_fraction:.4g} of all lost", f"{lost} of {records}"))


def _released(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    if not _is_consumer(account, body):
        account.void += 1
        return
    for number, upto in enumerate(body["upto"]):
        if upto > account.subs[number].done:
            account.wrong.append((key, f"a release up to {account.subs[number].done}, the checkpoint", str(upto)))
    upto = body["upto"]
    account.retained = {name: segment for name, segment in account.retained.items() if segment[2] > upto[segment[0]]}


def _gave_up(account: ChannelAccount, key: str, body: dict[str, Any]) -> None:
    account.void += not _is_producer(account, body)


def _is_producer(account: ChannelAccount, body: dict[str, Any]) -> bool:
    return bool(body["attempt"] == max(account.opened, default=0))


def _is_consumer(account: ChannelAccount, body: dict[str, Any]) -> bool:
    return bool(body["attempt"] == max(account.viewed, default=0))


def _tiles(start: int, end: int, ranges: Iterable[Range]) -> bool:
    """The ranges lie side by side from ``start`` to ``end``: none overlaps, nothing is left out."""
    at = start
    for first, stop in sorted(range_ for range_ in ranges if range_[0] < range_[1]):
        if first != at:
            return False
        at = stop
    return at == max(start, end)


def _covers(kept: list[Range], wanted: Range) -> bool:
    at, stop = wanted
    for first, end in sorted(kept):
        if first <= at < end:
            at = end
    return at >= stop


_RECORDS: dict[str, Any] = {
    "producer": _opened,
    "epoch": _published,
    "drop": _dropped,
    "finish": _finished,
    "fail": _gave_up,
    "view": _viewed,
    "plan": _planned,
    "commit": _committed,
    "release": _released,
}
