"""The journal's JSON objects, as documented for format 1, as far as the invariants speak of them.

Of format 2, `airflow_recovery.verify.groups` writes out first what stands for many.

A field that is not named here is not looked at. Every ``read`` raises `KeyError`, `TypeError` or `ValueError` where the
object is not what it should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple


class Named(NamedTuple):
    """One attempt of one region, by its name: ``by_route@3``."""

    region: str
    attempt: int

    @property
    def text(self) -> str:
        """The name as findings show it: ``by_route@3``."""
        return f"{self.region}@{self.attempt}"


@dataclass(frozen=True)
class InputRef:
    """What an attempt reads; the digest of each result that it was told, where rows are digested."""

    of: Named
    digests: dict[str, str]

    @classmethod
    def read(cls, body: dict[str, Any]) -> InputRef:
        """Read the JSON of an input reference, as format 1 documents it."""
        return cls(Named(body["region"], _number(body["attempt"])), dict(body.get("digests", ())))


@dataclass(frozen=True)
class Adopted:
    """Committed batches that a claim takes over of an attempt: those below ``length``, but for the ``dropped`` ones."""

    attempt: int
    length: int
    dropped: tuple[int, ...]

    @classmethod
    def read(cls, body: dict[str, Any]) -> Adopted:
        """Read the JSON of batches that were adopted, as format 1 documents it."""
        return cls(_number(body["attempt"]), _number(body["length"]), tuple(map(_number, body.get("dropped", ()))))


class Channel(NamedTuple):
    """A result that is a channel, in one generation."""

    result: str
    generation: int

    @classmethod
    def read_all(cls, body: dict[str, Any]) -> tuple[Channel, ...]:
        """Those at the ends of an attempt of a streaming region, from JSON."""
        return tuple(cls(_text(row["result"]), _number(row["generation"])) for row in body.get("channels", ()))


@dataclass(frozen=True)
class Claim:
    """The record that an attempt has begun: who claimed it, by which plan, and what it reads."""

    writer: str
    plan: str
    inputs: tuple[InputRef, ...]
    owner: tuple[str, str, str] | None
    """In the journal of shared results: DAG, run key and group of the run whose claim it is."""
    base: tuple[Adopted, ...] = ()
    reading: str | None = None
    channels: tuple[Channel, ...] = ()
    after_clear: bool = False
    """Its task was cleared, and code of it can't be seen: that is a cause to run."""

    @classmethod
    def read(cls, body: dict[str, Any]) -> Claim:
        """Read the JSON of a claim, as format 1 documents it."""
        owner = body.get("owner")
        return cls(
            _text(body["writer"]),
            _text(body["plan_hash"]),
            _inputs(body["inputs"]),
            None if owner is None else (owner["dag_id"], owner["run_key"], owner["group_id"]),
            tuple(map(Adopted.read, body.get("base", ()))),
            body.get("reading"),
            Channel.read_all(body),
            bool(body.get("after_clear", False)),
        )


@dataclass(frozen=True)
class Manifest:
    """One result as one attempt wrote it. ``objects``: path below ``location`` -> size and etag."""

    result: str
    location: str
    objects: dict[str, tuple[int, str]]
    rows: int | None
    managed: bool
    digest: str | None

    def uris(self) -> list[tuple[str, int, str]]:
        """Where each object is, with its size and etag."""
        return [(f"{self.location}/{path}", size, etag) for path, (size, etag) in self.objects.items()]

    @classmethod
    def read(cls, body: dict[str, Any]) -> Manifest:
        """Read the JSON of a manifest, as format 1 documents it."""
        objects = {_text(path): (_number(size), _text(etag)) for path, size, etag in body["objects"]}
        rows = body["rows"]
        return cls(
            _text(body["result"]),
            _text(body["location"]),
            objects,
            None if rows is None else _number(rows),
            bool(body["managed"]),
            body.get("digest"),
        )


