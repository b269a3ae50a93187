"""What a source reads, cut into splits: ``splits=files(...)``, ``key_ranges(...)``, ``dates(...)``, ``enumerated_by``.

Nothing is listed where it is declared: the splits are enumerated when a region is about to run, and each of them, with
its content key, belongs to the trace. So one that came, went or changed means that it is read again.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_recovery.checks import check_arguments, check_location, is_template
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.batch_snapshot import takes_snapshots
from airflow_recovery.job.enumerators import (
    ResumedEnumerator,
    begins_day,
    date_splits,
    day_moment,
    key_range_splits,
    yielded_splits,
)
from airflow_recovery.job.handed_splits import DateSplits, FileSplits, KeyRangeSplits, Splits, files_handed
from airflow_recovery.job.templates import plain_json
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished

_SHORTEST_DAY = timedelta(hours=23)
_OF_THE_RUN = ("{{ data_interval_start }}", "{{ data_interval_end }}")
"""The ends of `Dates` by default."""
_AT_AN_HOUR = re.compile(r"(?P<minute>\d+) (?P<hour>\d+) .*")
"""A cron expression of at most one moment a day."""


_CURE = (
    "If the runs begin at midnight of a time zone, name the zone, as in dates(timezone='Europe/Berlin'). If they begin "
    "at another hour, name the days: dates('{{ data_interval_start.date() }}', '{{ data_interval_end.date() }}')"
)


class DeclaredSplits(ABC):
    """What a source declares with ``splits=``. A value; `rendered` fills in the templates for one run."""

    vanished: Vanished

    @property
    def names_content(self) -> bool:
        """Whether its splits say what the input holds, so that a change out there is another split."""
        return True

    @property
    @abstractmethod
    def declared(self) -> dict[str, Any]:
        """Its options as plain JSON values. Texts in them may be templates over the run, and over the subtask."""

    @abstractmethod
    def rendered(self, declared: Mapping[str, Any]) -> DeclaredSplits:
        """The same with ``declared``, which is `declared` without templates."""

    @abstractmethod
    def handed(self, splits: Sequence[Split], spark_path: Callable[[str], str]) -> FileSplits | Splits:
        """The value of the function's parameter ``splits``. ``spark_path`` makes a URI one that Spark reads."""

    @property
    def identity(self) -> Any:
        """Its part of the vertex's fingerprint. The splits themselves are compared one by one."""
        return {type(self).__name__: self.declared}


@dataclass(frozen=True)
class FilePattern(DeclaredSplits):
    """Which files a source reads: a URI or absolute path of a file, of a folder, or a glob (`airflow_recovery.splits`).

    It may be a template over the run, as parameters may.
    """

    pattern: str
    vanished: Vanished = Vanished.DROP

    def __post_init__(self) -> None:
        check_arguments(FilePattern.__init__, {"pattern": self.pattern}, "files()")
        check_location(self.pattern, "files()", to_read=True)

    @property
    def declared(self) -> dict[str, Any]:
        """The pattern. It is called by the name of the option in messages."""
        return {"splits": self.pattern}

    def rendered(self, declared: Mapping[str, Any]) -> FilePattern:
        """The pattern of one run: ``declared`` has it without templates."""
        return replace(self, pattern=declared["splits"])

    def handed(self, splits: Sequence[Split], spark_path: Callable[[str], str]) -> FileSplits:
        """The files, with the paths by which Spark reads them."""
        return files_handed(splits, spark_path)

    @property
    def identity(self) -> Any:
        """The pattern, as the first fingerprints had it."""
        return self.pattern


class EnumeratedSource(DeclaredSplits):
    """Splits that are no files: no store has to be asked for them."""

    def resumed(self, where: str) -> ResumedEnumerator | None:
        """The enumerator that goes on where the one before it was; `None` for one that takes no snapshots."""
        return None

    @abstractmethod
    def rendered(self, declared: Mapping[str, Any]) -> EnumeratedSource:
        """The same with ``declared``, which is `declared` without templates."""

    @abstractmethod
    def enumerate(self, where: str) -> tuple[Split, ...]:
        """The splits of a run; for a rendered source alone. Raises `JobDefinitionError`, beginning with ``where``."""

    def handed(self, splits: Sequence[Split], spark_path: Callable[[str], str]) -> Splits:
        """The splits as the enumerator gave them, with their payloads."""
        return Splits(tuple(splits))


