"""The records of a dynamic assignment, and the book that they fold to: which subtask has which split. Pure.

    DISCOVERED   splits that today's listing has, others that have vanished from it; what its enumerator must remember
    RESCALED     there are so many subtasks now; the splits of those that are gone become unassigned
    ASSIGN       number `seq` of one attempt of a subtask: these splits are its
    END          number `seq` of it, its last one: there is nothing more for it
    RETURN       the attempt is over; what its successor's claim does not adopt is to be read again

A split that no subtask has had is *unassigned*: whoever asks next gets it. One that was returned keeps its *owner*, the
subtask that had it, and is assigned to no other: that one runs again anyway (FLINK-31065).

The book is the only truth about whose a split is. A subtask has a split *by the attempt that it was assigned to*, and
without interruption: once it was given back, it never is by that attempt again. So a batch, and the finish that names
it, count for as long as the book says that the splits in it are the subtask's by the attempt that wrote the batch
(`SplitBook.has`, `SplitBook.invalid_because`), whatever else has happened between.

The fold takes time linear in the records, and refuses a record that no writer who had folded all before it could have
written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar, TypeAlias

from airflow_recovery.errors import AttemptLost, RecordInvalid
from airflow_recovery.model.codec import ROW, Tagged, later
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import names
from airflow_recovery.splits.mode import CommittedBatchRef


@dataclass(frozen=True)
class Discovered:
    """A new listing. ``added``: splits that are new to the book. ``vanished``: content keys of those listed no more.

    ``enumerator``: of one that opted in (`airflow_recovery.job.batch_snapshot.SupportsBatchSnapshot`), its state
    behind them, in the very record that has the splits, so that neither is ever older than the other.
    """

    kind: ClassVar[str] = "discovered"
    added: tuple[Annotated[Split, ROW], ...]
    vanished: tuple[str, ...] = ()
    enumerator: Any = later(None)


@dataclass(frozen=True)
class Rescaled:
    """From now on there are ``parallelism`` subtasks. The attempts of those with a higher index are over."""

    kind: ClassVar[str] = "rescaled"
    parallelism: int


@dataclass(frozen=True)
class Assign:
    """These splits, by content key, are the attempt's to read. ``seq`` counts its messages from 0."""

    kind: ClassVar[str] = "assign"
    subtask: int
    attempt: int
    seq: int
    splits: tuple[str, ...]


@dataclass(frozen=True)
class End:
    """The attempt may finish once it has every number up to this one."""

    kind: ClassVar[str] = "end"
    subtask: int
    attempt: int
    seq: int


@dataclass(frozen=True)
class Return:
    """``attempt``, and every earlier one, is over. ``splits``: those of theirs that the successor has not adopted."""

    kind: ClassVar[str] = "return"
    subtask: int
    attempt: int
    splits: tuple[str, ...]


Message: TypeAlias = Assign | End
"""What an attempt is sent."""

LogRecord: TypeAlias = Discovered | Rescaled | Assign | End | Return

_KINDS: dict[str, type[Any]] = {record.kind: record for record in (Discovered, Rescaled, Assign, End, Return)}
LOG_RECORD = Tagged("kind", _KINDS.__getitem__)
"""The JSON of a record: ``{"kind": "assign", ...}``."""


