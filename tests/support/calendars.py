"""Every change of a clock that the database of time zones has from 2000 to 2037, and the runs of Airflow around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

from airflow_recovery.job.sources import dates

CRONS = ("0 0 * * *", "0 * * * *", "*/15 * * * *")
DAILY = CRONS[0]
STEP = timedelta(minutes=1)


@dataclass(frozen=True)
class Change:
    """``at`` is the first moment with the new offset."""

    zone: str
    at: datetime
    before: timedelta
    after: timedelta

    @property
    def kind(self) -> tuple[object, ...]:
        """Changes of one kind move the same hands of a clock alike."""
        return self.before, self.after, self.at.astimezone(ZoneInfo(self.zone)).time()


def changes_of(zone: str, first: int = 2000, last: int = 2037) -> Iterator[Change]:
    """The changes of one zone, to the minute."""
    clock = ZoneInfo(zone)

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(clock).utcoffset() or timedelta(0)

    at, end = datetime(first, 1, 1, tzinfo=timezone.utc), datetime(last + 1, 1, 1, tzinfo=timezone.utc)
    while at < end:
        later = at + timedelta(days=5)
        if offset(later) != offset(at):
            low, high = at, later
            while high - low > STEP:
                middle = low + (high - low) // STEP // 2 * STEP
                low, high = (middle, high) if offset(middle) == offset(at) else (low, middle)
            yield Change(zone, high, offset(at), offset(later))
        at = later


def all_changes() -> list[Change]:
    return [change for zone in sorted(available_timezones()) for change in changes_of(zone)]


def one_of_each_kind(changes: list[Change]) -> list[Change]:
    return list({change.kind: change for change in reversed(changes)}.values())


def intervals(cron: str, zone: str, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """The data intervals that Airflow's own timetable gives, in UTC. It ends early where the timetable gets stuck."""
    import pendulum
    from airflow.timetables.base import TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable

    timetable = CronDataIntervalTimetable(cron, zone)
    restriction, interval = TimeRestriction(earliest=pendulum.instance(first), latest=None, catchup=True), None
    found: list[tuple[datetime, datetime]] = []
    while True:
        try:
            info = timetable.next_dagrun_info(last_automated_data_interval=interval, restriction=restriction)
        except ValueError:  # "did not advance": Airflow makes no runs from here on
            return found
        assert info is not None
        interval = info.data_interval
        if interval.start >= last:
            return found
        start, end = (datetime.fromtimestamp(moment.timestamp(), timezone.utc) for moment in interval)
        found.append((start, end))


def days_touched(start: datetime, end: datetime, zone: ZoneInfo, step: timedelta = STEP) -> list[str]:
    """By looking at a clock of ``zone`` every minute."""
    found, at = set[date](), start
    while at < end:
        found.add(at.astimezone(zone).date())
        at += step
    return [day.isoformat() for day in sorted(found)]


def wrong(change: Change, cron: str) -> list[str]:
    """What is wrong with the days that the runs around ``change`` read."""
    zone, told = ZoneInfo(change.zone), list[str]()
    read: list[str] = []
    runs = intervals(cron, change.zone, change.at - timedelta(days=2), change.at + timedelta(days=2))
    for start, end in runs:
        declared = dates(start.isoformat(), end.isoformat(), timezone=change.zone)
        days = [split.uri.removeprefix("split:") for split in declared.enumerate("v")]
        read += days
        if cron != DAILY and days != (touched := days_touched(start, end, zone)):
            told.append(f"{change.zone} {start} to {end}: reads {days}, touches {touched}")
        if declared.overlap("v"):
            told.append(f"{change.zone} {start} to {end}: {declared.overlap('v')}")
    if cron == DAILY and runs:
        every = days_touched(runs[0][0], runs[-1][1], zone, timedelta(minutes=15))
        last = runs[-1][1].astimezone(zone).date().isoformat()
        if read != [day for day in every if day != last]:
            told.append(f"{change.zone} around {change.at}: the daily runs read {read}, there are {every}")
    return told
