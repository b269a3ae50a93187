"""What the task of a streaming region does besides its application: the start gate, and being heard at its channels.

before the claim    a source: are there slots for all streaming regions? a consumer: is its channel open?
while Spark runs    a consumer: is its producer's task over, and did nobody say so in the channel?
at the end          what was committed and lost, in the log, as the task's note, and in its return value
where it has failed for good: say so in its own output channel
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication, WrappedApplication
from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import (
    ChannelFailed,
    ConfigurationError,
    InputSkipped,
    NotMine,
    RecoveryError,
    kind_of,
)
from airflow_recovery.hooks.clear_clients import open_clear_client
from airflow_recovery.hooks.masking import mask_secrets
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Outcome
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_graph import ChannelGraph
from airflow_recovery.streaming.mode import StreamingPlan
from airflow_recovery.streaming.run_channels import ChannelReport
from airflow_recovery.streaming.start_gate import OVER_STATES, ChannelNotOpen, Gate, look
from airflow_recovery.streaming.task_channels import give_up_input, give_up_output, input_channel, region_reports
from airflow_recovery.task.mode import RegionTry, TaskMode, TryResult
from airflow_recovery.task.run_context import is_last_try
from airflow_recovery.task.spark_connection import check_streaming_connection

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_recovery.job import Vertex

WATCH_INTERVAL_S = 10.0
"""How often a running consumer asks Airflow for its producer's state; one request each."""


class StreamingApplication(WrappedApplication):
    """The application of a streaming region: ``inner``, behind the start gate.

    ``results`` is the store that holds the channels.

    ``pool_slots`` says how many slots the task's pool has (-1: no limit, `None`: not known); ``slots_each`` is how many
    of them each region takes. Both ends of a channel hold theirs at the same time.
    """

    def __init__(
        self,
        inner: SparkApplication,
        run: Run,
        region: str,
        results: ObjectStore,
        *,
        pool: str,
        pool_slots: Callable[[], int | None],
        slots_each: int = 1,
        watch_interval_s: float = WATCH_INTERVAL_S,
    ) -> None:
        super().__init__(inner)
        self._run = run
        self._region = region
        self._results = results
        self._pool = pool
        self._pool_slots = pool_slots
        self._slots_each = slots_each
        self._watch_interval_s = watch_interval_s

    def before_claim(self, state: RunState) -> None:
        """May it start now?

        Raises `ChannelNotOpen` where it has to wait, `ChannelFailed` where its producer is over, `InputSkipped`, and
        `ConfigurationError` where the pool could never hold all streaming regions.
        """
        super().before_claim(state)
        plan = self._run.regions[self._region]
        channel = input_channel(self._run.journal.identity, plan, state)
        if channel is None:
            self._check_slots()
            return
        seen = look(self._results, channel, lambda: self._producer_state(channel.producer))
        if seen.gate is Gate.WAIT:
            raise ChannelNotOpen(channel, seen.why)
        if seen.gate is Gate.SKIP:
            raise InputSkipped(f"{self._region}: {seen.why}.", code="channel-producer-skipped")
        if seen.gate is Gate.END:
            raise ChannelFailed(
                f"{self._region} can't start: {seen.why}. Clear {self._run.task_keys[channel.producer]}, and this "
                "task, when its cause is gone.",
                code="channel-producer-failed",
            )
        self._run.log.info("%s.", seen.why)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Run the application. Meanwhile a thread asks for the state of the producer's task, and says if it is over."""
        reads = StreamingPlan.of(self._run.regions[self._region]).channels_in
        if not reads:
            return super().run(attempt)
        done = threading.Event()
        arguments = (reads[0].producer, done)
        watch = threading.Thread(target=self._watch, args=arguments, name="producer watch", daemon=True)
        watch.start()
        try:
            return super().run(attempt)
        finally:
            done.set()

    def _producer_state(self, producer: str) -> str | None:
        key = self._run.task_keys[producer]
        return self._run.task_instances.states([key]).get(key)

    def _watch(self, producer: str, done: threading.Event) -> None:
        """A producer that was killed in its last try, or marked by a person, can't say that no more will come."""
        while not done.wait(self._watch_interval_s) and self._is_still_mine(producer):
            pass

    def _is_still_mine(self, producer: str) -> bool:
        """One look. What can't be asked now is asked again: the region itself is fine."""
        try:
            state = self._producer_state(producer)
            if state in OVER_STATES and give_up_input(self._run, self._region, self._results, str(state)):
                self._run.log.warning("The task of %s is %s, and will feed its channel no more.", producer, state)
        except NotMine:
            return False
        except Exception as error:
            self._run.log.warning("The task of %s could not be looked at: %s", producer, error)
        return True

    def _check_slots(self) -> None:
        regions = ChannelGraph(self._run.today).connected(self._region)
        needed = len(regions) * self._slots_each
        if needed < 2:
            return
        slots = self._pool_slots()
        if slots is None:
            self._run.log.info(
                "How many slots the pool %r has can't be asked; the streaming regions need %d.", self._pool, needed
            )
        elif 0 <= slots < needed:
            raise ConfigurationError(
                f"Expected the pool {self._pool!r} to have {needed} slots at least, since {', '.join(regions)} run at "
                f"the same time, found {slots}. Give the task group a pool of its own (pool=...), with {needed} slots "
                "times max_active_runs of the DAG.",
                code="pool-too-small",
                pool=self._pool,
            )


