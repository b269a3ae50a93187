"""Records to bytes and back.

One JSON object a record::

    {"format": 1, "kind": "claim", "dag_id": ..., "run_key": ..., "group_id": ..., "body": {...}, "crc": ...}

Reading is strict, since what is read decides what is run: another run's record, a newer format, a wrong checksum, a
duplicate key, a NaN, an id that has no name in a path, or a document that is too large or too deep is refused with
`RecordInvalid`. ``crc`` is the crc32 of the body's canonical JSON. A record without one, as the first journals had
them, is read where it has these fields and no other: one whose ``crc`` was damaged in its name has another.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import asdict, fields
from enum import Enum
from functools import cache
from typing import Any, NoReturn, TypeVar

from airflow_recovery.errors import Failure, RecordInvalid
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.mode import value_class
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    CommitEnd,
    Committed,
    CommitterDead,
    CommitterTurn,
    CoordinatorPlan,
    ExternalObject,
    FenceCause,
    Hold,
    InputRef,
    Lost,
    Outcome,
    Part,
    PlanRecord,
    Publish,
    PublishedRegion,
    ReadMetrics,
    Record,
    RegionPlan,
    Released,
    Reset,
    RunAttempt,
    RunIdentity,
    SharedRef,
    SplitGeneration,
    SubtaskPlan,
)
from airflow_recovery.model.retention import ReleasePolicy, Retention

FORMAT_VERSION = 1
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32

KINDS: dict[str, type[Record]] = {
    "plan": PlanRecord,
    "claim": Claim,
    "part": Part,
    "outcome": Outcome,
    "reset": Reset,
    "lost": Lost,
    "released": Released,
    "assignment": SplitGeneration,
    "committed": Committed,
    "committer": CommitterTurn,
    "confirmed": CommitterDead,
    "hold": Hold,
    "publish": Publish,
    "closed": Closed,
}
_FIELDS_AT_FIRST = {"format", "kind", *(each.name for each in fields(RunIdentity)), "body"}
_WITH_MODE = (RegionPlan, Claim, Outcome)
_BODY_FIRST = b'{"body":'
_KIND_OF: dict[type[Any], str] = {record: kind for kind, record in KINDS.items()}

R = TypeVar("R", bound=Record)


def canonical_json(value: Any) -> str:
    """JSON with one form for equal values: sorted keys, no spaces, ASCII. Refuses NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def encode_record(identity: RunIdentity, record: Record) -> bytes:
    """The bytes of ``record`` in the journal of ``identity``."""
    body = plain(record)
    document = {"format": FORMAT_VERSION, "kind": _KIND_OF[type(record)], **asdict(identity), "body": body}
    return canonical_json({**document, "crc": checksum(body)}).encode()


def decode_record(identity: RunIdentity, kind: type[R], body: bytes, *, where: str) -> R:
    """Inverse of `encode_record`.

    ``where`` names the object in messages. Raises `RecordInvalid` for anything but a record of ``kind`` that belongs to
    ``identity`` and that this version understands.
    """
    document = parse_versioned(body, "journal", FORMAT_VERSION, where=where)
    # Not `asdict`, which copies deeply: a resume decodes thousands of records.
    expected = {"kind": _KIND_OF[kind], **vars(identity)}
    check_belongs(document, expected, where=where)
    if "crc" in document and not _has_crc(body, document):
        raise RecordInvalid(f"{where}: the checksum does not match; the record is damaged. Restore the object.")
    if "crc" not in document and (others := document.keys() - _FIELDS_AT_FIRST):
        raise RecordInvalid(
            f"{where}: expected a checksum (crc), found none, and {', '.join(map(repr, sorted(others)))} beside the "
            "body: the record is damaged. Restore the object."
        )
    try:
        record: R = from_plain(kind, document["body"])
        if isinstance(record, PlanRecord):
            _check_order(record)
        return record
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordInvalid(f"{where}: a {expected['kind']} record with an invalid body: {error!r}.") from error


def _check_order(plan: PlanRecord) -> None:
    """Raise `ValueError` where a region stands twice, or reads one that does not stand before it."""
    before: set[str] = set()
    for region in plan.regions:
        unknown = [each for each in region.inputs if each not in before]
        if unknown or region.name in before:
            found = f"which reads {unknown[0]!r}" if unknown else "a second time"
            raise ValueError(f"expected regions in topological order, each once, found {region.name!r}, {found}")
        before.add(region.name)


