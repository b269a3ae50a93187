"""What one sweep did, as values and as text: what was deleted, what was kept and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_recovery.escaping import one_line

MOST_ALIKE = 10
"""Of so many subtasks at most that fared alike, each has a line of its own in the text."""


class Action(str, Enum):
    """What became of something that the sweep looked at; in a dry run, what would have."""

    DELETED = "deleted"
    KEPT = "kept"
    CLOSED = "closed"
    """The first step of a purge: the run is closed, and its data goes at a sweep after the grace time."""


@dataclass(frozen=True)
class SweepEntry:
    """What became of one attempt, run, upload or reader, and how many objects and bytes of data that concerns."""

    what: str
    action: Action
    why: str
    objects: int = 0
    size: int = 0


@dataclass
class SweepReport:
    """The entries of one sweep, in order."""

    is_dry_run: bool
    entries: list[SweepEntry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """What was left as it is, since a store or a journal gave no answer about it."""
    kept_after_deletion: list[str] = field(default_factory=list)
    """Why what was deleted stays readable, or may (`airflow_recovery.store.lifecycle.kept_after_deletion`)."""

    def add(self, what: str, action: Action, why: str, objects: int = 0, size: int = 0) -> None:
        """Add an entry. ``size`` is in bytes."""
        self.entries.append(SweepEntry(what, action, why, objects, size))

    def of(self, action: Action) -> list[SweepEntry]:
        """The entries with this action, in order."""
        return [entry for entry in self.entries if entry.action is action]

    @property
    def deleted_bytes(self) -> int:
        """Bytes of data deleted, or that would have been."""
        return sum(entry.size for entry in self.of(Action.DELETED))

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, which ``airflow recovery gc --json`` prints."""
        return {
            "dry_run": self.is_dry_run,
            "deleted_bytes": self.deleted_bytes,
            "entries": [
                {
                    "what": entry.what,
                    "action": entry.action.value,
                    "why": entry.why,
                    "objects": entry.objects,
                    "bytes": entry.size,
                }
                for entry in self.entries
            ],
            "warnings": self.warnings,
            "unread": self.unread,
            "kept_after_deletion": self.kept_after_deletion,
        }

    def text(self) -> str:
        """One line an entry, or for all that are alike where they are many; and a sum.

        The entries of a dry run read as those of the sweep that would follow.
        """
        lines = [f"warning: {one_line(warning)}" for warning in [*self.warnings, *self.unread]]
        lines += [_lines(alike) for alike in _folded(self.entries)]
        count = Counter(entry.action for entry in self.entries)
        counts = ", ".join(f"{count[action]} {action.value}" for action in Action if count[action]) or "nothing to do"
        lines.append(f"{counts}; {size_text(self.deleted_bytes)} deleted")
        lines += [f"warning: {one_line(text)}" for text in self.kept_after_deletion]
        if self.is_dry_run:
            lines.append("Dry run: nothing was deleted.")
        return "\n".join(lines)


def size_text(size: float) -> str:
    """A number of bytes in the largest unit that fits: ``17 B``, ``2.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _folded(entries: list[SweepEntry]) -> list[list[SweepEntry]]:
    """Entries that are told as one: subtasks of one region to which the same has happened, where they are many."""
    alike: dict[tuple[str, str, Action], list[SweepEntry]] = {}
    for entry in entries:
        alike.setdefault((entry.what.partition("[")[0], entry.why, entry.action), []).append(entry)
    folded = []
    for same in alike.values():
        folded += [same] if len(same) > MOST_ALIKE and "[" in same[0].what else [[entry] for entry in same]
    return folded


def _lines(alike: list[SweepEntry]) -> str:
    first, objects, size = alike[0], sum(entry.objects for entry in alike), sum(entry.size for entry in alike)
    more = f" and {len(alike) - 1:,} more subtasks" if len(alike) > 1 else ""
    amount = f" ({objects} objects, {size_text(size)})" if objects else ""
    return f"{first.action.value:<8} {one_line(first.what)}{more}{amount}: {one_line(first.why)}"
