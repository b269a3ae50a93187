"""Where each object of a run's journal lies (docs/protocol.md#objects).

    <base>/<dag id>/<run key>/<group id>/plan/<hash>
                                        /fingerprint/<name>
                                        /t/<region>/<n>.claim|outcome|reset|lost|released|committed
                                        /t/<region>/<n>.committer-<turn>, <n>.confirmed-<turn>, <n>.hold-<turn>
                                        /t/<region>/<n>.withdrawn-<turn>, <n>.declared-<turn>
                                        /t/<region>/<n>.part-<k>
                                        /publish/<k>
                                        /closed, closed-<k>
                                        /snap/newest           a cache (`airflow_recovery.journal.record_cache`)
    <base>/_shared/<key>/t/...                            results that outlive a run, by what they are made of
    <base>/_streams/<dag id>/<run key>/<group id>/<writer>/<seq>
    <base>/_splits/<dag id>/<run key>/<group id>/<vertex>/assignment-<g>    which subtask reads which split
    <base>/_servers/<dag id>/<run key>/<group id>/<n>     the run's own Spark (`airflow_recovery.task.run_spark`)
    <base>/_owner, _journal, _key                         (`airflow_recovery.journal.owner`)

and, relative to the base of the results,

    <base>/<dag id>/<run key>/<group id>/<region>/<n>-<x>/    what an attempt has written; ``x`` is random
    <base>/_channels/<dag id>/<run key>/<group id>/<edge>/<generation>/     `airflow_recovery.streaming.folder`
                                                  /_stages/<region>/<n>-<x>/    and its `CheckpointFolder`

Streams and splits lie beside the truth, not below it, so that the one listing of a pre-check never pages through them.
No id can begin with an underscore (`airflow_recovery.model.names`), so they can't meet. ``n`` and ``k`` have eight
digits, but for an epoch, a turn and a committed batch, which have four or more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from airflow_recovery.model.names import encode
from airflow_recovery.model.record_kinds import RECORD_KINDS, kind_of
from airflow_recovery.model.records import Claim, RunIdentity

# Each fits exactly what the methods below write: a number that is written in another way is another name.
_NUMBER = "[0-9]{8}"
_TURN = "(?:[0-9]{4}|[1-9][0-9]{4,7})"
_ATTEMPT_NAME = re.compile(rf"({_NUMBER})\.([a-z]+)(?:-({_TURN}))?")
_KIND_OF_ATTEMPT = re.compile(rf"t/[^/]+/{_NUMBER}\.(?!x-)([a-z]+)(?:-[0-9]+)?")
_KIND_OF_RUN = re.compile(rf"([a-z]+)[/-]{_NUMBER}")
_FOLDER = re.compile(rf"({_NUMBER})(?:-[0-9a-f]{{8}})?")
_DATE_KEY = re.compile(r"date-([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2})([0-9]{2})([0-9]{2}(?:\.[0-9]+)?)Z")
_PLAN_KEY = re.compile("plan/([0-9a-f]+)")
_FINGERPRINT_KEY = re.compile("fingerprint/([0-9a-f]{32})")
_PUBLISH_KEY = re.compile(f"publish/({_NUMBER})")
_CLOSED_KEY = re.compile(f"closed(?:-({_NUMBER}))?")

SHARED_FOLDER = "_shared"
SHARED = "(shared)"
"""In place of a DAG's and a group's id, in the journal of shared results; neither can have parentheses."""


def shared_identity(key: str) -> RunIdentity:
    """The journal of the shared results ``key``, which belongs to no run."""
    return RunIdentity(SHARED, key, SHARED)


def run_key(*, logical_date: str | None, partition_key: str | None, run_id: str) -> str:
    """The identity of a run that survives its deletion: logical date, else asset partition, else run id.

    ``logical_date`` is ISO 8601 in UTC, and loses its colons (``date-2024-01-31T000000Z``). The prefix keeps the three
    kinds apart, so that no run id can pass for a date. A date with another offset is refused with `ValueError`: one
    moment must have one key.
    """
    if partition_key is not None:
        return f"partition-{partition_key}"
    if logical_date is not None:
        if not logical_date.endswith("+00:00"):
            raise ValueError(f"expected a logical date in UTC (+00:00), found {logical_date!r}")
        return f"date-{logical_date.removesuffix('+00:00').replace(':', '')}Z"
    return f"run-{run_id}"


def logical_date_of(key: str) -> str | None:
    """The logical date in a `run_key`, in ISO 8601; `None` where it names a run by something else."""
    dated = _DATE_KEY.fullmatch(key)
    return f"{dated[1]}:{dated[2]}:{dated[3]}+00:00" if dated else None


def names_record(path: str) -> bool:
    """Whether ``path``, below the prefix of some run, is the name of a record: every one says whose run it is."""
    return _attempt_key(path) is not None or any(
        pattern.fullmatch(path) for pattern in (_PLAN_KEY, _FINGERPRINT_KEY, _PUBLISH_KEY, _CLOSED_KEY)
    )


def parse_folder(segment: str) -> int | None:
    """The number of the attempt whose folder has this name, as `folder_of` makes it; `None` for any other name."""
    match = _FOLDER.fullmatch(segment)
    return int(match[1]) if match is not None else None


def folder_of(claim: Claim) -> str:
    """Return the name of the folder that the attempt of ``claim`` writes to: of an old claim, its number alone."""
    return claim.folder or f"{claim.attempt:08d}"


def xcoms_key(folder: str, name: str) -> str:
    """The key among the results of XComs, below the ``folder`` of their attempt."""
    return f"{folder}/_xcoms/{name}.json"


class AttemptKey(NamedTuple):
    """What the name of an object below ``t/`` says. ``number``: a committer's epoch, a pin's turn, a batch's, or 0."""

    region: str
    attempt: int
    kind: str
    number: int = 0


