"""Keys of the journal: injective, parsed back, and the truth apart from everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.journal import layout as layout_module
from airflow_recovery.journal.layout import AttemptKey, JournalLayout, run_key
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import checked_key

ODD = [
    "a/b",
    "a_b",
    "a%2Fb",
    "..",
    ".",
    "_streams",
    "a b",
    "\u00e4",
    "\U0001f4a5",
    "a" * 250,
    "a" * 251,
    "t",
    "plan",
    "closed",
    "~",
]
KINDS = ("claim", "outcome", "reset", "lost", "released", "committed")
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=300) | st.sampled_from(ODD)


def layout(dag_id: str = "dag", run: str = "run", group_id: str = "group") -> JournalLayout:
    return JournalLayout(RunIdentity(dag_id, run, group_id))


def test_keys_are_what_the_protocol_says():
    found = layout("flights", "date 2026-01-01", "g")
    assert found.attempt("by_route", 3, "claim") == "flights/date~202026-01-01/g/t/by_route/00000003.claim"
    assert found.plan("ab12") == "flights/date~202026-01-01/g/plan/ab12"
    assert found.publish(1) == "flights/date~202026-01-01/g/publish/00000001"
    assert found.closed == "flights/date~202026-01-01/g/closed"
    assert found.data_of_number("by_route", 3) == "flights/date~202026-01-01/g/by_route/00000003"
    assert found.streams == "_streams/flights/date~202026-01-01/g/"


@given(names, st.integers(0, 99_999_999), st.sampled_from(KINDS))
def test_attempts_parse_back(region, attempt, kind):
    key = layout().attempt(region, attempt, kind)
    assert layout().parse_attempt(key) == AttemptKey(encode(region), attempt, kind)


@given(
    names,
    st.integers(0, 99_999_999),
    st.sampled_from(("committer", "confirmed", "hold", "withdrawn")),
    st.integers(1, 9999),
)
def test_turns_parse_back(region, attempt, kind, number):
    key = layout().attempt(region, attempt, kind, number)
    assert layout().parse_attempt(key) == AttemptKey(encode(region), attempt, kind, number)
    assert layout().parse_attempt(key.rpartition("-")[0]) is None


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_fault_45_runs_of_other_ids_never_share_a_prefix(one, other):
    first, second = (layout(*each).prefix for each in (one, other))
    if one != other:
        assert not first.startswith(second)
        assert not second.startswith(first)


@pytest.mark.parametrize("one", ODD)
def test_fault_45_odd_ids_stay_apart_and_inside(one):
    found = layout(one, one, one)
    for key in (found.attempt(one, 1, "claim"), found.data_of_number(one, 1), found.plan("ab"), f"{found.streams}x"):
        assert checked_key(key) == key
        assert len(key.encode()) < 1024
    others = {layout().attempt(each, 1, "claim") for each in ODD}
    assert len(others) == len(ODD)


def test_fault_45_control_plain_joining_mixes_two_ids_up(monkeypatch):
    monkeypatch.setattr(layout_module, "encode", lambda name: name)
    assert layout("a/b", "c", "d").prefix == layout("a", "b/c", "d").prefix
    assert layout("..", "..", "..").prefix == "../../../"


@given(names, names, names)
def test_streams_never_lie_below_the_truth(dag_id, run, group_id):
    streams = layout(dag_id, run, group_id).streams
    for each in (layout(dag_id, run, group_id), layout("_streams", dag_id, run), layout("streams", dag_id, run)):
        assert not streams.startswith(each.prefix)
        assert not each.prefix.startswith(streams)


@given(names)
def test_a_name_never_passes_for_the_journals_own_folders(region):
    """Where results and journal share a base, results lie at ``<prefix><region>/``, the truth at ``<prefix>t/``."""
    assert layout().parse_attempt(f"{layout().data_of_number(region, 1)}/part-0.parquet") is None


@pytest.mark.parametrize(
    "key",
    [
        "t/P/1.claim",
        "t/P/000000001.claim",
        "t/P/00000001.claim.tmp",
        "t/P/00000001.other",
        "t/P/Q/00000001.claim",
        "t/00000001.claim",
        "plan/XYZ",
        "publish/1",
        "closed",
    ],
)
def test_other_keys_are_no_attempts(key):
    found = layout()
    assert found.parse_attempt(found.prefix + key) is None
    assert found.parse_plan(found.prefix + key) is None
    assert found.parse_publish(found.prefix + key) is None


def test_plans_and_publishes_parse_back():
    found = layout()
    assert found.parse_plan(found.plan("0af1")) == "0af1"
    assert found.parse_publish(found.publish(12)) == 12


@pytest.mark.parametrize(
    ("logical_date", "partition_key", "run_id", "expected"),
    [
        ("2026-01-01T00:00:00+00:00", None, "r", "date-2026-01-01T000000Z"),
        ("2026-01-01T00:00:00.000001+00:00", None, "r", "date-2026-01-01T000000.000001Z"),
        ("2026-01-01T00:00:00+00:00", "eu", "r", "partition-eu"),
        (None, None, "date-2026-01-01T000000Z", "run-date-2026-01-01T000000Z"),
    ],
)
def test_the_run_key_survives_the_deletion_of_a_run(logical_date, partition_key, run_id, expected):
    assert run_key(logical_date=logical_date, partition_key=partition_key, run_id=run_id) == expected


def test_a_date_of_another_offset_is_refused():
    with pytest.raises(ValueError, match="expected a logical date in UTC"):
        run_key(logical_date="2026-01-01T00:00:00+02:00", partition_key=None, run_id="r")