def parse_versioned(body: bytes, what: str, newest: int, *, where: str) -> dict[str, Any]:
    """The JSON object of a record of ``what``, in a format from 1 to ``newest``. Raises `RecordInvalid`."""
    document = parse_json(body, where=where)
    if not isinstance(document, dict):
        raise RecordInvalid(f"{where}: expected a JSON object, found {type(document).__name__}.")
    version = document.get("format")
    if type(version) is not int or version < 1:
        raise RecordInvalid(f"{where}: expected a {what} record with a format number, found format={version!r}.")
    if version > newest:
        raise RecordInvalid(
            f"{where}: written by a newer version (format {version}, this version reads up to {newest}). "
            "Upgrade airflow-recovery on this worker."
        )
    return document


def resealed(document: dict[str, Any]) -> bytes:
    """A record's document whose body was changed, with the checksum that it has now."""
    return canonical_json({**document, "crc": checksum(document.get("body"))}).encode()


def check_belongs(document: dict[str, Any], expected: dict[str, str], *, where: str) -> None:
    """Raise `RecordInvalid` where ``document`` is of another journal, or of another kind, than what is expected."""
    for name, value in expected.items():
        if document.get(name) != value:
            raise RecordInvalid(
                f"{where}: belongs to another journal: expected {name}={value!r}, found {document.get(name)!r}. "
                "Give every DAG and environment a journal prefix of its own ([recovery] journal)."
            )


def checksum(body: Any) -> int:
    """The CRC-32 of a record's body, in its canonical form."""
    return zlib.crc32(canonical_json(body).encode())


def _has_crc(raw: bytes, document: dict[str, Any]) -> bool:
    """Whether the checksum is that of the body. In a record as we write it the body's bytes stand in front."""
    crc = document["crc"]
    end = raw.rfind(b',"crc":')
    if type(crc) is int and raw.startswith(_BODY_FIRST) and zlib.crc32(raw[len(_BODY_FIRST) : end]) == crc:
        return True
    return bool(crc == checksum(document.get("body")))


def parse_json(body: bytes, *, where: str) -> Any:
    """Strict JSON: bounded size and depth, no duplicate keys, no NaN. Raises `RecordInvalid`."""
    if len(body) > MAX_RECORD_BYTES:
        raise RecordInvalid(f"{where}: {len(body)} bytes, more than the limit of {MAX_RECORD_BYTES}.")
    # With so few brackets it is not too deep, however they are nested: most documents need no closer look.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise RecordInvalid(f"{where}: nested deeper than {MAX_DEPTH} levels.")
    try:
        return _DECODER.decode(body.decode())
    except ValueError as error:
        raise RecordInvalid(f"{where}: not a valid journal document: {error}.") from error


def plain(value: Any) -> Any:
    """Dataclasses, enums and tuples as JSON values."""
    kind: Any = type(value)
    if kind is str or kind is int or value is None:  # most values, of the thousands in a plan
        return value
    if isinstance(value, PartitionManifest):
        return to_json(value)
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "__dataclass_fields__"):
        found = [(name, getattr(value, name), omitted) for name, omitted in _omitted(kind)]
        own = {name: plain(content) for name, content, omitted in found if content != omitted}
        return {**own, **to_json(value.mode)} if kind in _WITH_MODE else own
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