def _attempt_key(path: str) -> AttemptKey | None:
    folder, _, below = path.partition("/")
    region, _, name = below.partition("/")
    parts = _parts_of_name(name) if folder == "t" and region else None
    kind = RECORD_KINDS.get(parts[1]) if parts is not None else None
    if parts is None or kind is None or not kind.is_of_attempt or (parts[2] is None) != (kind.number is None):
        return None
    attempt, _, number = parts
    return None if number is not None and number < kind.first else AttemptKey(region, attempt, kind.name, number or 0)


@lru_cache(maxsize=4096)  # in most regions' folders there are the same names
def _parts_of_name(name: str) -> tuple[int, str, int | None] | None:
    match = _ATTEMPT_NAME.fullmatch(name)
    return (int(match[1]), match[2], None if match[3] is None else int(match[3])) if match is not None else None


@dataclass(frozen=True)
class JournalLayout:
    """The keys of one run's journal, relative to the journal's base."""

    identity: RunIdentity

    @cached_property
    def _path(self) -> str:
        if self.identity.dag_id == SHARED:
            return f"{SHARED_FOLDER}/{encode(self.identity.run_key)}"
        return "/".join(encode(name) for name in (self.identity.dag_id, self.identity.run_key, self.identity.group_id))

    @cached_property
    def prefix(self) -> str:
        """The keys of all records of the run, and no others, begin with this."""
        return f"{self._path}/"

    @property
    def streams(self) -> str:
        """The prefix of the event streams: below it, a folder for each writer."""
        return f"_streams/{self._path}/"

    @property
    def servers(self) -> str:
        """The prefix of the log of the Spark Connect servers that the run has started for itself."""
        return f"_servers/{self._path}/"

    @property
    def splits(self) -> str:
        """The prefix of what is known of the splits of all sources."""
        return f"_splits/{self._path}/"

    def splits_of(self, vertex: str) -> str:
        """What is known of the splits of one source, with a slash at the end."""
        return f"{self.splits}{encode(vertex)}/"

    def assignment(self, vertex: str, generation: int) -> str:
        """One generation of the assignment of a source's splits."""
        return f"{self.assignments(vertex)}{generation:08d}"

    def assignments(self, vertex: str) -> str:
        """What the keys of all generations begin with."""
        return f"{self.splits_of(vertex)}assignment-"

    @property
    def data(self) -> str:
        """Results of all attempts, relative to the base of the results."""
        return self.prefix

    def data_of_region(self, region: str) -> str:
        """What the prefixes of all attempts of a region begin with, without a slash at the end."""
        return f"{self.data}{encode(region)}"

    def data_of(self, claim: Claim) -> str:
        """The prefix that the attempt of ``claim`` writes its results to, without a slash at the end."""
        return f"{self.data_of_region(claim.region)}/{folder_of(claim)}"

    def data_of_number(self, region: str, attempt: int) -> str:
        """What the folders begin with of every claim that had this number, without a slash at the end.

        There are several if the journal came back from a backup, and one of them alone has a claim in it.
        """
        return f"{self.data_of_region(region)}/{attempt:08d}"

    @property
    def channels(self) -> str:
        """All channels of the run and the checkpoints of its streaming regions, relative to the base of the results."""
        return f"_channels/{self._path}/"

    def plan(self, plan_hash: str) -> str:
        """The key of the plan with this hash."""
        return f"{self.prefix}plan/{plan_hash}"

    def fingerprint(self, name: str) -> str:
        """The key of the components with this name (`FingerprintRecord.name`)."""
        return f"{self.prefix}fingerprint/{name}"

    def attempt(self, region: str, attempt: int, kind: str, number: int = 0) -> str:
        """The record of this kind about one attempt; with ``number``, that one of a kind that has several."""
        return f"{self.prefix}t/{encode(region)}/{attempt:08d}.{kind}" + (f"-{number:04d}" if number else "")

    def of_attempt(self, record: Any) -> str | None:
        """The key of a record that is about an attempt; `None` for one of another kind."""
        kind = kind_of(type(record))
        if not kind.is_of_attempt:
            return None
        key = self.attempt(record.region, record.attempt, kind.name)
        return key if kind.number is None else f"{key}-{getattr(record, kind.number):04d}"

    def batch(self, region: str, attempt: int, number: int) -> str:
        """One committed batch of an attempt that commits split by split."""
        return f"{self.prefix}t/{encode(region)}/{attempt:08d}.part-{number:04d}"

    def publish(self, number: int) -> str:
        """The key of a publish, by its number from 1."""
        return f"{self.prefix}publish/{number:08d}"

    def heartbeat(self, region: str, attempt: int) -> str:
        """Overwritten while an attempt runs: a heartbeat, and nothing else."""
        return f"{self.heartbeats}{encode(region)}/{attempt:08d}"

    def follower(self, region: str, attempt: int) -> str:
        """Overwritten while a next try of the task follows the driver of an attempt that an earlier try left."""
        return f"{self.heartbeat(region, attempt)}.follower"

    def pushed(self, region: str, attempt: int) -> str:
        """Overwritten while an attempt runs: the digest of the XComs that its task has pushed so far."""
        return f"{self.heartbeat(region, attempt)}.pushed"

    @property
    def attempts(self) -> str:
        """The prefix of what is said of attempts."""
        return f"{self.prefix}t/"

    @property
    def heartbeats(self) -> str:
        """The prefix of all heartbeats."""
        return f"{self.prefix}h/"

    @property
    def snapshot(self) -> str:
        """Overwritten: what was read of many outcomes, so that the next process reads one object."""
        return f"{self.prefix}snap/newest"

    @property
    def closed(self) -> str:
        """The key of the first tombstone. The keys of all later ones begin with it."""
        return self.tombstone(1)

    def tombstone(self, number: int) -> str:
        """The key of the tombstone that the run's purge of that number leaves, from 1."""
        return f"{self.prefix}closed" + (f"-{number:08d}" if number > 1 else "")

    def parse_attempt(self, key: str) -> AttemptKey | None:
        """Inverse of `attempt`; ``region`` is in its encoded form. `None` for any other key."""
        return _attempt_key(key.removeprefix(self.prefix))

    def unknown_kind(self, key: str) -> str | None:
        """The kind of an object of the run that no version up to this one writes; `None` for every other key.

        A kind is a word with a number: of an attempt ``t/<region>/<n>.<word>`` or ``<n>.<word>-<number>``, of the run
        ``<word>/<number>`` or ``<word>-<number>``. Where the word begins with ``x-`` it may be passed over by who does
        not know it, and so may what has no such name: what a file system or a tool leaves.
        """
        path = key.removeprefix(self.prefix)
        match = _KIND_OF_ATTEMPT.fullmatch(path) or _KIND_OF_RUN.fullmatch(path)
        return match[1] if match is not None and not names_record(path) else None

    def parse_plan(self, key: str) -> str | None:
        """The hash in a plan's key; `None` for any other key."""
        match = _PLAN_KEY.fullmatch(key.removeprefix(self.prefix))
        return match[1] if match else None

    def parse_fingerprint(self, key: str) -> str | None:
        """The name in the key of components; `None` for any other key."""
        match = _FINGERPRINT_KEY.fullmatch(key.removeprefix(self.prefix))
        return match[1] if match else None

    def parse_closed(self, key: str) -> int | None:
        """The number of a tombstone, or `None` for any other key."""
        match = _CLOSED_KEY.fullmatch(key.removeprefix(self.prefix))
        return int(match[1] or 1) if match else None

    def parse_publish(self, key: str) -> int | None:
        """The number of a publish, or `None` for any other key."""
        match = _PUBLISH_KEY.fullmatch(key.removeprefix(self.prefix))
        return int(match[1]) if match else None
