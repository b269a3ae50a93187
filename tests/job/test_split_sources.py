"""What ``splits=`` may be besides files: what it is told, what it enumerates, what the function is handed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import BLOCKING, Job, Split, dates, enumerated_by, files, job, key_ranges
from airflow_recovery.attempt.job_plan import RunFacts
from airflow_recovery.job import DateSplits, FileSplits, KeyRangeSplits, Splits, sources
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.job.sources import Dates, SplitSource
from airflow_recovery.job.templates import render
from airflow_recovery.model.result_type import BLOCKING_PERSISTENT, CACHED
from airflow_recovery.model.split_matching import Vanished

RANGES = key_ranges("flights", "id", lower=0, upper="{{ params.upper }}", width=10, as_of="{{ ds }}")


def orders(day: str, count: int = 2) -> Iterator[Split]:
    for number in range(count):
        yield Split.of(f"{day}/{number}", {"day": day, "number": number}, size=5)


class Run:
    logical_date = "2013-01-31T00:00:00+00:00"
    data_interval_start = "2013-01-31T00:00:00+00:00"
    data_interval_end = "2013-02-02T00:00:00+00:00"
    conf: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    params = {"upper": 25}  # noqa: RUF012


def declared(splits: Any, **options: Any) -> Job:
    made = job("j", version="1")

    @made.source(splits=splits, version="1", **options)
    def raw(spark: Any, splits: Any) -> Any:
        return splits

    @made.sink(version="1", parallelism=options.get("parallelism"))
    def shown(raw: Any) -> Any:
        return raw

    return made


def enumerated(splits: SplitSource) -> tuple[Split, ...]:
    rendered = declared(splits).render_splits("raw", Run())
    assert rendered is not None
    return rendered.enumerate("here")  # type: ignore[union-attr]


def handed(splits: SplitSource) -> Any:
    return splits.handed(enumerated(splits), str)


class Resumed:
    def __init__(self, key: str = "") -> None:
        self.key = key

    def __iter__(self) -> Iterator[Split]:
        return iter(())

    def snapshot_state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


def test_an_enumerator_that_goes_on_has_one_listing_for_all_subtasks() -> None:
    declared(enumerated_by(Resumed)).regions()
    declared(enumerated_by(Resumed), parallelism=2).regions()
    own = enumerated_by(Resumed, params={"key": "{{ subtask }}"})
    for parallelism in (2, ["a", "b"]):
        with fails_with("enumerator-for-each-subtask"):
            declared(own, parallelism=parallelism)


def test_key_ranges_are_handed_as_predicates() -> None:
    found = handed(RANGES)
    assert isinstance(found, KeyRangeSplits)
    assert found.predicates == ["id >= 0 AND id < 10", "id >= 10 AND id < 20", "id >= 20 AND id < 25"]
    assert found[0].name == "flights.id[0,10)@2013-01-31"


def test_days_are_those_of_the_run_s_interval() -> None:
    found = handed(dates())
    assert isinstance(found, DateSplits)
    assert found.days == [date(2013, 1, 31), date(2013, 2, 1)]
    assert handed(dates("2013-01-01", "{{ ds }}")).days[-1] == date(2013, 1, 30)


BERLIN_DAY = ("2013-06-30T22:00:00+00:00", "2013-07-01T22:00:00+00:00")


def test_days_are_those_of_the_time_zone_that_is_named() -> None:
    assert handed(dates(*BERLIN_DAY)).days == [date(2013, 6, 30), date(2013, 7, 1)]
    assert handed(dates(*BERLIN_DAY, timezone="Europe/Berlin")).days == [date(2013, 7, 1)]
    assert handed(dates("2013-07-01", "2013-07-02", timezone="Asia/Tokyo")).days == [date(2013, 7, 1)], "a day is one"
    assert dates().identity == {"Dates": {"start": "{{ data_interval_start }}", "end": "{{ data_interval_end }}"}}
    assert dates(timezone="Europe/Berlin").identity != dates().identity


def test_a_day_that_is_out_of_range_in_the_time_zone_is_no_day() -> None:
    late = dates("9999-12-31T20:00:00+00:00", "9999-12-31T21:00:00+00:00", timezone="Asia/Tokyo")
    with fails_with("date-not-a-day", name="start"):
        late.enumerate("v")


def intervals(cron: str, zone: str, start: str, end: str) -> Iterator[tuple[str, str]]:
    """The data intervals that Airflow's own timetable gives to the runs from ``start`` to before ``end``, in UTC."""
    import pendulum
    from airflow.timetables.base import TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable

    timetable = CronDataIntervalTimetable(cron, zone)
    first, last = (pendulum.parse(day, tz=zone) for day in (start, end))
    assert isinstance(first, pendulum.DateTime)
    assert isinstance(last, pendulum.DateTime)
    restriction, interval = TimeRestriction(earliest=first, latest=None, catchup=True), None
    while True:
        info = timetable.next_dagrun_info(last_automated_data_interval=interval, restriction=restriction)
        assert info is not None
        interval = info.data_interval
        if interval.start >= last:
            return
        yield interval.start.in_timezone("UTC").isoformat(), interval.end.in_timezone("UTC").isoformat()


