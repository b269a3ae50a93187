"""A split: one unit of what a source reads, with a key that says what it is. Pure.

A *content key* names what is read, never where it stood in a listing: of a file its path, etag and size, of a key range
its table, column, bounds and ``as_of``, of a day the day. So a listing in another order changes nothing, and a file
that is overwritten is another split.

In the journal a split is an external object of its vertex, as a file is: that is evaluated, traced and handed to the
driver, which makes the split of it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_recovery.errors import SplitIdentityError
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.records import ExternalObject

SCHEME = "split:"
"""How the URI of a split begins that is no file; what follows is the name that its enumerator gave it."""

UNKNOWN_BYTES = 64 * 1024 * 1024
"""The weight of a split whose enumerator doesn't say how large it is."""

MAX_PAYLOAD_BYTES = 16 * 1024
"""The largest payload of one split: payloads are in the journal, and in every driver's specification."""

_KEY_LENGTH = 24


@dataclass(frozen=True)
class Split:
    """One unit of input. Made by `Split.of` (in an enumerator of your own), `Split.of_file`, or the built-in ones.

    ``uri`` is a file's URI, or ``split:<name>``. ``size`` is in bytes; 0 of what is no file: unknown. ``etag`` is the
    identity of the content: a file's etag, else the payload as JSON.
    """

    uri: str
    size: int
    etag: str

    @classmethod
    def of(cls, name: str, payload: Any = None, *, size: int = 0) -> Split:
        """A split of an enumerator of your own. ``name`` says what is read, ``payload`` how: any plain JSON value.

        Both are in the content key: a split with another payload is another split, and is read again. ``size`` is how
        many bytes it is about, as far as that is known. Payloads stand in the journal: no secrets. Raises
        `SplitIdentityError` for what can't be told again from the journal.
        """
        if not isinstance(name, str) or not name:
            raise SplitIdentityError(
                f"expected the name of a split as a text, found {name!r}: say what it reads", code="split-name-no-text"
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise SplitIdentityError(
                f"split {name!r}: expected size= in bytes, from 0, found {size!r}", code="split-size-unfit"
            )
        try:
            text = canonical_json(payload)
            is_plain = json.loads(text) == payload
        except (TypeError, ValueError, RecursionError):
            text, is_plain = "", False
        if not is_plain:
            raise SplitIdentityError(
                f"split {name!r}: expected a payload that JSON gives back unchanged, found {payload!r}: use texts, "
                "numbers, booleans, None, lists and dicts with texts as keys",
                code="split-payload-no-json",
            )
        if len(text) > MAX_PAYLOAD_BYTES:
            raise SplitIdentityError(
                f"split {name!r}: expected a payload of at most {MAX_PAYLOAD_BYTES} bytes, found {len(text)}: say in "
                "it where the data is, and keep the data out of it",
                code="split-payload-too-large",
            )
        return cls(SCHEME + name, size, text)

    @classmethod
    def of_file(cls, uri: str, size: int, etag: str) -> Split:
        """The split that is one file: ``size`` in bytes, ``etag`` as the store lists it."""
        return cls(uri, size, etag)

    @classmethod
    def of_external(cls, external: ExternalObject) -> Split:
        """The split that a trace has recorded as an external object. Inverse of `external`."""
        return cls(external.uri, external.size, external.etag)

    def external(self, vertex: str) -> ExternalObject:
        """As an input of ``vertex`` in the journal."""
        return ExternalObject(vertex, self.uri, self.size, self.etag)

    @cached_property
    def key(self) -> str:
        """The content key: 24 hex digits of a hash over URI, etag and size."""
        text = json.dumps([self.uri, self.etag, self.size])
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]

    @property
    def is_file(self) -> bool:
        """Whether it is one file; else an enumerator of its own has named it."""
        return not self.uri.startswith(SCHEME)

    @property
    def name(self) -> str:
        """The name in messages: a file's URI, else the name that the enumerator gave."""
        return self.uri.removeprefix(SCHEME)

    @property
    def payload(self) -> Any:
        """What the enumerator gave for the vertex to read by; `None` of a file."""
        return None if self.is_file else json.loads(self.etag)

    @property
    def weight(self) -> int:
        """Bytes, as far as they are known: what subtasks and batches are balanced by."""
        return self.size if self.is_file or self.size else UNKNOWN_BYTES


@dataclass(frozen=True)
class Listing:
    """What an enumerator gave: each split once, in the order of the names. Made by `listed`."""

    by_uri: dict[str, Split]
    repeated: tuple[Split, ...] = ()
    """Those that were listed more than once, and count once."""

    @cached_property
    def splits(self) -> dict[str, Split]:
        """By content key, in the same order."""
        return {split.key: split for split in self.by_uri.values()}


def listed(splits: Iterable[Split]) -> Listing:
    """One listing of ``splits``. Order does not count, and a split that is listed twice counts once.

    Raises `SplitIdentityError` where two splits of one name differ in etag or size.
    """
    by_uri: dict[str, Split] = {}
    repeated: dict[str, Split] = {}
    for split in splits:
        before = by_uri.get(split.uri)
        if before is None:
            by_uri[split.uri] = split
            continue
        if before != split:
            raise SplitIdentityError(
                f"expected one content under the name {split.name!r}, found {before.etag!r} ({before.size} bytes) and "
                f"{split.etag!r} ({split.size} bytes) in one listing: have the name say all that tells them apart; if "
                "a file was overwritten while it was listed, clear the task",
                code="split-of-two-contents",
                split=split.name,
            )
        repeated[split.uri] = split
    return Listing({split.uri: split for split in in_order(by_uri.values())}, tuple(in_order(repeated.values())))


def in_order(splits: Iterable[Split]) -> list[Split]:
    """By name: the order in which splits are handed out, whatever order they were found in."""
    return sorted(splits, key=lambda split: split.uri)
