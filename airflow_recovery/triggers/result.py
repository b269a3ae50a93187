"""Waits in the triggerer until a result is published."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from airflow.triggers.base import TriggerEvent

from airflow_recovery.errors import RecoveryError
from airflow_recovery.hooks.result import NOT_YET
from airflow_recovery.hooks.result_watch import ResultWatch
from airflow_recovery.triggers.polling import PollingTrigger, in_thread


class ResultPublishedTrigger(PollingTrigger):
    """Fires once when ``vertex`` of one run can be relied on (`RecoveryResultSensor`), or can't be read at all.

    Event: ``{"status": "published", "location", "attempt", "publish"}`` or ``{"status": "error", "message"}``. The run
    is named as in `RecoveryResultHook.get_result`; ``logical_date`` is ISO 8601. ``of_own_run``: it is the run of the
    task that waits.
    """

    def __init__(  # noqa: PLR0913 - what the sensor waits for, as Airflow's database keeps it
        self,
        *,
        dag_id: str,
        group_id: str,
        vertex: str,
        logical_date: str | None = None,
        partition_key: str | None = None,
        run_id: str | None = None,
        poll_interval_s: float = 30.0,
        accept_failed: bool = False,
        of_own_run: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id = dag_id
        self.group_id = group_id
        self.vertex = vertex
        self.logical_date = logical_date
        self.partition_key = partition_key
        self.run_id = run_id
        self.poll_interval_s = poll_interval_s
        self.accept_failed = accept_failed
        self.of_own_run = of_own_run

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look into the journal, and ask Airflow, every ``poll_interval_s`` seconds; fire once."""
        watch = ResultWatch(
            self.dag_id,
            self.vertex,
            group_id=self.group_id,
            logical_date=self.logical_date,
            partition_key=self.partition_key,
            run_id=self.run_id,
            accept_failed=self.accept_failed,
            of_own_run=self.of_own_run,
        )
        look = in_thread(watch.look)
        while True:
            try:
                result = await look()
            except NOT_YET as reason:
                self.log.info("Not yet: %s", reason)
            except RecoveryError as error:
                event = {"status": "error", "message": f"{type(error).__name__}: {error}"}
                break
            else:
                event = {"status": "published", "location": result.location}
                event |= {"attempt": str(result.attempt), "publish": str(result.publish)}
                break
            await asyncio.sleep(self.poll_interval_s)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]
