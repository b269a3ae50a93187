"""Waits in the triggerer until the channel is open that a streaming region reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from airflow.triggers.base import TriggerEvent

from airflow_recovery.errors import RecoveryError, StoreTimeout, StoreUnavailable
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.start_gate import Gate, look
from airflow_recovery.streaming.task_channels import InputChannel
from airflow_recovery.triggers.polling import PollingTrigger, in_thread

POLL_INTERVAL_S = 3.0


class ChannelOpenTrigger(PollingTrigger):
    """Fires once when it is worth the task's while to look: it decides, the trigger only saves its slot.

    That is where the channel is open, its producer's task is over in Airflow, the channel has moved on to another
    generation (as the producer's resets in the journal say), ``deadline`` has passed, or the journal can't be read.

    Event: ``{"deadline": ...}``, as given: until then the task waits for the channel.

    :param dag_id: with ``run_key`` and ``group_id`` the journal's identity of the run.
    :param run_id: Airflow's.
    :param result: the channel's result, and ``generation`` the channel's generation that is waited for.
    :param producer: the region that writes to the channel, and ``producer_task`` its task id.
    :param deadline: seconds since 1970; `None`: no limit, it waits as long as the producer may still run.
    :param poll_interval_s: seconds between two looks.
    """

    def __init__(  # noqa: PLR0913 - what a trigger is made again from
        self,
        *,
        dag_id: str,
        run_key: str,
        group_id: str,
        run_id: str,
        result: str,
        generation: int,
        producer: str,
        producer_task: str,
        deadline: float | None = None,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id = dag_id
        self.run_key = run_key
        self.group_id = group_id
        self.run_id = run_id
        self.result = result
        self.generation = generation
        self.producer = producer
        self.producer_task = producer_task
        self.deadline = deadline
        self.poll_interval_s = poll_interval_s

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the channel every ``poll_interval_s`` seconds, and fire once."""
        look_once = in_thread(self._is_worth_a_look)
        stores = open_stores(RecoverySettings.load())
        while True:
            try:
                if await look_once(stores):
                    break
            except (StoreTimeout, StoreUnavailable) as error:
                self.log.warning("%s could not be looked at, asking again: %s", self.result, error)
            except RecoveryError as error:
                # The task will meet the same error, and says it where people look.
                self.log.warning("%s could not be looked at: %s", self.result, error)
                break
            await asyncio.sleep(self.poll_interval_s)
        yield TriggerEvent({"deadline": self.deadline})  # type: ignore[no-untyped-call]

    def _is_worth_a_look(self, stores: Stores) -> bool:
        if self.deadline is not None and time.time() >= self.deadline:
            return True
        run = RunIdentity(self.dag_id, self.run_key, self.group_id)
        channel = InputChannel(ChannelIdentity(run, self.result, self.generation), self.producer)
        verdict = look(stores.results, channel, self._producer_state)
        if verdict.gate is not Gate.WAIT:
            self.log.info("%s.", verdict.why)
            return True
        journal = Journal(stores.journal, run, writer="trigger")
        now = journal.load(journal.list([self.producer])).of(self.producer).generations[-1]
        if now != self.generation:
            self.log.info("%s: generation %d is written now, not %d.", self.result, now, self.generation)
        return now != self.generation

    def _producer_state(self) -> str | None:
        """As Airflow says; `None` where it can't be asked now: the channel itself is what is waited for."""
        from airflow_recovery.airflow_compat import RuntimeTaskInstance

        try:
            answer = RuntimeTaskInstance.get_task_states(
                dag_id=self.dag_id, task_ids=[self.producer_task], run_ids=[self.run_id]
            )
        except Exception as error:
            self.log.warning("The state of %s could not be asked: %s", self.producer_task, error)
            return None
        state: str | None = answer.get(self.run_id, {}).get(self.producer_task)
        return state
