"""Several subtasks of one region in one task instance, one after the other, each through the whole region protocol.

What holds for a task of one region is here said for several:

    one fails             the others run all the same; the task fails, and names all that did. The next try keeps what
                          has finished, by its own pre-check
    one misses an input   its producer is cleared, and the next try waits for that. The others are only looked at from
                          here on, so that this try reports every loss, and is over before the producer is
    another run makes the shared result of one: the others first, then the task waits in the triggerer
    killed, or cleared    nothing more is started
    one is reset, or overtaken, while others are at work: it is gone through once more before the task succeeds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_recovery import errors
from airflow_recovery.attempt.application import SparkApplication, WrappedApplication
from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.attempt.run import Run, is_untouched
from airflow_recovery.job.chains import batch_label
from airflow_recovery.journal.journal import LISTING_ROUNDS
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.build_in_progress import BuiltElsewhere
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan

BeforeClaim = Callable[[RunState], None]
"""Raises where the subtask must run and shall not be started."""

RunSubtask = Callable[[str, BeforeClaim], RegionResult]
"""One subtask's try, by its region's name."""

CONCERNS_ALL = (
    errors.NotMine,
    errors.ConfigurationError,
    errors.StoreAccessDenied,
    errors.StoreCredentialsExpired,
    errors.StoreFull,
    errors.StoreMisconfigured,
    errors.StoreTimeout,
    errors.StoreUnavailable,
)
"""What the next subtask would meet as well."""

NAMED = 20
"""How many failures a message tells of."""


@dataclass(frozen=True)
class BatchResult:
    """How a batch of subtasks of ``region`` succeeded, by the subtasks' regions."""

    region: str
    results: Mapping[str, RegionResult]

    @property
    def decision(self) -> Decision:
        """``kept`` where every one of them is."""
        return (
            Decision.RAN if any(result.decision is Decision.RAN for result in self.results.values()) else Decision.KEPT
        )


def batch_of(plan: PlanRecord, region: str, label: object, map_index: int | None) -> tuple[str, ...] | None:
    """The subtasks' regions that the task instance ``map_index`` of ``region`` runs; `None`: it runs no batch.

    Raises `SubtasksUnknown` where ``label``, which Airflow gave to this task instance, is not that of the batch.
    """
    mine: list[RegionPlan] = []
    keys: list[str] = []
    in_batches = False
    for planned in plan.regions:
        if planned.subtask is not None and planned.subtask.of == region and planned.subtask.batch is not None:
            in_batches = True
            if planned.subtask.batch == map_index:
                mine.append(planned)
                keys.append(planned.subtask.key)
    if not in_batches:
        return None
    if not mine or batch_label(keys) != label:
        now = repr(batch_label(keys)) if keys else "no such batch"
        raise errors.SubtasksUnknown(
            f"{region}, map index {map_index}: expected the batch {label!r}, found {now}: the keys, subtasks_per_task "
            "or max_map_length have changed since this run was mapped. Clear the task group with its downstream tasks; "
            "what is valid is kept.",
            code="batch-changed",
            expected=label,
        )
    return tuple(region.name for region in mine)


