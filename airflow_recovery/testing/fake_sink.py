"""A sink's target in memory, of whatever kind: what was applied, in which order, and nothing else that helps anybody.

A token target applies a token once, and refuses an attempt that must not follow the one it holds: a lower one in mode
replace, any other in mode append. A probe-only target applies whatever it is given, as often as it is given.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.errors import SinkRefused
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.sinks.committer import (
    Committable,
    Committer,
    CommitToken,
    FoundRows,
    Held,
    Probe,
    Rows,
    not_again,
    refused,
)

Gate = Callable[[str], None]


def fake_commit(result: str, kind: CommitKind = CommitKind.TOKEN, mode: CommitMode = CommitMode.APPEND) -> CommitSpec:
    """How a plan names a fake sink."""
    return CommitSpec(result, kind, mode, "fake:Sink", f'{{"mode":"{mode.value}"}}')


class FakeTarget:
    """``applied``: (region, attempt) of everything that took effect, in order; a person's `undo` takes it out again.

    `empty` removes the rows and leaves the token, `overwrite` puts rows of somebody else in their place as well, and
    `thin_out` removes some of the rows.

    ``on_applied`` hears of each. ``refuses`` switched off: nothing but a token that was applied is known to it.
    ``refuses_rows``: whether it will never take what that attempt has prepared.
    """

    def __init__(
        self,
        on_applied: Callable[[CommitToken], None] = lambda token: None,
        refuses_rows: Callable[[CommitToken], bool] = lambda token: False,
    ) -> None:
        self._refuses_rows = refuses_rows
        self.applied: list[tuple[str, int]] = []
        self.refuses = True
        self.removed: set[tuple[str, int]] = set()
        self.overwritten: set[str] = set()
        self.thinned: set[tuple[str, int]] = set()
        self.writers: dict[tuple[str, int], str | None] = {}
        self._on_applied = on_applied

    def committer(self, spec: CommitSpec, gate: Gate = lambda request: None) -> Committer:
        """One process's way to it; ``gate`` is called before each request, and before each answer to a commit."""
        kind = _RememberingCommitter if spec.kind is CommitKind.TOKEN else _FakeCommitter
        return kind(self, spec, gate)

    def visible(self, region: str, mode: CommitMode) -> list[int]:
        """The attempts whose rows a reader of the target sees."""
        applied = [n for name, n in self.applied if name == region and (name, n) not in self.removed]
        return applied if mode is CommitMode.APPEND else applied[-1:]

    def undo(self, region: str) -> None:
        """A person removes what a region has committed."""
        self.empty(region)
        self.overwritten.discard(region)
        self.applied = [attempt for attempt in self.applied if attempt[0] != region]

    def empty(self, region: str) -> None:
        """Somebody removes the rows of a region. A token target remembers the token."""
        self.removed |= {attempt for attempt in self.applied if attempt[0] == region}

    def thin_out(self, region: str) -> None:
        """Somebody removes some of a region's rows."""
        self.thinned |= {attempt for attempt in self.applied if attempt[0] == region and attempt not in self.removed}

    def overwrite(self, region: str) -> None:
        """Somebody puts other rows in place of a region's."""
        self.empty(region)
        self.overwritten.add(region)

    def rows(self, token: CommitToken) -> FoundRows:
        """What became of the rows of a token that was applied."""
        held, key = self.held(token), (token.region, token.attempt)
        if held is not None and not held.is_of(token):
            return FoundRows(Rows.OVERWRITTEN, f"it holds {held.text}")
        if held is not None and key not in self.removed:
            return FoundRows(Rows.PARTLY, "some of its rows are gone") if key in self.thinned else FoundRows(Rows.THERE)
        if token.region in self.overwritten:
            return FoundRows(Rows.OVERWRITTEN, "it holds rows of somebody else")
        return FoundRows(Rows.REMOVED, "it is empty")

    def take_out(self, token: CommitToken) -> None:
        """Forget a token whose rows were removed."""
        if self.rows(token).rows is not Rows.REMOVED:
            raise not_again(token, "the fake target", self.rows(token))
        self.applied = [attempt for attempt in self.applied if attempt != (token.region, token.attempt)]

    def held(self, token: CommitToken) -> Held | None:
        """What a token target remembers of the token's region."""
        highest = max((n for name, n in self.applied if name == token.region), default=0)
        return Held(highest, self.writers.get((token.region, highest))) if highest else None

    def apply(self, token: CommitToken, spec: CommitSpec, *, again: bool = False) -> None:
        """Apply what was prepared to the target, at one moment; ``again``: also if its rows were removed since."""
        key = token.region, token.attempt
        if key not in self.applied and self._refuses_rows(token):
            raise SinkRefused(f"{token.text}: a row breaks a constraint of the target.")
        if spec.kind is CommitKind.TOKEN:
            held = self.held(token)
            if key in self.applied and self.writers[key] == token.writer and not again:
                return
            if again and held is not None:
                found = self.rows(token)
                if found.rows is Rows.THERE:
                    return
                if not found.may_be_committed_again(spec.mode):
                    raise not_again(token, "the fake target", found)
                self.applied = [attempt for attempt in self.applied if attempt != key]
                held = None
            if self.refuses and held and held.attempt >= (token.attempt if spec.mode is CommitMode.REPLACE else 0):
                raise refused(token, "the fake target", held, spec.mode)
        self.writers[key] = token.writer
        self.overwritten.discard(token.region)
        self.removed.discard(key)
        self.thinned.discard(key)
        self.applied.append(key)
        self._on_applied(token)


class _FakeCommitter:
    def __init__(self, target: FakeTarget, spec: CommitSpec, gate: Gate) -> None:
        self._target = target
        self._spec = spec
        self._gate = gate

    def commit(self, committable: Committable) -> str:
        self._gate(f"sink: commit {committable.token.region}@{committable.token.attempt}")
        self._target.apply(committable.token, self._spec)
        self._gate("sink: its answer")
        return f"commit {len(self._target.applied)}"

    def probe(self, token: CommitToken) -> Probe:
        self._gate(f"sink: probe {token.region}@{token.attempt}")
        applied = [key for key in self._target.applied if key not in self._target.removed]
        return Probe.APPLIED if (token.region, token.attempt) in applied else Probe.NOT_APPLIED


class _RememberingCommitter(_FakeCommitter):
    """The committer of a token sink, which can also say what the target holds."""

    def held(self, token: CommitToken) -> Held | None:
        self._gate(f"sink: held {token.region}")
        return self._target.held(token)

    def probe(self, token: CommitToken) -> Probe:
        self._gate(f"sink: probe {token.region}@{token.attempt}")
        key = token.region, token.attempt
        is_own = key in self._target.applied and self._target.writers.get(key) == token.writer
        return Probe.APPLIED if is_own else Probe.NOT_APPLIED

    def rows(self, committable: Committable, commit_id: str) -> FoundRows:
        self._gate(f"sink: rows {committable.token.region}@{committable.token.attempt}")
        return self._target.rows(committable.token)

    def commit_again(self, committable: Committable, commit_id: str) -> str:
        self._gate(f"sink: commit again {committable.token.region}@{committable.token.attempt}")
        self._target.apply(committable.token, self._spec, again=True)
        self._gate("sink: its answer")
        return f"commit {len(self._target.applied)}"

    def take_out(self, committable: Committable, commit_id: str) -> None:
        self._gate(f"sink: take out {committable.token.region}@{committable.token.attempt}")
        self._target.take_out(committable.token)
