"""Whether a cached result is there: its server is asked, and the files that what is evicted would be made of."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from fakes import MemoryStore

from airflow_recovery.errors import CacheUnreachable
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, ExternalObject, Outcome
from airflow_recovery.planning.reason import Why
from airflow_recovery.results import prober as probing
from airflow_recovery.results.prober import ResultProber

LAKE = "memory://lake"
MANIFEST = PartitionManifest("p", "spark-connect://spark:15002/app-1/airflow_recovery_p_1_00", (), 2)


class World:
    """Region P has cached one result, made of two files."""

    def __init__(self, said: str | Exception | None = None) -> None:
        self.store = MemoryStore(LAKE)
        self.said = said
        read = [self.store.put(f"2026/{name}", name.encode()) for name in ("a.csv", "b.csv")]
        externals = tuple(ExternalObject("raw", f"{LAKE}/{each.key}", each.size, each.etag) for each in read)
        outcome = Outcome("P", 1, AttemptState.FINISHED, "w", "now", outputs=(MANIFEST,), externals=externals)
        self.attempt = Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome)
        self.prober = ResultProber(lambda location: self.store, ask_cached=self._ask)

    def _ask(self, manifest: PartitionManifest) -> str | None:
        assert manifest is MANIFEST
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def test_it_is_there_while_its_server_says_so():
    world = World()
    assert world.prober.why_gone("P", world.attempt) is None


def test_what_the_server_does_not_keep_is_missing_with_what_it_said_as_evidence():
    world = World("spark:15002 was restarted")
    reason = world.prober.why_gone("P", world.attempt)
    assert reason is not None
    assert reason.why is Why.OUTPUT_MISSING
    assert "attempt 1: spark:15002 was restarted" in reason.text()
    assert [each.said for each in reason.evidence] == ["spark:15002 was restarted"]


def test_no_answer_is_not_missing():
    world = World(CacheUnreachable("no answer"))
    with pytest.raises(CacheUnreachable):
        world.prober.why_gone("P", world.attempt)


def test_where_no_server_is_known_that_is_said():
    world = World()
    prober = ResultProber(lambda location: world.store)
    with fails_with("connect-server-unknown", result="p"):
        prober.why_gone("P", world.attempt)


def test_a_file_of_its_lineage_that_was_overwritten_is_an_altered_result():
    world = World()
    world.store.put("2026/b.csv", b"other rows")
    reason = world.prober.why_gone("P", world.attempt)
    assert reason is not None
    assert reason.why is Why.OUTPUT_ALTERED
    assert f"{LAKE}/2026/b.csv, of which p is made, was altered since" in reason.text()


def test_one_that_is_gone_is_not_since_reading_it_fails():
    world = World()
    world.store.delete(["2026/b.csv"])
    assert world.prober.why_gone("P", world.attempt) is None


def test_control_unless_the_lineage_is_looked_at_evicted_rows_would_be_made_of_other_files(monkeypatch):
    monkeypatch.setattr(probing, "_folders", lambda attempt: {})
    world = World()
    world.store.put("2026/b.csv", b"other rows")
    assert world.prober.why_gone("P", world.attempt) is None
