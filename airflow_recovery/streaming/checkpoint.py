"""Spark's checkpoint of one attempt: a copy of an earlier attempt's, cut at what the channel's log has completed.

An attempt that was taken for dead may live, and writes on into its checkpoint; so each attempt has one of its own. What
an earlier one holds beyond the log's last completed batch belongs to an aborted checkpoint, and is left behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from airflow_recovery.errors import ChannelInconsistent, ObjectMissing
from airflow_recovery.model.codec import OrMinusOne, from_json, to_json
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_records import Offsets
from airflow_recovery.streaming.folder import CheckpointFolder

_BATCH = re.compile(r"(?:offsets|commits)/(\d+)(?:\.compact)?")
_STATE = re.compile(r"state/.*/(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|zip|changelog)")
_CONNECTIONS = 16


@dataclass(frozen=True)
class Place:
    """How far a reader is, in one generation of its channel: the offset that Spark keeps."""

    generation: int
    at: Offsets


@dataclass(frozen=True)
class Checkpoint:
    """``key``: the folder in the store. Spark's batch ``n`` is the log's batch ``base + n``.

    ``cut``: Spark's newest batch in the fork, -1 for none; it stands for the log's batches up to ``cut_to``.
    ``begins``: where its batch 0 began to read, which Spark does not keep: it asks again where it repeats that batch.
    `None` for a region that reads no channel.
    """

    key: str
    base: int
    cut: OrMinusOne
    cut_to: OrMinusOne
    begins: Place | None


def prepare_checkpoint(
    store: ObjectStore,
    folder: CheckpointFolder,
    attempt: str,
    *,
    earlier: Sequence[str],
    completed: int,
    may_begin: bool,
    begins: Place | None = None,
    skips: int = 0,
) -> Checkpoint:
    """Make the checkpoint of ``attempt``. To be called when no earlier attempt can complete anything any more.

    ``attempt`` and ``earlier``, which ascends, are names of folders (`checkpoints_of`).

    ``completed``: the log's last completed batch, -1 where there is none; ``skips``: so many numbers behind it are
    taken. Only the newest of the ``earlier`` attempts that had a whole checkpoint counts. ``may_begin``: the query
    needs nothing of a checkpoint but where it was, which the log says as well: at ``begins``. Raises
    `ChannelInconsistent` where it needs more, and there is none.
    """
    key, cut_to = f"{folder.attempt(attempt)}/checkpoint", completed + skips
    newest = _newest(store, folder, earlier) if completed >= 0 else None
    if newest is not None:
        cut = newest.cut if completed <= newest.cut_to else completed - newest.base
        names = [info.key[len(newest.key) + 1 :] for info in store.list(f"{newest.key}/")] if cut >= 0 else []
        if f"offsets/{cut}" in names:
            _copy(store, newest.key, key, kept(names, cut))
            return _mark(store, folder, attempt, Checkpoint(key, cut_to - cut, cut, cut_to, newest.begins))
    if completed >= 0 and not may_begin:
        raise ChannelInconsistent(
            f"region {folder.region!r}: expected Spark's checkpoint of batch {completed} below "
            f"{folder.attempt(attempt).rpartition('/')[0]}, found {'none' if newest is None else 'one without it'}: "
            "its state, or its place in its source, is lost, so that the regions at the channel start over. Keep "
            "lifecycle rules and clean-up jobs off that prefix",
            code="spark-checkpoint-lost",
        )
    return _mark(store, folder, attempt, Checkpoint(key, cut_to + 1, -1, cut_to, begins))


def kept(names: Iterable[str], batch: int) -> list[str]:
    """What of a checkpoint belongs to its batches up to ``batch``: their state is one version further.

    A source's own log is taken whole: what it holds beyond is what it will be asked for next.
    """
    belonging = []
    for name in names:
        if any(part.startswith(".") for part in name.split("/")):
            continue
        of_batch, of_state = _BATCH.fullmatch(name), _STATE.fullmatch(name)
        if of_batch is not None and int(of_batch[1]) > batch:
            continue
        if of_state is not None and int(of_state[1]) > batch + 1:
            continue
        belonging.append(name)
    return belonging


def lineage_key(folder: CheckpointFolder, attempt: str) -> str:
    """Where an attempt says how its checkpoint came to be, once it is whole."""
    return f"{folder.attempt(attempt)}/lineage"


def read_lineage(store: ObjectStore, key: str) -> Checkpoint:
    """Inverse of what `prepare_checkpoint` leaves at `lineage_key`. Raises `ObjectMissing`."""
    document = json.loads(store.get(key).body)
    return from_json(Checkpoint, {**document, "key": f"{key.rpartition('/')[0]}/checkpoint"})


def _newest(store: ObjectStore, folder: CheckpointFolder, earlier: Sequence[str]) -> Checkpoint | None:
    for name in reversed(earlier):
        with suppress(ObjectMissing):
            return read_lineage(store, lineage_key(folder, name))
    return None


def _copy(store: ObjectStore, source: str, target: str, names: Sequence[str]) -> None:
    def copy(name: str) -> None:
        store.put(f"{target}/{name}", store.get(f"{source}/{name}", max_bytes=None).body)

    with ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="recovery-fork") as pool:
        for _ in pool.map(copy, names):
            pass


def _mark(store: ObjectStore, folder: CheckpointFolder, attempt: str, made: Checkpoint) -> Checkpoint:
    """From now on it is whole: of an attempt that died before nothing counts."""
    body = to_json(made)
    del body["key"]
    store.put(lineage_key(folder, attempt), json.dumps(body).encode())
    return made
