"""One DAG run of an Airflow that is not there: task instances, tries, trigger rules, branches, compare-and-clear.

Keeps to what was found in real Airflow: a task instance gets a new id with every retry and every clear, which is what
shuts a zombie out; a cleared task that is running is restarted, and its old process's success does not count. The
comparison is that of `airflow_recovery.api_server.compare_and_clear`. The trigger rules are those of Airflow 3.3
(`airflow.ti_deps.deps.trigger_rule_dep`), and a task that a branch does not follow is skipped again when somebody
clears it (`airflow.ti_deps.deps.not_previously_skipped_dep`).

Not thread-safe: a test or a simulation makes one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from airflow_recovery.attempt.run import RetryGrant
from airflow_recovery.attempt.task_instances import (
    FINISHED_STATES,
    MARKED_FAILED,
    RUNNING_STATES,
    ClearRequest,
    ClearResult,
    Observation,
    TaskTry,
)
from airflow_recovery.errors import ClearNotConfigured, NotMine

RESCHEDULED = "up_for_reschedule"
STARTABLE = frozenset({None, "up_for_retry", RESCHEDULED, "restarting"})
BLOCKING = frozenset({"failed", "upstream_failed"})
ENDED = frozenset({"success", "failed", "upstream_failed", "skipped", "removed"})
"""States in which a task waits for nothing."""
ALL_SUCCESS = "all_success"
RUNS = "runs"
"""What `by_trigger_rule` answers for a task that starts."""
EARLY_RULES = frozenset({"always", "one_success", "one_failed"})
"""Trigger rules that may start a task before all tasks above it have ended."""
TRIGGER_RULES = frozenset({ALL_SUCCESS, "all_done", "none_failed", "none_failed_min_one_success"}) | EARLY_RULES


def by_trigger_rule(rule: str, states: Sequence[str | None]) -> str | None:
    """What becomes of a task with that trigger rule, if the tasks directly above it are in these states.

    `RUNS`, or the state that the scheduler sets: ``skipped`` or ``upstream_failed``; `None`: the task waits.
    """
    if rule == "always" or not states:
        return RUNS
    if rule == ALL_SUCCESS and states.count("success") == len(states):
        return RUNS
    failed = states.count("failed") + states.count("upstream_failed")
    succeeded, skipped = states.count("success"), states.count("skipped")
    is_done = failed + succeeded + skipped + states.count("removed") == len(states)
    if rule == "one_failed":
        return RUNS if failed else "skipped" if is_done else None
    if rule == "one_success":
        if is_done and not succeeded:
            return "skipped" if skipped == len(states) else "upstream_failed"
        return RUNS if succeeded else None
    if rule != "all_done" and failed:
        return "upstream_failed"
    if rule == ALL_SUCCESS and skipped:
        return "skipped"
    if rule == "none_failed_min_one_success" and is_done and not succeeded:
        return "skipped" if skipped == len(states) else "upstream_failed"
    return RUNS if is_done else None


class FakeAirflow:
    """The task instances of one run. ``upstream`` names every task's direct upstream tasks, in topological order.

    ``rules``: the trigger rules that are not ``all_success``, one of `TRIGGER_RULES` each. ``followed``: what each
    branch has decided in this run, from its end until its next try starts, as its XCom does. ``xcoms``: likewise the
    one value that each task has pushed.
    ``compares`` switched off makes every clear hit whatever is named in whatever state: the negative control.
    """

    def __init__(
        self, upstream: Mapping[str, Sequence[str]], *, retries: int = 3, rules: Mapping[str, str] | None = None
    ) -> None:
        self.upstream = dict(upstream)
        self.rules = dict(rules or {})
        if not TRIGGER_RULES.issuperset(self.rules.values()):
            raise ValueError(f"expected some of {sorted(TRIGGER_RULES)}, found {sorted(set(self.rules.values()))}")
        self.followed: dict[str, frozenset[str]] = {}
        self.xcoms: dict[str, str] = {}
        self.compares = True
        self.cleared: list[str] = []
        self._retries = retries
        self._marked_failed: set[str] = set()
        self._ids = 0
        self.lose_database()

    def lose_database(self) -> None:
        """The metadata database is lost and the run created again: nobody who is at work has its task any more."""
        self._marked_failed.clear()
        self._tries = {name: TaskTry(name, -1, 0, self._new_id(name), None) for name in self.upstream}
        self._max_tries = dict.fromkeys(self.upstream, self._retries)
        self._grants = dict.fromkeys(self.upstream, RetryGrant(self._retries))
        self.followed.clear()
        self.xcoms.clear()

    # what the scheduler does

    def now(self, task: str) -> TaskTry:
        """The task instance of ``task`` as it is now."""
        return self._tries[task]

    def state(self, task: str) -> str | None:
        """The state of ``task`` as it is now, in Airflow's words."""
        return self._tries[task].state

    def grant(self, task: str) -> RetryGrant:
        """The tries since the start, or since the last clear by a person: what recovery clears begins no new one."""
        return self._grants[task]

    @property
    def is_green(self) -> bool:
        """Whether every task has succeeded."""
        return all(self.state(task) == "success" for task in self.upstream)

    @property
    def has_ended(self) -> bool:
        """Whether every task has ended, in whatever state. Ask `ready` first: it ends what can't start."""
        return all(self.state(task) in ENDED for task in self.upstream)

    def ready(self) -> list[str]:
        """Tasks that would be started now. Marks what can't ever start: ``upstream_failed`` and ``skipped``."""
        tasks = []
        for task, upstream in self.upstream.items():
            if self.state(task) not in STARTABLE:
                continue
            found = by_trigger_rule(self.rules.get(task, ALL_SUCCESS), [self.state(name) for name in upstream])
            if any(self.state(name) in ENDED and task not in self.followed.get(name, (task,)) for name in upstream):
                found = "skipped"
            if found == RUNS:
                tasks.append(task)
            elif found is not None:
                self._set(task, found)
        return tasks

    def start(self, task: str) -> TaskTry:
        """Start the next try of ``task``, as the scheduler would."""
        if task not in self.ready():
            raise ValueError(f"{task} can't start: {self.state(task)}")
        before = self._tries[task]
        number = before.try_number if before.state == RESCHEDULED else before.try_number + 1
        self._tries[task] = replace(before, try_number=number, state="running")
        self.followed.pop(task, None)
        self.xcoms.pop(task, None)
        return self._tries[task]

    def is_mine(self, own: TaskTry) -> bool:
        """Whether the process that was started as ``own`` still has its task instance."""
        now = self._tries.get(own.task_id)
        return now is not None and now.ti_id == own.ti_id and now.state == "running"

    def push(self, own: TaskTry, value: str) -> None:
        """The process of ``own`` pushes an XCom. Nothing happens if it is a zombie."""
        if self.is_mine(own):
            self.xcoms[own.task_id] = value

    def end(self, own: TaskTry, state: str) -> bool:
        """The process of ``own`` reports ``success``, ``failed`` or ``skipped``. False: refused, it is a zombie."""
        if not self.is_mine(own):
            return False
        if state == "failed":
            self._fail(own.task_id)
        else:
            self._set(own.task_id, state)
        return True

    def reschedule(self, own: TaskTry) -> None:
        """The process of ``own`` waits: Airflow starts the same try again, without a retry. Not if it is a zombie."""
        if self.is_mine(own):
            self._set(own.task_id, RESCHEDULED)

    def end_branch(self, own: TaskTry, followed: Collection[str]) -> bool:
        """The process of ``own``, a branch, succeeds, and skips the tasks directly below it that are not ``followed``.

        Not those that run or have succeeded or failed. False: refused, it is a zombie.
        """
        if not self.end(own, "success"):
            return False
        self.followed[own.task_id] = frozenset(followed)
        for task, upstream in self.upstream.items():
            is_left = self.state(task) not in {"running", "success", "failed"}
            if own.task_id in upstream and task not in followed and is_left:
                self._set(task, "skipped")
        return True

    def lose_heartbeat(self, task: str) -> None:
        """The scheduler gives up on a running task; its process knows nothing of it."""
        if self.state(task) != "running":
            raise ValueError(f"{task} is not running: {self.state(task)}")
        self._fail(task)

    def fail_for_good(self, task: str) -> None:
        """The newest try of ``task`` has failed, and Airflow has no retry left for it."""
        self._set(task, "failed")

    # what a person does

    def clear(self, task: str, *, downstream: bool = False) -> None:
        """A user's clear: whatever the state; with ``downstream``, of everything below it too."""
        for name in self.below({task}) if downstream else ():
            self.clear(name)
        self._clear(task)
        self._grants[task] = RetryGrant(self._max_tries[task], is_renewed=True)

    def clear_all(self) -> None:
        """A user's clear of the whole run."""
        for task in self.upstream:
            self.clear(task)

    def resize(self, upstream: Mapping[str, Sequence[str]]) -> None:
        """Another version of the DAG: a task that it lacks is ``removed``, one that is new has not run."""
        for task in self.upstream.keys() - upstream.keys():
            self._set(task, "removed")
        for task in sorted(upstream.keys() - self.upstream.keys()):
            tries = self._tries[task].try_number if task in self._tries else 0
            self._tries[task] = TaskTry(task, -1, tries, self._new_id(task), None)
            self._max_tries[task] = tries + self._retries
            self._grants[task] = RetryGrant(self._max_tries[task])
        self.upstream = dict(upstream)

    def mark(self, task: str, state: str) -> None:
        """A user marks a task; it stays the same task instance. What a failure had held up below it is cleared.

        Not if it is marked ``failed``: the tasks below it end as they had, and recovery does not clear it.
        """
        self._set(task, state)
        if state == "failed":
            self._marked_failed.add(task)
        if state in {"success", "skipped"}:
            for name in self.below({task}):
                if self.state(name) in BLOCKING:
                    self.clear(name)

    # what a task process does

    def clear_client(
        self, own: TaskTry, *, can_clear: bool = True, gate: Callable[[str], None] = lambda request: None
    ) -> FakeClearClient:
        """The way in for the process of ``own``; ``gate`` is called before each request.

        Without ``can_clear`` as where neither setting is made: it observes nothing and clears nobody.
        """
        return FakeClearClient(self, own, can_clear, gate)

    def observe(self) -> Observation:
        """All task instances of the run, as they are now."""
        return Observation(dict(self._tries))

    def compare_and_clear(self, request: ClearRequest, caller: str) -> ClearResult:
        """Clear what is still as observed, by the rules of `airflow_recovery.api_server.compare_and_clear.clear`."""
        unmoved: dict[str, tuple[int, str | None]] = {}

        def matching(observed: Mapping[str, str], states: frozenset[str]) -> list[str]:
            chosen = []
            for task, ti_id in observed.items():
                now = self._tries[task]
                if task == caller:
                    continue
                if self.compares and task in self._marked_failed:
                    unmoved[task] = (now.try_number, MARKED_FAILED)
                elif not self.compares or (now.ti_id == ti_id and now.state in states):
                    chosen.append(task)
                else:
                    unmoved[task] = (now.try_number, now.state)
            return chosen

        chosen = matching(request.producers, FINISHED_STATES)
        if chosen or not request.producers:
            consumers = {task: ti_id for task, ti_id in request.consumers.items() if task not in request.producers}
            chosen += matching(consumers, FINISHED_STATES | RUNNING_STATES)
        if request.unblock:
            below = self.below({caller, *chosen})
            stuck = [task for task in self.upstream if self.state(task) == "upstream_failed" and task in below]
            chosen += [task for task in stuck if task != caller and task not in chosen]
        for task in chosen:
            grant, ended = self._grants[task], self._tries[task].try_number
            self._clear(task)
            self._grants[task] = replace(grant, cancelled=grant.cancelled | {ended})
        self.cleared += chosen
        return ClearResult(tuple(chosen), unmoved)

    def below(self, roots: set[str]) -> set[str]:
        """The tasks that wait for one of ``roots``, directly or through others."""
        tasks: set[str] = set()
        for task, upstream in self.upstream.items():  # topological order
            if any(name in roots or name in tasks for name in upstream):
                tasks.add(task)
        return tasks

    def _clear(self, task: str) -> None:
        now = self._tries[task]
        state = "restarting" if now.state == "running" else None
        self._marked_failed.discard(task)
        self._tries[task] = replace(now, ti_id=self._new_id(task), state=state)
        self._max_tries[task] = now.try_number + self._retries

    def _fail(self, task: str) -> None:
        now = self._tries[task]
        if now.try_number <= self._max_tries[task]:
            # Airflow gives a retry its id when the try before it ends.
            self._tries[task] = replace(now, ti_id=self._new_id(task), state="up_for_retry")
        else:
            self._set(task, "failed")

    def _set(self, task: str, state: str | None) -> None:
        self._marked_failed.discard(task)
        self._tries[task] = replace(self._tries[task], state=state)

    def _new_id(self, task: str) -> str:
        self._ids += 1
        return f"{task}-{self._ids}"


