"""Dynamic assignment as a driver has it: it pulls the next splits when it has read the last.

See docs/splits.md#dynamic-assignment.

The log in the store is the coordinator. To be given splits is to put an ASSIGN; nobody sends anything, so only the
outcome of that write can be unknown, and then the record is read back. The splits are the attempt's until its successor
is claimed and has returned what it does not adopt; a pull after that raises `AttemptLost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping

from airflow_recovery.errors import AttemptLost
from airflow_recovery.model.split import Split
from airflow_recovery.splits.batches import Batch, planned_batches
from airflow_recovery.splits.log import Assign, End, Message
from airflow_recovery.splits.log_store import SplitLogStore


class PulledSplits:
    """The `airflow_recovery.splits.batches.BatchSupplier` of attempt ``attempt`` of ``subtask``.

    A pull takes up to ``batch_bytes``; ``suspicion`` is that of `planned_batches`, which cuts them into batches.
    ``among``: the listing that the attempt was claimed with, by content key. A split that is listed later is read by
    another attempt: the trace of this one does not name it.
    """

    def __init__(
        self,
        log: SplitLogStore,
        subtask: int,
        attempt: int,
        *,
        batch_bytes: int,
        suspicion: Mapping[str, int],
        among: Container[str],
    ) -> None:
        self._log = log
        self._subtask = subtask
        self._attempt = attempt
        self._batch_bytes = batch_bytes
        self._suspicion = suspicion
        self._among = among
        self._seq = 0
        self._batches: deque[Batch] = deque()
        self._is_ended = False
        self.taken: dict[str, Split] = {}
        """All that it was assigned, by content key: its finish is made of these and the base."""

    def next_batch(self) -> Batch | None:
        """The next one; `None` when nothing is left for it. Raises `AttemptLost` once it is fenced."""
        while not self._batches and not self._is_ended:
            self._apply(self._pull())
        return self._batches.popleft() if self._batches else None

    def _pull(self) -> Message:
        message = self._log.append(
            lambda book: book.pull(self._subtask, self._attempt, self._seq, self._batch_bytes, self._among)
        )
        if isinstance(message, (Assign, End)):
            return message
        sent = self._log.last_sent(self._subtask)  # an earlier pull, whose outcome stayed unknown, has landed
        assert sent is not None, "whoever has a number has read it"
        return sent

    def _apply(self, message: Message) -> None:
        if message.attempt != self._attempt:
            raise AttemptLost(f"attempt {self._attempt} of subtask {self._subtask} was fenced: {message} came after it")
        self._seq = message.seq + 1
        if isinstance(message, End):
            self._is_ended = True
            return
        # In the book that the number was put into, or read from: it is the newest that is known here.
        known = self._log.book.known
        splits = [known[key] for key in message.splits]
        self.taken.update((split.key, split) for split in splits)
        self._batches += planned_batches(splits, batch_bytes=self._batch_bytes, suspicion=self._suspicion)