@dataclass(frozen=True)
class CommittedBatchRef:
    """A committed batch that a finish is made of."""

    attempt: int
    number: int
    splits: tuple[str, ...]

    @classmethod
    def read(cls, body: dict[str, Any]) -> CommittedBatchRef:
        """Read the JSON of a committed batch's name, as format 1 documents it."""
        return cls(_number(body["attempt"]), _number(body["number"]), tuple(map(_text, body["splits"])))


@dataclass(frozen=True)
class CommittedBatch:
    """Splits that were committed, and what was made of them."""

    number: int
    writer: str
    splits: tuple[str, ...]
    outputs: tuple[Manifest, ...]

    @classmethod
    def read(cls, body: dict[str, Any]) -> CommittedBatch:
        """Read the JSON of a committed batch, as format 1 documents it."""
        return cls(
            _number(body["number"]),
            _text(body["writer"]),
            tuple(map(_text, body["splits"])),
            tuple(map(Manifest.read, body["outputs"])),
        )


@dataclass(frozen=True)
class Outcome:
    """An attempt has ended. ``shared``: key, region and attempt of the shared result that it holds."""

    is_finished: bool
    writer: str
    fingerprint: str | None
    inputs: tuple[InputRef, ...]
    externals: frozenset[tuple[str, str, int, str]]
    outputs: tuple[Manifest, ...]
    shared: tuple[str, Named] | None
    commits: bool = False
    """It is only prepared: a sink has to take it over."""
    batches: tuple[CommittedBatchRef, ...] = ()
    """Where it was committed split by split; its objects lie under several attempts then."""
    lost_splits: int = 0
    channels: tuple[Channel, ...] = ()

    @classmethod
    def read(cls, body: dict[str, Any]) -> Outcome:
        """Read the JSON of an outcome, as format 1 documents it."""
        if body["state"] not in ("FINISHED", "FENCED"):
            raise ValueError(f"expected FINISHED or FENCED, found {body['state']!r}")
        shared = body.get("shared")
        return cls(
            body["state"] == "FINISHED",
            _text(body["writer"]),
            body["fingerprint"],
            _inputs(body["inputs"]),
            frozenset((row["vertex"], row["uri"], row["size"], row["etag"]) for row in body["externals"]),
            tuple(map(Manifest.read, body["outputs"])),
            None if shared is None else (shared["key"], Named(shared["region"], _number(shared["attempt"]))),
            body.get("commit") is not None,
            tuple(map(CommittedBatchRef.read, body.get("parts", ()))),
            len(body.get("lost_splits", ())),
            Channel.read_all(body),
        )

    def manifest(self, result: str) -> Manifest | None:
        """The manifest of ``result``; `None` where the attempt has no such result."""
        return next((output for output in self.outputs if output.result == result), None)


@dataclass(frozen=True)
class Reset:
    """Attempts up to a number do not count any more."""

    who: str
    why: str
    altered: bool = False
    """Only the output channel of a region is another one; what it has read stays read."""

    @classmethod
    def read(cls, body: dict[str, Any]) -> Reset:
        """Read the JSON of a reset, as format 1 documents it."""
        return cls(_text(body["who"]), _text(body["why"]), bool(body.get("altered", False)))


@dataclass(frozen=True)
class Committed:
    """How the commit of an attempt to its sink has ended. ``is_done``: the sink has it, or rows of a later date."""

    is_done: bool

    @classmethod
    def read(cls, body: dict[str, Any]) -> Committed:
        """Read the JSON of the end of a commit, as format 1 documents it."""
        if body["end"] not in ("COMMITTED", "SUPERSEDED", "ABANDONED"):
            raise ValueError(f"expected COMMITTED, SUPERSEDED or ABANDONED, found {body['end']!r}")
        return cls(body["end"] != "ABANDONED")


@dataclass(frozen=True)
class Withdrawal:
    """A person has taken an attempt from readers outside the run (an odd turn), or has given it back."""

    turn: int

    @classmethod
    def read(cls, body: dict[str, Any]) -> Withdrawal:
        """Read the JSON of a withdrawal, as format 1 documents it."""
        _text(body["who"]), _text(body["reason"])
        return cls(_number(body["turn"]))