ZONES = ("America/Santiago", "Africa/Cairo", "Asia/Beirut", "America/Havana", "America/Asuncion", "Europe/Berlin")


@pytest.mark.parametrize("zone", ZONES)
def test_fault_197_each_day_of_a_year_is_read_by_one_daily_run(zone: str) -> None:
    """Some zones have a day without a midnight, and Havana has a day with two."""
    found = [dates(*each, timezone=zone) for each in intervals("0 0 * * *", zone, "2024-01-01", "2025-01-01")]
    assert [split.uri for each in found for split in each.enumerate("v")] == [
        f"split:{date.fromordinal(day)}" for day in range(date(2024, 1, 1).toordinal(), date(2025, 1, 1).toordinal())
    ]
    assert [each.overlap("v") for each in found] == [""] * 366


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Havana"])
@pytest.mark.parametrize("cron", ["*/15 * * * *", "0 * * * *"])
def test_fault_197_each_run_of_the_hour_that_comes_twice_reads_its_own_day(cron: str, zone: str) -> None:
    for start, end in (("2024-10-26", "2024-10-28"), ("2024-11-02", "2024-11-04")):
        found = [dates(*each, timezone=zone) for each in intervals(cron, zone, start, end)]
        days = [[split.uri for split in each.enumerate("v")] for each in found]
        assert {len(of_run) for of_run in days} == {1}
        assert [each.overlap("v") for each in found] == [""] * len(found)
        assert days == sorted(days)


def test_fault_197_the_moments_of_the_finding() -> None:
    """Santiago's 6 September 2026 has no midnight. Berlin's 25 October 2026 has 02:45 before 02:00."""
    first, second = (
        dates(start, end, timezone="America/Santiago")
        for start, end in (
            ("2026-09-05T04:00:00+00:00", "2026-09-06T04:00:00+00:00"),
            ("2026-09-06T04:00:00+00:00", "2026-09-07T03:00:00+00:00"),
        )
    )
    assert (handed(first).days, handed(second).days) == ([date(2026, 9, 5)], [date(2026, 9, 6)])
    turn = dates("2026-10-25T00:45:00+00:00", "2026-10-25T01:00:00+00:00", timezone="Europe/Berlin")
    assert handed(turn).days == [date(2026, 10, 25)]


@pytest.mark.parametrize(
    ("declared_days", "overlaps"),
    [
        (dates(*BERLIN_DAY), True),
        (dates(*BERLIN_DAY, timezone="Europe/Berlin"), False),
        (dates("2013-07-01T00:00:00+00:00", "2013-07-02T00:00:00+00:00"), False),
        (dates("2013-07-01T05:00:00+00:00", "2013-07-01T06:00:00+00:00"), False),
    ],
)
def test_days_that_two_runs_read_are_told(declared_days: Dates, overlaps: bool) -> None:
    assert bool(declared_days.overlap("here")) is overlaps


def of_run(declared: Dates, start: str, end: str) -> list[str]:
    """The days that a run with this data interval reads."""
    run = RunFacts("2013-07-02T00:00:00+00:00", start, end, {}, {})
    rendered = declared.rendered(render(declared.declared, run, where="v"))
    return [split.uri for split in rendered.enumerate("v")]


NOT_MIDNIGHT = [(f"2013-07-0{day}T02:00:00+00:00", f"2013-07-0{day + 1}T02:00:00+00:00") for day in (1, 2)]


@pytest.mark.parametrize("interval", [BERLIN_DAY, NOT_MIDNIGHT[0]])
def test_fault_364_a_run_whose_interval_begins_within_a_day_is_refused_with_the_cure(interval: tuple[str, str]) -> None:
    with fails_with("interval-not-whole-days", where="v") as refused:
        of_run(dates(), *interval)
    assert "name the zone, as in dates(timezone='Europe/Berlin')" in str(refused.value)
    assert of_run(dates(timezone="Europe/Berlin"), *BERLIN_DAY) == ["split:2013-07-01"]


