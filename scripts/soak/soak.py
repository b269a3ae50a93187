"""The soak itself: half a minute after half a minute something is done; at each pause everything is looked at."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import requests

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import RecoveryError
from airflow_recovery.testing.local_airflow import LocalAirflowError
from airflow_recovery.verify import verify_run
from scripts.machine import describe_machine
from scripts.soak.disturbances import DISTURBANCES, Disturbance, World, drawn_for, first_round, start_all
from scripts.soak.ground import Ground
from scripts.soak.growth import Sampler, growths
from scripts.soak.leftovers import (
    connections_of_nobody,
    left_processes,
    objects_of_nobody,
    open_connections,
    processes_of_no_run,
    registered,
    strange_records,
    unfinished_uploads,
    unused_folders,
)
from scripts.soak.people import CommandFailed, history_of, is_purged
from scripts.soak.published import wrong_results
from scripts.soak.request_budget import beyond_budget, budget
from scripts.soak.runs import NothingToDisturb, RunName, Runs
from scripts.soak.truth import DAGS

TICK_S = 30.0
PATIENCE_S = 600.0
"""How long runs may take to end once they are left alone."""
LEFT_ALONE_S = 120.0
"""After this, nothing of a run that has ended may be there any more: a run's own Spark ends when it is idle."""
MOST_UNUSED_FOLDERS = 12
"""Our folders of killed processes on one machine: the next of their kind removes them."""
AWAY = (LocalAirflowError, requests.RequestException)
"""What the soak hears while the API server is down."""


@dataclass(frozen=True)
class Done:
    """One disturbance. ``at``: seconds since the soak began."""

    at: float
    name: str
    said: str


@dataclass(frozen=True)
class Violation:
    """Something that is wrong: when it was found, of which run, and what was done before."""

    at: float
    what: str
    run: str
    before: tuple[str, ...]