def tell_that_it_gave_up(run: Run, region: str, results: ObjectStore, error: BaseException) -> None:
    """Best effort, for a task that fails for good: what it fails with is told whatever comes of this."""
    try:
        if StreamingPlan.of(run.regions[region]).channels_out and give_up_output(
            run, region, results, mask_secrets(_first_line(error))
        ):
            run.log.info("The consumer of %s was told that no more will come.", region)
    except Exception as second:
        run.log.warning("The consumer of %s could not be told that no more will come: %s", region, second)


def final_reports(run: Run, region: str, results: ObjectStore) -> tuple[ChannelReport, ...]:
    """The channels at the ends of a region that has succeeded. Nothing, with a warning, where they can't be read."""
    try:
        return region_reports(run, region, results)
    except RecoveryError as error:
        run.log.warning("What was committed and lost could not be read; the audit reads it again: %s", error)
        return ()


def ledger_text(reports: tuple[ChannelReport, ...]) -> str:
    """One line for all channels of a region: the end of its task's log, and its note."""
    return "; ".join(_line(report) for report in reports)


def ledger_summary(reports: tuple[ChannelReport, ...]) -> dict[str, Any]:
    """The reports as JSON values by channel: what the task returns as ``ledger``."""
    return {report.channel.edge: report.to_json() for report in reports}


def log_ledger(reports: tuple[ChannelReport, ...], log: logging.Logger) -> str:
    """Write the line of `ledger_text` to the task's log, and return it."""
    text = ledger_text(reports)
    log.info("%s.", text)
    return text


def _line(report: ChannelReport) -> str:
    loss = report.loss
    lost = ", ".join(f"{cause.value} {count}" for cause, count in loss.causes)
    text = f"{report.channel.edge}: {report.committed} records committed, {loss.lost} lost" + (
        f" ({lost})" if lost else ""
    )
    if report.unknown:
        text += ", and an unknown number at the origin"
    if loss.behind:
        text += f", {loss.behind} not read yet"
    return text


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class StreamingTask(TaskMode):
    """A region at a channel: behind the start gate, and heard at its channels whatever becomes of it."""

    def check_connection(self, region: RegionPlan, vertices: Mapping[str, Vertex], connection: Connection) -> None:
        """Raise `ConfigurationError` for Spark Connect: a streaming region is an application of its own."""
        check_streaming_connection(region.name, connection)

    def application(self, inner: SparkApplication, own: RegionTry) -> SparkApplication:
        """``inner``, wrapped so that it waits at the start gate."""
        opened, operator = own.opened.opened, own.operator
        return StreamingApplication(
            inner,
            opened.run,
            own.name,
            opened.stores.results,
            pool=operator.pool,
            pool_slots=lambda: open_clear_client(own.context, opened.settings.api_conn_id).pool_slots(operator.pool),
            slots_each=operator.pool_slots,
        )

    def run(self, attempt: Callable[[], RegionResult], own: RegionTry) -> TryResult:
        """Try until the start gate lets it through. The result has the ``ledger`` of the channels at its ends.

        Where the task fails for good, its consumer is told in the channel.
        """
        run, results = own.opened.opened.run, own.opened.opened.stores.results
        try:
            while True:
                try:
                    result = attempt()
                    break
                except ChannelNotOpen as waiting:
                    _wait_for_start(own, waiting)
        except Exception as error:
            if kind_of(error).is_final or is_last_try(own.context):
                tell_that_it_gave_up(run, own.name, results, error)
            raise
        ledger = final_reports(run, own.name, results) if result.decision is Decision.RAN else ()
        if not ledger:
            return TryResult(result)
        return TryResult(result, {"ledger": ledger_summary(ledger)}, log_ledger(ledger, run.log))


def _wait_for_start(own: RegionTry, waiting: ChannelNotOpen) -> None:
    """In the triggerer, or here. Returns when the gate is worth another look. Raises `ChannelFailed`: too late."""
    from airflow_recovery.triggers.channel import POLL_INTERVAL_S, ChannelOpenTrigger

    operator, run, channel = own.operator, own.opened.opened.run, waiting.channel
    if operator.start_timeout_s is not None and operator.start_deadline is None:
        operator.start_deadline = time.time() + operator.start_timeout_s
    if operator.start_deadline is not None and time.time() >= operator.start_deadline:
        raise ChannelFailed(
            f"{operator.region}: {waiting}. Expected it open within start_timeout_s={operator.start_timeout_s} s. Look "
            "whether its producer has a slot; then clear this task, or give it more time.",
            code="channel-not-open-in-time",
        )
    run.log.info("%s; waiting.", waiting)
    if not operator.deferrable:
        time.sleep(POLL_INTERVAL_S)
        return
    identity = own.opened.identity
    operator.defer(
        trigger=ChannelOpenTrigger(
            dag_id=identity.dag_id,
            run_key=identity.run_key,
            group_id=identity.group_id,
            run_id=own.context["dag_run"].run_id,
            result=channel.identity.edge,
            generation=channel.generation,
            producer=channel.producer,
            producer_task=run.task_keys[channel.producer],
            deadline=operator.start_deadline,
        ),
        method_name="execute_after_start",
    )


MODE = StreamingTask()
