"""What has become of a listing since the one before: matched by content key alone. Pure (fault 55)."""

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
    """Today's listing beside an earlier one; each in the order of the names."""

    kept: tuple[Split, ...]
    added: tuple[Split, ...]
    """New names."""
    overwritten: tuple[Split, ...]
    """Names that were there, with other content: as they are now."""
    vanished: tuple[Split, ...]
    """Names that are gone: as they were."""
    repeated: tuple[Split, ...] = ()
    """Listed more than once today."""

    @property
    def is_same(self) -> bool:
        """Whether the same is to be read as before."""
        return not (self.added or self.overwritten or self.vanished)

    def text(self) -> str:
        """For people: how many there are of each kind, and some names."""
        kinds = {"new": self.added, "overwritten": self.overwritten, "vanished": self.vanished}
        told = [f"{len(self.kept)} as before"]
        told += [f"{len(found)} {what} ({names(found)})" for what, found in kinds.items() if found]
        if self.repeated:
            told.append(f"{len(self.repeated)} listed twice, and counted once ({names(self.repeated)})")
        return ", ".join(told)


def match(before: Iterable[Split], today: Iterable[Split]) -> ListingMatch:
    """Match two listings, each in any order. Raises `SplitIdentityError` as `listed`."""
    listing = listed(today)
    old, new = listed(before).by_uri, listing.by_uri
    return ListingMatch(
        kept=tuple(each for uri, each in new.items() if old.get(uri) == each),
        added=tuple(each for uri, each in new.items() if uri not in old),
        overwritten=tuple(each for uri, each in new.items() if uri in old and old[uri] != each),
        vanished=tuple(each for uri, each in old.items() if uri not in new),
        repeated=listing.repeated,
    )


def names(splits: Iterable[Split]) -> str:
    """The first names, and how many more there are."""
    found = [split.name for split in in_order(splits)]
    more = len(found) - MAX_NAMED
    return ", ".join(found[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
