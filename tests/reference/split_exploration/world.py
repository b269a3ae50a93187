"""One state of everything: what is in the store, in Airflow, and in the memory of processes. Values only."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from airflow_recovery.journal.plans import reading_of
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState, in_order
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    CommittedBatch,
    ExternalObject,
    FenceCause,
    Outcome,
    PlanRecord,
    SplitGeneration,
)
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan
from airflow_recovery.model.split import Split
from airflow_recovery.splits.log import LogRecord, SplitBook, fold
from airflow_recovery.splits.mode import AdoptedBatches, CommittedBatchRef, SplitClaim, SplitOutcome, SplitPlan

VERTEX = "S"

Listed = tuple[Split, ...]


class Tried(NamedTuple):
    """One attempt, as the journal has it."""

    code: str
    subtasks: int
    listed: Listed
    base: tuple[AdoptedBatches, ...]
    batches: tuple[tuple[str, ...], ...] = ()
    outcome: tuple[CommittedBatchRef, ...] | None = None
    """Of a finish."""
    is_fenced: bool = False

    @property
    def is_open(self) -> bool:
        """It has no outcome."""
        return self.outcome is None and not self.is_fenced


class Region(NamedTuple):
    """The attempts of one subtask, from number 1 on, and up to which they were reset."""

    attempts: tuple[Tried, ...] = ()
    reset_watermark: int = 0


class Phase:
    """What a process does next."""

    LIST = "list the splits"
    ENTER = "enter the listing"
    LOOK = "list the journal"
    EVALUATE = "evaluate"
    CLAIM = "claim"
    RETURN = "give back the rest"
    PULL = "pull"
    COMMIT = "commit a batch"
    FINISH = "finish"


class Process(NamedTuple):
    """One try of a task. ``is_live``: Airflow knows it; else it was taken for dead."""

    subtask: int
    code: str
    subtasks: int
    phase: str = Phase.LIST
    is_live: bool = True
    is_late: bool = False
    """It was frozen behind the question whether it is the live one, and in front of what it asked that for."""
    told: Listed = ()
    """What it has listed; once that is entered, what there is to read."""
    seen: int = 0
    """How many listings had been entered when it began to list."""
    region: Region | None = None
    """Its journal, as it was listed."""
    attempt: int = 0
    base: tuple[AdoptedBatches, ...] = ()
    seq: int = 0
    taken: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()


class Task:
    """What Airflow says of a subtask."""

    CLEARED = "cleared"
    RUNNING = "running"
    GREEN = "green"
    NAMED = "failed, and says what to do"


class Log:
    """The book of a log. Equal books are equal, whatever records they are of."""

    def __init__(self, book: SplitBook | None = None) -> None:
        self.book = book or SplitBook()

    def added(self, record: LogRecord) -> Log:
        """With one record more. Raises `RecordInvalid`."""
        return Log(fold([record], SplitBook.from_json(self.book.to_json())))

    @cached_property
    def key(self) -> str:
        """Equal for equal books."""
        return repr(self.book.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class World(NamedTuple):
    """Everything. What is equal is the same state, however it came about."""

    code: str
    subtasks: int
    listing: Listed
    regions: tuple[Region, ...]
    tasks: tuple[str, ...]
    log: Log
    generations: tuple[SplitGeneration, ...] = ()
    processes: tuple[Process, ...] = ()
    changes: int = 0
    faults: int = 0
    is_published: bool = False


# the records of the journal, as the code that jobs run reads them


def fingerprint(code: str, subtasks: int) -> str:
    """The number of subtasks belongs to it, as it does in a job."""
    return f"{code}, {subtasks} subtasks"


@lru_cache
def reading(code: str, subtasks: int) -> str:
    """What batches are made of."""
    return reading_of(fingerprint(code, subtasks), ())


def name_of(subtask: int) -> str:
    """Of its region."""
    return f"{VERTEX}[{subtask}]"


@lru_cache
def externals_of(listed: Listed) -> tuple[ExternalObject, ...]:
    """A listing as a trace has it."""
    return tuple(info.external(VERTEX) for info in listed)


@lru_cache
def plan_of(code: str, subtasks: int, is_dynamic: bool) -> PlanRecord:
    """The regions of one version of the code."""
    return PlanRecord(
        "explored",
        tuple(
            RegionPlan(
                name=name_of(number),
                vertices=(VERTEX,),
                results=(VERTEX,),
                inputs=(),
                final=True,
                fingerprint=fingerprint(code, subtasks),
                subtask=SubtaskPlan(VERTEX, number, str(number)),
                mode=SplitPlan(split_source=VERTEX, pulls_splits=is_dynamic),
            )
            for number in range(subtasks)
        ),
    )


@lru_cache(maxsize=100_000)
def claim_of(subtask: int, number: int, tried: Tried) -> Claim:
    """Its claim."""
    return Claim(
        region=name_of(subtask),
        attempt=number,
        writer="w",
        plan_hash="",
        inputs=(),
        airflow_run_id="",
        try_number=1,
        ti_id="",
        tag="",
        claimed_at="",
        mode=SplitClaim(base=tried.base, reading=reading(tried.code, tried.subtasks)),
    )


@lru_cache(maxsize=100_000)
def attempt_of(subtask: int, number: int, tried: Tried) -> Attempt:
    """As the journal's listing and records have it."""
    outcome = None
    if not tried.is_open:
        outcome = Outcome(
            region=name_of(subtask),
            attempt=number,
            state=AttemptState.FENCED if tried.is_fenced else AttemptState.FINISHED,
            writer="w",
            ended_at="",
            fingerprint=fingerprint(tried.code, tried.subtasks),
            externals=externals_of(tried.listed),
            cause=FenceCause.SUPERSEDED if tried.is_fenced else None,
            mode=SplitOutcome(batches=tried.outcome or ()),
        )
    return Attempt(
        number, is_claimed=True, has_outcome=outcome is not None, batches=len(tried.batches), outcome=outcome
    )


@lru_cache(maxsize=100_000)
def state_of(subtask: int, region: Region) -> RegionState:
    """A region's state."""
    found = {at: attempt_of(subtask, at, each) for at, each in enumerate(region.attempts, 1)}
    if region.reset_watermark:
        marked = found.get(region.reset_watermark) or Attempt(region.reset_watermark)
        found[region.reset_watermark] = replace(marked, is_reset=True)
    return RegionState(in_order(found))


def run_state(world: World) -> RunState:
    """What one listing of the whole journal says."""
    return RunState({name_of(at): state_of(at, each) for at, each in enumerate(world.regions)})


def batch_of(subtask: int, region: Region, attempt: int, number: int) -> CommittedBatch:
    """One batch."""
    splits = region.attempts[attempt - 1].batches[number]
    return CommittedBatch(name_of(subtask), attempt, number, "w", splits, (), "")