@dataclass(frozen=True)
class KeyRanges(EnumeratedSource):
    """Half-open ranges of an integer column. Bounds are numbers, or templates that give numbers."""

    table: str
    column: str
    lower: int | str
    upper: int | str
    width: int
    as_of: str | None = None
    vanished: Vanished = Vanished.DROP

    @property
    def names_content(self) -> bool:
        """Only with ``as_of``, which says of when the rows are."""
        return self.as_of is not None

    @property
    def declared(self) -> dict[str, Any]:
        """The table, the column, and the ranges."""
        named = ("table", "column", "lower", "upper", "width", "as_of")
        return {name: getattr(self, name) for name in named}

    def rendered(self, declared: Mapping[str, Any]) -> KeyRanges:
        """The ranges of one run: ``declared`` has their bounds without templates."""
        return replace(self, **declared)

    def enumerate(self, where: str) -> tuple[Split, ...]:
        """The ranges, from the lowest on. Raises `JobDefinitionError` for bounds that are no numbers, or swapped."""
        lower, upper = (self._number(name, where) for name in ("lower", "upper"))
        if upper <= lower:
            raise JobDefinitionError(
                f"{where}: expected key_ranges() with an upper= above lower=, found {lower} and {upper}: upper is the "
                "first key that is not read",
                code="key-range-empty",
                where=where,
            )
        return key_range_splits(
            table=self.table, column=self.column, lower=lower, upper=upper, width=self.width, as_of=self.as_of
        )

    def handed(self, splits: Sequence[Split], spark_path: Callable[[str], str]) -> KeyRangeSplits:
        """The ranges, with conditions in SQL that read them."""
        return KeyRangeSplits(tuple(splits))

    def _number(self, name: str, where: str) -> int:
        value = getattr(self, name)
        try:
            return int(value)
        except ValueError:
            raise JobDefinitionError(
                f"{where}: expected {name}= of key_ranges() to come to a whole number in this run, found {value!r}",
                code="key-bound-not-a-number",
                where=where,
            ) from None


@dataclass(frozen=True)
class Dates(EnumeratedSource):
    """The days of an interval, half-open; both ends are days or moments in ISO 8601, or templates that give them.

    ``timezone``: whose days, where the ends are moments; empty: those of the moments' own, which for a run are UTC's.
    """

    start: str
    end: str
    vanished: Vanished = Vanished.DROP
    timezone: str = ""
    is_of_run: bool = False
    """After `rendered`: the ends are those of the run's data interval."""

    @property
    def names_content(self) -> bool:
        """A day says nothing of what it holds."""
        return False

    @property
    def declared(self) -> dict[str, Any]:
        """Both ends, as texts, and the time zone if one is given."""
        return {"start": self.start, "end": self.end, **({"timezone": self.timezone} if self.timezone else {})}

    def rendered(self, declared: Mapping[str, Any]) -> Dates:
        """The interval of one run: ``declared`` has its ends without templates."""
        return replace(self, **declared, is_of_run=(self.start, self.end) == _OF_THE_RUN)

    def enumerate(self, where: str) -> tuple[Split, ...]:
        """The days, from the first on.

        Raises `JobDefinitionError` for ends that are no days, or swapped, and for a data interval that begins within a
        day: two runs would read that day.
        """
        start, end = self._ends(where)
        overlap = self.overlap(where) if self.is_of_run else ""
        if overlap:
            raise JobDefinitionError(
                f"{where}: expected a data interval of whole days for dates(), found that {overlap}",
                code="interval-not-whole-days",
                where=where,
            )
        if _length(start, end) < timedelta(0):
            raise JobDefinitionError(
                f"{where}: expected dates() with an end= that is not before start=, found {self.start!r} and "
                f"{self.end!r}: end is the first day that is not read",
                code="dates-end-before-start",
                where=where,
            )
        return date_splits(start, end)

    def overlap(self, where: str) -> str:
        """Why the run before reads one of these days as well: of an interval of a day or more; else empty."""
        start, end = self._ends(where)
        if _length(start, end) < _SHORTEST_DAY or begins_day(start):
            return ""
        return f"the interval from {start.isoformat()} begins within a day, so two runs would read this day. {_CURE}"

    def overlap_of_runs(self, cron: str, zone: str) -> str:
        """Why the runs of a cron schedule with data intervals, in the time zone ``zone``, are refused; else empty."""
        at = _AT_AN_HOUR.fullmatch(cron)
        if (self.start, self.end) != _OF_THE_RUN or at is None:
            return ""
        if (int(at["minute"]), int(at["hour"])) == (0, 0) and zone == (self.timezone or "UTC"):
            return ""
        mine = self.timezone or "UTC"
        return (
            f"the data intervals of schedule {cron!r} ({zone}) begin within a day of {mine}, so two runs would read "
            f"this day: each run will fail. {_CURE}"
        )

    def _ends(self, where: str) -> tuple[datetime, datetime]:
        start, end = self._moment("start", where), self._moment("end", where)
        if (start.tzinfo is None) is not (end.tzinfo is None):
            start, end = start.replace(tzinfo=None), end.replace(tzinfo=None)
        return start, end

    def handed(self, splits: Sequence[Split], spark_path: Callable[[str], str]) -> DateSplits:
        """The days, as texts and as dates."""
        return DateSplits(tuple(splits))

    def _moment(self, name: str, where: str) -> datetime:
        value = getattr(self, name)
        try:
            moment = day_moment(value)
            _in_utc(moment)
            return moment.astimezone(ZoneInfo(self.timezone)) if self.timezone and moment.tzinfo else moment
        except (ValueError, OverflowError):
            raise JobDefinitionError(
                f"{where}: expected {name}= of dates() to come to a day such as '2013-01-31' in this run, found "
                f"{value!r}",
                code="date-not-a-day",
                where=where,
                name=name,
            ) from None