@dataclass
class Soak:
    """A soak of ``seed`` on a ground. ``pause_every_s``: how long it goes on between two pauses."""

    ground: Ground
    seed: int
    hours: float
    pause_every_s: float = 600.0
    begun_s: float = field(default_factory=time.monotonic)
    missed: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    pauses: int = 0
    verified: int = 0
    compared: int = 0
    purged: set[RunName] = field(default_factory=set)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.runs = Runs(self.ground.airflow, random.Random(f"runs {self.seed}"))
        self.world = World(self.ground, self.runs)
        self.sampler = Sampler(self.ground.airflow.processes, self.begun_s)
        self._tick = self._sampled = 0
        self._owed = first_round(self.seed)
        self._recent: deque[str] = deque(maxlen=6)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun_s

    @property
    def log(self) -> Path:
        """What was done and found, a JSON object a line: all that the report is made of."""
        return self.ground.folder / "soak.jsonl"

    def run(self) -> None:
        """To its end, or until `stopped` is set: that is looked at between two disturbances."""
        ends = 3600 * self.hours
        with self.sampler.at_work():
            while not self.stopped and self.seconds < ends:
                self._disturb_until(min(self.seconds + self.pause_every_s, ends))
                self._pause()
                self._write_counts()
            for growth in growths(self.sampler.samples):
                if growth.verdict == "GROWS":
                    self._violated(f"{growth.component}: {growth.what} grows by {growth.slope:.1f} an hour")

    # Disturbing

    def _disturb_until(self, until: float) -> None:
        with ExitStack() as beside:
            open_until: list[tuple[float, str, ExitStack]] = []
            while not self.stopped and self.seconds < until:
                tick_ends = self.seconds + TICK_S
                for _, name, stack in [one for one in open_until if one[0] <= self.seconds]:
                    with self._survived(name):
                        stack.close()
                    open_until = [one for one in open_until if one[2] is not stack]
                self._tick += 1
                # What nobody was found for in the first round is tried at every third tick.
                owed = self._owed if self._tick <= len(DISTURBANCES) or self._tick % 3 == 0 else []
                disturbance, lasts, drawn = drawn_for(self.seed, self._tick, owed)
                if disturbance.beside:
                    if not any(name == disturbance.name for _, name, _ in open_until):
                        stack = beside.enter_context(ExitStack())
                        with self._survived(disturbance.name):
                            self._note_done(disturbance, stack.enter_context(disturbance.play(self.world, drawn)))
                            open_until.append((self.seconds + lasts, disturbance.name, stack))
                else:
                    self._play(disturbance, lasts, drawn)
                self._wait(max(0.0, tick_ends - self.seconds))

    def _play(self, disturbance: Disturbance, lasts: float, drawn: random.Random) -> None:
        with self._survived(disturbance.name), disturbance.play(self.world, drawn) as said:
            self._note_done(disturbance, said)
            self._wait(lasts)

    @contextmanager
    def _survived(self, name: str) -> Iterator[None]:
        """What a disturbance meets is noted, and the soak goes on."""
        try:
            yield
        except NothingToDisturb:
            self.missed[name] += 1
            self._postpone(name)
        except CommandFailed as error:
            self._postpone(name)
            self._violated(str(error))
        except (*AWAY, RecoveryError) as error:
            self._postpone(name)
            self._note(f"{name} was in vain: {type(error).__name__}: {str(error)[:300]}")
            with self._survived_start():
                start_all(self.ground)

    @contextmanager
    def _survived_start(self) -> Iterator[None]:
        try:
            yield
        except AWAY as error:
            self._violated(f"a component did not come up: {str(error)[:3000]}")

    def _postpone(self, name: str) -> None:
        """What is owed, and found nobody, is owed after the others."""
        later = [one for one in self._owed if one.name == name]
        self._owed = [one for one in self._owed if one.name != name] + later

    def _note_done(self, disturbance: Disturbance, said: str) -> None:
        self._owed = [one for one in self._owed if one.name != disturbance.name]
        done = Done(self.seconds, disturbance.name, said)
        self._recent.append(f"{_clock(self.seconds)} {disturbance.name}: {said}")
        self._write("done", asdict(done))
        print(self._recent[-1], flush=True)

    def _wait(self, seconds: float) -> None:
        """While it waits it tends its runs."""
        until = self.seconds + seconds
        while True:
            self._tend()
            left = until - self.seconds
            if left <= 0:
                return
            time.sleep(min(3.0, left))

    def _tend(self) -> None:
        # One that is frozen would keep a request for minutes.
        if self.ground.airflow.health() is not None:
            with suppress(*AWAY):
                self.runs.tend()

    # Pausing

    def _pause(self) -> None:
        self.pauses += 1
        print(f"{_clock(self.seconds)} pause {self.pauses}", flush=True)
        with self._survived_start():
            start_all(self.ground)
        given_up = set(self.runs.given_up)
        self._checked("runs that end", lambda: self._settle(given_up))
        self._checked("requests", self._check_requests)
        self._checked("gc", self._check_garbage)
        self._checked("invariants and results", self._check_runs)
        self._checked("processes", self._check_processes)
        self._checked("connections", self._check_connections)
        self._checked("objects", self._check_objects)
        with self._survived_start():
            self.ground.airflow.back_up_database(self.world.backup)
        print(
            f"{_clock(self.seconds)} {len(self.runs.names)} runs, {self.compared} compared, "
            f"{len(self.violations)} violations",
            flush=True,
        )

    def _checked(self, what: str, check: Callable[[], None]) -> None:
        """A check that could not be made is a violation, too."""
        try:
            check()
        except Exception as error:  # whatever it is, the others are made
            self._violated(f"{what} could not be checked: {type(error).__name__}: {str(error)[:2000]}")

    def _settle(self, given_up: set[RunName]) -> None:
        self.runs.settle(PATIENCE_S, time.sleep)
        for name in sorted(self.runs.given_up.keys() - given_up):
            self._violated(f"the run {self.runs.given_up[name]}", name)

    def _check_requests(self) -> None:
        name = RunName("chain", self.runs.fresh_day())
        self.ground.faults.watch(f"journal/{name.dag_id}/{name.run_key}/{name.group_id}/")
        self.runs.start(name)
        self.runs.airflow.wait_run(name.dag_id, self.runs.states[name].run_id)
        counted = dict(self.ground.faults.watched)
        self.ground.faults.watch("")
        self._write("requests", counted)
        for text in beyond_budget(counted, budget(counted.get("heartbeat", 0))):
            self._violated(text, name)
        self.runs.look()

    def _check_garbage(self) -> None:
        done = self.ground.recovery("gc", "--grace", "0s", "--json", timeout_s=600.0)
        if done.returncode != ExitCode.DONE:
            self._violated(
                f"airflow recovery gc ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
            )

    def _check_runs(self) -> None:
        for name in self.runs.ended("success"):
            if name not in self.runs.given_up:
                self._checked(f"{name.dag_id} {name.day}", partial(self._check_run, name))
        # ... and of one DAG after the other as people do it.
        dag_id = DAGS[self.pauses % len(DAGS)]
        if not any(name.dag_id == dag_id for name in self.runs.given_up):
            done = self.ground.recovery("verify", dag_id, timeout_s=600.0)
            if done.returncode not in (ExitCode.DONE, ExitCode.NOT_FOUND):
                said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
                self._violated(f"airflow recovery verify {dag_id} ended with {done.returncode}: {said}")

    def _check_run(self, name: RunName) -> None:
        if is_purged(history_of(self.ground, name)):
            self.purged.add(name)  # what is left of it, objects of nobody tell
            return
        report = verify_run(
            self.ground.journal,
            self.ground.open_data,
            dag_id=name.dag_id,
            run_key=name.run_key,
            group_id=name.group_id,
            ended=True,
            deep=True,
            results=self.ground.results,
        )
        self.verified += 1
        if report.violated:
            self._violated(report.text(), name)
        for text in wrong_results(self.ground, name):
            self._violated(text, name)
        self.compared += 1

    def _check_processes(self) -> None:
        until = self.seconds + LEFT_ALONE_S
        while (texts := processes_of_no_run(left_processes(self.ground))) and self.seconds < until:
            time.sleep(2.0)
        for text in texts:
            self._violated(f"{text} is there, and no run is at work")
        for worker, count in unused_folders(self.ground).items():
            if count > MOST_UNUSED_FOLDERS:
                self._violated(f"{count} folders of processes that are gone lie on {worker}")

    def _check_connections(self) -> None:
        until = self.seconds + LEFT_ALONE_S
        while (texts := connections_of_nobody(*open_connections(self.ground))) and self.seconds < until:
            time.sleep(2.0)
        for text in texts:
            self._violated(text)

    def _check_objects(self) -> None:
        named, prefixes = registered(self.ground, sorted(self.runs.names))
        keys = [info.key for info in self.ground.results.list("")]
        texts = objects_of_nobody(keys, named, prefixes)
        if texts:
            self._violated(f"{len(texts)} objects that no record names, after gc:\n" + "\n".join(texts[:20]))
        strange = strange_records(info.key for info in self.ground.journal.list(""))
        if strange:
            self._violated(f"{len(strange)} objects in the journal that its format does not have: {strange[:20]}")
        for text in unfinished_uploads(self.ground):
            self._violated(text)

    # Remembering

    def _violated(self, what: str, run: RunName | None = None) -> None:
        where = "" if run is None else f"{run.dag_id} {run.day}"
        if any((known.what, known.run) == (what, where) for known in self.violations):
            return  # it was found at a pause before
        self.violations.append(Violation(self.seconds, what, where, tuple(self._recent)))
        self._write("violation", asdict(self.violations[-1]))
        print(f"VIOLATION {_clock(self.seconds)} {where}\n{what}\nbefore: {'; '.join(self._recent)}", flush=True)

    def _note(self, text: str) -> None:
        said = f"{_clock(self.seconds)} {text}"
        self._write("note", {"said": said})
        print(said, flush=True)

    def _write_counts(self) -> None:
        """All that is no event, as it stands now; and the samples since the last time."""
        counts = {
            "seed": self.seed,
            "ended": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": describe_machine(),
            "missed": self.missed,
            "struck": self.ground.faults.struck,
            "runs": Counter(name.dag_id for name in self.runs.names),
            "created_again": self.runs.created_again,
            "purged": len(self.purged),
            "pauses": self.pauses,
            "verified": self.verified,
            "compared": self.compared,
        }
        self._write("counts", counts)
        samples = self.sampler.samples[self._sampled :]
        self._sampled += len(samples)
        self._write("samples", {"samples": samples})

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        with self.log.open("a") as log:
            log.write(json.dumps({"kind": kind, "s": round(self.seconds, 1), **values}) + "\n")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
