"""The state of a run, as one listing and the contents of some outcomes tell it. Values only, no I/O.

What the names alone say (which attempts exist, which are reset, released, reported lost) is always complete; contents
(claims, outcomes, resets) are there for what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_recovery.model.records import AttemptState, Claim, CommitEnd, Committed, Outcome, Reset


@dataclass(frozen=True)
class Attempt:
    """One attempt of a region. ``is_open``: claimed, without an outcome.

    ``is_kept``: after it was claimed, its region's own task has found an earlier finish valid.
    ``is_followed``: a later attempt was claimed, whatever became of it. ``committer_epoch`` and ``dead_epoch``: the
    newest epoch of its committer (0: the first one), and the newest whose process is confirmed to be dead.
    ``pin_turn``: the highest turn of a person's pin on its data; ``withdrawn_turn``: the highest turn of a withdrawal.
    ``declared_turn``: how many `Declared` records there are of it.
    ``batches``: how many batches it has committed, of a region that commits split by split.
    """

    number: int
    is_claimed: bool = False
    has_outcome: bool = False
    is_reset: bool = False
    is_lost: bool = False
    is_released: bool = False
    is_kept: bool = False
    is_followed: bool = False
    is_committed: bool = False
    committer_epoch: int = 0
    dead_epoch: int = 0
    pin_turn: int = 0
    withdrawn_turn: int = 0
    declared_turn: int = 0
    batches: int = 0
    claim: Claim | None = None
    outcome: Outcome | None = None
    reset: Reset | None = None
    committed: Committed | None = None
    outcome_etag: str | None = None

    @property
    def is_open(self) -> bool:
        """Claimed, and neither finished nor fenced: it pins its inputs."""
        return self.is_claimed and not self.has_outcome

    @property
    def is_reset_by_hand(self) -> bool:
        """A person has reset it, so that its failures count no more. After a failover's reset they still do."""
        return self.is_reset and not (self.reset is not None and self.reset.failover)

    @property
    def is_pinned(self) -> bool:
        """A person wants its data kept, whatever the release policy says."""
        return is_pinned_after(self.pin_turn)

    @property
    def is_withdrawn(self) -> bool:
        """A person has taken it from readers outside the run."""
        return self.withdrawn_turn % 2 == 1

    @property
    def is_finished(self) -> bool:
        """Ended with a result. False where the outcome was not fetched."""
        return self.outcome is not None and self.outcome.state is AttemptState.FINISHED

    @property
    def oldest(self) -> int:
        """The first of the attempts that the finish is made of: its own, unless it took over batches."""
        attempts = self.outcome.mode.attempts if self.outcome is not None else ()
        return min(attempts) if attempts else self.number

    @property
    def is_prepared(self) -> bool:
        """Finished, and whether its sink has taken it over is in no record yet."""
        is_by_commit = self.outcome is not None and self.outcome.commit is not None
        return is_by_commit and self.is_finished and not self.is_committed

    @property
    def is_abandoned(self) -> bool:
        """Finished, and its sink will never take it over."""
        return self.committed is not None and self.committed.end is CommitEnd.ABANDONED


def is_pinned_after(turn: int) -> bool:
    """Whether a person's pin holds after so many turns: pinned, unpinned, and so on."""
    return turn % 2 == 1


def in_order(attempts: Mapping[int, Attempt]) -> dict[int, Attempt]:
    """``attempts`` with `Attempt.is_followed` set where a later one was claimed."""
    if len(attempts) < 2:  # as most are
        return dict(attempts)
    latest = max((n for n, attempt in attempts.items() if attempt.is_claimed), default=0)
    return {
        n: attempt if attempt.is_followed == (n < latest) else replace(attempt, is_followed=n < latest)
        for n, attempt in attempts.items()
    }


