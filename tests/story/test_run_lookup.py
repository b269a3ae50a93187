"""Which runs are the newest, and which moment a text names."""

from __future__ import annotations

import pytest
from clocked import DAY_S, Clock, ClockedStore
from written_night import Night, region

from airflow_recovery.errors import NothingRecorded
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore
from airflow_recovery.story import run_lookup
from airflow_recovery.story.past_runs import past_runs
from airflow_recovery.story.run_lookup import moment_of, newest_runs
from airflow_recovery.testing import CountingStore, Verb

PLAN = (region("load", final=True),)


@pytest.fixture
def journal() -> ClockedStore:
    return ClockedStore("memory://journal", Clock())


def ran(journal: ClockedStore, key: str, group: str = "g") -> Night:
    """A day later than the run before."""
    journal.clock.passes(DAY_S)
    night = Night(journal, key, PLAN, group=group)
    night.finishes("load", 10)
    return night


def keys(journal: ObjectStore, most: int, group: str | None = None) -> list[str]:
    return [identity.run_key for identity in newest_runs(journal, "d", group, most=most)]


def test_the_newest_are_those_that_were_last_at_work_whatever_they_are_called(journal: ClockedStore) -> None:
    manual = ran(journal, "run-manual-1")
    for key in ("date-2026-01-02T000000Z", "partition-a", "date-2020-01-01T000000Z"):
        ran(journal, key)
    assert keys(journal, 2) == ["partition-a", "date-2020-01-01T000000Z"]
    # Cleared: another attempt.
    journal.clock.passes(DAY_S)
    manual.fails("load", "load")
    # A sweep later is no work.
    journal.clock.passes(DAY_S)
    journal.put("d/partition-a/g/t/load/00000001.released", b"")
    assert keys(journal, 9) == [
        "date-2026-01-02T000000Z",
        "partition-a",
        "date-2020-01-01T000000Z",
        "run-manual-1",
    ]
    assert [run.run_key for run in past_runs(journal, "d", most=1).runs] == ["run-manual-1"]


def test_control_by_their_names_a_manual_run_would_always_be_the_newest(
    journal: ClockedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("run-manual-1", "date-2026-01-02T000000Z"):
        ran(journal, key)
    assert keys(journal, 1) == ["date-2026-01-02T000000Z"]
    monkeypatch.setattr(run_lookup, "worked_s", lambda listed: None)
    assert keys(journal, 1) == ["run-manual-1"]


def test_groups_of_a_run_stay_together_and_of_one_group_its_own_work_counts(journal: ClockedStore) -> None:
    ran(journal, "date-1", "day")
    ran(journal, "date-2", "day")
    ran(journal, "date-1", "night")
    found = newest_runs(journal, "d", most=1)
    assert found == [RunIdentity("d", "date-1", "day"), RunIdentity("d", "date-1", "night")]
    assert keys(journal, 1, "day") == ["date-2"]
    with pytest.raises(NothingRecorded, match=r"no run of group .noon. .* nearest groups of 2: .*night"):
        newest_runs(journal, "d", "noon", most=1)


def test_many_runs_are_one_listing_and_of_a_large_one_the_rest_is_skipped(
    journal: ClockedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(5):
        ran(journal, f"date-{day}")
    for at in range(40):
        journal.put(f"d/date-2/g/t/load/{at:08d}.x-of-a-tool", b"")
    counted = CountingStore(journal)
    expected = [f"date-{day}" for day in range(5)]
    assert keys(counted, 9) == expected
    plain = counted.count(Verb.LIST)
    monkeypatch.setattr(run_lookup, "_OBJECTS_A_RUN", 10)
    counted = CountingStore(journal)
    assert keys(counted, 9) == expected
    assert counted.count(Verb.LIST) == plain + 1


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T06:00:00", "2026-01-31T06:00:00+00:00"),
        ("2026-01-31T06:00:00Z", "2026-01-31T06:00:00+00:00"),
        ("2026-01-31T06:00:00+02:00", "2026-01-31T04:00:00+00:00"),
        ("2026-01-32", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("soon", None),
    ],
)
def test_a_date_without_an_offset_is_in_utc(text: str, moment: str | None) -> None:
    found = moment_of(text)
    assert (None if found is None else found.isoformat()) == moment
