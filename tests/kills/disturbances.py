"""What a test does to a run while it runs, at moments that its journal tells.

A disturbance is a generator: it yields while its moment has not come, does its harm, and ends. `disturb` asks all of
them again and again, so that several harm one run without waiting for each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from journal_objects import JournalObjects
from pipeline import DagRun, is_gone

from airflow_recovery.testing.local_airflow import TaskProcesses
from airflow_recovery.testing.patience import HANG_S
from scripts.spark_drivers import driver_of, kill_9

POLL_INTERVAL_S = 0.1

Disturbance = Iterator[None]


@dataclass
class DisturbedRun:
    """A run as its disturbances see it.

    ``journal`` is read anew each time they are asked; ``said`` is what they did.
    """

    run: DagRun
    random: Random
    journal: JournalObjects = field(init=False)
    said: list[str] = field(default_factory=list)
    begun_s: float = field(default_factory=time.monotonic)
    api_is_up: bool = True
    busy: set[str] = field(default_factory=set)
    """Regions that a disturbance has to itself."""

    def look(self) -> None:
        self.journal = self.run.journal()

    def say(self, what: str) -> None:
        self.said.append(f"{time.monotonic() - self.begun_s:.0f} s, {len(self.finished())} finished: {what}")
        print(self.said[-1], flush=True)

    def finished(self) -> dict[str, int]:
        """The finished attempt of each region that has one."""
        found = {}
        for region, attempts in self.journal.attempts.items():
            numbers = [number for number, each in attempts.items() if each.is_finished]
            if numbers:
                found[region] = max(numbers)
        return found

    def wait_finished(self, count: int) -> Disturbance:
        while len(self.finished()) < count:
            yield

    def running_task(self) -> tuple[str, int, TaskProcesses] | None:
        """One of the regions that run now, its attempt and its processes; which one, chance decides.

        `None` while the API server is away, which knows the processes' task instances.
        """
        if not self.api_is_up:
            return None
        running = [
            (region, number)
            for region, attempts in sorted(self.journal.attempts.items())
            for number, each in attempts.items()
            if "claim" in each.objects and not each.outcome and region not in self.busy
        ]
        self.random.shuffle(running)
        for region, number in running:
            processes = self.run.airflow.task_processes(self.run.dag_id, self.run.run_id, self.run.task(region))
            if processes is not None and not processes.is_gone():
                return region, number, processes
        return None


def disturb(disturbed: DisturbedRun, *disturbances: Disturbance) -> None:
    """Go on with all of them until all of them have ended."""
    deadline = time.monotonic() + HANG_S
    left = list(disturbances)
    while left:
        disturbed.look()
        left = [disturbance for disturbance in left if next(disturbance, END) is not END]
        if left and time.monotonic() > deadline:
            story = disturbed.run.story() if disturbed.api_is_up else "(the API server is down)"
            raise AssertionError(f"{len(left)} disturbances have not ended; done: {disturbed.said}\n{story}")
        time.sleep(POLL_INTERVAL_S)


END = object()


def kill_a_task(disturbed: DisturbedRun, moment: int) -> Disturbance:
    """``kill -9`` of a task's process."""
    yield from disturbed.wait_finished(moment)
    while (found := disturbed.running_task()) is None:
        yield
    region, attempt, processes = found
    kill_9(processes.task)
    disturbed.say(f"kill -9 of the task {region}@{attempt}")


def kill_a_supervisor(disturbed: DisturbedRun, moment: int) -> Disturbance:
    """``kill -9`` of the process above a task; the kernel ends the task with it."""
    yield from disturbed.wait_finished(moment)
    while (found := disturbed.running_task()) is None:
        yield
    region, attempt, processes = found
    kill_9(processes.supervisor)
    disturbed.say(f"kill -9 of the supervisor of {region}@{attempt}")
    while not processes.is_gone():
        yield