@dataclass(frozen=True)
class RegionState:
    """All attempts of one region, by number. A reset of attempt 0 stands for "before any attempt".

    What is derived from them is computed once: a decision asks for it many times, of many regions.
    """

    attempts: Mapping[int, Attempt] = field(default_factory=dict)
    closed_at: int = 0
    """Highest attempt of an earlier, purged journal of this key; new attempts start above it."""

    @cached_property
    def latest_attempt(self) -> int:
        """The highest number ever claimed (0 if none).

        Any object of an attempt proves that it existed: its claim, the oldest of them, may have been deleted.
        """
        return max(self.closed_at, *self.attempts, 0)

    @cached_property
    def reset_watermark(self) -> int:
        """The highest reset: attempts up to here do not count (0 if none)."""
        resets = [n for n, attempt in self.attempts.items() if attempt.is_reset]
        return max(resets) if resets else 0

    @property
    def invalid_up_to(self) -> int:
        """Attempts up to this one do not count: they were reset, or purged (0 if none)."""
        return max(self.reset_watermark, self.closed_at)

    @cached_property
    def restarted_up_to(self) -> int:
        """Of a streaming region: attempts up to this one have read nothing that counts.

        As `invalid_up_to`, but for those resets after which only its output channel is another one.
        """
        restarted = (
            n
            for n, attempt in self.attempts.items()
            if attempt.is_reset and not (attempt.reset and attempt.reset.altered)
        )
        return max(self.closed_at, *restarted, 0)

    @cached_property
    def generations(self) -> tuple[int, ...]:
        """Of a streaming region: the generations of its output channel that count, ascending; it writes the last one.

        A reset begins a new one, numbered after the attempt that it names: one record decides it for both ends.
        """
        altered = (n + 1 for n, attempt in self.attempts.items() if attempt.is_reset and n > self.restarted_up_to)
        return (self.restarted_up_to + 1, *sorted(altered))

    @cached_property
    def current(self) -> Attempt | None:
        """The highest finished attempt above `invalid_up_to`. Older ones never come back.

        Nor does one count that took over batches of an attempt up to there: whoever resets wants them made again.
        """
        for n in sorted(self.attempts, reverse=True) if len(self.attempts) > 1 else self.attempts:
            attempt = self.attempts[n]
            if attempt.is_reset or n <= self.closed_at:
                return None
            if attempt.is_finished and (attempt.oldest >= n or attempt.oldest > self.invalid_up_to):
                return attempt
        return None

    @property
    def is_followed(self) -> bool:
        """After the finish that counts another attempt was claimed, which has not finished."""
        return self.current is not None and self.current.number < self.latest_attempt

    @cached_property
    def outdated_since(self) -> int | None:
        """The newest attempt, if it was claimed since the finish that counts was not valid any more.

        `None` once the region's own task has found that finish valid again. What made it outdated (an external input,
        an argument that only its task can render) nobody else can see. Needs the claim of the newest attempt.
        """
        newest = self.attempts.get(self.latest_attempt)
        if newest is None or newest.claim is None or newest.is_kept or self.current is None:
            return None
        return newest.number if newest.claim.outdated == self.current.number else None

    @cached_property
    def open_attempt(self) -> Attempt | None:
        """The attempt that is running, if any: at most one, the highest."""
        latest = self.attempts.get(self.latest_attempt)
        return latest if latest is not None and latest.is_open else None

    @cached_property
    def prepared_attempt(self) -> Attempt | None:
        """The finish whose commit comes before anything else, whether it was reset or not: the lowest, if any."""
        prepared = [n for n, attempt in self.attempts.items() if attempt.is_prepared and n > self.closed_at]
        return self.attempts[min(prepared)] if prepared else None

    @cached_property
    def was_reset(self) -> bool:
        """A finished attempt exists, and none that counts."""
        finished = (n for n, attempt in self.attempts.items() if attempt.is_finished)
        return self.current is None and any(n > self.closed_at for n in finished)

    @property
    def pinned(self) -> tuple[Attempt, ...]:
        """The attempts whose data a person wants kept, those of a purged life of the run too."""
        return tuple(attempt for attempt in self.attempts.values() if attempt.is_pinned)

    def may_be_gone(self, number: int) -> bool:
        """The data of this attempt was released, or purged with its run: they may be gone at any moment."""
        attempt = self.attempts.get(number)
        return number <= self.closed_at or (attempt is not None and attempt.is_released)


NEVER_STARTED = RegionState()


@dataclass(frozen=True)
class RunState:
    """Regions by name; a region without any object is `NEVER_STARTED`."""

    regions: Mapping[str, RegionState] = field(default_factory=dict)
    plans: frozenset[str] = frozenset()
    newest_publish: int = 0
    is_closed: bool = False
    fingerprints: frozenset[str] = frozenset()
    """The names of the recorded components (`FingerprintRecord.name`)."""

    @property
    def is_purged(self) -> bool:
        """The run was closed, and no attempt of these regions was claimed since."""
        return self.is_closed and all(region.latest_attempt <= region.closed_at for region in self.regions.values())

    def of(self, region: str) -> RegionState:
        """The state of one region; `NEVER_STARTED` where the run has no object of it."""
        return self.regions.get(region, NEVER_STARTED)
