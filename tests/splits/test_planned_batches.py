"""Which batches a region that commits split by split is read in: by bytes, by number, and by suspicion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.model import split_assignment
from airflow_recovery.model.split import UNKNOWN_BYTES, Split
from airflow_recovery.splits.batches import ALONE, Batch, PlannedBatches, planned_batches


def split(name: str, size: int = 10) -> Split:
    return Split.of_file(f"s3://lake/{name}.csv", size, f"etag of {name}")


def told(batches: tuple[Batch, ...]) -> list[str]:
    """``ab`` a batch, ``?`` behind a suspect one."""
    return ["".join(split.uri[-5] for split in batch.splits) + "?" * batch.may_be_poison for batch in batches]


def test_batches_are_filled_by_bytes_in_the_order_of_the_names() -> None:
    todo = [split("d"), split("a"), split("c", 25), split("b")]
    assert told(planned_batches(todo, batch_bytes=20, suspicion={})) == ["ab", "c", "d"]
    assert told(planned_batches(todo, batch_bytes=1, suspicion={})) == ["a", "b", "c", "d"]
    assert told(planned_batches([], batch_bytes=20, suspicion={})) == []


def test_empty_files_are_batched_by_number(monkeypatch) -> None:
    monkeypatch.setattr(split_assignment, "MAX_BATCH_SPLITS", 3)
    todo = [split(each, 0) for each in "abcdefg"]
    assert told(planned_batches(todo, batch_bytes=20, suspicion={})) == ["abc", "def", "g"]


def test_what_is_no_file_weighs_what_is_assumed_of_it() -> None:
    todo = [Split.of(each) for each in "abcde"]
    batches = planned_batches(todo, batch_bytes=2 * UNKNOWN_BYTES, suspicion={})
    assert [len(batch.splits) for batch in batches] == [2, 2, 1]


def test_suspects_come_last_and_after_two_deaths_alone() -> None:
    todo = [split(each) for each in "abcdef"]
    suspicion = {split("a").key: 1, split("c").key: ALONE, split("d").key: ALONE + 1, split("e").key: 1}
    assert told(planned_batches(todo, batch_bytes=100, suspicion=suspicion)) == ["bf", "ae?", "c?", "d?"]


def test_a_static_assignment_gives_each_batch_once() -> None:
    todo = [split(each) for each in "abc"]
    supplier = PlannedBatches(todo, batch_bytes=20, suspicion={split("a").key: 1})
    given_out = tuple(iter(supplier.next_batch, None))
    assert told(given_out) == ["bc", "a?"]
    assert supplier.next_batch() is None


@given(
    st.lists(st.tuples(st.text("abc", min_size=1), st.integers(0, 50)), unique_by=lambda each: each[0]),
    st.integers(1, 60),
    st.dictionaries(st.integers(0, 10), st.integers(0, 3)),
    st.randoms(),
)
def test_every_split_is_in_exactly_one_batch_whatever_the_order(found, batch_bytes, degrees, rng) -> None:
    todo = [split(name, size) for name, size in found]
    suspicion = {each.key: degrees.get(at, 0) for at, each in enumerate(todo)}
    batches = planned_batches(todo, batch_bytes=batch_bytes, suspicion=suspicion)
    assert sorted(split.uri for batch in batches for split in batch.splits) == sorted(split.uri for split in todo)
    assert all(len(batch.splits) == 1 or batch.weight <= batch_bytes for batch in batches)
    assert [batch.may_be_poison for batch in batches] == sorted(batch.may_be_poison for batch in batches)
    shuffled = rng.sample(todo, len(todo))
    assert planned_batches(shuffled, batch_bytes=batch_bytes, suspicion=suspicion) == batches
