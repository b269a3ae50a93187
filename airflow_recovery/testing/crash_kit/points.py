"""Names for the moments at which a process can be killed: before and after each change that it makes to the world.

A process that dies leaves what it has written and nothing else. So no hook stands in the product's code: points are
where a process writes to a store, speaks to Airflow or to its driver, or enters a step that `seams` names. They read::

    task of C try 1, after claim 1             the process of the first try of task C, when its first claim is written
    driver of C try 2, before result 2         the driver alone, which its task then finds dead
    task of C try 1, after result 1            the task with its driver, when the driver has written its first file

The number counts that step within the try. Which points there are depends on the job and on what went wrong before: a
run is recorded (`CrashLoop.points`), and its record lists them in the order in which they were passed.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import Enum

from airflow_recovery.errors import ConfigurationError


class Step(str, Enum):
    """What happens at a point. Of those that write, there is a point before and one after."""

    TRY = "try"
    """The try itself: before anything is done."""
    PROBE = "probe"
    PLAN = "plan"
    CLAIM = "claim"
    SUBMIT = "submit"
    """Before: the task has claimed. After: the driver begins."""
    RESULT = "result"
    """A file of a result, or with Spark a whole result."""
    BATCH = "batch"
    """Splits are committed, by a region that does so split by split."""
    FAILURE = "failure"
    """The driver leaves the account of its failure."""
    FINISH = "finish"
    APPLICATION = "application"
    """After: the driver has ended, and its task knows."""
    FENCE = "fence"
    COMMIT = "commit"
    """A sink's target applies what was prepared."""
    COMMITTED = "committed"
    """... and the journal says so."""
    FINAL_CHECK = "final check"
    DECISION = "decision"
    """A failover is decided: its losses are reported and its producers cleared."""
    LOST = "lost"
    CLEAR = "clear"
    """Airflow is asked to clear: the clear of a failover, or of a final check."""
    RESET = "reset"
    RELEASE = "release"
    DELETE = "delete"
    PUBLISH = "publish"
    FLUSH = "flush"
    """A segment of the event stream."""
    OTHER = "other"
    """Any other write of the journal."""
    REPORT = "report"
    """The try tells Airflow how it has ended."""


class When(str, Enum):
    """Whether a point lies before a step or after it."""

    BEFORE = "before"
    AFTER = "after"


class Victim(str, Enum):
    """Who dies: the driver alone, or the task, and its driver with it."""

    TASK = "task"
    DRIVER = "driver"


class Harm(str, Enum):
    """What happens to the process at the point."""

    KILL = "kill -9"
    FREEZE = "SIGSTOP, until everything is green"


_TEXT = re.compile(
    r"(?P<victim>task|driver) of (?P<task>.+) try (?P<number>\d+), "
    r"(?P<when>before|after) (?P<step>[a-z]+) (?P<count>\d+)"
)


@dataclass(frozen=True)
class CrashPoint:
    """One moment of one try. ``count``: the how manieth such step of this process."""

    task: str
    try_number: int
    victim: Victim
    when: When
    step: Step
    count: int

    @property
    def text(self) -> str:
        """The point as ``--crash`` takes it, such as ``task of cleaned try 1, after claim 1``; `parse` reads it."""
        return (
            f"{self.victim.value} of {self.task} try {self.try_number}, {self.when.value} {self.step.value} "
            f"{self.count}"
        )

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """Inverse of `text`. Raises `ConfigurationError` for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None or match["step"] not in set(Step):
            raise ConfigurationError(
                f"expected a crash point such as 'task of C try 1, after claim 1', found {text!r}: --list names all"
            )
        return cls(
            match["task"],
            int(match["number"]),
            Victim(match["victim"]),
            When(match["when"]),
            Step(match["step"]),
            int(match["count"]),
        )


@dataclass(frozen=True)
class Passed:
    """A point that was passed. Where two have the same ``state``, nothing was changed in between: both leave the same
    behind, and who is killed at the one need not be killed at the other.
    """

    point: CrashPoint
    state: str

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Passed:
        """A point from one line of JSON: the inverse of `to_json`."""
        document = json.loads(line)
        point = document["point"]
        kinds = {"victim": Victim(point["victim"]), "when": When(point["when"]), "step": Step(point["step"])}
        return cls(CrashPoint(**{**point, **kinds}), document["state"])
