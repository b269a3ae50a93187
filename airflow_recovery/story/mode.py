"""What people are told of a run beyond what batch has to tell: each mode adds its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_recovery.errors import NothingRecorded
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.mode import all_answers, answers_of
from airflow_recovery.model.records import Claim, Outcome, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.story.asked import AskedRun
from airflow_recovery.story.run_view import RunView


@dataclass(frozen=True)
class AttemptProgress:
    """How far an attempt came, counted in units of its mode.

    ``done``: committed, by it or by earlier attempts; ``kept`` of them by these; ``lost`` of them can't be read, and
    were given up. ``total`` is what it had to read: `None` where it has not finished.
    """

    unit: ClassVar[str] = "parts"

    done: int
    kept: int
    lost: int
    total: int | None

    def text(self) -> str:
        """One line for people, in `unit`s."""
        lost = f", {self.lost} of them given up" if self.lost else ""
        if self.total is not None:
            return f"{self.done} of {self.total} {self.unit} done, {self.kept} of them by earlier attempts{lost}"
        return f"{self.done - self.kept} {self.unit} done{f', {self.kept} taken over' if self.kept else ''}{lost}"


@dataclass(frozen=True)
class ChannelView:
    """One channel in one generation. Records of different channels can't be summed.

    ``is_newest``: no later generation was begun. ``counts``: what was committed in it is a part of the result; `None`
    where the run's records don't say. ``committed`` and ``lost`` are of ``records``, all up to the checkpoint;
    ``behind``: published, and not checkpointed yet. ``unknown``: attempts of the producer that could not make again
    what was before them: how much that is nobody knows, so that ``lost`` is a least number then. ``is_whole``: the
    whole log was read. ``problem``: why it could not be; then the numbers are as far as it could.
    """

    edge: str
    generation: int
    is_newest: bool = True
    counts: bool | None = None
    records: int = 0
    committed: int = 0
    lost: int = 0
    behind: int = 0
    causes: tuple[tuple[str, int], ...] = ()
    unknown: tuple[int, ...] = ()
    verdict: str = ""
    is_whole: bool = True
    problem: str | None = None


@dataclass(frozen=True)
class ChannelsAnswer:
    """The channels of a run; most runs have none."""

    channels: list[ChannelView]


class ModeReport:
    """What ``show`` adds for a mode, in text and as JSON."""

    def text(self) -> str | None:
        """Some lines for people; `None` where the mode has nothing to say of the run."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, by keys of the run's own document."""
        return {}


class StoryMode:
    """The questions, with batch's answers. A mode's own are in ``describe`` of its package."""

    def progress(self, journal: Journal, region: str, attempt: Attempt, claim: Claim | None) -> AttemptProgress | None:
        """How far ``attempt`` came; `None` of one that this mode did not run. ``claim``: its own, where it is known."""
        return None

    def summary(self, outcome: Outcome) -> dict[str, Any]:
        """What the return value of the task says of ``outcome`` besides: plain JSON values by key."""
        return {}

    def counted(self, outcome: Outcome) -> Mapping[str, int]:
        """By how much a new ``outcome`` raises the counters of `airflow_recovery.task.metrics`."""
        return {}

    def is_whole(self, outcome: Outcome) -> bool:
        """Whether the seconds of a finish are those of all the work in its results; else they are more."""
        return True

    def goes_on_from(self, state: RegionState) -> str:
        """What the next attempt would not do again, were its code the same, in words; empty: nothing.

        Of a region that has not finished.
        """
        return ""

    def ledgers(self, results: ObjectStore, journal: Journal) -> tuple[ChannelView, ...]:
        """What each channel of the run has committed and lost. Raises the store's errors."""
        return ()

    def logs(self, results: ObjectStore, run: RunIdentity) -> list[ObjectInfo]:
        """The objects beside the results that tell of the run as its journal does. Raises the store's errors."""
        return []

    def report(self, view: RunView, results: ObjectStore | None, no_results: str) -> ModeReport:
        """Of a whole run; what can't be read is said there. ``no_results``: why ``results`` is not at hand."""
        return ModeReport()


def story_of(outcome: Outcome) -> StoryMode:
    """The mode that has run the attempt."""
    return answers_of(outcome.mode.name, "describe", StoryMode)


def story_of_region(region: RegionPlan) -> StoryMode:
    """The mode that the region is to run in."""
    return answers_of(region.mode.name, "describe", StoryMode)


def story_modes() -> list[StoryMode]:
    """Every mode that may have something to tell of a run."""
    return all_answers("describe", StoryMode)


def progress_of(journal: Journal, region: str, attempt: Attempt, claim: Claim | None) -> AttemptProgress | None:
    """As `StoryMode.progress`, of whichever mode has run the attempt."""
    answers = (mode.progress(journal, region, attempt, claim) for mode in story_modes())
    return next((progress for progress in answers if progress is not None), None)


def channels_of_run(run: AskedRun) -> ChannelsAnswer:
    """Report, for each channel and generation of a run, what is committed, lost and not known.

    Raises `NothingRecorded` for a bundle without the logs of channels.
    """
    if run.results is None:
        raise NothingRecorded(f"Expected a bundle with the logs of channels, found none: {run.no_results}.")
    return ChannelsAnswer([ledger for mode in story_modes() for ledger in mode.ledgers(run.results, run.journal)])
