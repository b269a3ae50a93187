"""Which splits earlier attempts have failed on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.errors import Failure
from airflow_recovery.model.split import Split
from airflow_recovery.splits.batches import planned_batches
from airflow_recovery.splits.poison import MAX_FAILURES, NOTHING, SPLITS_LABEL, EarlierAttempt, Record, record_of

SPLITS = [Split.of_file(f"s3://lake/{each}.csv", 10, "etag") for each in "abcdefgh"]
KEYS = {split.uri[-5]: split.key for split in SPLITS}
KILLED = labelled(Failure("ProcessLost", "the process of this attempt died without a word"))
DIED_OF_F = labelled(Failure("DriverLost", "it read f, and nothing else", labels=((SPLITS_LABEL, KEYS["f"]),)))
OUT_OF_MEMORY = labelled(Failure("DriverLost", "said nothing (Error code is: 52)"))
RAISED = Failure("PythonException", "666", condition="PYTHON_EXCEPTION", labels=((SPLITS_LABEL, KEYS["c"]),))


def keys(names: Iterable[str]) -> frozenset[str]:
    return frozenset(KEYS[name] for name in names)


def earlier(adopted: str, committed: str, failure: Failure | None) -> EarlierAttempt:
    return EarlierAttempt(keys(adopted), keys(committed), failure)


def record(*attempts: EarlierAttempt) -> Record:
    return record_of(SPLITS, attempts, batch_bytes=20, threads=2)


def names_of(counts: object) -> dict[str, int]:
    assert isinstance(counts, dict)
    return {name: counts[key] for name, key in KEYS.items() if key in counts}


def order(record: Record, done: str) -> list[str]:
    todo = [split for split in SPLITS if split.key not in keys(done)]
    batches = planned_batches(todo, batch_bytes=20, suspicion=record.suspicion)
    return ["".join(split.uri[-5] for split in batch.splits) + "?" * batch.may_be_poison for batch in batches]


@pytest.mark.parametrize("failure", [KILLED, OUT_OF_MEMORY])
def test_a_driver_that_died_had_the_first_batches_after_the_logs_end(failure: Failure) -> None:
    # ab cd ef gh, two at a time: one thread was still at ab when the other had done cd.
    found = record(earlier("", "cd", failure))
    assert names_of(found.counts) == {"a": 1, "b": 1, "e": 1, "f": 1}
    assert order(found, "cd") == ["gh", "ab?", "ef?"]


def test_the_poison_among_them_is_alone_after_two_deaths_and_known_after_three() -> None:
    """It is f: everything else becomes safe on the way, and no death but the first hits two batches."""
    first = earlier("", "cd", KILLED)
    second = earlier("cd", "ghab", KILLED)
    found = record(first, second)
    assert order(found, "cdghab") == ["e?", "f?"]
    third = earlier("cdghab", "e", DIED_OF_F)
    found = record(first, second, third)
    assert names_of(found.counts) == {"a": 1, "b": 1, "e": 2, "f": MAX_FAILURES}
    assert [name for name, key in KEYS.items() if found.is_poison(key)] == ["f"]


def test_drivers_that_die_before_they_read_anything_make_no_split_poison() -> None:
    """No cluster, no memory for the driver itself: nobody has died of a split alone."""
    found = record(*[earlier("", "", KILLED)] * 20)
    assert max(found.counts.values()) == MAX_FAILURES - 1
    assert not any(found.is_poison(split.key) for split in SPLITS)


def test_a_split_that_raised_is_named_and_comes_alone_at_once() -> None:
    found = record(earlier("", "abdefgh", RAISED))
    assert order(found, "abdefgh") == ["c?"]
    again = earlier("abdefgh", "", RAISED)
    found = record(earlier("", "abdefgh", RAISED), again, again)
    assert names_of(found.counts) == {"c": MAX_FAILURES}
    assert not found.is_poison(KEYS["c"])  # what raises may be tried again


@pytest.mark.parametrize(
    "failure",
    [None, labelled(Failure("SocketTimeoutException", "Read timed out")), labelled(Failure("X", "AccessDenied"))],
)
def test_what_says_nothing_of_a_split_counts_for_none(failure: Failure | None) -> None:
    assert record(earlier("", "ab", failure)) == NOTHING


def test_a_kill_without_poison_costs_no_more_than_suspicion() -> None:
    found = record(earlier("", "", KILLED))
    assert order(found, "") == ["ef", "gh", "ab?", "cd?"]
    assert not any(found.is_poison(split.key) for split in SPLITS)


def test_a_driver_that_died_before_its_last_batch_was_through_had_only_that_in_its_hands() -> None:
    found = record(earlier("", "abcdef", KILLED))
    assert names_of(found.counts) == {"g": 1, "h": 1}


def test_control_without_the_order_of_batches_nobody_would_know(monkeypatch) -> None:
    from airflow_recovery.splits import poison

    monkeypatch.setattr(poison, "planned_batches", lambda *given, **named: ())
    assert record(earlier("", "cd", KILLED)) == NOTHING