def _length(start: datetime, end: datetime) -> timedelta:
    """The time between them. Python subtracts, and compares, the wall clocks of two moments of one time zone."""
    return _in_utc(end) - _in_utc(start)


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(timezone.utc)


@dataclass(frozen=True)
class EnumeratedBy(EnumeratedSource):
    """What the user's own function or class yields, called with ``params``."""

    enumerator: Callable[..., Iterable[Split]]
    params: Mapping[str, Any] = field(default_factory=dict)
    vanished: Vanished = Vanished.DROP

    @property
    def declared(self) -> dict[str, Any]:
        """The parameters that the enumerator is called with."""
        return dict(self.params)

    def rendered(self, declared: Mapping[str, Any]) -> EnumeratedBy:
        """The same for one run: ``declared`` has the parameters without templates."""
        return replace(self, params=dict(declared))

    def enumerate(self, where: str) -> tuple[Split, ...]:
        """The splits that the user's code yields now. Raises as `yielded_splits`, and what that code raises."""
        return yielded_splits(self.enumerator, self.params, where=where)

    @property
    def takes_snapshots(self) -> bool:
        """Whether it is a class that has `airflow_recovery.job.batch_snapshot.SupportsBatchSnapshot`."""
        return isinstance(self.enumerator, type) and takes_snapshots(self.enumerator)

    def resumed(self, where: str) -> ResumedEnumerator | None:
        """The enumerator that goes on, where its class takes snapshots. A state of other parameters is ignored."""
        if not self.takes_snapshots:
            return None
        return ResumedEnumerator(partial(self.enumerator, **self.params), self.identity, where=where)

    @property
    def identity(self) -> Any:
        """Its name, and what it is called with. What it yields is compared split by split."""
        return {"EnumeratedBy": [self.enumerator.__qualname__, self.declared]}


SplitSource = FilePattern | EnumeratedSource
"""The types of ``splits=``."""


def files(pattern: str, *, vanished: Vanished | str = Vanished.DROP) -> FilePattern:
    """Declare a source's files: ``@flights.source(splits=files("s3://lake/flights/{{ ds }}/*.csv"))``.

    The files are listed when the region is about to run; each one's key, size and etag belong to the trace, so that a
    file that came, went or changed means that the region runs again. ``vanished`` says what becomes of the rows of a
    file that is not listed any more: ``"drop"``, ``"keep"`` or ``"fail"`` (`Vanished`).
    """
    return FilePattern(pattern, _checked_vanished(vanished, "files()"))