@cache
def _omitted(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Each field of a record, with the value at which it is not written (`later`), else one that equals nothing."""
    own = [each for each in fields(kind) if not (kind in _WITH_MODE and each.name == "mode")]
    return tuple((each.name, each.default if each.metadata.get("later") else object()) for each in own)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, found {value!r}")
    return value


def _tuple_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: tuple(read(each) for each in _list(value))


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _record(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda value: from_plain(kind, value)


def _names(value: Any) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in _list(value)):
        raise ValueError(f"expected names, found {value!r}")
    return tuple(value)


def _id(value: Any) -> str:
    # It stands in keys: neither empty, nor with half a character, which has no bytes (`UnicodeEncodeError`).
    if not isinstance(value, str) or not (value if value.isascii() else value.encode()):
        raise ValueError(f"expected an id, found {value!r}")
    return value


def _ids(value: Any) -> tuple[str, ...]:
    return tuple(_id(each) for each in _list(value))


def _pair(value: Any) -> tuple[str, ...]:
    if len(pair := _names(value)) != 2:
        raise ValueError(f"expected two names, found {value!r}")
    return pair


def _owners(value: Any) -> tuple[tuple[str, int, str, int], ...]:
    found = []
    for each in _list(value):
        uri, size, etag, home = _list(each)
        # Not bools, which are numbers to Python.
        if [type(uri), type(size), type(etag), type(home)] != [str, int, str, int] or size < 0 or home < 0:
            raise ValueError(f"expected a split as [uri, size, etag, subtask], found {each!r}")
        found.append((uri, size, etag, home))
    return tuple(found)


def _count(value: Any) -> tuple[str, float]:
    name, amount = _list(value)
    if type(name) is not str or type(amount) not in (int, float):
        raise ValueError(f"expected a name and a number, found {value!r}")
    return name, amount


def _mode(value: Any) -> tuple[str, Determinism]:
    result, mode = _pair(value)
    return result, Determinism(mode)


def _manifest(value: Any) -> PartitionManifest:
    return from_json(PartitionManifest, value)


# How the fields that are not plain JSON scalars are read back.
_READERS: dict[type[Any], dict[str, Callable[[Any], Any]]] = {
    RegionPlan: {
        "name": _id,
        "vertices": _names,
        "results": _ids,
        "inputs": _ids,
        "vertex_fingerprints": _tuple_of(_pair),
        "reads": _names,
        "determinism": _tuple_of(_mode),
        "subtask": _optional(_record(SubtaskPlan)),
        "commit": _optional(_record(CommitSpec)),
        "coordinators": _tuple_of(_record(CoordinatorPlan)),
        "fixed": _tuple_of(_pair),
    },
    InputRef: {"region": _id, "digests": _tuple_of(_pair)},
    RunAttempt: {"dag_id": _id, "run_key": _id, "group_id": _id, "region": _id},
    SharedRef: {"key": _id, "region": _id},
    PlanRecord: {
        "regions": _tuple_of(_record(RegionPlan)),
        "retention": _optional(_record(Retention)),
        "failover_strategy": FailoverStrategy,
    },
    Retention: {"policy": ReleasePolicy},
    Claim: {
        "region": _id,
        "inputs": _tuple_of(_record(InputRef)),
        "owner": _optional(_record(RunAttempt)),
    },
    Part: {
        "region": _id,
        "splits": _names,
        "outputs": _tuple_of(_manifest),
        "lost": _optional(_record(Failure)),
        "accumulators": _tuple_of(_count),
    },
    Outcome: {
        "region": _id,
        "state": AttemptState,
        "inputs": _tuple_of(_record(InputRef)),
        "externals": _tuple_of(_record(ExternalObject)),
        "outputs": _tuple_of(_manifest),
        "cause": _optional(FenceCause),
        "failure": _optional(_record(Failure)),
        "shared": _optional(_record(SharedRef)),
        "subtasks": _names,
        "read": _optional(_record(ReadMetrics)),
        "accumulators": _tuple_of(_count),
        "commit": _optional(_record(CommitSpec)),
        "coordinators": _tuple_of(_pair),
    },
    Failure: {"chain": _names, "labels": _tuple_of(_pair)},
    PublishedRegion: {"region": _id, "results": _names},
    SplitGeneration: {"vertex": _id, "splits": _owners, "gone": _owners},
    CommitSpec: {"kind": CommitKind, "mode": CommitMode},
    Committed: {"region": _id, "end": CommitEnd},
    Reset: {"region": _id},
    Released: {"region": _id},
    CommitterTurn: {"region": _id},
    CommitterDead: {"region": _id},
    Hold: {"region": _id},
    Lost: {"region": _id, "evidence": _names, "plan": _tuple_of(_pair)},
    Publish: {"regions": _tuple_of(_record(PublishedRegion)), "skipped": _names},
    Closed: {"highest": _tuple_of(_record(InputRef))},
}


def from_plain(kind: Any, value: dict[str, Any]) -> Any:
    """The record of ``kind`` that `plain` made ``value`` of. Raises `ValueError`, `KeyError`, `TypeError` or
    `AttributeError` for anything else.
    """
    readers = _readers(kind)
    # A field of a later minor version is ignored: what changes meaning raises the format number instead.
    found = {name: readers[name](each) for name, each in value.items() if name in readers}
    if kind in _WITH_MODE:
        found["mode"] = from_json(value_class(kind, value), value)
    return kind(**found)


@cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """How each field of a record is read back."""
    own, types = _READERS.get(kind, {}), {each.name: each.type for each in fields(kind)}
    return {name: own.get(name) or _scalar(name, types[name]) for name, _ in _omitted(kind)}


# By the annotation's text: the records' annotations are not evaluated. A bool is no number here.
_SCALARS: dict[Any, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
    "bool": (bool,),
}


def _scalar(name: str, annotation: Any) -> Callable[[Any], Any]:
    allowed = _SCALARS[annotation]

    def read(value: Any) -> Any:
        kind = type(value)
        if kind not in allowed or (kind is int and value < 0):
            raise ValueError(f"{name}: expected {annotation}, found {value!r}")
        return value

    return read


_TOKEN = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)


def _depth(body: bytes) -> int:
    """Nesting depth, without parsing: a document that is too deep would exhaust the parser's stack."""
    depth = deepest = 0
    in_string = False
    for found in _TOKEN.finditer(body):
        token = found[0]
        if token == b'"':
            in_string = not in_string
        elif in_string or token[0] == 0x5C:
            continue
        elif token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > MAX_DEPTH:
                return deepest
        else:
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
