"""Run with an older version of the package on the path: what does it make of the journal of a newer one?

Standard input: ``{"identity": [dag_id, run_key, group_id], "records": {name: [kind, text]}, "events": {name: event},
"listings": [name, ...]}``; the last are names of objects below the prefix of a run. Standard output: ``{"from": folder
of the package, "records" | "events" | "listings": {name: what it says}}``. Of a record or an event: ``read``, ``read
without <fields>`` that it does not write again, ``passed over``, ``no such kind``, or ``refused: <words>``. Of a name:
``listed``, ``passed over`` or that. Imports what every version since the first one has, under the name of its time.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any


def first(*names: str) -> Any:
    """The first of these (``module:attribute``) that this version has; `None`: it has none."""
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(f"airflow_recovery.{module}"), attribute)
        except (ImportError, AttributeError):
            continue
    return None


encode_record, decode_record = first("journal.codec:encode_record"), first("journal.codec:decode_record")
RunIdentity = first("model.records:RunIdentity", "journal.records:RunIdentity")
LocalStore, Journal = first("store.local:LocalStore", "storage.local:LocalStore"), first("journal.journal:Journal")
KINDS = first("journal.codec:KINDS") or {
    name: getattr(kind, "record", kind) for name, kind in first("model.record_kinds:RECORD_KINDS").items()
}


def missing(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The fields of ``before`` that ``after`` has not, or has with another value."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from (
                missing(value, after[key], f"{where}.{key}" if where else key)
                if key in after
                else [f"{where}.{key}" if where else key]
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for value, other in zip(before, after):  # noqa: B905 - as long as each other
            yield from missing(value, other, where)
    elif before != after:
        yield where


def said(read: Callable[[], tuple[Any, Any]]) -> str:
    """What ``read`` comes to: it returns what was given, and that as this version writes it again."""
    try:
        before, after = read()
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    if after is None:
        return "passed over"
    without = list(dict.fromkeys(missing(before, after)))
    return f"read without {', '.join(without)}" if without else "read"


def main() -> None:
    """The command."""
    given = json.load(sys.stdin)
    identity = RunIdentity(*given["identity"])

    def read_record(kind: str, text: str) -> tuple[Any, Any]:
        record = decode_record(identity, KINDS[kind], text.encode(), where="x")
        return json.loads(text)["body"], json.loads(encode_record(identity, record))["body"]

    def read_event(event: Any) -> tuple[Any, Any]:
        read, write = first("journal.events:event_from_json"), first("journal.events:event_to_json")
        found = read(event, where="x")
        return event, None if found is None else write(found)

    def read_listing(name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            store = LocalStore(f"file://{folder}")
            journal = Journal(store, identity, writer="w")
            for key in (journal.layout.attempt("raw", 1, "claim"), f"{journal.layout.prefix}{name}"):
                store.put(key, b"")
            try:
                state = journal.list(["raw"]).state
            except Exception as error:
                return f"refused: {type(error).__name__}: {str(error).replace(folder, '')}"
        assert sorted(state.of("raw").attempts) == [1]
        return "listed" if name.rpartition(".")[2].partition("-")[0] in KINDS else "passed over"

    has_events = first("journal.events:event_from_json") is not None
    package = importlib.import_module("airflow_recovery").__file__
    json.dump(
        {
            "from": str(Path(package or "").parents[1]),
            "records": {
                name: said(partial(read_record, kind, text)) if kind in KINDS else "no such kind"
                for name, (kind, text) in given["records"].items()
            },
            "events": {name: said(partial(read_event, event)) for name, event in given["events"].items()}
            if has_events
            else None,
            "listings": {name: read_listing(name) for name in given["listings"]},
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
