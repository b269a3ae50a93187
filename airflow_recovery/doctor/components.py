"""The parts of a deployment, and what each of them has to be able to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, Flag, auto


class Right(Flag):
    """What a role may do with the objects of a store (``docs/s3.md``)."""

    NONE = 0
    LIST = auto()
    GET = auto()
    PUT = auto()
    DELETE = auto()
    ABORT = auto()
    """Abort unfinished multipart uploads."""
    UPLOADS = auto()
    """List unfinished multipart uploads."""
    XCOMS = auto()
    """Write and read the XComs that operators leave, below ``_xcoms/``."""


READING = Right.LIST | Right.GET
DRIVING = READING | Right.PUT | Right.DELETE | Right.ABORT
"""What a Spark driver does with results. Where it runs on a worker, it has the worker's credentials."""


class Component(str, Enum):
    """Where the check runs: what is configured here is what this component has."""

    WORKER = "worker"
    API_SERVER = "api-server"
    TRIGGERER = "triggerer"
    SCHEDULER = "scheduler"
    DAG_PROCESSOR = "dag-processor"
    GC = "gc"
    """Where ``airflow recovery gc`` runs."""

    @property
    def needs(self) -> Needs:
        """Which rights and programs it has to have."""
        return _NEEDS[self]


@dataclass(frozen=True)
class Needs:
    """What a component has to be able to do: its rights on journal and results, and whether it runs Spark.

    ``policies``: the policies in ``docs/s3.md`` that give it these rights, of the journal and of the results.
    ``buttons``: its rights on journal and results for what people press on the Recovery tab. A site may do without.
    ``advised``: rights on the results without which it works, and sees less.
    """

    journal: Right = Right.NONE
    results: Right = Right.NONE
    policies: tuple[str, str] = ("", "")
    spark: bool = False
    asks_api_server: bool = False
    buttons: tuple[Right, Right] = (Right.NONE, Right.NONE)
    advised: Right = Right.NONE


_READS = Needs(READING, Right.LIST, ("reader", "reader"))
_NEEDS = {
    Component.WORKER: Needs(
        READING | Right.PUT,
        Right.LIST | Right.DELETE,
        ("worker-journal and driver-journal", "worker-results and driver-results"),
        spark=True,
        asks_api_server=True,
        advised=Right.UPLOADS | Right.XCOMS,
    ),
    Component.API_SERVER: replace(_READS, buttons=(Right.PUT, Right.DELETE)),
    Component.TRIGGERER: _READS,
    Component.SCHEDULER: Needs(),
    Component.DAG_PROCESSOR: Needs(),
    Component.GC: Needs(
        READING | Right.PUT | Right.DELETE, Right.LIST | Right.DELETE | Right.ABORT | Right.UPLOADS, ("gc", "gc")
    ),
}
