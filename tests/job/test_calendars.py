"""Whatever a clock does, each day is read by one daily run, and shorter runs read the days that they touch."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from calendars import CRONS, DAILY, Change, all_changes, changes_of, one_of_each_kind, wrong

from airflow_recovery.job import enumerators

STRANGE = {
    "America/Goose_Bay": 2005,  # back at one minute past midnight, to the day before
    "America/Havana": 2026,  # two midnights
    "America/Santiago": 2026,  # no midnight
    "Australia/Lord_Howe": 2026,  # by half an hour
    "Europe/Berlin": 2026,
    "Pacific/Apia": 2011,  # a day that never was
}


@pytest.mark.parametrize(
    ("zone", "cron"),
    [
        *((zone, DAILY) for zone in STRANGE),
        *(("America/Goose_Bay", cron) for cron in CRONS[1:]),
        *((zone, CRONS[2]) for zone in ("America/Havana", "Pacific/Apia")),
    ],
)
def test_fault_343_the_days_of_strange_clocks_are_read_once(zone: str, cron: str) -> None:
    changes = list(changes_of(zone, STRANGE[zone], STRANGE[zone]))
    assert changes
    assert [text for change in changes for text in wrong(change, cron)] == []


def test_fault_343_a_day_that_never_was_is_no_split() -> None:
    zone = ZoneInfo("Pacific/Apia")
    found = enumerators.date_splits(datetime(2011, 12, 29, tzinfo=zone), datetime(2012, 1, 1, tzinfo=zone))
    assert [split.uri for split in found] == ["split:2011-12-29", "split:2011-12-31"]
    assert enumerators.exists(date(2011, 12, 30), None)
    assert enumerators.exists(date.max, zone)


@pytest.mark.control
def test_fault_343_control_a_day_by_its_number_alone_is_read_though_it_never_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (change,) = [
        each for each in changes_of("Pacific/Apia", 2011, 2011) if each.after - each.before > timedelta(hours=2)
    ]
    assert wrong(change, DAILY) == []
    monkeypatch.setattr(enumerators, "exists", lambda day, zone: True)
    assert "2011-12-30" in wrong(change, DAILY)[0]


@pytest.fixture(scope="module")
def every_change() -> list[Change]:
    return all_changes()


@pytest.mark.drill
def test_fault_343_every_change_of_every_zone_by_day(every_change: list[Change]) -> None:
    assert len(every_change) > 10_000
    assert [text for change in every_change for text in wrong(change, DAILY)] == []


@pytest.mark.drill
@pytest.mark.parametrize("cron", CRONS[1:])
def test_fault_343_each_kind_of_change_by_hour_and_quarter(every_change: list[Change], cron: str) -> None:
    """Of changes that move the hands of a clock alike, one."""
    kinds = one_of_each_kind(every_change)
    assert len(kinds) > 100
    assert [text for change in kinds for text in wrong(change, cron)] == []
