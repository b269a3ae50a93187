"""The rooms of this package, what each is for, and which others it may import: one table.

`tests/test_layering.py` holds the code to it, a driver's archive takes its rooms from it
(`airflow_recovery.driver.code_archive`), and docs/architecture.md shows it. From the ground up: a room imports rooms
above it in this table only, so no two can import each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.annexes import ANNEXES


@dataclass(frozen=True)
class Room:
    """One sub-package, or one module at the top of the package.

    ``task`` says in one line what it is for. ``may_import`` names every room that it may import. ``knows_airflow``: it
    may import Airflow and `airflow_compat`; every other room runs without them. ``in_airflow``: modules of another room
    that run inside Airflow all the same: these may import Airflow, and the rooms of `IN_AIRFLOW`. ``is_pure``: no I/O,
    no clock, no random number.
    """

    task: str
    may_import: tuple[str, ...] = ()
    knows_airflow: bool = False
    is_pure: bool = False
    in_airflow: tuple[str, ...] = ()


ANNEX_ROOMS = tuple(annex.package.rpartition(".")[2] for annex in ANNEXES.values())
"""The rooms of the annexes: no room of the core names them (`airflow_recovery.annexes`)."""

ELSEWHERE = {"triggers.channel": "streaming"}
"""Modules of an annex in another room. Airflow's database keeps the path of a trigger, so the path never changes."""

IN_AIRFLOW = ("hooks", "triggers", "task", "operators", "airflow_compat")

_VALUES = ("errors", "escaping", "locations", "globs", "checks", "annexes", "model")
_RECORDED = (*_VALUES, "store", "journal")
_CORE = (*_RECORDED, "planning", "results", "sinks", "job", "driver", "attempt", "story")

ROOMS: dict[str, Room] = {
    "errors": Room("one tree of errors: what is expected, what is there, what to do next", is_pure=True),
    "escaping": Room("text of others, made safe for the place that shows it", is_pure=True),
    "locations": Room("how places in stores are written, and the table of stores", ("errors",), is_pure=True),
    "globs": Room("which paths a pattern of files matches, as Hadoop has it", is_pure=True),
    "annexes": Room("the packages that add a way to run a region, in one table", is_pure=True),
    "checks": Room(
        "the types of all that a user hands to a public constructor", ("errors", "locations", "globs"), is_pure=True
    ),
    "model": Room(
        "every value and record, and how it becomes bytes", ("errors", "locations", "checks", "annexes"), is_pure=True
    ),
    "store": Room("object stores and write-once objects: S3, Google, Azure and a folder", ("errors", "locations")),
    "verify": Room("the independent checker: reads a journal with code of its own", ("errors", "escaping", "store")),
    "journal": Room("one run's journal: list, fold, append; the event stream beside it", (*_VALUES, "store")),
    "planning": Room("the decisions: regions, what is valid, who runs again", (*_VALUES, "journal"), is_pure=True),
    "advice": Room(
        "where a cut pays: past runs, what cuts cost and save, the best of them",
        (*_VALUES, "journal", "planning"),
        is_pure=True,
    ),
    "sinks": Room("where a sink commits: PostgreSQL, Delta, Iceberg, functions of yours", (*_VALUES, "store")),
    "results": Room("is a result there, may it go, let it go", (*_RECORDED, "planning")),
    "job": Room("what a user declares: vertices, parameters, fingerprints", (*_VALUES, "planning", "sinks")),
    "driver": Room(
        "inside Spark: read, call the vertices, write, finish",
        ("version", "rooms", *_RECORDED, "results", "sinks", "job"),
    ),
    "attempt": Room(
        "one try of a region: check, claim, run, finish",
        (*_RECORDED, "planning", "results", "sinks", "job", "driver"),
    ),
    "story": Room("one story of a run, for people", (*_RECORDED, "planning", "results", "job", "attempt", "advice")),
    "splits": Room("an annex: a region that commits split by split", _CORE, in_airflow=("task",)),
    "streaming": Room(
        "an annex: regions that run at the same time, with channels between them",
        _CORE,
        in_airflow=("task", "audit_operator"),
    ),
    "doctor": Room("what `airflow recovery doctor` looks at without Airflow", (*_RECORDED, "job", "driver")),
    "airflow_compat": Room("what is used of Airflow beyond its public interface", knows_airflow=True),
    "scheduler_start": Room("inside Airflow's scheduler, before it begins", knows_airflow=True),
    "hooks": Room("connections and settings; clients of the API server", _CORE, knows_airflow=True),
    "triggers": Room("what deferred tasks wait for", (*_CORE, "hooks"), knows_airflow=True),
    "api_server": Room(
        "inside Airflow's API server: compare-and-clear, REST, the tab",
        (*_CORE, "advice", "hooks", "scheduler_start"),
        True,
    ),
    "task": Room(
        "the worker's side of a task: from Airflow's context to one run of a region",
        (*_CORE, "doctor", "hooks", "triggers", "api_server"),
        knows_airflow=True,
    ),
    "operators": Room(
        "the operators and the task group: a file a class",
        (*_CORE, "doctor", "hooks", "triggers", "task"),
        knows_airflow=True,
    ),
    "sensors": Room("wait for a published result", (*_VALUES, "job", "hooks", "triggers"), knows_airflow=True),
    "notifications": Room("what recovery saved, as a message", (*_CORE, "hooks", "task"), knows_airflow=True),
    "console": Room(
        "the commands",
        (*_CORE, "advice", "verify", "doctor", "hooks", "api_server", "task", "operators"),
        in_airflow=("definition", "in_airflow"),
    ),
    "testing": Room(
        "for users' own tests: servers, a local Airflow, kills, simulations",
        ("__init__", *_CORE, *ANNEX_ROOMS, "verify", "hooks", "task", "operators"),
        in_airflow=("crash_kit.task_process",),
    ),
    "__init__": Room("what a job's module imports", ("version", *_CORE)),
    "__main__": Room("``python -m airflow_recovery``", ("console",)),
    "get_provider_info": Room("what Airflow reads of this provider in every process"),
    "version": Room("which version this is"),
    "rooms": Room("this table", ("annexes",)),
}


def reachable(*rooms: str) -> set[str]:
    """The rooms that code in these rooms may come to, themselves included."""
    names: set[str] = set()
    wanted = list(rooms)
    while wanted:
        name = wanted.pop()
        if name not in names:
            names.add(name)
            wanted += ROOMS[name].may_import
    return names
