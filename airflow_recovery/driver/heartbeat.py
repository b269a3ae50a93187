"""Heartbeats of one attempt: one object that is overwritten while it runs (docs/protocol.md#objects).

Whoever waits for the attempt looks whether the object *changes*, and counts by its own clock: two machines' clocks are
never compared (`airflow_recovery.attempt.heartbeat_watch`). Nothing that recovery decides about data rests on it.

With each sign the driver looks whether its attempt was fenced meanwhile (`airflow_recovery.driver.fencing`). Requests:
a PUT for each sign, and a LIST of one key for each look; at most one of both every 5 s, so about 720 of each an hour.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.errors import AttemptLost, DriverLeft
from airflow_recovery.model.codec import from_json, later, to_json
from airflow_recovery.store.object_store import ObjectStore

if TYPE_CHECKING:
    from airflow_recovery.driver.fencing import FenceWatch

BEATS_PER_TIMEOUT = 6
"""So many heartbeats fit into the timeout: a few of them may be late or lost."""
INTERVAL_S = 5.0
SHORTEST_INTERVAL_S = 0.2
MAX_BEAT_BYTES = 4096


def interval_s(timeout_s: float) -> float:
    """How often to give a heartbeat, where others wait ``timeout_s`` for one."""
    return min(INTERVAL_S, max(SHORTEST_INTERVAL_S, timeout_s / BEATS_PER_TIMEOUT))


@dataclass(frozen=True)
class Beat:
    """One heartbeat. ``tag`` is the claim's: another one's beat at the same key is no sign of this attempt.

    ``process`` is the driver's (`own_process`), where the driver itself gives the sign. ``ended``: it was the last one,
    and the attempt did not finish. ``progress`` is for people. ``succeeded``: a user's application has ended well, and
    what it wrote is to be registered; it was started with ``rests_on``.
    """

    tag: str
    count: int
    process: str | None = None
    application_id: str | None = None
    ended: bool = False
    progress: str | None = None
    succeeded: bool = later(False)
    rests_on: str | None = later(None)

    def to_bytes(self) -> bytes:
        """The heartbeat's object: its fields as JSON."""
        return json.dumps(to_json(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Beat | None:
        """Inverse of `to_bytes`; `None` for anything else. Of another version's, what this one knows.

        A driver outlives the task that submitted it, and so an upgrade or downgrade of the workers: it is not to be
        taken for dead because its heartbeats have a field more or less.
        """
        if len(body) > MAX_BEAT_BYTES:
            return None
        try:
            return from_json(cls, json.loads(body))
        except (ValueError, RecursionError):
            return None


class Heartbeat:
    """Gives heartbeats at ``key`` while the ``with`` block runs, the first one at once.

    ``store`` is called in the thread, so that opening it keeps nobody waiting. ``is_driver``: when this process is
    gone, so is the attempt. A block that is left by an exception says so: nobody need wait any longer; but for
    `DriverLeft`, which leaves the driver at work. A store that does not answer stops nothing. ``succeeded`` is what the
    next heartbeats say, and the last one.

    ``watch`` is asked after each sign but the first. Where the attempt was fenced, its work is stopped, no sign is
    given any more, and the error that the block then ends with becomes `AttemptLost`.
    """

    def __init__(
        self,
        store: Callable[[], ObjectStore],
        key: str,
        tag: str,
        *,
        log: logging.Logger,
        every_s: float = INTERVAL_S,
        is_driver: bool = True,
        watch: FenceWatch | None = None,
        rests_on: str | None = None,
    ) -> None:
        self._store = store
        self._key = key
        self._beat = Beat(tag, 0, own_process() if is_driver else None, rests_on=rests_on)
        self.succeeded = False
        self._progress: str | None = None
        self._log = log
        self._every_s = every_s
        self._watch = watch
        self.is_fenced = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._ended.set()
        self._thread.join()
        if kind is None:
            if self.succeeded and not self._beat.succeeded:
                self._give()
            return
        if issubclass(kind, DriverLeft):
            return
        self._beat = replace(self._beat, ended=True)
        self._give()
        if self.is_fenced and issubclass(kind, Exception) and not issubclass(kind, AttemptLost):
            raise AttemptLost(
                "This attempt was fenced while it was at work: a later one counts. Its Spark job was stopped, and "
                "nothing was registered.",
                code="fenced-at-work",
            )

    def tell_application(self, application_id: str | None) -> None:
        """Set Spark's id of the application, which people see in the next heartbeat."""
        self._beat = replace(self._beat, application_id=application_id)

    def tell_progress(self, progress: str) -> None:
        """Set the text that says how far the work is, which people see in the next heartbeat."""
        self._progress = progress

    @property
    def rests_on(self) -> str | None:
        """What the application was started with, as the heartbeats say."""
        return self._beat.rests_on

    def _run(self) -> None:
        self._give()
        while not self._ended.wait(self._every_s):
            if not self.is_fenced:
                self._give()
            if self._watch is not None:
                self._look(self._watch)

    def _give(self) -> None:
        self._beat = replace(
            self._beat,
            count=self._beat.count + 1,
            progress=self._progress,
            succeeded=self.succeeded,
        )
        try:
            self._store().put(self._key, self._beat.to_bytes())
        except Exception as error:  # also of opening the store, which the finish of the attempt reports
            self._log.warning("A heartbeat could not be written: %s", error)

    def _look(self, watch: FenceWatch) -> None:
        try:
            if not self.is_fenced and watch.is_fenced():
                self.is_fenced = True
                self._log.error("This attempt was fenced, a later one counts: its Spark job is stopped.")
            if self.is_fenced:
                watch.stop()
        except Exception as error:
            self._log.warning("Whether this attempt was fenced could not be seen, or its job not stopped: %s", error)