def test_fault_364_with_the_days_that_the_error_names_each_day_is_read_once() -> None:
    named = re.search(r"name the days: dates\('(.*)', '(.*)'\)", sources._CURE)
    assert named is not None
    days = [day for interval in NOT_MIDNIGHT for day in of_run(dates(*named.groups()), *interval)]
    assert days == ["split:2013-07-01", "split:2013-07-02"]


@pytest.mark.control
def test_fault_364_control_without_the_refusal_two_runs_read_one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dates, "overlap", lambda self, where: "")
    first, second = (of_run(dates(), *interval) for interval in NOT_MIDNIGHT)
    assert set(first) & set(second) == {"split:2013-07-02"}


@pytest.mark.parametrize(
    ("cron", "zone", "declared", "is_warned"),
    [
        ("0 0 * * *", "UTC", dates(), False),
        ("0 0 * * 0", "Europe/Berlin", dates(timezone="Europe/Berlin"), False),
        ("0 0 1 * *", "Europe/Berlin", dates(), True),
        ("0 2 * * *", "UTC", dates(), True),
        ("30 0 * * *", "UTC", dates(), True),
        ("0 * * * *", "UTC", dates(), False),
        ("*/15 * * * *", "UTC", dates(), False),
        ("0 2 * * *", "UTC", dates("{{ data_interval_start.date() }}", "{{ data_interval_end.date() }}"), False),
    ],
)
def test_fault_364_the_parse_warns_of_runs_that_will_fail(
    cron: str, zone: str, declared: Dates, is_warned: bool
) -> None:
    assert ("each run will fail" in declared.overlap_of_runs(cron, zone)) is is_warned


def test_one_s_own_are_handed_as_they_are() -> None:
    found = handed(enumerated_by(orders, params={"day": "{{ ds }}"}))
    assert isinstance(found, Splits)
    assert found.payloads == [{"day": "2013-01-31", "number": 0}, {"day": "2013-01-31", "number": 1}]
    assert (len(found), list(found)[1], found[:1]) == (2, found[1], (found[0],))


def test_files_are_handed_with_their_paths() -> None:
    split = Split.of_file("s3://lake/a.csv", 3, "e1")
    found = files("s3://lake/*").handed([split], lambda uri: uri.replace("s3:", "s3a:"))
    assert isinstance(found, FileSplits)
    assert (found.paths, found[0].etag) == (["s3a://lake/a.csv"], "e1")


@pytest.mark.parametrize("given", ["drop", "keep", "fail", Vanished.KEEP])
def test_every_kind_says_what_becomes_of_what_has_vanished(given: Any) -> None:
    for each in (
        files("/lake", vanished=given),
        dates(vanished=given),
        enumerated_by(orders, vanished=given),
        key_ranges("t", "id", lower=0, upper=1, width=1, vanished=given),
    ):
        assert each.vanished is Vanished(given)


@pytest.mark.parametrize(
    ("declare", "code"),
    [
        (lambda: files("/lake", vanished="forget"), "vanished-unfit"),
        (lambda: key_ranges("", "id", lower=0, upper=1, width=1), "argument-unfit"),
        (lambda: key_ranges("t", "id", lower="0", upper=1, width=1), "key-bound-unfit"),
        (lambda: key_ranges("t", "id", lower=0, upper=True, width=1), "key-bound-unfit"),
        (lambda: key_ranges("t", "id", lower=0, upper=1, width=0), "key-width-unfit"),
        (lambda: key_ranges("t", "id", lower=0, upper=1, width=1, as_of=7), "argument-unfit"),  # type: ignore[arg-type]
        (lambda: dates("yesterday"), "date-unfit"),
        (lambda: dates("2013-01-01", None), "date-unfit"),
        (lambda: dates(timezone="Berlin"), "time-zone-unknown"),
        (lambda: dates(timezone=""), "time-zone-unknown"),
        (lambda: enumerated_by(orders("2013")), "enumerator-unfit"),  # type: ignore[arg-type]
        (lambda: enumerated_by(orders, params={"day": object()}), "value-not-json"),
    ],
)
def test_what_says_too_little_is_refused(declare: Any, code: str) -> None:
    with fails_with(code):
        declare()


@pytest.mark.parametrize(
    ("splits", "code"),
    [
        (key_ranges("t", "id", lower="{{ ds }}", upper=1, width=1), "key-bound-not-a-number"),
        (key_ranges("t", "id", lower=5, upper=5, width=1), "key-range-empty"),
        (dates("{{ params.upper }}"), "date-not-a-day"),
        (dates("2013-02-01", "2013-01-01"), "dates-end-before-start"),
    ],
)
def test_what_comes_to_nothing_in_a_run_is_refused(splits: SplitSource, code: str) -> None:
    with fails_with(code, where="here"):
        enumerated(splits)


