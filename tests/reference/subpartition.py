"""The reconnectable subpartition of FLIP-135, as built in Flink. Its counterpart is `airflow_recovery.streaming`.

A queue of buffers and barriers in a producer's memory. At most one view reads it; a view that is replaced or released
does not release the subpartition. What was polled is gone: a new view goes on behind it, at a record's border. Our
channels keep segments of whole records in an object store instead, so that no record is ever torn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import ChannelEvicted, ChannelFailed, ChannelInconsistent
from reference.segment_cleaning import clean_buffer


class ReleaseCause(str, Enum):
    """Why a subpartition is let go, with all that nobody has read."""

    CONSUMED = "consumed"
    PRODUCER_END = "producer end"
    JOB_END = "job end"


class Buffer:
    """Bytes that a producer may still add to, in whole writes. ``leading`` bytes belong to a record begun earlier."""

    def __init__(self, content: bytes = b"", *, leading: int = 0, is_finished: bool = True) -> None:
        if leading < 0 or (is_finished and leading > len(content)):
            raise ValueError(f"expected leading bytes within the {len(content)} bytes of the buffer, found {leading}")
        self._content = content
        self.leading = leading
        self.is_finished = is_finished
        self.position = 0
        """What was read up to here."""

    def append(self, write: bytes) -> None:
        """One whole write becomes visible."""
        if self.is_finished:
            raise ValueError("expected a buffer that its producer still fills, found a finished one")
        self._content += write

    def finish(self) -> None:
        """Nothing more will come."""
        self.is_finished = True

    @property
    def size(self) -> int:
        """What is visible, in bytes."""
        return len(self._content)

    @property
    def is_consumed(self) -> bool:
        """All of it was read, and nothing more will come."""
        return self.is_finished and self.position == self.size

    def skip(self, count: int) -> None:
        """Leave out so many bytes."""
        self.position += count

    def take(self) -> bytes:
        """What is visible and was not read."""
        found = self._content[self.position :]
        self.position = self.size
        return found


@dataclass(frozen=True)
class Barrier:
    """A checkpoint barrier. ``is_aligned=False`` overtakes buffers, and is refused here."""

    checkpoint: int
    is_aligned: bool = True


@dataclass(frozen=True)
class Polled:
    """What a view was given: bytes, or a barrier, with its number since the view was created."""

    number: int
    content: bytes | Barrier


class ReconnectableSubpartition:
    """One subpartition and its view."""

    def __init__(self) -> None:
        self._queue: deque[Buffer | Barrier] = deque()
        self._view: SubpartitionView | None = None
        self._cleans = False
        self._is_blocked = False
        self._next_number = 0
        self._is_finished = False
        self.released: ReleaseCause | None = None

    # --- the producer ------------------------------------------------------------------------------------------------

    def add(self, item: Buffer | Barrier) -> None:
        """Put a buffer or a barrier at the end.

        Raises `ChannelFailed` once it was released, and `ChannelInconsistent` behind the end and for an unaligned
        barrier: in-flight data of a side that restarts alone can't be part of a checkpoint.
        """
        self._check_not_released()
        if self._is_finished:
            raise ChannelInconsistent("a subpartition: expected nothing behind its end, found more data")
        if isinstance(item, Barrier) and not item.is_aligned:
            raise ChannelInconsistent(
                f"checkpoint {item.checkpoint}: expected an aligned barrier, found an unaligned one: approximate "
                "recovery and unaligned checkpoints exclude each other; turn off one of them"
            )
        if self._queue and isinstance(last := self._queue[-1], Buffer):
            last.finish()
        self._queue.append(item)

    def finish(self) -> None:
        """No more data. It is kept for whoever connects."""
        self._check_not_released()
        if self._queue and isinstance(last := self._queue[-1], Buffer):
            last.finish()
        self._is_finished = True

    def release(self, cause: ReleaseCause) -> None:
        """Let everything go: the producer's task or the job has ended. A second time does nothing."""
        if self.released is None:
            self.released = cause
            self._queue.clear()
            self._view = None

    # --- the consumer ------------------------------------------------------------------------------------------------

    def create_view(self, highest_checkpoint: int = -1) -> SubpartitionView:
        """The only view from now on: the one before is released first, whoever holds it.

        A torn record at the head will be cut, blocking is undone, and numbers begin at 0 again. Barriers up to
        ``highest_checkpoint``, the newest that the reader knows, are dropped: it would wait for ever for the same
        barrier of a producer that did not restart. Raises `ChannelFailed` once it was released.
        """
        self._check_not_released()
        self._let_go()
        self._view = SubpartitionView(self, highest_checkpoint)
        return self._view

    def _let_go(self) -> None:
        self._cleans, self._is_blocked, self._next_number = True, False, 0
        self._view = None

    def _poll(self, view: SubpartitionView) -> Polled | None:
        self._check_current(view)
        content = None if self._is_blocked else self._next(view.highest_checkpoint)
        if content is None:
            return None
        self._is_blocked = isinstance(content, Barrier)
        self._next_number += 1
        return Polled(self._next_number - 1, content)

    def _next(self, highest_checkpoint: int) -> bytes | Barrier | None:
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Barrier):
                # Barriers lie between records, so that this is a border.
                self._cleans = False
                self._queue.popleft()
                if head.checkpoint > highest_checkpoint:
                    return head
                continue
            if self._cleans:
                if not (head.is_finished or head.position) and head.size < max(head.leading, 1):
                    return None  # the leading part is not all visible yet
                cleaned = clean_buffer(head.leading, head.size, was_read=head.position > 0)
                head.skip(cleaned.skipped)
                self._cleans = not cleaned.is_clean
            found = head.take()
            if head.is_consumed:
                self._queue.popleft()
            elif not found:
                return None
            if found:
                return found
        return None

    def _resume(self, view: SubpartitionView) -> None:
        self._check_current(view)
        self._is_blocked = False

    def _release_view(self, view: SubpartitionView) -> None:
        if self._view is view:
            self._let_go()

    def _consumed(self, view: SubpartitionView) -> None:
        self._check_current(view)
        if not self._is_finished or self._queue:
            raise ChannelInconsistent("a subpartition: expected it to be read to its end before it is called consumed")
        self.release(ReleaseCause.CONSUMED)

    def _check_current(self, view: SubpartitionView) -> None:
        self._check_not_released()
        if self._view is not view:
            raise ChannelEvicted("a view of a subpartition: expected the newest one, found one that was replaced")

    def _check_not_released(self) -> None:
        if self.released is not None:
            raise ChannelFailed(
                f"a subpartition: expected it to be there, found it released ({self.released.value}): its producer "
                "must run again"
            )


class SubpartitionView:
    """What one attempt of the consumer reads by. Made by `ReconnectableSubpartition.create_view`.

    Every method raises `ChannelEvicted` once another view was created, and `ChannelFailed` after the release.
    """

    def __init__(self, subpartition: ReconnectableSubpartition, highest_checkpoint: int) -> None:
        self._subpartition = subpartition
        self.highest_checkpoint = highest_checkpoint

    def poll(self) -> Polled | None:
        """The next bytes or barrier; `None` where there is nothing now, or a barrier was polled and not resumed."""
        return self._subpartition._poll(self)

    def resume(self) -> None:
        """The barrier is aligned: go on behind it."""
        self._subpartition._resume(self)

    def release(self) -> None:
        """The reader goes. The subpartition stays for the next one. Harmless for a view that was replaced."""
        self._subpartition._release_view(self)

    def consumed(self) -> None:
        """All was read: the subpartition goes. Raises `ChannelInconsistent` before its end."""
        self._subpartition._consumed(self)
