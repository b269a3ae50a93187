"""The assignments of a source's splits in the journal: numbered write-once objects, of which the newest counts.

Whoever needs the assignment advances it: read the newest, list, match, and put the next one where it says anything
else. Read before listed: a process that was slow to list then finds the number taken, and what it saw overtakes
nothing. It takes the winner's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from airflow_recovery.errors import JournalInUse, RecordInvalid
from airflow_recovery.journal.codec import decode_record, encode_record
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.records import RunIdentity, SplitGeneration
from airflow_recovery.journal.write_once import WriteLost, write_once
from airflow_recovery.source.assignment import Assignment, advance
from airflow_recovery.source.matching import Vanished
from airflow_recovery.source.split import Split
from airflow_recovery.storage.object_store import ObjectStore

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
        self._vertex = vertex
        self._writer = writer
        self._deadline_s = deadline_s

    def newest(self) -> SplitGeneration | None:
        """The assignment that counts; `None` before the first. Two requests."""
        listed = self._store.list(self._layout.assignments(self._vertex))
        generations = (self._layout.parse_assignment(self._vertex, each.key) for each in listed)
        number = max((each for each in generations if each is not None), default=None)
        if number is None:
            return None
        key = self._layout.assignment(self._vertex, number)
        return self._decode(self._store.get(key).body, key)

    def advanced(
        self,
        today: Callable[[], Iterable[Split]],
        parallelism: int,
        *,
        vanished: Vanished,
        log: logging.Logger,
    ) -> Assignment:
        """The assignment of the splits that ``today`` lists, written down where it is another one than before.

        ``log`` is told what has come and gone. Raises `SplitsVanished` and `SplitIdentityError` as `advance`, and
        `JournalInUse` where processes of other code, with another parallelism, keep writing theirs.
        """
        for _ in range(ROUNDS):
            newest = self.newest()
            before = None if newest is None else Assignment.of_record(newest)
            found = advance(before, today(), parallelism, vanished=vanished)
            if not found.is_new(before):
                return found.assignment
            record = found.assignment.record(self._vertex, 0 if newest is None else newest.generation + 1, self._writer)
            winner = self._put(record)
            if winner is None:
                if before is not None:
                    log.warning("The splits of %s are others than before: %s.", self._vertex, found.match.text())
                return found.assignment
            if winner.parallelism == parallelism:
                return Assignment.of_record(winner)
        raise JournalInUse(
            f"expected the splits of {self._vertex!r} to be assigned to {parallelism} subtasks, found other processes "
            f"that assign them to another number, {ROUNDS} times in a row: two versions of the code run at once. Let "
            "one of them end, and clear this task"
        )

    def _put(self, record: SplitGeneration) -> SplitGeneration | None:
        """Write it; what stands there instead, where somebody else was first with anything else."""
        key = self._layout.assignment(self._vertex, record.generation)
        try:
            write_once(
                self._store,
                key,
                encode_record(self._identity, record),
                # The same assignment of another process is as good.
                is_mine=lambda body: replace(self._decode(body, key), writer=record.writer) == record,
                deadline_s=self._deadline_s,
            )
        except WriteLost as lost:
            return self._decode(lost.found, key)
        return None

    def _decode(self, body: bytes, key: str) -> SplitGeneration:
        where = f"{self._store.base_uri}/{key}"
        record = decode_record(self._identity, SplitGeneration, body, where=where)
        if self._layout.assignment(record.vertex, record.generation) != key:
            raise RecordInvalid(
                f"{where}: expected the assignment of this key, found that of {record.vertex!r}, generation "
                f"{record.generation}: it was copied here. Delete the copy."
            )
        return record
