"""What is recorded of dynamic assignment, and the book that it folds to: who has which split (SPLITS.md sections 2, 3).

    DISCOVERED   splits that today's listing has, and others that have vanished from it
    ASSIGN       number `seq` of one attempt of a subtask: these splits are its
    END          number `seq` of it, its last one: there is nothing more for it
    RETURN       the attempt is over; what its successor's claim does not adopt goes home
    RESET        what the subtask has read does not count any more: everything goes home

A split that nobody has had is homeless, whoever asks next gets it. One that comes back is given to the subtask that had
it, which runs again anyway, and to no other (FLINK-31065: strangers would read again what they need not). The fold
takes time linear in the records, and refuses a record that no writer who had folded all before it could have written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.source.split import Split


@dataclass(frozen=True)
class Discovered:
    """Splits that are known already are not added again. ``vanished`` are content keys."""

    added: tuple[Split, ...]
    vanished: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assign:
    """``seq`` counts from 0 within the attempt."""

    subtask: int
    attempt: int
    seq: int
    splits: tuple[str, ...]


@dataclass(frozen=True)
class End:
    """The attempt may finish once it has every number up to this one."""

    subtask: int
    attempt: int
    seq: int


@dataclass(frozen=True)
class Return:
    """``attempt``, and every one below, gets nothing more."""

    subtask: int
    attempt: int
    splits: tuple[str, ...]


@dataclass(frozen=True)
class Reset:
    """As `Return`, of everything that the subtask has."""

    subtask: int
    attempt: int


Message: TypeAlias = Assign | End
"""What an attempt is sent."""

LogRecord: TypeAlias = Discovered | Assign | End | Return | Reset

_KINDS: Mapping[str, type[Any]] = {
    "discovered": Discovered,
    "assign": Assign,
    "end": End,
    "return": Return,
    "reset": Reset,
}
_KIND_OF = {kind: name for name, kind in _KINDS.items()}


class SplitBook:
    """Who has which split. Made by `fold`, or read back from what `to_json` said; changed by `add` alone."""

    def __init__(self) -> None:
        self._known: dict[str, Split] = {}
        # Ordered, so that taking the first one does not walk over all that were taken before.
        self._homeless: OrderedDict[str, None] = OrderedDict()
        self._home: dict[int, OrderedDict[str, None]] = {}
        self._home_of: dict[str, int] = {}
        self._held: dict[int, OrderedDict[str, None]] = {}
        self._holder: dict[str, int] = {}
        self._gone: set[str] = set()
        self._sent: dict[int, tuple[int, int, bool]] = {}  # subtask -> attempt, next number, whether that was END
        self._over: dict[int, int] = {}
        self._listings = 0

    # asking

    @property
    def known(self) -> Mapping[str, Split]:
        """All splits that are pending or held, by content key; of those that have vanished, the ones once listed."""
        return self._known

    @property
    def has_pending(self) -> bool:
        """Is there a split that nobody has?"""
        return bool(self._homeless or self._home_of)

    @property
    def listings(self) -> int:
        """How many listings have changed it: what was listed before one of them must not overtake it."""
        return self._listings

    def held_by(self, subtask: int) -> tuple[str, ...]:
        """What it was given and has not returned, in that order."""
        return tuple(self._held.get(subtask, ()))

    def holder_of(self, split: str) -> int | None:
        """The subtask that has it; `None` while it is pending."""
        return self._holder.get(split)

    def vanished(self) -> frozenset[str]:
        """Splits that are held, and that the listing does not have any more: they do not come back."""
        return frozenset(self._gone)

    def is_over(self, subtask: int, attempt: int) -> bool:
        """Has this attempt been returned or reset? It is fenced then."""
        return attempt <= self._over.get(subtask, 0)

    def next_seq(self, subtask: int, attempt: int) -> int:
        """The number of its next message."""
        sent, seq, _ = self._sent.get(subtask, (0, 0, False))
        return seq if sent == attempt else 0

    def has_end(self, subtask: int, attempt: int) -> bool:
        """Was it told that there is nothing more?"""
        sent, _, ended = self._sent.get(subtask, (0, 0, False))
        return sent == attempt and ended

    def next_batch(self, subtask: int, max_bytes: int, among: Container[str] | None = None) -> tuple[str, ...]:
        """What it would be given now: at least one split if there is any, up to ``max_bytes``; nothing changes.

        ``among``: no others than these.
        """
        found: list[str] = []
        size = 0
        for each in chain(self._home.get(subtask, ()), self._homeless):
            if among is not None and each not in among:
                continue
            size += self._known[each].weight
            if found and size > max_bytes:
                break
            found.append(each)
            if size >= max_bytes:
                break
        return tuple(found)

    def message_for(self, subtask: int, attempt: int, max_bytes: int, among: Container[str] | None = None) -> Message:
        """What its next message is: an ASSIGN while there is something for it, else END; nothing changes."""
        seq, batch = self.next_seq(subtask, attempt), self.next_batch(subtask, max_bytes, among)
        return Assign(subtask, attempt, seq, batch) if batch else End(subtask, attempt, seq)

    # changing

    def add(self, record: LogRecord) -> None:
        """Enter one record. Raises `RecordInvalid`, with nothing entered, where it can't follow what is in the book."""
        if isinstance(record, Discovered):
            self._discover(record)
        elif isinstance(record, (Assign, End)):
            self._send(record)
        else:
            self._take_back(record)

    def _discover(self, record: Discovered) -> None:
        self._listings += 1
        for split in record.added:
            key = split.key
            self._gone.discard(key)
            if key not in self._known:
                self._known[key] = split
                if key not in self._holder:
                    self._homeless[key] = None
        for key in record.vanished:
            if key in self._holder:
                self._gone.add(key)
            elif key in self._known:
                self._take(key)
                del self._known[key]

    def _send(self, record: Message) -> None:
        subtask, attempt = record.subtask, record.attempt
        expected = self.next_seq(subtask, attempt)
        if self.is_over(subtask, attempt) or attempt < self._sent.get(subtask, (0, 0, False))[0]:
            raise _refused(record, "an attempt that is not over")
        if record.seq != expected or self.has_end(subtask, attempt):
            raise _refused(record, f"number {expected} of an attempt that has no END")
        splits = record.splits if isinstance(record, Assign) else ()
        for key in splits:
            if self._home_of.get(key, subtask) != subtask or key in self._holder or key not in self._known:
                raise _refused(record, f"splits that are there for subtask {subtask}, not {key}")
        for key in splits:
            self._take(key)
            self._hold(subtask, key)
        self._sent[subtask] = (attempt, record.seq + 1, isinstance(record, End))

    def _take_back(self, record: Return | Reset) -> None:
        held = self._held.get(record.subtask, OrderedDict())
        splits = tuple(held) if isinstance(record, Reset) else record.splits
        if any(key not in held for key in splits):
            raise _refused(record, f"splits that subtask {record.subtask} has")
        for key in splits:
            del held[key], self._holder[key]
            if key in self._gone:
                self._gone.discard(key)
                self._known.pop(key, None)
            else:
                self._home.setdefault(record.subtask, OrderedDict())[key] = None
                self._home_of[key] = record.subtask
        self._over[record.subtask] = max(record.attempt, self._over.get(record.subtask, 0))

    def adopt(self, subtask: int, splits: Iterable[str]) -> None:
        """Say that ``subtask`` has ``splits``, which nobody has: what a snapshot's book could not know yet.

        Raises `RecordInvalid` where another subtask has one of them.
        """
        for key in splits:
            holder = self._holder.get(key)
            if holder == subtask:
                continue
            if holder is not None:
                raise RecordInvalid(
                    f"split {key} counts for subtask {holder}, and subtask {subtask} has read it as well: expected one "
                    "reader. Clear the tasks of the vertex with a restart, so that all of it is read anew."
                )
            if key in self._known:
                self._take(key)
            else:
                self._gone.add(key)
            self._hold(subtask, key)

    def _hold(self, subtask: int, key: str) -> None:
        self._held.setdefault(subtask, OrderedDict())[key] = None
        self._holder[key] = subtask

    def _take(self, key: str) -> None:
        home = self._home_of.pop(key, None)
        del (self._homeless if home is None else self._home[home])[key]

    # as JSON

    def to_json(self) -> dict[str, Any]:
        """All of it, in an order in which equal books have equal JSON."""
        return {
            "splits": [_split_to_json(each) for each in self._known.values()],
            "homeless": list(self._homeless),
            "home": {str(subtask): list(each) for subtask, each in sorted(self._home.items()) if each},
            "held": {str(subtask): list(each) for subtask, each in sorted(self._held.items()) if each},
            "gone": sorted(self._gone),
            "sent": {str(subtask): list(each) for subtask, each in sorted(self._sent.items())},
            "over": {str(subtask): each for subtask, each in sorted(self._over.items())},
            "listings": self._listings,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SplitBook:
        """Inverse of `to_json`."""
        book = cls()
        book._known = {each.key: each for each in map(_split_from_json, value["splits"])}
        book._homeless = OrderedDict.fromkeys(value["homeless"])
        book._home = {int(subtask): OrderedDict.fromkeys(each) for subtask, each in value["home"].items()}
        book._home_of = {key: subtask for subtask, each in book._home.items() for key in each}
        book._held = {int(subtask): OrderedDict.fromkeys(each) for subtask, each in value["held"].items()}
        book._holder = {key: subtask for subtask, each in book._held.items() for key in each}
        book._gone = set(value["gone"])
        book._sent = {int(subtask): (each[0], each[1], each[2]) for subtask, each in value["sent"].items()}
        book._over = {int(subtask): each for subtask, each in value["over"].items()}
        book._listings = value["listings"]
        return book


@dataclass(frozen=True)
class CoordinatorState:
    """A snapshot: the book, and which finishes it counts, as (subtask, attempt). ``enumerator``: of one that opted in.

    Shorter than a list of all that was ever sent: what is in flight is in no snapshot.
    """

    book: Mapping[str, Any]
    counted: tuple[tuple[int, int], ...]
    enumerator: Any = None
    is_drained: bool = True
    """Has the enumerator told of all?"""


def fold(records: Iterable[LogRecord], book: SplitBook | None = None) -> SplitBook:
    """The book after ``records``, in their order. ``book``, where given, is what came before them, and is changed."""
    book = book or SplitBook()
    for each in records:
        book.add(each)
    return book


def record_to_json(record: LogRecord) -> dict[str, Any]:
    """``{"kind": "assign", ...}``."""
    found = {"kind": _KIND_OF[type(record)], **vars(record)}
    if isinstance(record, Discovered):
        found["added"] = [_split_to_json(each) for each in record.added]
    return found


def record_from_json(value: Mapping[str, Any]) -> LogRecord:
    """Inverse of `record_to_json`. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    kind = _KINDS[value["kind"]]
    found = {name: each for name, each in value.items() if name != "kind"}
    if kind is Discovered:
        return Discovered(tuple(map(_split_from_json, found["added"])), _keys(found["vanished"]))
    if "splits" in found:
        found["splits"] = _keys(found["splits"])
    for name in ("subtask", "attempt", "seq"):
        if name in found and (type(found[name]) is not int or found[name] < 0):
            raise ValueError(f"{name}: expected a number from 0, found {found[name]!r}")
    record: LogRecord = kind(**found)
    return record


def _split_to_json(split: Split) -> list[Any]:
    return [split.uri, split.size, split.etag]


def _split_from_json(value: Any) -> Split:
    uri, size, etag = value
    if type(uri) is not str or type(size) is not int or type(etag) is not str:
        raise ValueError(f"expected a split as [uri, size, etag], found {value!r}")
    return Split(uri, size, etag)


def _keys(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"expected content keys, found {value!r}")
    return tuple(value)


def _refused(record: LogRecord, expected: str) -> RecordInvalid:
    return RecordInvalid(
        f"the log of splits: expected {expected}, found {record}: records before it are missing, or another program "
        "writes below this prefix. Restore the objects, or reset the vertex."
    )
