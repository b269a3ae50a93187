"""Forking Spark's checkpoint of a streaming region, without Spark."""

from __future__ import annotations

from expected_errors import fails_with

from airflow_recovery.model.records import RunIdentity
from airflow_recovery.streaming.checkpoint import Place, kept, lineage_key, prepare_checkpoint, read_lineage
from airflow_recovery.streaming.folder import CheckpointFolder

FOLDER = CheckpointFolder(RunIdentity("dag", "2026-01-01", "group"), "board")


def prepare(store, attempt, *, completed, earlier=None, may_begin=False, skips=0, begins=None):
    before = tuple(map(str, range(1, attempt))) if earlier is None else earlier
    return prepare_checkpoint(
        store,
        FOLDER,
        str(attempt),
        earlier=before,
        completed=completed,
        may_begin=may_begin,
        skips=skips,
        begins=begins,
    )


def spark_has_run(store, made, *batches):
    for batch in batches:
        for kind in ("offsets", "commits"):
            store.put(f"{made.key}/{kind}/{batch}", f"{kind} {batch}".encode())
        store.put(f"{made.key}/state/0/0/{batch + 1}.delta", b"state")


def names(store, made):
    return [each.key.removeprefix(f"{made.key}/") for each in store.list(f"{made.key}/")]


def test_what_lies_beyond_the_last_completed_batch_is_left_behind():
    found = [
        *("metadata", "offsets/0", "offsets/7", "offsets/8", "offsets/.8.crc", "commits/7", "commits/8"),
        *("sources/0/9", "sources/0/9.compact", "state/0/_metadata/metadata", "state/0/0/_metadata/schema"),
        *("state/0/0/8.delta", "state/0/0/9.delta", "state/0/1/7.snapshot", "state/0/1/9_x-1.zip"),
        *("state/0/1/SSTs/000012-a.sst", "state/0/1/left/9.changelog", "state/0/1/left/8.changelog"),
    ]
    left = {"offsets/8", "offsets/.8.crc", "commits/8", "state/0/0/9.delta", "state/0/1/9_x-1.zip"}
    assert set(found) - set(kept(found, 7)) == left | {"state/0/1/left/9.changelog"}


def test_a_fork_is_cut_at_the_log(local_store):
    first = prepare(local_store, 1, completed=-1)
    assert (first.base, first.cut) == (0, -1)
    spark_has_run(local_store, first, 0, 1, 2)
    second = prepare(local_store, 2, completed=1)
    assert (second.base, second.cut) == (0, 1)
    assert names(local_store, second) == [
        *("commits/0", "commits/1", "offsets/0", "offsets/1", "state/0/0/1.delta", "state/0/0/2.delta")
    ]


def test_the_newest_attempt_that_had_a_whole_checkpoint_counts(local_store):
    spark_has_run(local_store, prepare(local_store, 1, completed=-1), 0)
    second = prepare(local_store, 2, completed=0)
    spark_has_run(local_store, second, 1)
    local_store.put(f"{FOLDER.attempt('00000003')}/checkpoint/offsets/0", b"half a copy")
    fourth = prepare(local_store, 4, completed=1)
    assert "offsets/1" in names(local_store, fourth)


def test_without_a_checkpoint_only_what_the_log_says_is_enough_for_some(local_store):
    with fails_with("spark-checkpoint-lost"):
        prepare(local_store, 2, completed=4)
    begun = prepare(local_store, 2, completed=4, may_begin=True)
    assert (begun.base, begun.cut) == (5, -1)
    spark_has_run(local_store, begun, 0, 1)
    third = prepare(local_store, 3, completed=6)
    assert (third.base, third.cut) == (5, 1)


def test_numbers_that_are_taken_are_skipped_also_by_an_attempt_after_one_that_died_at_once(local_store):
    spark_has_run(local_store, prepare(local_store, 1, completed=-1), 0, 1)
    second = prepare(local_store, 2, completed=1, skips=1)
    assert (second.base, second.cut, second.cut_to) == (1, 1, 2)
    again = prepare(local_store, 3, completed=1, skips=1)  # it died before the number was taken
    assert (again.base, again.cut, again.cut_to) == (1, 1, 2)
    after = prepare(local_store, 4, completed=2)  # it died behind that
    assert (after.base, after.cut, after.cut_to) == (1, 1, 2)
    spark_has_run(local_store, after, 2)
    assert prepare(local_store, 5, completed=3).cut == 2


def test_where_batch_0_began_goes_with_each_fork(local_store):
    """Spark does not keep it, and asks again where it repeats batch 0."""
    first = prepare(local_store, 1, completed=-1, begins=Place(1, (0, 0)))
    spark_has_run(local_store, first, 0)
    second = prepare(local_store, 2, completed=0, begins=Place(1, (7, 8)))
    assert second.begins == Place(1, (0, 0))
    assert read_lineage(local_store, lineage_key(FOLDER, "2")) == second
    assert prepare(local_store, 3, completed=0, earlier=(), may_begin=True, begins=Place(2, (7, 8))).begins.at == (7, 8)