class SplitBook:
    """Who has which split. Made by `fold`, or read back from what `to_json` said; changed by `add` alone."""

    def __init__(self) -> None:
        self._known: dict[str, Split] = {}
        # Ordered, so that taking the first one does not walk over all that were taken before.
        self._unassigned: OrderedDict[str, None] = OrderedDict()
        self._owned: dict[int, OrderedDict[str, None]] = {}
        self._owner_of: dict[str, int] = {}
        # By subtask: content key -> the attempt that it was assigned to.
        self._held: dict[int, OrderedDict[str, int]] = {}
        self._holder: dict[str, int] = {}
        self._gone: set[str] = set()
        self._sent: dict[int, tuple[int, int, bool]] = {}  # subtask -> attempt, next number, whether that was END
        self._over: dict[int, int] = {}
        self._listings = 0
        self._parallelism: int | None = None
        self._enumerator: Any = None

    # asking

    @property
    def known(self) -> Mapping[str, Split]:
        """All splits that are pending or held, by content key; of those that have vanished, the ones once listed."""
        return self._known

    @property
    def listings(self) -> int:
        """How many listings have changed it: what was listed before one of them must not overtake it."""
        return self._listings

    @property
    def parallelism(self) -> int | None:
        """How many subtasks there are; `None` before anybody has said, as in logs of earlier versions."""
        return self._parallelism

    @property
    def enumerator(self) -> Any:
        """What an enumerator that opted in goes on from; `None`: it starts over."""
        return self._enumerator

    def held_by(self, subtask: int) -> tuple[str, ...]:
        """Content keys of what ``subtask`` was assigned and has not returned, in that order."""
        return tuple(self._held.get(subtask, ()))

    def has(self, subtask: int, attempt: int, splits: Iterable[str]) -> bool:
        """Are all of ``splits`` the subtask's, by this attempt, and never given back since?"""
        held: Mapping[str, int] = self._held.get(subtask, {})
        return all(held.get(key) == attempt for key in splits)

    def vanished(self) -> frozenset[str]:
        """Splits that are held, and that the listing does not have any more: they do not come back."""
        return frozenset(self._gone)

    def gone_from(self, subtasks: int) -> tuple[Split, ...]:
        """Of the splits that have vanished, those of a subtask that there would not be with so many ``subtasks``."""
        return tuple(self._known[key] for key in self._gone if self._holder[key] >= subtasks)

    def invalid_because(self, subtask: int, subtasks: int, batches: Iterable[CommittedBatchRef]) -> str | None:
        """Why a finish of ``subtask`` that is made of ``batches`` is not what the subtask has to have; `None`: it is.

        ``subtasks`` is how many there are by the code that asks. Where no finish of any of them is refused, each
        split that is listed is in exactly one.
        """
        held: Mapping[str, int] = self._held.get(subtask, {})
        read = {key: batch.attempt for batch in batches for key in batch.splits}
        trouble = {
            "were given back": [key for key, attempt in read.items() if held.get(key) != attempt],
            "were given to it since": [key for key in held if key not in read],
            "are still to be read": [*self._owned.get(subtask, ()), *self._unassigned],
            "are with a subtask that there is no more": [
                key
                for of in (self._held, self._owned)
                for other, keys in of.items()
                if other >= subtasks
                for key in keys
            ],
        }
        texts = (f"{len(keys)} splits {what}{self._named(keys)}" for what, keys in trouble.items() if keys)
        return ", ".join(texts) or None

    def _named(self, keys: Iterable[str]) -> str:
        known = [self._known[key] for key in keys if key in self._known]
        return f" ({names(known)})" if known else ""

    def is_over(self, subtask: int, attempt: int) -> bool:
        """Has this attempt been returned, or is there no such subtask any more? It is fenced then."""
        return attempt <= self._over.get(subtask, 0) or not self._exists(subtask)

    def next_seq(self, subtask: int, attempt: int) -> int:
        """The number of the attempt's next message, from 0."""
        sent, seq, _ = self._sent.get(subtask, (0, 0, False))
        return seq if sent == attempt else 0

    def has_end(self, subtask: int, attempt: int) -> bool:
        """Whether the attempt was sent END."""
        sent, _, ended = self._sent.get(subtask, (0, 0, False))
        return sent == attempt and ended

    def next_batch(self, subtask: int, max_bytes: int, among: Container[str] | None = None) -> tuple[str, ...]:
        """What ``subtask`` would be assigned now: its returned splits first, then unassigned ones. Changes nothing.

        At least one split if there is any, else up to ``max_bytes``. ``among``: no others than these content keys.
        """
        taken: list[str] = []
        size = 0
        for name in chain(self._owned.get(subtask, ()), self._unassigned):
            if among is not None and name not in among:
                continue
            size += self._known[name].weight
            if taken and size > max_bytes:
                break
            taken.append(name)
            if size >= max_bytes:
                break
        return tuple(taken)

    def message_for(self, subtask: int, attempt: int, max_bytes: int, among: Container[str] | None = None) -> Message:
        """The attempt's next message: ASSIGN while there is a split for it, else END. Changes nothing."""
        seq, batch = self.next_seq(subtask, attempt), self.next_batch(subtask, max_bytes, among)
        return Assign(subtask, attempt, seq, batch) if batch else End(subtask, attempt, seq)

    # deciding: the record that may follow this book; changes nothing

    def news(self, listed: Mapping[str, Split], enumerator: Any = None) -> Discovered | None:
        """The record of ``listed``, today's listing by content key; `None` where it is the book's."""
        added = tuple(split for key, split in listed.items() if key not in self._known or key in self._gone)
        vanished = tuple(key for key in self._known if key not in listed and key not in self._gone)
        if not added and not vanished and enumerator == self._enumerator:
            return None
        return Discovered(added, vanished, enumerator)

    def rescaled(self, parallelism: int) -> Rescaled | None:
        """The record of ``parallelism`` subtasks; `None` where the book has that number."""
        return None if parallelism == self._parallelism else Rescaled(parallelism)

    def rest_of(self, subtask: int, attempt: int, base: Container[str]) -> Return | None:
        """The record by which ``attempt``, once claimed, returns what earlier attempts were assigned, but for ``base``.

        `None` where the earlier attempts are over already: somebody has done it.
        """
        if attempt <= 1 or self.is_over(subtask, attempt - 1):
            return None
        return Return(subtask, attempt - 1, tuple(key for key in self.held_by(subtask) if key not in base))

    def pull(
        self, subtask: int, attempt: int, seq: int, max_bytes: int, among: Container[str] | None = None
    ) -> Message | None:
        """The record that assigns the attempt more, as its number ``seq``; `None`: that number was sent already.

        Raises `AttemptLost` where the attempt is over.
        """
        if self.is_over(subtask, attempt):
            raise AttemptLost(
                f"attempt {attempt} of subtask {subtask} was fenced: what it had read and not committed is its "
                "successor's. This process must stop",
                code="split-attempt-fenced",
                attempt=attempt,
                subtask=subtask,
            )
        return None if self.next_seq(subtask, attempt) > seq else self.message_for(subtask, attempt, max_bytes, among)

    # changing

    def add(self, record: LogRecord) -> None:
        """Enter one record. Raises `RecordInvalid`, with nothing entered, where it can't follow what is in the book."""
        if isinstance(record, Discovered):
            self._discover(record)
        elif isinstance(record, Rescaled):
            self._rescale(record)
        elif isinstance(record, (Assign, End)):
            self._send(record)
        else:
            self._take_back(record)

    def _discover(self, record: Discovered) -> None:
        self._listings += 1
        self._enumerator = record.enumerator
        for split in record.added:
            key = split.key
            self._gone.discard(key)
            if key not in self._known:
                self._known[key] = split
                if key not in self._holder:
                    self._unassigned[key] = None
        for key in record.vanished:
            if key in self._holder:
                self._gone.add(key)
            elif key in self._known:
                self._take(key)
                del self._known[key]

    def _rescale(self, record: Rescaled) -> None:
        self._parallelism = record.parallelism
        for subtask in sorted(number for number in {*self._held, *self._owned} if not self._exists(number)):
            for key in self._held.pop(subtask, ()):
                del self._holder[key]
                self._set_free(key, None)
            for key in self._owned.pop(subtask, ()):
                del self._owner_of[key]
                self._set_free(key, None)
        for subtask, (attempt, _, _) in self._sent.items():
            if not self._exists(subtask):
                self._over[subtask] = max(attempt, self._over.get(subtask, 0))

    def _exists(self, subtask: int) -> bool:
        return self._parallelism is None or subtask < self._parallelism

    def _set_free(self, key: str, owner: int | None) -> None:
        """No attempt has it any more: forget it if it has vanished, else it is ``owner``'s to read, or unassigned."""
        if key in self._gone:
            self._gone.discard(key)
            del self._known[key]
        elif owner is None:
            self._unassigned[key] = None
        else:
            self._owned.setdefault(owner, OrderedDict())[key] = None
            self._owner_of[key] = owner

    def _send(self, record: Message) -> None:
        subtask, attempt = record.subtask, record.attempt
        expected = self.next_seq(subtask, attempt)
        if self.is_over(subtask, attempt) or attempt < self._sent.get(subtask, (0, 0, False))[0]:
            raise _refused(record, "an attempt that is not over")
        if record.seq != expected or self.has_end(subtask, attempt):
            raise _refused(record, f"number {expected} of an attempt that has no END")
        splits = record.splits if isinstance(record, Assign) else ()
        for key in splits:
            if self._owner_of.get(key, subtask) != subtask or key in self._holder or key not in self._known:
                raise _refused(record, f"splits that are there for subtask {subtask}, not {key}")
        for key in splits:
            self._take(key)
            self._held.setdefault(subtask, OrderedDict())[key] = attempt
            self._holder[key] = subtask
        self._sent[subtask] = (attempt, record.seq + 1, isinstance(record, End))

    def _take_back(self, record: Return) -> None:
        held: dict[str, int] = self._held.get(record.subtask, OrderedDict())
        if any(key not in held for key in record.splits):
            raise _refused(record, f"splits that subtask {record.subtask} has")
        for key in record.splits:
            del held[key], self._holder[key]
            self._set_free(key, record.subtask)
        self._over[record.subtask] = max(record.attempt, self._over.get(record.subtask, 0))

    def _take(self, key: str) -> None:
        owner = self._owner_of.pop(key, None)
        del (self._unassigned if owner is None else self._owned[owner])[key]

    # as JSON

    def to_json(self) -> dict[str, Any]:
        """All of it, in an order in which equal books have equal JSON."""
        return {
            "splits": [[split.uri, split.size, split.etag] for split in self._known.values()],
            "homeless": list(self._unassigned),
            "home": {str(subtask): list(keys) for subtask, keys in sorted(self._owned.items()) if keys},
            "held": {str(subtask): list(keys) for subtask, keys in sorted(self._held.items()) if keys},
            # Beside `held`, as earlier versions have it: the attempts that those splits were assigned to.
            "attempts": {
                str(subtask): list(attempts.values()) for subtask, attempts in sorted(self._held.items()) if attempts
            },
            "gone": sorted(self._gone),
            "sent": {str(subtask): list(sent) for subtask, sent in sorted(self._sent.items())},
            "over": {str(subtask): number for subtask, number in sorted(self._over.items())},
            "listings": self._listings,
            "parallelism": self._parallelism,
            "enumerator": self._enumerator,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SplitBook:
        """Inverse of `to_json`. Raises `KeyError` for one of a version that did not say which attempt has a split."""
        book = cls()
        book._known = {known.key: known for known in (Split(*split) for split in value["splits"])}
        book._unassigned = OrderedDict.fromkeys(value["homeless"])
        book._owned = {int(subtask): OrderedDict.fromkeys(keys) for subtask, keys in value["home"].items()}
        book._owner_of = {key: subtask for subtask, keys in book._owned.items() for key in keys}
        book._held = {
            int(subtask): OrderedDict(zip(keys, value["attempts"][subtask], strict=True))
            for subtask, keys in value["held"].items()
        }
        book._holder = {key: subtask for subtask, keys in book._held.items() for key in keys}
        book._gone = set(value["gone"])
        book._sent = {int(subtask): (sent[0], sent[1], sent[2]) for subtask, sent in value["sent"].items()}
        book._over = {int(subtask): number for subtask, number in value["over"].items()}
        book._listings = value["listings"]
        book._parallelism = value["parallelism"]
        book._enumerator = value["enumerator"]
        return book


def fold(records: Iterable[LogRecord], book: SplitBook | None = None) -> SplitBook:
    """The book after ``records``, in their order. ``book``, where given, is what came before them, and is changed."""
    book = book or SplitBook()
    for record in records:
        book.add(record)
    return book


def _refused(record: LogRecord, expected: str) -> RecordInvalid:
    return RecordInvalid(
        f"the log of splits: expected {expected}, found {record}: records before it are missing, or another program "
        "writes below this prefix. Restore the objects, or reset the vertex.",
        code="split-log-refuses",
        expected=expected,
    )