class FakeClearClient:
    """An `airflow_recovery.attempt.task_instances.TaskInstances` of one task process. A zombie is refused."""

    def __init__(self, airflow: FakeAirflow, own: TaskTry, can_clear: bool, gate: Callable[[str], None]) -> None:
        self._airflow = airflow
        self._own = own
        self._can_clear = can_clear
        self._gate = gate

    def observe(self) -> Observation | None:
        """All tries of the run; `None` without a clear client. Raises `NotMine` for a zombie."""
        if not self._can_clear:
            return None
        self._ask("observe")
        return self._airflow.observe()

    def clear(self, request: ClearRequest) -> ClearResult:
        """Compare and clear. Raises `NotMine` for a zombie."""
        if not self._can_clear:
            raise ClearNotConfigured("Expected a way to clear tasks, found none configured.")
        self._ask("clear")
        return self._airflow.compare_and_clear(request, self._own.task_id)

    def states(self, keys: Collection[str]) -> Mapping[str, str | None]:
        """The present states of tasks of the run."""
        self._gate("states")
        return {task: self._airflow.state(task) for task in keys}

    def live_check(self) -> None:
        """Raises `NotMine` where the task has another try by now."""
        self._ask("live check")

    def _ask(self, request: str) -> None:
        self._gate(request)
        if not self._airflow.is_mine(self._own):
            raise NotMine(f"{self._own.task_id}: {self._own.ti_id} is no longer this process's task instance.")
