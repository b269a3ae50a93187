"""Where points come from: the stores and functions through which a process changes the world, wrapped in a child.

Applied in the forked process of one try, which ends with it: the process of the caller keeps the real ones. A step that
is one function of the product is one more line of `FUNCTIONS`; one that is a write of the journal has its name from the
object's key (`step_of`).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from airflow_recovery.store import s3_clients
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.store.s3_clients import new_session
from airflow_recovery.testing.crash_kit.crasher import Crasher
from airflow_recovery.testing.crash_kit.points import Step
from airflow_recovery.testing.crash_kit.warmth import shared_session

_ATTEMPT_KEY = re.compile(r".*/t/[^/]+/\d{8}\.(?P<kind>[a-z]+)(-\d+)?")
_KINDS = {
    "claim": Step.CLAIM,
    "part": Step.BATCH,
    "reset": Step.RESET,
    "lost": Step.LOST,
    "released": Step.RELEASE,
    "committed": Step.COMMITTED,
}
_ELSEWHERE = (("_streams/", Step.FLUSH), ("_probe/", Step.PROBE), ("/plan/", Step.PLAN), ("/publish/", Step.PUBLISH))
_IN_THE_BACKGROUND = re.compile(r".*/(h|snap)/.*")
"""Heartbeats and caches: helper threads write them when they please, and losing one changes no plan. No points."""


@dataclass(frozen=True)
class FunctionSeam:
    """``name`` of ``module`` is a step. ``changes``: it does more than what other points are around."""

    module: str
    name: str
    step: Step
    changes: bool = False


FUNCTIONS = (
    FunctionSeam("airflow_recovery.driver.vertex_pass", "write_result", Step.RESULT, changes=True),
    FunctionSeam("airflow_recovery.attempt.region_task", "final_check", Step.FINAL_CHECK),
    FunctionSeam("airflow_recovery.attempt.clear_producers", "clear_producers", Step.DECISION),
    FunctionSeam("airflow_recovery.attempt.publish", "clear_producers", Step.DECISION),
)

_OPENERS = ("airflow_recovery.store.opening", "airflow_recovery.hooks.stores")
"""Modules whose ``open_store`` opens every store of a task and of its driver."""


def install(crasher: Crasher, results: str) -> None:
    """From now on this process passes its points. ``results``: the URI below which results are."""
    for seam in FUNCTIONS:
        module = importlib.import_module(seam.module)
        setattr(module, seam.name, _with_points(crasher, seam, getattr(module, seam.name)))
    for name in _OPENERS:
        module = importlib.import_module(name)
        setattr(module, "open_store", _opening_with_points(crasher, results, module.open_store))  # noqa: B010
    s3_clients.new_session = lambda *keys: new_session(*keys) if any(keys) else shared_session()


def step_of(key: str, body: bytes) -> Step | None:
    """What a write of the journal is; `None`: no point, since it happens in the background."""
    attempt = _ATTEMPT_KEY.fullmatch(key)
    if attempt is not None and attempt["kind"] == "outcome":
        return Step.FENCE if b'"FENCED"' in body else Step.FINISH
    if attempt is not None:
        return _KINDS.get(attempt["kind"], Step.OTHER)
    if _IN_THE_BACKGROUND.fullmatch(key):
        return None
    return next((step for mark, step in _ELSEWHERE if mark in f"/{key}"), Step.OTHER)


class PointedStore(DelegatingStore):
    """``inner``, with a point before and after each change. Reads are none: they leave nothing."""

    def __init__(self, inner: ObjectStore, crasher: Crasher, name: Callable[[str, bytes], Step | None]) -> None:
        super().__init__(inner)
        self._crasher = crasher
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """A conditional write, with a crash point before it and one after it."""
        return self._put(self.inner.put_if_absent, key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """A plain write, with a crash point before it and one after it."""
        return self._put(self.inner.put, key, body)

    def delete(self, keys: Iterable[str]) -> None:
        """A deletion, which is one step for all its keys."""
        with self._crasher.around(Step.DELETE):
            self.inner.delete(keys)

    def _put(self, write: Callable[[str, bytes], ObjectInfo], key: str, body: bytes) -> ObjectInfo:
        step = self._name(key, body)
        if step is None:
            return write(key, body)
        with self._crasher.around(step):
            return write(key, body)


def _step_of_result(key: str, body: bytes) -> Step:
    del body
    return Step.FAILURE if key.endswith("_failure.json") else Step.RESULT


def _opening_with_points(
    crasher: Crasher, results: str, opens: Callable[..., ObjectStore]
) -> Callable[..., ObjectStore]:
    @wraps(opens)
    def open_store(uri: str, **access: Any) -> ObjectStore:
        is_results = uri == results or uri.startswith(f"{results}/")
        return PointedStore(opens(uri, **access), crasher, _step_of_result if is_results else step_of)

    return open_store


def _with_points(crasher: Crasher, seam: FunctionSeam, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def pointed(*args: Any, **kwargs: Any) -> Any:
        with crasher.around(seam.step, changes=seam.changes):
            return call(*args, **kwargs)

    return pointed
