"""Seeded schedules of what else is at work: other runs, another deployment, jobs of users, clocks that jump.

Each trouble has a control: with its protection switched off, one of 1,000 schedules shows what it is for. How many it
took is in docs/testing.md, and printed by `PYTHONPATH=tests/testing:. python -m simulated_controls`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from simulated_controls import SAFE, as_if_new, finds
from simulation import DagJob, DagSettings, DagTrouble, simulate

from airflow_recovery.attempt import commit
from airflow_recovery.attempt.builder import Builder
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.shared import SharedApplication
from airflow_recovery.journal import stream
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.retention import Retention
from airflow_recovery.results import sweep, sweep_purge
from airflow_recovery.results.readers import Readers
from airflow_recovery.testing.simulation import TOPOLOGIES, Settings, Trouble, folders, job_of, world
from airflow_recovery.testing.simulation.jobs import with_folders, with_shared, with_sinks, with_splits
from airflow_recovery.testing.simulation.world import World

PAIR, CHAIN, FORK, DIAMOND = (job_of(TOPOLOGIES[name]) for name in ("pair", "chain", "fork", "diamond"))
SHARED = with_shared(CHAIN, "PC")
FOLDERS = with_folders(DIAMOND, "PCDE")
SPLITS = with_splits(CHAIN, "PC")
SINKS = {
    f"{kind.value}, {mode.value}": with_sinks(PAIR, {"C": (kind, mode)}) for kind in CommitKind for mode in CommitMode
}

SCHEDULES = {
    "shared, of several runs": Settings(SHARED, {Trouble.NEIGHBOUR: 3}),
    "shared, kills": Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.KILL: 3}),
    "shared, zombies": Settings(SHARED, {Trouble.NEIGHBOUR: 2, Trouble.HEARTBEAT: 1, Trouble.PAUSE: 2}),
    "shared, people": Settings(SHARED, {Trouble.NEIGHBOUR: 2, Trouble.RESTART: 1, Trouble.CLEAR: 1, Trouble.DEPLOY: 1}),
    "shared, outsiders": Settings(SHARED, {Trouble.NEIGHBOUR: 2, Trouble.DELETE: 2, Trouble.SWEEP: 1}),
    "shared, sweeper": Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.SWEEP: 3}),
    "shared, purge": Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.PURGE: 1, Trouble.SWEEP: 1}),
    "shared, purge of what comes back": Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.RETURN: 2}),
    "folders, a backup": DagSettings(DagJob.of(FOLDERS), {DagTrouble.BACKUP: 2, Trouble.PAUSE: 1}),
    "folders, a backup, kills": DagSettings(
        DagJob.of(with_folders(PAIR, "PC")), {DagTrouble.BACKUP: 2, Trouble.KILL_TASK: 2}
    ),
    "twins": Settings(DIAMOND, {Trouble.TWIN: 2, Trouble.PAUSE: 1}),
    "twins, kills": Settings(DIAMOND, {Trouble.TWIN: 2, Trouble.KILL: 2, Trouble.RESTART: 1}),
    "twins, sweeper": Settings(DIAMOND, {Trouble.TWIN: 1, Trouble.SWEEP: 2, Trouble.RETURN: 1}),
    "twins, shared": Settings(SHARED, {Trouble.TWIN: 2, Trouble.NEIGHBOUR: 1, Trouble.KILL: 1}),
    "two deployments": Settings(PAIR, {Trouble.DEPLOYMENT: 2, Trouble.KILL: 1}),
    "clocks jump": Settings(DIAMOND, {Trouble.JUMP: 3, Trouble.KILL_TASK: 2}, clocks_differ_s=600.0),
    "clocks jump, purge": Settings(DIAMOND, {Trouble.JUMP: 3, Trouble.PURGE: 1, Trouble.HEARTBEAT: 1}),
    "clocks jump, sweeper": Settings(DIAMOND, {Trouble.JUMP: 3, Trouble.SWEEP: 3, Trouble.HEARTBEAT: 1}),
    "purge of what comes back": Settings(DIAMOND, {Trouble.RETURN: 2, Trouble.HEARTBEAT: 1}),
    "purge of what comes back, zombies": Settings(DIAMOND, {Trouble.RETURN: 1, Trouble.PAUSE: 2, Trouble.KILL: 1}),
    "regions come and go": Settings(job_of(TOPOLOGIES["fan-in"]), {Trouble.RESIZE: 3}),
    "regions come and go, zombies": Settings(DIAMOND, {Trouble.RESIZE: 2, Trouble.HEARTBEAT: 1, Trouble.PAUSE: 1}),
    "regions come and go, people": Settings(DIAMOND, {Trouble.RESIZE: 2, Trouble.RESTART: 1, Trouble.DEPLOY: 1}),
    "code goes forth and back": Settings(DIAMOND, {Trouble.DEPLOY: 4, Trouble.HEARTBEAT: 1}),
    "released at once": Settings(DIAMOND, {Trouble.RESTART: 2, Trouble.HEARTBEAT: 1}, releases=Retention.as_consumed()),
    "released when published": Settings(DIAMOND, {Trouble.RESTART: 2}, releases=Retention.on_run_success()),
    "folders, kills": Settings(FOLDERS, {Trouble.KILL: 2, Trouble.KILL_TASK: 1}, detached_share=0.7),
    "folders, zombies": Settings(FOLDERS, {Trouble.HEARTBEAT: 2, Trouble.PAUSE: 2}, detached_share=0.7),
    "folders, sweeper": Settings(FOLDERS, {Trouble.SWEEP: 3, Trouble.RESTART: 1, Trouble.CLEAR: 1}),
    "folders, people": Settings(FOLDERS, {Trouble.DEPLOY: 1, Trouble.RESTART: 2, Trouble.KILL_TASK: 1}),
    "upgrades": Settings(DIAMOND, {Trouble.VERSION: 4}),
    "upgrades, people": Settings(DIAMOND, {Trouble.VERSION: 4, Trouble.RESTART: 2, Trouble.CLEAR: 1}),
    "upgrades, kills": Settings(DIAMOND, {Trouble.VERSION: 4, Trouble.KILL: 2, Trouble.KILL_TASK: 1}),
    "upgrades, zombies": Settings(DIAMOND, {Trouble.VERSION: 4, Trouble.HEARTBEAT: 2, Trouble.RESTART: 1}),
    "upgrades, sweeper": Settings(DIAMOND, {Trouble.VERSION: 3, Trouble.SWEEP: 3, Trouble.RESTART: 1}),
    "upgrades, purge": Settings(DIAMOND, {Trouble.VERSION: 3, Trouble.RETURN: 1, Trouble.RESTART: 1}),
    "upgrades, shared": Settings(SHARED, {Trouble.VERSION: 3, Trouble.NEIGHBOUR: 2, Trouble.RESTART: 1}),
    "upgrades, splits": Settings(SPLITS, {Trouble.VERSION: 3, Trouble.KILL: 1, Trouble.RESTART: 1}),
    "event files": Settings(DIAMOND, {Trouble.RESTART: 2, Trouble.CLEAR: 1}, has_event_files=True),
    "event files, kills": Settings(DIAMOND, {Trouble.KILL: 2, Trouble.SIGTERM: 2}, has_event_files=True),
    "event files, zombies": Settings(DIAMOND, {Trouble.HEARTBEAT: 2, Trouble.PAUSE: 2}, has_event_files=True),
    "event files, upgrades": Settings(DIAMOND, {Trouble.VERSION: 3, Trouble.RESTART: 1}, has_event_files=True),
    **{f"refused, {name}": Settings(job, {Trouble.REFUSE: 1, Trouble.HEARTBEAT: 1}) for name, job in SINKS.items()},
    **{f"refused, kills, {name}": Settings(job, {Trouble.REFUSE: 2, Trouble.KILL: 1}) for name, job in SINKS.items()},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_promises_hold_whatever_else_is_at_work(name):
    for seed in range(12):
        publishes, page_keys = seed % 2 == 0, (None, None, 3)[seed % 3]
        simulate(seed, replace(SCHEDULES[name], publishes=publishes, page_keys=page_keys, store_faults=seed % 4))


# So long that a maker which is seldom chosen to go on is not taken for dead.
ONCE = Settings(
    SHARED, {Trouble.NEIGHBOUR: 3}, max_attempts={"P": 1, "C": 1}, heartbeat_timeout_s=1e5, detached_share=0.0
)
PATIENT = Settings(
    DIAMOND, {Trouble.JUMP: 12, Trouble.KILL_TASK: 6}, publishes=False, detached_share=1.0, is_patient=True
)
RELEASING = {Trouble.RESTART: 4, Trouble.HEARTBEAT: 2}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ONCE, PATIENT], ids=["shared results", "clocks that jump"])
def test_nothing_is_made_twice_for_it(settings):
    for seed in range(30):
        simulate(seed, settings)


def test_fault_104_a_claim_that_comes_after_its_plan_was_purged_stays():
    """P has listed the journal before the run is closed, and claims two days later: nothing else names P then."""
    simulate(7742, Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.RETURN: 2}))


# Controls: with a protection off, a schedule shows what it is for.


@dataclass(frozen=True)
class Control:
    """With the protection ``off`` (owner, name, value), a schedule of ``settings`` shows ``what``."""

    settings: Settings
    what: str
    off: tuple[tuple[object, str, object], ...]
    start: int = 0
    """A seed shortly before one that does, where such schedules are rare."""


def reads_unseen(self, ref, owner, own):
    """Adopts without a claim in the shared journal."""


def named_by_number(self, claim):
    """As it was: the folder of an attempt has its number alone."""
    return data_of(self, replace(claim, folder=None))


def reads_no_less(self, group, index, inputs, absent=()):
    """As it was: what has come since is not missed."""
    return all(ref.region in self.by_name for ref in inputs)


def gives_up(self, number, segment):
    """Writes the next one instead, under the next number."""
    if not write(self, number, segment):
        self._segment = None
        self._segments, self._lines_written = self._segments + 1, self._lines_written + segment.lines
    return True


data_of, write = JournalLayout.data_of, stream.EventWriter._write

ALONE: dict[str, Any] = {"publishes": False, "detached_share": 0.0}
CONTROLS = {
    "where whoever wants a shared result ends its maker it is made more than once": Control(
        ONCE, "waste: ", ((Builder, "takes_over", lambda self, run, region, opened: False),)
    ),
    "where a shared result is read without a claim it goes under a run that holds it": Control(
        Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.RETURN: 2}),
        "I8: gc deletes data of the shared",
        ((SharedApplication, "_read_shared", reads_unseen),),
    ),
    "without the fence a twin claims beside an open attempt": Control(
        Settings(PAIR, {Trouble.TWIN: 1}, **ALONE), "I2", ((RegionState, "open_attempt", property(lambda self: None)),)
    ),
    "where results do not know their journal another deployment overwrites them": Control(
        Settings(PAIR, {Trouble.DEPLOYMENT: 1}, **ALONE),
        "was overwritten by",
        ((world, "own_results", lambda journal, results: None), (JournalLayout, "data_of", named_by_number)),
    ),
    "where waiting goes by the clock of the wall a jump starts a second application": Control(
        replace(PATIENT, job=job_of(TOPOLOGIES["fan-out"])),
        "waste: an application beside a driver that lives",
        ((World, "monotonic_s", lambda self, wrong_by_s: self.clock.wall_s + wrong_by_s),),
        start=380,
    ),
    "where a sweeper goes by its own clock a jump purges a run at work": Control(
        Settings(
            DIAMOND, {Trouble.JUMP: 2, Trouble.SWEEP: 3}, max_attempts=dict.fromkeys("PCDE", 1), detached_share=0.0
        ),
        "waste: ",
        ((sweep, "store_now_s", lambda store: store.clock.wall_s),),
    ),
    "where a purge leaves no tombstone a run that comes back is green on nothing": Control(
        Settings(CHAIN, {Trouble.RETURN: 1, Trouble.HEARTBEAT: 1}, publishes=False),
        "",
        ((Run, "list", lambda self: as_if_new(self.journal, self.regions)),),
    ),
    "where the inputs of a plan are not compared what has come since is not read": Control(
        Settings(job_of(TOPOLOGIES["fan-in"]), {Trouble.RESIZE: 2}),
        "undisturbed run",
        ((PlanRecord, "reads_at", reads_no_less),),
    ),
    "where a task releases what it has read without a look a reader loses it": Control(
        Settings(FORK, RELEASING, releases=Retention.as_consumed(), **ALONE),
        "I8",
        ((Readers, "of", lambda self, region, *numbers: []),),
        start=640,
    ),
    "where a reader of folders does not look for a release it counts a part": Control(
        Settings(with_folders(FORK, "PCD"), RELEASING, releases=Retention.as_consumed(), **ALONE),
        "has read a part of",
        ((RegionState, "may_be_gone", lambda self, number: False),),
        start=720,
    ),
    "where a finish of folders does not wait for that look it counts a part": Control(
        Settings(with_folders(FORK, "PCD"), RELEASING, releases=Retention.as_consumed(), **ALONE),
        "has read a part of",
        ((folders, "ensure_inputs_kept", lambda run, attempt: None),),
        start=720,
    ),
    "where an adopter of a shared result does not look for a release it is given nothing": Control(
        Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.RETURN: 2}),
        "which was let go of before it was claimed to be read",
        ((SharedApplication, "_ensure_kept", lambda self, ref, owner: None),),
    ),
    "without a purges second look a shared result goes under a run that has adopted it meanwhile": Control(
        Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.RETURN: 2}),
        "I8: gc deletes data of",
        ((sweep_purge, "read_by", lambda claims: set()),),
        start=1900,
    ),
    "where a purge knows regions by their plans alone a claim that came late goes": Control(
        Settings(SHARED, {Trouble.NEIGHBOUR: 3, Trouble.RETURN: 2}),
        "I1: ",
        ((sweep_purge.Purge, "_has_unnamed_attempts", lambda self: False),),
        start=7742,
    ),
    "where an unknown kind of record is passed over what was reset counts after a rollback": Control(
        Settings(PAIR, {Trouble.VERSION: 2, Trouble.RESTART: 1}, **ALONE),
        "false green",
        ((Journal, "_check_known", lambda self, key, names=None: None),),
    ),
    "where events without an answer are given up the stream has a hole": Control(
        Settings(PAIR, store_faults=10, has_event_files=True, **ALONE),
        "I11: the stream of",
        ((stream.EventWriter, "_write", gives_up),),
    ),
    "where attempts share a folder a job that knows no fence overwrites the next ones": Control(
        Settings(with_folders(PAIR, "PC"), {Trouble.HEARTBEAT: 1, Trouble.KILL_TASK: 1}, **ALONE),
        "was overwritten by",
        ((JournalLayout, "data_of", lambda self, claim: data_of(self, replace(claim, attempt=1, folder=None))),),
    ),
    "where folders have numbers alone a job of before a backup writes into a later attempts folder": Control(
        DagSettings(DagJob.of(with_folders(PAIR, "PC")), {DagTrouble.BACKUP: 2, Trouble.KILL_TASK: 1}, publishes=False),
        "was overwritten by",
        ((JournalLayout, "data_of", named_by_number),),
    ),
    "where a refused commit is given up at once a zombie commits it later": Control(
        Settings(SINKS["probe-only, append"], {Trouble.REFUSE: 1, Trouble.HEARTBEAT: 2}, **ALONE),
        "I10",
        ((commit._Commit, "_is_harmless", lambda self, *, is_gone: True),),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_control(monkeypatch, name):
    control = CONTROLS[name]
    for seed in range(SAFE):
        simulate(seed, control.settings)
    for owner, attribute, value in control.off:
        monkeypatch.setattr(owner, attribute, value)
    finds(control.settings, control.what, start=control.start)
