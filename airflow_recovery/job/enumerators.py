"""The splits of a source whose splits are no files: key ranges, days, and what a user's own code yields.

Files are listed in `airflow_recovery.task.inventory`. Nothing here asks a store or a database; a user's own enumerator
may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any

from airflow_recovery.errors import JobDefinitionError, SplitIdentityError
from airflow_recovery.job.batch_snapshot import state_text
from airflow_recovery.model.split import Split, listed

MAX_SPLITS = 200_000
"""The most splits of one source. One record of the journal names them all, and so does a driver's specification."""


def key_range_splits(
    *, table: str, column: str, lower: int, upper: int, width: int, as_of: str | None
) -> tuple[Split, ...]:
    """Half-open ranges of ``width`` keys from ``lower`` to below ``upper``; the last one may be narrower.

    Bounds that stand at multiples of ``width`` from ``lower`` make the ranges of a table that has grown the same ones
    as before, but for the last. Raises `JobDefinitionError` for more than `MAX_SPLITS`.
    """
    # `len` of a range that is longer than a machine counts raises.
    check_number(max(0, -((lower - upper) // width)), f"key ranges of {table}.{column}", "a larger width=")
    splits = []
    for start in range(lower, upper, width):
        end = min(start + width, upper)
        name = f"{table}.{column}[{start},{end})" + ("" if as_of is None else f"@{as_of}")
        predicate = f"{column} >= {start} AND {column} < {end}"
        splits.append(Split.of(name, {"lower": start, "upper": end, "predicate": predicate}))
    return tuple(splits)


def date_splits(start: datetime, end: datetime) -> tuple[Split, ...]:
    """The days that ``start`` to before ``end`` touches. Where the two are one moment, the day in which it lies.

    Airflow's newer timetables give a run such an interval. Days are those of the moments' own time zone.
    """
    # The clock may go back to the day before within the interval: Goose Bay's did so at one minute past midnight.
    first = min(start.toordinal(), _just_before(end).toordinal()) if _is_later(end, start) else start.toordinal()
    is_next = begins_day(end) and end.date() > start.date()
    last = max(start.toordinal(), end.toordinal() - is_next)
    days = last - first + 1
    check_number(days, f"days from {start.isoformat()} to {end.isoformat()}", "a shorter interval")
    found = (date.fromordinal(first + at) for at in range(days))
    return tuple(Split.of(day.isoformat(), day.isoformat()) for day in found if exists(day, start.tzinfo))


def exists(day: date, zone: tzinfo | None) -> bool:
    """Whether ``zone`` has that day. Apia had no 30 December 2011, when it moved across the date line."""
    if zone is None or not date.min < day < date.max:
        return True
    noon = datetime.combine(day, time(12), zone)
    return noon.astimezone(timezone.utc).astimezone(zone).date() == day


def _is_later(moment: datetime, other: datetime) -> bool:
    if moment.tzinfo is None or other.tzinfo is None:
        return moment > other
    return moment.astimezone(timezone.utc) > other.astimezone(timezone.utc)


def begins_day(moment: datetime) -> bool:
    """Whether ``moment`` begins a day of its own time zone: at midnight, or where the clock skips midnight.

    Santiago's clocks go from 23:59 to 01:00 when summer time begins. If there are two midnights, each of them does.
    """
    if moment.time() == time():
        return True
    if moment.tzinfo is None:
        return False
    return _just_before(moment).date() < moment.date()


def _just_before(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment - timedelta(microseconds=1)
    return (moment.astimezone(timezone.utc) - timedelta(microseconds=1)).astimezone(moment.tzinfo)


def yielded_splits(
    enumerator: Callable[..., Iterable[Split]], params: Mapping[str, Any], *, where: str, name: str | None = None
) -> tuple[Split, ...]:
    """What an enumerator of the user's own yields, in the order of the names, each split once.

    What it raises passes through. Raises `SplitIdentityError` for anything that is no `Split`, and for two contents
    under one name; `JobDefinitionError` for more than `MAX_SPLITS`.
    """
    name = name or _name(enumerator)

    def checked() -> Iterable[Split]:
        for at, split in enumerate(enumerator(**params)):
            if not isinstance(split, Split):
                raise SplitIdentityError(
                    f"{where}: expected {name} to yield Split.of(name, payload), found {split!r}",
                    code="split-not-made-by-of",
                    where=where,
                    found=repr(split),
                )
            if at >= MAX_SPLITS:
                check_number(at + 1, f"splits of {name}", "splits that hold more each")
            yield split

    return tuple(listed(checked()).by_uri.values())


@dataclass(frozen=True)
class Enumeration:
    """A listing by content key, and its enumerator's state after it; `None` of one that takes no snapshots."""

    splits: Mapping[str, Split]
    state: Any = None


class ResumedEnumerator:
    """An enumerator with `SupportsBatchSnapshot`: made anew each time, and restored to where it was.

    ``make`` returns a new one. ``of`` says what it enumerates: a state of anything else (other parameters) is ignored,
    and it begins from the start. ``where`` begins messages.
    """

    def __init__(self, make: Callable[[], Any], of: Any, *, where: str) -> None:
        self._make, self._of, self._where = make, of, where

    def goes_on(self, state: Any, known: Mapping[str, Split]) -> Enumeration:
        """All splits that are to be read: ``known``, which it had yielded up to ``state``, and what comes after them.

        What the user's class raises passes through. Raises `SplitIdentityError` for what is no split, and for a state
        that JSON does not give back as it is.
        """
        enumerator = self._make()
        splits: list[Split] = []
        if isinstance(state, dict) and state.get("of") == self._of:
            enumerator.restore(state["state"])
            splits += known.values()
        splits += yielded_splits(lambda: enumerator, {}, where=self._where, name=_name(type(enumerator)))
        check_number(len(splits), f"splits of {_name(type(enumerator))}", "splits that hold more each")
        now = enumerator.snapshot_state()
        state_text(now, self._where, SplitIdentityError)
        return Enumeration(listed(splits).splits, {"of": self._of, "state": now})


def check_number(count: int, what: str, advice: str) -> None:
    """Raises `JobDefinitionError` for more splits than one record holds."""
    if count > MAX_SPLITS:
        raise JobDefinitionError(
            f"expected at most {MAX_SPLITS} {what}, found {count} or more: use {advice}",
            code="too-many-splits",
            expected=MAX_SPLITS,
            found=count,
        )


def day_moment(text: str) -> datetime:
    """A day or a moment, as ISO 8601. Raises `ValueError`."""
    if len(text) == len("2013-01-31"):
        return datetime.combine(datetime.fromisoformat(text).date(), time())
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _name(enumerator: object) -> str:
    return str(getattr(enumerator, "__qualname__", None) or repr(enumerator))
