"""The rooms of this package, what each is for, and which others it may import: one table.

`tests/test_layering.py` holds the code to it, a driver's archive takes its rooms from it
(`airflow_recovery.driver.code_archive`), and docs/architecture.md shows it. From the ground up: a room imports rooms
above it in this table only, so no two can import each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.model.mode import MODES as PACKAGES


@dataclass(frozen=True)
class Room:
    """One sub-package, or one module at the top of the package.

    ``task`` says in one line what it is for. ``may_import`` names every room that it may import. ``knows_airflow``: it
    may import Airflow and `airflow_compat`; every other room runs without them. ``is_pure``: no I/O, no clock, no
    random number.
    """

    task: str
    may_import: tuple[str, ...] = ()
    knows_airflow: bool = False
    is_pure: bool = False


MODES = tuple(package.rpartition(".")[2] for package in PACKAGES.values())
"""Rooms that the core finds by name, where a job has such a region (`airflow_recovery.model.mode`)."""

_VALUES = ("errors", "escaping", "locations", "globs", "checks", "model")
_RECORDED = (*_VALUES, "store", "journal")
_CORE = (*_RECORDED, "planning", "results", "sinks", "job", "driver", "attempt", "story")

ROOMS: dict[str, Room] = {
    "errors": Room("one tree of errors: what is expected, what is there, what to do next", is_pure=True),
    "escaping": Room("text of others, made safe for the place that shows it", is_pure=True),
    "locations": Room("how places in stores are written, and the table of stores", ("errors",), is_pure=True),
    "globs": Room("which paths a pattern of files matches, as Hadoop has it", is_pure=True),
    "checks": Room(
        "the types of all that a user hands to a public constructor", ("errors", "locations", "globs"), is_pure=True
    ),
    "model": Room("every value and record, and how it becomes bytes", ("errors", "locations", "checks"), is_pure=True),
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
    "splits": Room("a mode: a region that commits split by split", _CORE),
    "streaming": Room("a mode: regions that run at the same time, with channels between them", _CORE),
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
    "console": Room("the commands", (*_CORE, "advice", "verify", "doctor", "hooks", "api_server", "task", "operators")),
    "testing": Room(
        "for users' own tests: servers, a local Airflow, kills, simulations",
        ("__init__", *_CORE, *MODES, "verify", "hooks", "task", "operators"),
    ),
    "__init__": Room("what a job's module imports", ("version", *_CORE)),
    "__main__": Room("``python -m airflow_recovery``", ("console",)),
    "get_provider_info": Room("what Airflow reads of this provider in every process"),
    "version": Room("which version this is"),
    "rooms": Room("this table", ("model",)),
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
