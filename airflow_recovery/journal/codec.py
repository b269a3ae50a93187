"""Records to bytes and back.

One JSON object a record::

    {"format": 1 or 2, "kind": "claim", "dag_id": ..., "run_key": ..., "group_id": ..., "body": {...}, "crc": ...}

Reading is strict, since what is read decides what is run: another run's record, a newer format, a wrong checksum, a
duplicate key, a NaN, an id that has no name in a path, or a document that is too large or too deep is refused with
`RecordInvalid`. What would be too large is not written either (`check_size`). ``crc`` is the crc32 of the body's
canonical JSON. A record without one, as the first journals had them, is read where it has these fields and no other:
one whose ``crc`` was damaged in its name has another.

A record has the lowest format that can express it: 2 where a group of regions stands in it (`is_grouped`), else 1.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

from airflow_recovery.errors import JobDefinitionError, RecordInvalid
from airflow_recovery.model.codec import Unlike, canonical_json, from_json, to_json
from airflow_recovery.model.groups import are_written_as_groups
from airflow_recovery.model.inputs import Inputs
from airflow_recovery.model.record_kinds import kind_of
from airflow_recovery.model.records import Claim, Outcome, PlanRecord, Record, RunIdentity, SplitGeneration

FORMAT_VERSION = 2
"""The newest. A version that reads less refuses a record by its number, before it looks at anything else of it."""
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32

_FIELDS_AT_FIRST = {"format", "kind", *(field_.name for field_ in fields(RunIdentity)), "body"}
_BODY_FIRST, _CRC = b'{"body":', b',"crc":'

R = TypeVar("R", bound=Record)


def encode_record(identity: RunIdentity, record: Record) -> bytes:
    """The bytes of ``record`` in the journal of ``identity``."""
    body = to_json(record)
    document = {
        "format": 2 if is_grouped(record) else 1,
        "kind": kind_of(type(record)).name,
        **asdict(identity),
        "body": body,
    }
    return canonical_json({**document, "crc": checksum(body)}).encode()


def checked_record(identity: RunIdentity, record: Record) -> bytes:
    """As `encode_record`, for a record that is to be written. Raises `JobDefinitionError` as `check_size`."""
    body = encode_record(identity, record)
    if isinstance(record, Outcome):
        made = sum(len(output.objects) for output in record.outputs)
        check_size(body, f"the outcome of {record.region}, which reads {len(record.externals)} files and makes {made}")
    elif isinstance(record, SplitGeneration):
        check_size(body, f"the subtasks of {record.vertex} and the {len(record.splits)} splits that they read")
    else:
        check_size(body, f"a {kind_of(type(record)).name} of {getattr(record, 'region', identity.dag_id)}")
    return body


def check_size(body: bytes, what: str) -> None:
    """Before ``body`` is written. Raises `JobDefinitionError` where nobody would read it: the run would be stuck."""
    if len(body) > MAX_RECORD_BYTES:
        raise JobDefinitionError(
            f"expected at most {MAX_RECORD_BYTES} bytes in a record of the journal, found {len(body)} for {what}: "
            "nothing was written, and a retry would find the same. Have fewer and larger files (compact what is read, "
            "repartition what is made), read them as a table, or name a part of them for each subtask: "
            "parallelism=[...], with {{ subtask }} in the pattern",
            code="record-too-large-to-write",
        )


def decode_record(identity: RunIdentity, kind: type[R], body: bytes, *, where: str) -> R:
    """Inverse of `encode_record`.

    ``where`` names the object in messages. Raises `RecordInvalid` for anything but a record of ``kind`` that belongs to
    ``identity`` and that this version understands.
    """
    name = kind_of(kind).name
    format_, content = _as_written(identity, name, body, where) or _of_document(identity, name, body, where)
    try:
        record = from_json(kind, content)
        if is_grouped(record) and format_ == 1:
            raise Unlike("expected no group of regions in a record of format 1, found one")
        if isinstance(record, PlanRecord) and not is_grouped(record):
            _check_order(record)
        return record
    except ValueError as error:
        raise RecordInvalid(f"{where}: a {name} record with an invalid body: {error}.") from error


def _as_written(identity: RunIdentity, kind: str, raw: bytes, where: str) -> tuple[int, Any] | None:
    """Format and body of an undamaged record of ours; `None` for anything else. Nothing but the body is parsed.

    A resume decodes thousands of records, in which all beside the body is alike.
    """
    _check_size_and_depth(raw, where)
    end = raw.rfind(_CRC)
    behind = raw.find(b",", end + len(_CRC))
    format_ = _end_of_record(identity, kind).get(raw[behind:])
    body = raw[len(_BODY_FIRST) : end]
    is_whole = raw.startswith(_BODY_FIRST) and raw[end + len(_CRC) : behind] == b"%d" % zlib.crc32(body)
    if format_ is None or not is_whole:
        return None
    try:
        return format_, _DECODER.decode(body.decode())
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _end_of_record(identity: RunIdentity, kind: str) -> dict[bytes, int]:
    """What stands behind the checksum in a record as we write it, by format."""
    ends = {}
    for format_ in range(1, FORMAT_VERSION + 1):
        document = {"format": format_, "kind": kind, **vars(identity)}
        ends[b"," + canonical_json(document).encode()[1:]] = format_
    return ends


def _of_document(identity: RunIdentity, kind: str, body: bytes, where: str) -> tuple[int, Any]:
    """Format and body of a record whose fields may stand in any order. Raises `RecordInvalid`."""
    document = parse_versioned(body, "journal", FORMAT_VERSION, where=where)
    check_belongs(document, {"kind": kind, **vars(identity)}, where=where)
    if "crc" in document and document["crc"] != checksum(document.get("body")):
        raise RecordInvalid(
            f"{where}: the checksum does not match; the record is damaged. Restore the object.", code="record-checksum"
        )
    if "crc" not in document and document["format"] > 1:
        raise RecordInvalid(
            f"{where}: expected a checksum (crc), found none: the record is damaged. Restore the object.",
            code="record-without-checksum",
        )
    if "crc" not in document and (others := document.keys() - _FIELDS_AT_FIRST):
        raise RecordInvalid(
            f"{where}: expected a checksum (crc), found none, and {', '.join(map(repr, sorted(others)))} beside the "
            "body: the record is damaged. Restore the object."
        )
    return document["format"], document.get("body")


def is_grouped(record: Record) -> bool:
    """Whether a group of regions stands in the JSON of ``record``, so that it has format 2."""
    if isinstance(record, PlanRecord):
        return are_written_as_groups(record.regions)
    return isinstance(record, (Claim, Outcome)) and type(record.inputs) is Inputs and bool(record.inputs.groups)


def _check_order(plan: PlanRecord) -> None:
    """Raise `ValueError` where a region stands twice, or reads one that does not stand before it."""
    before: set[str] = set()
    for region in plan.regions:
        unknown = [producer for producer in region.inputs if producer not in before]
        if unknown or region.name in before:
            text = f"which reads {unknown[0]!r}" if unknown else "a second time"
            raise ValueError(f"expected regions in topological order, each once, found {region.name!r}, {text}")
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
            "Upgrade airflow-recovery on this worker.",
            code="record-newer",
            format=version,
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
                "Give every DAG and environment a journal prefix of its own ([recovery] journal).",
                code="record-of-other-journal",
            )


def checksum(body: Any) -> int:
    """The CRC-32 of a record's body, in its canonical form."""
    return zlib.crc32(canonical_json(body).encode())


def parse_json(body: bytes, *, where: str) -> Any:
    """Strict JSON: bounded size and depth, no duplicate keys, no NaN. Raises `RecordInvalid`."""
    _check_size_and_depth(body, where)
    try:
        return _DECODER.decode(body.decode())
    except ValueError as error:
        raise RecordInvalid(f"{where}: not a valid journal document: {error}.", code="record-no-json") from error


def _check_size_and_depth(body: bytes, where: str) -> None:
    if len(body) > MAX_RECORD_BYTES:
        raise RecordInvalid(
            f"{where}: {len(body)} bytes, more than the limit of {MAX_RECORD_BYTES}.", code="record-too-large"
        )
    # With so few brackets it is not too deep, however they are nested: most documents need no closer look.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise RecordInvalid(f"{where}: nested deeper than {MAX_DEPTH} levels.")


_TOKEN = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)


def _depth(body: bytes) -> int:
    """Nesting depth, without parsing: a document that is too deep would exhaust the parser's stack."""
    depth = deepest = 0
    in_string = False
    for match in _TOKEN.finditer(body):
        token = match[0]
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
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key appears twice")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
