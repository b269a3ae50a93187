"""Which runs are the newest, which run is meant, and which moment a text names."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from clocked import DAY_S, Clock, ClockedStore
from expected_errors import fails_with
from written_night import Night, region

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import Claim, RunIdentity
from airflow_recovery.store import ObjectStore
from airflow_recovery.story import run_lookup
from airflow_recovery.story.past_runs import past_runs
from airflow_recovery.story.run_lookup import all_runs, find_run, groups_of, moment_of, newest_runs
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
    with fails_with("run-of-journal-unknown"):
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


def claimed(journal: ClockedStore, key: str, run_id: str, region: str = "load", attempt: int = 1) -> None:
    """A minute later than the claim before."""
    journal.clock.passes(60)
    run = Journal(journal, RunIdentity("d", key, "g"), writer="w")
    run.claim(Claim(region, attempt, "w", "plan", (), run_id, 1, "ti", "tag", "2026-01-01T00:00:00+00:00"))


def hourly(journal: ClockedStore, runs: int) -> list[str]:
    """Runs of so many hours, of which each claim has a run id without a date: ``manual 0`` and so on."""
    first = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    dates = [(first + timedelta(hours=hour)).isoformat() for hour in range(runs)]
    found = [run_key(logical_date=date, partition_key=None, run_id="") for date in dates]
    for at, key in enumerate(found):
        claimed(journal, key, f"manual {at}")
    return found


def test_a_run_that_was_made_again_is_found_by_its_new_id_and_by_its_old_one(journal: ClockedStore) -> None:
    claimed(journal, "date-2026-01-01T000000Z", "scheduled__2026-01-02T00:00:00+00:00", "by_carrier")
    claimed(journal, "date-2026-01-01T000000Z", "manual__2026-03-05T10:11:12.345678+00:00", "by_route")
    claimed(journal, "date-2026-01-01T000000Z", "by hand", "by_carrier", 2)
    claimed(journal, "date-2026-01-02T000000Z", "scheduled__2026-01-03T00:00:00+00:00")
    for run_id in ("scheduled__2026-01-02T00:00:00+00:00", "manual__2026-03-05T10:11:12.345678+00:00", "by hand"):
        assert find_run(journal, "d", run_id).run_key == "date-2026-01-01T000000Z"


def test_of_more_runs_than_are_in_a_page_the_newest_are_found_and_first(journal: ClockedStore) -> None:
    keys = hourly(journal, 1_010)
    for at in (1_009, 1_000, 500, 0):
        counted = CountingStore(journal)
        assert find_run(counted, "d", f"manual {at}").run_key == keys[at]
        # Page by page, not run by run; the last run's claim is among the first that are read.
        assert counted.count(Verb.LIST) < 10
        assert counted.count(Verb.GET) <= 1_009 - at + run_lookup._CONNECTIONS


def test_a_date_and_a_run_key_read_nothing_and_list_no_other_run(journal: ClockedStore) -> None:
    keys = hourly(journal, 10)
    for run, lists in ((keys[3], 4), ("2026-01-01T03:00:00Z", 7)):
        counted = CountingStore(journal)
        assert find_run(counted, "d", run).run_key == keys[3]
        assert counted.counts() == {Verb.LIST: lists}


def test_a_date_in_the_run_id_says_where_to_look_first(journal: ClockedStore) -> None:
    keys = hourly(journal, 1_010)
    claimed(journal, keys[20], "scheduled__2026-01-01T21:00:00+00:00", "load", 2)
    counted = CountingStore(journal)
    assert find_run(counted, "d", "scheduled__2026-01-01T21:00:00+00:00").run_key == keys[20]
    assert counted.count(Verb.GET) == 22 + 1
    with fails_with("run-unknown"):
        find_run(journal, "d", "scheduled__0001-01-01T00:00:00+00:00")


def test_where_not_all_claims_are_read_the_error_says_so(
    journal: ClockedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hourly(journal, 300)
    monkeypatch.setattr(run_lookup, "CLAIMS_READ", 64)
    assert find_run(journal, "d", "manual 290")
    with fails_with("run-unknown"):
        find_run(journal, "d", "manual 3")


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


def test_all_runs_are_found_by_the_pages_of_one_listing(journal: ClockedStore) -> None:
    """A large one, of more objects than a page has, costs one more."""
    for number in range(400):
        for name in ("a", "b", "c"):
            journal.put(f"d/run-{number:03d}/g/t/{name}/00000001.claim", b"")
    journal.put("d/run-007/other/t/a/00000001.claim", b"")
    for number in range(1, 2_000):
        journal.put(f"d/run-008/g/t/a/{number:08d}.claim", b"")
    counting = CountingStore(journal)
    assert len(all_runs(counting, "d")) == 401
    assert counting.counts() == {Verb.LIST: 1 + 3 + 1}
    assert [(run.run_key, run.group_id) for run in all_runs(journal, "d", wanted_key="run-007".__eq__)] == [
        ("run-007", "g"),
        ("run-007", "other"),
    ]


# what others have left in the journal


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'"text"', b"{"])
def test_what_is_no_record_is_not_asked_whose_run_it_is(journal: ClockedStore, body: bytes) -> None:
    """The folder of a group with a long name says only how it begins."""
    group = "g" * 150
    ran(journal, "run-1", group)
    journal.put(f"d/run-1/{encode(group)}/a.json", body)
    identity = RunIdentity("d", "run-1", group)
    assert find_run(journal, "d", "run-1") == identity
    assert all_runs(journal, "d") == newest_runs(journal, "d", most=1) == [identity]
    assert groups_of(journal, "d", "run-1") == [group]


def test_whose_run_it_is_the_second_record_says_where_the_first_is_damaged(journal: ClockedStore) -> None:
    group = "g" * 150
    ran(journal, "run-1", group)
    folder = f"d/run-1/{encode(group)}"
    first, *others = (info.key for info in list(journal.list(f"{folder}/")) if "/h/" not in info.key)
    journal.put(first, b"{")
    assert groups_of(journal, "d", "run-1") == [group]
    for key in others:
        journal.put(key, b"{")
    with fails_with("record-no-json"):
        groups_of(journal, "d", "run-1")


def test_a_folder_without_a_record_is_no_group(journal: ClockedStore) -> None:
    ran(journal, "run-1")
    for key in ("d/run-1/lost+found/a", "d/run-1/g~~0/a", "d/run-2/note", "d/run-3/g~~0/a"):
        journal.put(key, b"?")
    assert groups_of(journal, "d", "run-1") == ["g"]
    assert groups_of(journal, "d", "run-2") == groups_of(journal, "d", "run-3") == []
    assert RunIdentity("d", "run-1", "g") in all_runs(journal, "d")
    for group in (None, "g"):
        with fails_with("run-without-group"):
            find_run(journal, "d", "run-2", group)


@pytest.mark.parametrize("name", ["2026-01-01", "2026-01-01T00:00:00+00:00"])
def test_fault_293_a_name_of_two_runs_is_refused_and_names_both(journal: ClockedStore, name: str) -> None:
    ran(journal, "date-2026-01-01T000000Z")
    ran(journal, f"partition-{name}")
    with fails_with("run-ambiguous"):
        find_run(journal, "d", name)
    for key in ("date-2026-01-01T000000Z", f"partition-{name}"):
        assert find_run(journal, "d", key).run_key == key


def test_fault_293_a_run_id_and_a_partition_of_one_name_are_told_apart_too(journal: ClockedStore) -> None:
    for key in ("run-eu", "partition-eu"):
        ran(journal, key)
    with fails_with("run-ambiguous", dag="d", run="eu"):
        find_run(journal, "d", "eu")


@pytest.mark.control
def test_fault_293_control_the_first_meaning_would_win(journal: ClockedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(journal, "date-2026-01-01T000000Z")
    ran(journal, "partition-2026-01-01")
    every = run_lookup._keys_of
    monkeypatch.setattr(run_lookup, "_keys_of", lambda run: list(every(run))[:1])
    assert find_run(journal, "d", "2026-01-01").run_key == "date-2026-01-01T000000Z"