class SubtaskBatch:
    """One try of the subtasks ``names``. ``is_killed``: Airflow has told this process to end."""

    def __init__(
        self, run: Run, names: Sequence[str], run_subtask: RunSubtask, is_killed: Callable[[], bool] = lambda: False
    ) -> None:
        self._run = run
        self._names = names
        self._run_subtask = run_subtask
        self._is_killed = is_killed

    def execute(self) -> dict[str, RegionResult]:
        """The whole try. Raises what the task shall fail with, `SubtasksFailed` where that is several errors.

        Raises `BuiltElsewhere` where all that is left waits for another run.
        """
        results: dict[str, RegionResult] = {}
        todo: Sequence[str] = self._names
        for _ in range(LISTING_ROUNDS):
            results |= self._go_through(todo)
            todo = self._overtaken()
            if not todo:
                return {name: results[name] for name in self._names}
            self._run.log.info("Overtaken while others of the batch were at work: %s.", ", ".join(todo))
        raise errors.Overtaken(f"{', '.join(todo)}: overtaken again and again; this task retries.")

    def _go_through(self, names: Sequence[str]) -> dict[str, RegionResult]:
        results: dict[str, RegionResult] = {}
        ended = _Ended(len(names))
        for name in names:
            if self._is_killed():
                raise errors.NotMine(f"This process was told to end: {name} and what comes after it are not started.")
            before_claim = _hold_back if ended.is_waiting_for_inputs else _allow
            try:
                results[name] = self._run_subtask(name, before_claim)
            except _HeldBack:
                ended.held_back.append(name)
            except CONCERNS_ALL:
                raise
            except Exception as error:
                if self._is_killed():
                    raise
                self._run.log.warning("%s: %s: %s", name, type(error).__name__, error)
                ended.errors[name] = error
        self._run.log.info("%d of %d subtasks of this task are done.", len(results), len(names))
        ended.raise_any()
        return results

    def _overtaken(self) -> list[str]:
        """What has succeeded in this try, and would not now: no clear of this task by itself tells us."""
        listing = self._run.list()
        if is_untouched(listing.state, self._run.plan_hash):
            return []
        evaluation = self._run.evaluate(self._run.journal.load(listing))
        overtaken = []
        for name in self._names:
            current = evaluation.current(name)
            outcome = current.outcome if current is not None else None
            if evaluation.why_overtaken(name, outcome.inputs if outcome is not None else None) is not None:
                overtaken.append(name)
        return overtaken


class _HeldBack(Exception):
    """The subtask must run, and is left to the next try."""


def _hold_back(state: RunState) -> None:
    raise _HeldBack


def _allow(state: RunState) -> None:
    """Raises nothing: the subtask may run."""


@dataclass
class _Ended:
    """The subtasks that did not succeed in a try of ``count``."""

    count: int
    errors: dict[str, Exception] = field(default_factory=dict)
    held_back: list[str] = field(default_factory=list)

    @property
    def is_waiting_for_inputs(self) -> bool:
        return any(isinstance(error, errors.InputLost) for error in self.errors.values())

    def raise_any(self) -> None:
        """What a retry may cure goes first: it tries the others again as well. Then waiting, failing, skipping."""
        waiting = [error for error in self.errors.values() if isinstance(error, BuiltElsewhere) and error.build]
        skipped = [error for error in self.errors.values() if isinstance(error, errors.InputSkipped)]
        failed = {name: error for name, error in self.errors.items() if error not in waiting and error not in skipped}
        cured = [error for error in failed.values() if not errors.kind_of(error).is_final]
        if cured:
            is_pending = all(isinstance(error, errors.InputPending) for error in cured)
            raise cured[0] if is_pending else self._as_one(failed)
        if waiting:
            raise waiting[0]
        if failed:
            raise self._as_one(failed)
        if skipped:
            raise skipped[0]

    def _as_one(self, failed: Mapping[str, Exception]) -> Exception:
        if len(failed) == 1:
            return next(iter(failed.values()))
        texts = [f"{name}: {type(error).__name__}: {error}" for name, error in failed.items()]
        more = f"; and {len(texts) - NAMED} more, see the log" if len(texts) > NAMED else ""
        held = f" Left to the next try: {', '.join(self.held_back)}." if self.held_back else ""
        return errors.SubtasksFailed(
            f"{len(failed)} of {self.count} subtasks of this task did not end well; the next try keeps those that did. "
            f"{'; '.join(texts[:NAMED])}{more}.{held}",
            failed,
            code="subtasks-of-task-failed",
            found=len(failed),
        )


class GuardedApplication(WrappedApplication):
    """A subtask's application; ``checks`` are asked whether it may run."""

    def __init__(self, inner: SparkApplication, *checks: BeforeClaim) -> None:
        super().__init__(inner)
        self._checks = checks

    def before_claim(self, state: RunState) -> None:
        """Raises as `BeforeClaim` and as the application."""
        for check in self._checks:
            check(state)
        super().before_claim(state)
