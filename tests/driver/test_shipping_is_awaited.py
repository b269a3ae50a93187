"""Over Connect code is shipped while the session is set up; no vertex is called before it has arrived. No server."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_specs import region_spec, vertex

from airflow_recovery.driver import connect
from airflow_recovery.testing.patience import HANG_S

LOG = logging.getLogger("test_shipping_is_awaited")


class VertexCalled(Exception):
    """As far as these tests let a region come."""


class Session:
    """A Connect session that notes what is asked of it. Code arrives only once ``may_arrive`` is set."""

    version = "4.2.0"

    def __init__(self) -> None:
        self.order: list[str] = []
        self.may_arrive = threading.Event()
        self.has_arrived = threading.Event()
        self.conf = SimpleNamespace(get=lambda *_: None, isModifiable=lambda key: True, set=self._set)

    def _set(self, key: str, value: str) -> None:
        self.order.append(f"set {key}")

    def addTag(self, tag: str) -> None:
        pass

    def addArtifacts(self, archive: str, *, pyfile: bool) -> None:
        assert self.may_arrive.wait(HANG_S)
        self.order.append("code arrives")
        self.has_arrived.set()

    def range(self, count: int) -> None:
        """What the vertex `three` calls first."""
        self.order.append("vertex is called")
        raise VertexCalled

    def stop(self) -> None:
        pass


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """What `run_over_connect` opens; its code arrives as soon as somebody waits for it, and not before."""
    found = Session()
    in_background = connect.in_background

    def beside_and_watched(work: Callable[[], Any], name: str) -> Callable[[], Any]:
        wait = in_background(work, name)

        def waited() -> Any:
            found.order.append("code is awaited")
            found.may_arrive.set()
            return wait()

        return waited

    monkeypatch.setattr(connect, "in_background", beside_and_watched)
    monkeypatch.setattr(connect, "open_session", lambda *_, **__: found)
    monkeypatch.setattr(connect, "guarding", lambda *_, **__: contextlib.nullcontext())
    return found


def run(folder: Path) -> None:
    spec = region_spec(folder, vertex("three"), vertex("booked", is_result=True, params={"path": ""}))
    connect.run_over_connect(
        "sc://nobody:1",
        replace(spec, job="regionjobs.ledger:ledger"),
        archive=folder / "code.zip",
        log=LOG,
        user_id="airflow",
        conf={"spark.sql.shuffle.partitions": "1"},
    )


def test_code_is_shipped_beside_the_set_up_and_awaited_before_the_first_vertex(
    session: Session, tmp_path: Path
) -> None:
    with pytest.raises(VertexCalled):
        run(tmp_path)
    assert session.order[0] == "set spark.sql.shuffle.partitions", "the session is set up before code has arrived"
    assert session.order[-3:] == ["code is awaited", "code arrives", "vertex is called"]


def test_control_without_waiting_a_vertex_is_called_before_its_code_is_there(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_region = connect.run_region
    monkeypatch.setattr(
        connect, "run_region", lambda *given, ready, **named: run_region(*given, **named, ready=lambda: None)
    )
    with pytest.raises(VertexCalled):
        run(tmp_path)
    assert session.order[-1] == "vertex is called"
    assert "code is awaited" not in session.order
    assert not session.has_arrived.is_set()
    session.may_arrive.set()  # the thread ends with the test


def test_code_that_does_not_arrive_fails_the_attempt_before_any_vertex(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(archive: str, *, pyfile: bool) -> None:
        raise ConnectionError("the server takes no files")

    monkeypatch.setattr(session, "addArtifacts", refused)
    with pytest.raises(ConnectionError, match="takes no files"):
        run(tmp_path)
    assert "vertex is called" not in session.order