def test_templates_in_them_are_over_the_run_alone() -> None:
    with fails_with("template-reads-more"):
        declared(key_ranges("t", "id", lower=0, upper="{{ ti.try_number }}", width=1))
    with fails_with("splits-name-subtask"):
        declared(dates("{{ subtask }}"))
    keys = declared(dates("{{ subtask }}-01", "{{ subtask }}-03"), parallelism=["2013-01", "2013-02"])
    found = keys.render_splits("raw", Run(), "2013-02")
    assert found is not None
    assert [each.name for each in found.enumerate("w")] == ["2013-02-01", "2013-02-02"]  # type: ignore[union-attr]
    with fails_with("splits-without-subtask"):
        declared(dates(), parallelism=["2013-01", "2013-02"])


def test_what_is_declared_is_in_the_fingerprint() -> None:
    def fingerprint(splits: Any) -> str:
        return vertex_fingerprint(declared(splits), "raw", {})

    kinds = [
        files("/lake"),
        dates(),
        dates("2013-01-01"),
        RANGES,
        key_ranges("flights", "id", lower=0, upper="{{ params.upper }}", width=11, as_of="{{ ds }}"),
        enumerated_by(orders, params={"day": "{{ ds }}"}),
        enumerated_by(orders, params={"day": "2013-01-01"}),
    ]
    assert len({fingerprint(kind) for kind in kinds}) == len(kinds)
    # It decides what is read, and that is evaluated split by split.
    assert fingerprint(files("/lake")) == fingerprint(files("/lake", vanished="fail"))


def test_what_is_cached_or_shared_must_be_known_by_its_content() -> None:
    def made(splits: Any, result: Any, version: str | None) -> Job:
        found = job("j", deterministic="assume")

        @found.source(splits=splits, result=result, version=version)
        def raw(splits: Any) -> Any:
            return splits

        @found.sink(inputs={"read": "raw"})
        def shown(read: Any) -> Any:
            return read

        return found

    with fails_with("cached-reads-undeclared"):
        made(RANGES, CACHED, None).validate()
    with fails_with("persistent-reads-undeclared"):
        made(dates(), BLOCKING_PERSISTENT, None).validate()
    for splits, version in ((RANGES, None), (dates(), "1"), (enumerated_by(orders), None), (files("/lake"), None)):
        made(splits, BLOCKING_PERSISTENT, version).validate()
    made(dates(), BLOCKING, None).validate()


# --- a local run ------------------------------------------------------------------------------------------------------


class Frame:
    """Stands for a DataFrame: what was read."""

    write = schema = ""

    def __init__(self, *read: Any) -> None:
        self.read = read

    def unionByName(self, other: Frame) -> Frame:
        return Frame(*self.read, *other.read)


def read_locally(splits: Any, *, parallelism: Any = None, given: Any = None) -> list[Any]:
    made = job("j")

    @made.source(splits=splits, parallelism=parallelism, name="raw")
    def raw(splits: Any) -> Any:
        return Frame([split.name if isinstance(split, Split) else split.uri for split in splits])

    @made.sink(inputs={"read": "raw"}, parallelism=parallelism)
    def shown(read: Any) -> Any:
        return read

    found = made.run_local(
        None,
        splits=None if given is None else {"raw": given},
        logical_date="2013-01-31",
    )
    return list(found["shown"].read)


def test_a_local_run_enumerates_what_is_no_file() -> None:
    assert read_locally(dates("2013-01-29", "{{ ds }}")) == [["2013-01-29", "2013-01-30"]]
    assert read_locally(dates()) == [["2013-01-31"]]
    assert read_locally(enumerated_by(orders, params={"day": "x"})) == [["x/0", "x/1"]]
    assert read_locally(dates(), given=[Split.of("2013-02-01", "2013-02-01")]) == [["2013-02-01"]]


def test_a_local_run_deals_splits_out_to_subtasks() -> None:
    five = enumerated_by(orders, params={"day": "x", "count": 5})
    assert read_locally(five, parallelism=2) == [["x/0", "x/2", "x/4"], ["x/1", "x/3"]]
    assert read_locally(files("/lake/*"), parallelism=2, given=["c", "a", "b"]) == [["a", "c"], ["b"]]
    own = dates("{{ subtask }}-01", "{{ subtask }}-02")
    assert read_locally(own, parallelism=["2013-01", "2013-02"]) == [["2013-01-01"], ["2013-02-01"]]
    with fails_with("local-run-subtask-without-paths", key="1"):
        read_locally(enumerated_by(orders, params={"day": "x", "count": 1}), parallelism=2)
