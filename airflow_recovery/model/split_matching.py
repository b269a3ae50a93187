"""How a source's listing differs from the one before: splits are matched by content key alone. Pure (fault 55)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.split import Split, in_order, listed

MAX_NAMED = 5


class Vanished(str, Enum):
    """What becomes of a split that is not listed any more."""

    DROP = "drop"
    """Its rows go: the result is that of a fresh run on today's listing."""

    KEEP = "keep"
    """Its rows stay where they were read and committed; what was not can't be read any more, and goes."""

    FAIL = "fail"
    """The task fails and names it."""


@dataclass(frozen=True)
class ListingMatch:
    """How today's listing differs from an earlier one. Every tuple is in the order of the names."""

    kept: tuple[Split, ...]
    added: tuple[Split, ...]
    """New names."""
    overwritten: tuple[Split, ...]
    """Today's splits under names that had other content before."""
    vanished: tuple[Split, ...]
    """The earlier splits whose names are not listed any more."""
    repeated: tuple[Split, ...] = ()
    """Listed more than once today."""

    def text(self) -> str:
        """For people: how many there are of each kind, and some names."""
        kinds = {"new": self.added, "overwritten": self.overwritten, "vanished": self.vanished}
        counts = [f"{len(self.kept)} as before"]
        counts += [f"{len(splits)} {kind} ({names(splits)})" for kind, splits in kinds.items() if splits]
        if self.repeated:
            counts.append(f"{len(self.repeated)} listed twice, and counted once ({names(self.repeated)})")
        return ", ".join(counts)


def match(before: Iterable[Split], today: Iterable[Split]) -> ListingMatch:
    """Match two listings, each in any order. Raises `SplitIdentityError` as `listed`."""
    listing = listed(today)
    old, new = listed(before).by_uri, listing.by_uri
    return ListingMatch(
        kept=tuple(split for uri, split in new.items() if old.get(uri) == split),
        added=tuple(split for uri, split in new.items() if uri not in old),
        overwritten=tuple(split for uri, split in new.items() if uri in old and old[uri] != split),
        vanished=tuple(split for uri, split in old.items() if uri not in new),
        repeated=listing.repeated,
    )


def names(splits: Iterable[Split]) -> str:
    """The first names, and how many more there are."""
    ordered = [split.name for split in in_order(splits)]
    more = len(ordered) - MAX_NAMED
    return ", ".join(ordered[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