@dataclass(frozen=True)
class Lost:
    """A result was missed. ``decided``: what runs for it, as it was decided (region, why)."""

    reporter: str
    evidence: tuple[str, ...]
    decided: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, body: dict[str, Any]) -> Lost:
        """Read the JSON of a report of loss, as format 1 documents it."""
        decided = tuple((_text(region), _text(why)) for region, why in body.get("plan", ()))
        return cls(_text(body["reporter"]), tuple(map(_text, body["evidence"])), decided)


@dataclass(frozen=True)
class PlannedRegion:
    """One region of one version of the job. ``modes``: result -> verify or assume; every other one is ``always``."""

    name: str
    vertices: tuple[str, ...]
    results: tuple[str, ...]
    inputs: tuple[str, ...]
    reads: tuple[str, ...]
    final: bool
    fingerprint: str | None
    modes: dict[str, str]
    subtask: tuple[str, str] | None
    """Of which region it is a subtask, and its key."""
    split_source: str | None = None
    pulls_splits: bool = False
    channels_in: tuple[str, ...] = ()
    channels_out: tuple[str, ...] = ()

    @classmethod
    def read(cls, body: dict[str, Any]) -> PlannedRegion:
        """Read the JSON of a region of a plan, as format 1 documents it."""
        subtask = body.get("subtask")
        return cls(
            _text(body["name"]),
            tuple(body["vertices"]),
            tuple(body["results"]),
            tuple(body["inputs"]),
            tuple(body.get("reads", ())),
            bool(body["final"]),
            body["fingerprint"],
            dict(body.get("determinism", ())),
            None if subtask is None else (subtask["of"], subtask["key"]),
            body.get("split_source"),
            bool(body.get("pulls_splits", False)),
            tuple(_text(row["result"]) for row in body.get("channels_in", ())),
            tuple(_text(row["result"]) for row in body.get("channels_out", ())),
        )


@dataclass(frozen=True)
class Plan:
    """One version of the job's topology. ``hash`` is computed from its content here."""

    hash: str
    regions: tuple[PlannedRegion, ...]

    def modes(self, consumer: PlannedRegion, producer: PlannedRegion) -> dict[str, str]:
        """How the consumer is held to each result that it reads of the producer."""
        read = [result for result in producer.results if not consumer.reads or result in consumer.reads]
        return {result: producer.modes.get(result, "always") for result in read} or {"": "always"}

    def region(self, name: str) -> PlannedRegion | None:
        """The region of that name; `None` where the plan has none."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, PlannedRegion]:
        return {region.name: region for region in reversed(self.regions)}


@dataclass(frozen=True)
class Published:
    """One region in a publish: its attempt, the etag of that one's outcome object, and the results that are named."""

    of: Named
    outcome_etag: str
    results: tuple[str, ...]


@dataclass(frozen=True)
class Publish:
    """The record that readers outside the run follow: an attempt of each region, and the regions that were skipped."""

    regions: tuple[Published, ...]
    skipped: tuple[str, ...]

    @classmethod
    def read(cls, body: dict[str, Any]) -> Publish:
        """Read the JSON of a publish, as format 1 documents it."""
        regions = tuple(
            Published(Named(row["region"], _number(row["attempt"])), _text(row["outcome_etag"]), tuple(row["results"]))
            for row in body["regions"]
        )
        return cls(regions, tuple(body["skipped"]))

    def attempts(self) -> dict[str, int]:
        """The attempt of each region that is named."""
        return {region.of.region: region.of.attempt for region in self.regions}


def _inputs(value: Any) -> tuple[InputRef, ...]:
    """A tuple is what groups were written out as."""
    return value if isinstance(value, tuple) else tuple(map(InputRef.read, value))


def highest_of(body: dict[str, Any]) -> dict[str, int]:
    """Of a tombstone: region -> the highest attempt that was purged."""
    return {_text(row["region"]): _number(row["attempt"]) for row in body["highest"]}


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a number, found {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")
    return value
