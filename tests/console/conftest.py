"""A run's journal in a real store, written by the real protocol code (`tests/support/fakes.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fakes
import pytest
from recorded_world import DIAMOND, RecordedWorld
from sink_world import SinkWorld

from airflow_recovery.console.deployment import StandaloneDeployment
from airflow_recovery.console.main import main
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import open_store

DAG, KEY, GROUP = "flights", "date-2026-01-01T000000Z", "flights"


class RecordedSinkWorld(RecordedWorld, SinkWorld):
    """A `RecordedWorld` whose last region commits to a sink."""


class Recorded:
    """A folder (or bucket) with journals, and the command line without Airflow."""

    def __init__(self, base: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...] = ()) -> None:
        self.uri = f"{base}/journal"
        self._base = base
        self._capsys = capsys
        self._options = options
        self.errors = ""

    def world(
        self,
        dag: str = DAG,
        key: str = KEY,
        group: str = GROUP,
        *,
        results: str = "journal/_results",  # where the commands look for them that are told nothing else
        of: type[RecordedWorld] = RecordedWorld,
        **settings: object,
    ) -> RecordedWorld:
        stores = [open_store(f"{self._base}/{each}", **self._open()) for each in ("journal", results)]
        return of(stores[0], stores[1], RunIdentity(dag, key, group), **settings)

    def _open(self) -> dict[str, str]:
        return {"endpoint_url": self._options[1], "region_name": self._options[3]} if self._options else {}

    def call(self, *arguments: str) -> tuple[int, str]:
        """The exit code and what was printed; `errors` is what was said on standard error."""
        self._capsys.readouterr()
        code = main([*arguments, "--journal", self.uri, *self._options])
        said = self._capsys.readouterr()
        self.errors = said.err
        return code, said.out


@pytest.fixture(autouse=True)
def bundles_without_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would start Java for each; `test_doctor_command` has those with it."""
    monkeypatch.setattr("airflow_recovery.console.export.results_for_bundle", lambda args: [])


@pytest.fixture
def recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Recorded:
    """A journal in a local folder."""
    return Recorded(f"file://{tmp_path}", capsys)


@pytest.fixture
def sink(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RecordedSinkWorld]:
    """Makes a world whose sink, ``busiest``, has finished, and whose process was killed right before its commit."""

    def make(kind: CommitKind, mode: CommitMode = CommitMode.APPEND) -> RecordedSinkWorld:
        *others, last = DIAMOND
        world = recorded.world(of=RecordedSinkWorld, sink=last, kind=kind, commit_mode=mode)
        monkeypatch.setattr(StandaloneDeployment, "open_committer", lambda self, spec: world.target.committer(spec))
        world.go_all(others)
        process = fakes.Process()
        process.gate = lambda request: process.kill() if request.startswith("sink: commit") else None
        assert isinstance(world.try_sink(process), fakes.Killed)
        return world

    return make


@pytest.fixture
def recorded_in() -> Callable[..., Recorded]:
    """Makes a `Recorded` of another store."""
    return Recorded
