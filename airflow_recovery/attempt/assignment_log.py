"""The assignments of a source's splits in the journal: numbered write-once objects, of which the newest counts.

Whoever needs the assignment advances it: read the newest, list, match, and put the next one where it says anything
else. Read before listed: a process that was slow to list then finds the number taken, and what it saw overtakes
nothing. It takes the winner's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from airflow_recovery.errors import JournalInUse, RecordInvalid
from airflow_recovery.job.enumerators import ResumedEnumerator
from airflow_recovery.journal.codec import checked_record, decode_record
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity, SplitGeneration
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import Assignment, advance
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.write_once import Slots

ROUNDS = 5


class AssignmentLog:
    """The assignments of the splits of ``vertex`` in one run's journal, for one process.

    ``writer`` is this process's random id. Raises the store's errors, and `RecordInvalid` for what is no assignment.
    """

    def __init__(
        self, store: ObjectStore, identity: RunIdentity, vertex: str, *, writer: str, deadline_s: float = 60.0
    ) -> None:
        self._store = store
        self._identity = identity
        self._layout = JournalLayout(identity)
        self._slots = Slots(store, self._layout.assignments(vertex), deadline_s=deadline_s)
        self._vertex = vertex
        self._writer = writer

    def newest(self) -> SplitGeneration | None:
        """The assignment that counts; `None` before the first. Two requests."""
        numbers = self._slots.numbers()
        return self._read(numbers[-1]) if numbers else None

    def advanced(
        self,
        today: Callable[[], Iterable[Split]] | ResumedEnumerator,
        parallelism: int,
        *,
        vanished: Vanished,
        log: logging.Logger,
    ) -> Assignment:
        """The assignment of the splits that ``today`` lists, written down where it is another one than before.

        ``log`` is told what has come and gone. Two requests where nothing has changed. Raises `SplitsVanished` and
        `SplitIdentityError` as `advance`, and `JournalInUse` where processes of other code, with another parallelism,
        keep writing theirs.
        """
        for _ in range(ROUNDS):
            numbers = self._slots.numbers()
            newest = self._read(numbers[-1]) if numbers else None
            before = None if newest is None else Assignment.of_record(newest)
            earlier = self._newest_with(parallelism, numbers[:-1], before)
            splits, state = _listed(before, today)
            advanced = advance(before, splits, parallelism, vanished=vanished, earlier=earlier, enumerator=state)
            if not advanced.is_new(before):
                return advanced.assignment
            number = 0 if newest is None else newest.generation + 1
            record = advanced.assignment.record(self._vertex, number, self._writer)
            winner = self._put(record)
            if winner is None:
                if before is not None:
                    log.warning("The splits of %s are others than before: %s.", self._vertex, advanced.match.text())
                return advanced.assignment
            if winner.parallelism == parallelism:
                return Assignment.of_record(winner)
        raise JournalInUse(
            f"expected the splits of {self._vertex!r} to be assigned to {parallelism} subtasks, found other processes "
            f"that assign them to another number, {ROUNDS} times in a row: two versions of the code run at once. Let "
            "one of them end, and clear this task",
            code="two-code-versions",
        )

    def _read(self, number: int) -> SplitGeneration:
        key = self._slots.key(number)
        return self._decode(self._store.get(key).body, key)

    def _newest_with(self, parallelism: int, numbers: list[int], before: Assignment | None) -> Assignment | None:
        """Of the assignments ``numbers``, the newest to so many subtasks, where ``before`` is to another number."""
        if before is None or before.parallelism == parallelism:
            return None
        read = (self._read(number) for number in reversed(numbers))
        return next(
            (Assignment.of_record(generation) for generation in read if generation.parallelism == parallelism), None
        )

    def _put(self, record: SplitGeneration) -> SplitGeneration | None:
        """Write it. Returns the record of another process that was first and says something else, else `None`."""
        held = self._slots.put(record.generation, checked_record(self._identity, record))
        if held is None:
            return None
        winner = self._decode(held, self._slots.key(record.generation))
        # The same assignment of another process is as good.
        return None if replace(winner, writer=record.writer) == record else winner

    def _decode(self, body: bytes, key: str) -> SplitGeneration:
        where = f"{self._store.base_uri}/{key}"
        record = decode_record(self._identity, SplitGeneration, body, where=where)
        if self._layout.assignment(record.vertex, record.generation) != key:
            raise RecordInvalid(
                f"{where}: expected the assignment of this key, found that of {record.vertex!r}, generation "
                f"{record.generation}: it was copied here. Delete the copy.",
                code="assignment-copied",
            )
        return record


def _listed(
    before: Assignment | None, today: Callable[[], Iterable[Split]] | ResumedEnumerator
) -> tuple[Iterable[Split], str | None]:
    """Today's listing; of an enumerator that goes on where it was, with all that it has told before, and its state."""
    if not isinstance(today, ResumedEnumerator):
        return today(), None
    state = json.loads(before.enumerator) if before is not None and before.enumerator is not None else None
    resumed = today.goes_on(state, {} if before is None else {home.key: home for home in before.homes})
    return resumed.splits.values(), json.dumps(resumed.state, sort_keys=True)