def kill_the_jvm(disturbed: DisturbedRun, region: str) -> Disturbance:
    """``kill -9`` of the JVM of a region by spark-submit: when its driver begins, or when its vertex is called.

    Where another disturbance has ended it before, that of the next attempt.
    """
    run, is_late, attempt = disturbed.run, disturbed.random.random() < 0.5, 1
    disturbed.busy.add(region)
    run.hold(region)
    while True:
        while (jvm := driver_of(f"{run.dag_id}.{region}@{attempt}", run.airflow.home)) is None:
            yield
            attempt = max(disturbed.journal.attempts.get(region, ()), default=1)
        while is_late and not run.calls(region) and not is_gone(jvm):
            yield
        with suppress(ProcessLookupError):
            kill_9(jvm)
            break
    disturbed.say(f"kill -9 of the JVM of {region}@{attempt}")
    run.release(region)
    while not is_gone(jvm):
        yield


def kill_and_restart(disturbed: DisturbedRun, moment: int, component: str) -> Disturbance:
    """``kill -9`` of a component's main process, and a new one at once."""
    yield from disturbed.wait_finished(moment)
    while not disturbed.api_is_up:
        yield
    disturbed.run.airflow.kill(component)
    disturbed.say(f"kill -9 of {component}")
    disturbed.run.airflow.start(component)


def kill_the_triggerer(disturbed: DisturbedRun, moment: int, sensor: str) -> Disturbance:
    """... while ``sensor`` is deferred."""
    run = disturbed.run
    while not disturbed.api_is_up or run.airflow.task_instance(run.dag_id, run.run_id, sensor)["state"] != "deferred":
        yield
    yield from kill_and_restart(disturbed, moment, "triggerer")


def kill_all_schedulers(disturbed: DisturbedRun, moment: int) -> Disturbance:
    """``kill -9`` of each scheduler with its executor's workers, which are the supervisors; then new ones."""
    yield from disturbed.wait_finished(moment)
    airflow = disturbed.run.airflow
    schedulers = [component for component in airflow.components if component.startswith("scheduler")]
    for scheduler in schedulers:
        airflow.kill_group(scheduler)
    disturbed.say("kill -9 of all schedulers")
    airflow.start(*schedulers)


def api_server_down(disturbed: DisturbedRun, moment: int, seconds: float) -> Disturbance:
    """``kill -9`` of the API server; a new one only after some time."""
    yield from disturbed.wait_finished(moment)
    disturbed.run.airflow.kill("api-server")
    disturbed.api_is_up = False
    disturbed.say(f"the API server is down for {seconds:.0f} s")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
    disturbed.run.airflow.start("api-server")
    disturbed.api_is_up = True
    disturbed.say("the API server is up again")


def freeze_a_task(disturbed: DisturbedRun, moment: int) -> Disturbance:
    """SIGSTOP for a task with its supervisor; it wakes when its successor has finished, and must come to its end.

    One whose outcome was on its way when it was frozen has no successor: then another one is taken.
    """
    yield from disturbed.wait_finished(moment)
    successor = None
    while successor is None:
        while (found := disturbed.running_task()) is None:
            yield
        region, attempt, processes = found
        processes.freeze()
        disturbed.busy.add(region)
        try:
            disturbed.say(f"{region}@{attempt} is frozen")
            while region not in disturbed.finished():
                yield
        finally:
            processes.wake()
            disturbed.busy.discard(region)
        successor = disturbed.finished()[region] if disturbed.finished()[region] > attempt else None
        disturbed.say(f"{region}@{attempt} wakes; finished is {region}@{disturbed.finished()[region]}")
    while not processes.is_gone():
        yield


def lose_the_database(disturbed: DisturbedRun, moment: int) -> Disturbance:
    """Drop it and make an empty one; the run is created anew, under another id, for the same logical date."""
    yield from disturbed.wait_finished(moment)
    while not disturbed.api_is_up:
        yield
    disturbed.run.airflow.recreate_database()
    disturbed.run.run_id = f"again-{disturbed.run.run_id}"
    disturbed.run.start()
    disturbed.say("the database was dropped and created anew, and the run, too")


def restore_the_database(disturbed: DisturbedRun, moment: int, backup: Path) -> Disturbance:
    """Back it up; put it back when three more regions have finished."""
    yield from disturbed.wait_finished(moment)
    disturbed.run.airflow.back_up_database(backup)
    before = len(disturbed.finished())
    disturbed.say("backup")
    yield from disturbed.wait_finished(before + 3)
    disturbed.run.airflow.restore_database(backup)
    disturbed.say("the database is restored")
