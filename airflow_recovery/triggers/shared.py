"""Waits in the triggerer while another run makes a shared result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch, last_beat
from airflow_recovery.errors import RecoveryError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import shared_identity
from airflow_recovery.model.build_in_progress import BuildInProgress
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.triggers.polling import PollingTrigger, in_thread


class SharedResultTrigger(PollingTrigger):
    """Fires once when the attempt ``build`` has ended, gives no heartbeat, or can't be looked at.

    Event: ``{"silent": None}``; or, instead of `None`, the `BuildInProgress` as JSON values, where the attempt has
    given no heartbeat for ``[recovery] previous_worker_timeout``. A trigger that is moved to another triggerer begins
    to count anew.
    """

    def __init__(self, *, build: dict[str, Any], poll_interval_s: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.build = build
        self.poll_interval_s = poll_interval_s

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the attempt every ``poll_interval_s`` seconds, and fire once."""
        look = in_thread(self._look)
        settings = RecoverySettings.load()
        stores = open_stores(settings)
        watch = HeartbeatWatch(settings.previous_worker_timeout_s)
        build = from_json(BuildInProgress, self.build)
        silent: BuildInProgress | None = None
        while True:
            try:
                seen = await look(stores, build)
            except RecoveryError as error:
                # The task will meet the same error, and says it where people look.
                self.log.warning("%s could not be looked at: %s", build.region, error)
                break
            if seen is None:
                break
            if watch.has_timed_out(seen.attempt, seen.beat):
                silent = seen
                break
            await asyncio.sleep(self.poll_interval_s)
        yield TriggerEvent({"silent": None if silent is None else to_json(silent)})  # type: ignore[no-untyped-call]

    def _look(self, stores: Stores, build: BuildInProgress) -> BuildInProgress | None:
        """The attempt as it is now; `None` where it has ended."""
        journal = Journal(stores.journal, shared_identity(build.key), writer="trigger")
        if journal.has_outcome(build.region, build.attempt):
            return None
        return replace(build, beat=last_beat(journal, build.region, build.attempt))