def key_ranges(
    table: str,
    column: str,
    *,
    lower: int | str,
    upper: int | str,
    width: int,
    as_of: str | None = None,
    vanished: Vanished | str = Vanished.DROP,
) -> KeyRanges:
    """Declare half-open ranges of an integer column: ``splits=key_ranges("flights", "id", lower=0, ...)``.

    The function reads them with ``spark.read.jdbc(url, "flights", predicates=splits.predicates)``. ``lower`` is the
    first key, ``upper`` the first that is not read any more; both may be templates over the run that give numbers.
    Each range has ``width`` keys. Rows outside of the bounds, and without a key, are not read.

    ``as_of`` (a text, mostly a template) names the state of the table and is part of each split's key: with another
    one, everything is read again. Without it, a change inside a range is not seen. Raises `JobDefinitionError`.
    """
    texts = {"table": table, "column": column, "as_of": as_of, "width": width}
    check_arguments(key_ranges, texts, "key_ranges()")
    for name, bound in (("lower", lower), ("upper", upper)):
        is_number = isinstance(bound, int) and not isinstance(bound, bool)
        if not is_number and not (isinstance(bound, str) and is_template(bound)):
            raise JobDefinitionError(
                f"key_ranges(): expected {name}= as a whole number, or a template that gives one, found {bound!r}",
                code="key-bound-unfit",
            )
    if width < 1:
        raise JobDefinitionError(
            f"key_ranges(): expected width= as a number of keys from 1, found {width!r}", code="key-width-unfit"
        )
    return KeyRanges(table, column, lower, upper, width, as_of, _checked_vanished(vanished, "key_ranges()"))


def dates(
    start: str = "{{ data_interval_start }}",
    end: str = "{{ data_interval_end }}",
    *,
    timezone: str | None = None,
    vanished: Vanished | str = Vanished.DROP,
) -> Dates:
    """Declare the days of an interval, by default of the run's data interval: ``splits=dates()``.

    The function reads ``splits.days``. ``end`` is the first day that is not read; where both are one moment, it is the
    day in which that lies. Days are UTC's: if the schedule has a time zone, name it, as in
    ``dates(timezone="Europe/Berlin")``. A run fails if its data interval is a day or longer and begins within a day,
    since two runs would read that day. Raises `JobDefinitionError`.
    """
    for name, text in (("start", start), ("end", end)):
        if not isinstance(text, str) or not (is_template(text) or _is_moment(text)):
            raise JobDefinitionError(
                f"dates(): expected {name}= as a day such as '2013-01-31', or a template that gives one, found "
                f"{text!r}",
                code="date-unfit",
            )
    try:
        zone = ZoneInfo(timezone).key if timezone is not None else ""
    except (TypeError, ValueError, ZoneInfoNotFoundError):
        raise JobDefinitionError(
            f"dates(): expected timezone= as the name of a time zone such as 'Europe/Berlin', found {timezone!r}",
            code="time-zone-unknown",
        ) from None
    return Dates(start, end, _checked_vanished(vanished, "dates()"), zone)


def enumerated_by(
    enumerator: Callable[..., Iterable[Split]],
    *,
    params: Mapping[str, Any] | None = None,
    vanished: Vanished | str = Vanished.DROP,
) -> EnumeratedBy:
    """Declare splits that your own code yields: ``splits=enumerated_by(orders, params={"day": "{{ ds }}"})``.

    ``enumerator`` is a function, or a class whose instances can be iterated over; it is called with ``params``, in
    which texts may be templates over the run, and yields ``Split.of(name, payload, size=bytes)``. It runs in the
    region's task before every attempt, and once more wherever a try has to know whether its input has changed. A class
    may have `snapshot_state` and `restore` as well (`airflow_recovery.job.batch_snapshot.SupportsBatchSnapshot`).
    """
    if not callable(enumerator) or not hasattr(enumerator, "__qualname__"):
        raise JobDefinitionError(
            f"enumerated_by(): expected a function or a class that yields splits, found {enumerator!r}: name it "
            "without calling it",
            code="enumerator-unfit",
        )
    check_arguments(enumerated_by, {"params": params}, "enumerated_by()")
    plain = plain_json(dict(params or {}), where="enumerated_by(), params=")
    return EnumeratedBy(enumerator, plain, _checked_vanished(vanished, "enumerated_by()"))


def _is_moment(text: str) -> bool:
    try:
        day_moment(text)
    except ValueError:
        return False
    return True


def _checked_vanished(value: object, where: str) -> Vanished:
    try:
        return Vanished(value)
    except ValueError:
        raise JobDefinitionError(
            f"{where}: expected vanished= as 'drop', 'keep' or 'fail', found {value!r}: it says what becomes of the "
            "rows of a split that is not listed any more",
            code="vanished-unfit",
            where=where,
        ) from None
