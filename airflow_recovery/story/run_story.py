"""What a run's journal tells of each region: its attempts, its results, and why it ran, was kept or failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from airflow_recovery.errors import Failure
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.locations import is_stated, name_of
from airflow_recovery.model.inputs import Inputs
from airflow_recovery.model.records import AttemptState, Claim, Outcome
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.story.mode import AttemptProgress, progress_of
from airflow_recovery.story.run_events import RunEvents
from airflow_recovery.story.run_view import RunView

MAX_REGIONS = 1_000
"""Of a run with more regions, those are told of one by one of which there is something to tell, and so many of them."""


@dataclass(frozen=True)
class ResultStory:
    """One result of the attempt that counts. ``rows`` is `None` where the application did not count them."""

    name: str
    rows: int | None
    files: int
    bytes: int
    location: str


@dataclass(frozen=True)
class FailureStory:
    """Why an attempt has failed: ``labels`` are ours and those of a user's failure enrichers, as (key, value)."""

    type: str
    message: str
    condition: str | None
    vertex: str | None
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AttemptStory:
    """One attempt. ``reads`` are the attempts that it read, as ``region@n``.

    Times are ISO 8601. ``claimed_at`` and ``try_number`` of an attempt that has ended are known from the run's events:
    `None` where these are lost. ``rows`` and ``bytes`` are what it has written; ``rows`` is `None` where not counted.
    ``splits`` is `None` of an attempt that does not commit split by split.
    """

    number: int
    state: str
    why: str
    reads: tuple[str, ...]
    spark_seconds: float | None
    claimed_at: str | None
    ended_at: str | None
    try_number: int | None
    rows: int | None
    bytes: int | None
    application_id: str | None
    worker: str | None
    failure: FailureStory | None
    splits: AttemptProgress | None


@dataclass(frozen=True)
class RegionStory:
    """One region. ``attempt`` is the one that counts (0: none); ``kept`` says why a later try of it did not run."""

    name: str
    subtask: tuple[str, int] | None
    vertices: tuple[str, ...]
    state: str
    attempt: int
    why: str
    spark_seconds: float
    results: tuple[ResultStory, ...]
    attempts: tuple[AttemptStory, ...]
    kept: str | None


@dataclass
class AlikeRegions:
    """Regions that are told of as one: the subtasks of one region that are in one state, or a single region.

    ``attempt`` is the highest that counts in one of them. ``rows``: of those that were counted, `None` without any.
    ``why``: of the first of them.
    """

    name: str
    state: str
    vertices: tuple[str, ...]
    why: str
    regions: int = 0
    indexes: list[int] = field(default_factory=list)
    attempt: int = 0
    results: int = 0
    rows: int | None = None
    files: int = 0
    bytes: int = 0
    spark_seconds: float = 0.0

    def add(self, index: int | None, state: RegionState) -> None:
        """One more of them; ``index``: which subtask it is."""
        self.regions += 1
        if index is not None:
            self.indexes.append(index)
        current = state.current
        self.attempt = max(self.attempt, current.number if current is not None else 0)
        for output in current.outcome.outputs if current is not None and current.outcome is not None else ():
            self.results += 1
            self.rows = self.rows if output.rows is None else (self.rows or 0) + output.rows
            self.files += len(output.objects)
            self.bytes += output.size
        self.spark_seconds += sum(
            attempt.outcome.spark_seconds or 0.0 for attempt in state.attempts.values() if attempt.outcome is not None
        )


class RunStory:
    """What a run's journal tells. The data itself is not looked at: that is `plan`'s.

    ``events``: those of the run. Nothing is told of a region before it is asked for: a run may have very many.
    """

    def __init__(self, view: RunView, events: RunEvents) -> None:
        self._view = view
        self.evaluation = Evaluation(
            view.in_use.plan, view.in_use.state, available=lambda region, attempt, result: None
        )
        self._kept, self._claims = events.newest_kept(), events.claims()

    def all(self) -> list[RegionStory]:
        """Every region of the run's plan, in topological order."""
        return [self.of(region) for region in self._view.in_use.plan.regions]

    def of(self, region: RegionPlan) -> RegionStory:
        """One region of the run's plan."""
        return _region(self._view, self.evaluation, region, self.why_kept(region.name), self._claims)

    def why_kept(self, region: str) -> str | None:
        """Why a later try of the region of that name did not have to run; `None` where there was none."""
        kept, current = self._kept.get(region), self._view.in_use.state.of(region).current
        return kept.why if kept is not None and current is not None and kept.attempt == current.number else None

    def alike(
        self, regions: Iterable[str] | None = None, state_of: Callable[[str], str] | None = None
    ) -> list[AlikeRegions]:
        """All ``regions``, of the whole plan if not given, in topological order of the first of each: what counts now.

        ``state_of``: the state by which subtasks are alike; without it, the one that the journal tells.
        """
        groups: dict[tuple[str, str], AlikeRegions] = {}
        plan, states = self._view.in_use.plan, self._view.in_use.state
        for name in plan.by_name if regions is None else regions:
            state = states.of(name)
            shown_state = _state(state) if state_of is None else state_of(name)
            group, index = plan.place(name)
            subtask = group.subtask(index)
            key = (name, "") if subtask is None else (subtask[0], shown_state)
            if key not in groups:
                groups[key] = AlikeRegions(
                    key[0], shown_state, group.template.vertices, self.of(plan.by_name[name]).why
                )
            groups[key].add(None if subtask is None else subtask[1], state)
        return list(groups.values())

    def eventful(self) -> list[str]:
        """The regions of which there is more to tell than that they ran once and are valid, or have not begun."""
        state, invalid = self._view.in_use.state, self.evaluation.invalid()
        names = self._view.in_use.plan.by_name
        return [name for name in names if not _is_uneventful(state.of(name), is_valid=name not in invalid)]


def _region(
    view: RunView,
    evaluation: Evaluation,
    region: RegionPlan,
    kept: str | None,
    claims: Mapping[tuple[str, int], Claim],
) -> RegionStory:
    state = view.in_use.state.of(region.name)
    current = state.current
    outcome = current.outcome if current is not None else None
    attempts = tuple(
        _attempt(view, region.name, state, n, claims.get((region.name, n))) for n in sorted(state.attempts) if n
    )
    return RegionStory(
        name=region.name,
        subtask=None if region.subtask is None else (region.subtask.of, region.subtask.index),
        vertices=region.vertices,
        state=_state(state),
        attempt=current.number if current is not None else 0,
        why=_why(evaluation, region.name, attempts, kept),
        spark_seconds=sum(attempt.spark_seconds or 0.0 for attempt in attempts),
        results=tuple(
            ResultStory(output.result, output.rows, len(output.objects), output.size, output.location)
            for output in (outcome.outputs if outcome is not None else ())
        ),
        attempts=attempts,
        kept=kept,
    )


def _is_uneventful(state: RegionState, *, is_valid: bool) -> bool:
    attempt = state.current
    return not state.attempts or (
        is_valid
        and attempt is not None
        and len(state.attempts) == 1
        and not (
            attempt.is_lost or attempt.is_pinned or attempt.is_withdrawn or attempt.is_released or attempt.is_prepared
        )
    )


def _state(state: RegionState) -> str:
    if state.open_attempt is not None:
        return "OPEN"
    current = state.current
    if state.prepared_attempt is not None:
        return "PREPARED"
    if current is not None:
        return "RELEASED" if current.is_released else "FINISHED"
    if state.was_reset:
        return "RESET"
    return "FAILED" if state.latest_attempt else "NEVER RAN"


def _why(evaluation: Evaluation, region: str, attempts: tuple[AttemptStory, ...], kept: str | None) -> str:
    invalid = evaluation.invalid_because(region)
    if invalid is not None:
        return f"must run: {invalid.text().removeprefix(f'{region}: ')}"
    if kept is not None:
        return f"kept: {kept}"
    if len(attempts) < 2:
        return "ran once"
    before = attempts[-2]
    return f"ran again after @{before.number}" + (f": {before.why}" if before.why else "")


def _attempt(view: RunView, region: str, state: RegionState, number: int, from_events: Claim | None) -> AttemptStory:
    attempt = state.attempts[number]
    outcome, claim = attempt.outcome, attempt.claim or from_events
    outputs = outcome.outputs if outcome is not None and outcome.state is AttemptState.FINISHED else ()
    counted = [output.rows for output in outputs if output.rows is not None]
    refs = outcome.inputs if outcome is not None and outcome.inputs else claim.inputs if claim is not None else ()
    progress = progress_of(view.journal, region, attempt, claim)
    return AttemptStory(
        number=number,
        state=outcome.state.value if outcome is not None else "OPEN" if attempt.is_claimed else "MARKED",
        why="; ".join(_marks(view, region, attempt, progress) or _overtaken(attempt, state.attempts.get(number + 1))),
        reads=(*Inputs.of(refs).texts(), *_states_read(outcome)),
        spark_seconds=outcome.spark_seconds if outcome is not None else None,
        claimed_at=claim.claimed_at if claim is not None else None,
        ended_at=outcome.ended_at if outcome is not None else None,
        try_number=claim.try_number if claim is not None else None,
        rows=sum(counted) if outputs and len(counted) == len(outputs) else None,
        bytes=sum(output.size for output in outputs) if outputs else None,
        application_id=outcome.application_id if outcome is not None else None,
        worker=outcome.worker if outcome is not None else None,
        failure=_failure(outcome.failure) if outcome is not None and outcome.failure is not None else None,
        splits=progress,
    )


def _states_read(outcome: Outcome | None) -> tuple[str, ...]:
    """The inputs for whose state a text stands, each with that text."""
    externals = outcome.externals if outcome is not None else ()
    return tuple(f"{name_of(each.vertex, each.uri)}: {each.etag}" for each in externals if is_stated(each.uri))


def _failure(failure: Failure) -> FailureStory:
    return FailureStory(failure.type, failure.message, failure.condition, failure.vertex, failure.labels)


def _overtaken(attempt: Attempt, following: Attempt | None) -> list[str]:
    """What the next attempt had before it that this one did not, where both have finished."""
    before, after = attempt.outcome, following.outcome if following is not None else None
    if before is None or after is None or after.state is not AttemptState.FINISHED:
        return []
    if before.fingerprint != after.fingerprint:
        return ["code or parameters changed"]
    if before.externals != after.externals:
        was, now = (set(_states_read(finish)) for finish in (before, after))
        return [f"external inputs changed{''.join(f', now {text}' for text in sorted(now - was))}"]
    if before.inputs == after.inputs or not all(Inputs.of(refs).is_known for refs in (before.inputs, after.inputs)):
        return []
    read = {ref.region: ref.attempt for ref in before.inputs}
    remade = [f"{ref.region}@{ref.attempt}" for ref in after.inputs if read.get(ref.region) != ref.attempt]
    return [f"input made again: {', '.join(remade)}"] if remade else []


def _marks(view: RunView, region: str, attempt: Attempt, progress: AttemptProgress | None) -> list[str]:
    """What became of an attempt, in words."""
    marks = [progress.text()] if progress is not None else []
    outcome = attempt.outcome
    if outcome is not None and outcome.state is AttemptState.FENCED:
        cause = outcome.cause.value if outcome.cause is not None else "fenced"
        marks.append(f"{cause}: {outcome.detail}" if outcome.detail else cause)
    if attempt.is_open and attempt.claim is not None:
        marks.append(f"try {attempt.claim.try_number} of {attempt.claim.airflow_run_id}, {attempt.claim.claimed_at}")
    if attempt.is_reset and attempt.reset is not None:
        marks.append(f"reset by {attempt.reset.who}: {attempt.reset.why}")
    if attempt.is_lost:
        lost = view.journal.read_lost(region, attempt.number)
        marks.append(f"reported lost by {lost.reporter}: {'; '.join(lost.evidence)}")
    if attempt.is_prepared:
        marks.append("not committed to its sink yet")
    if attempt.committed is not None:
        marks.append(f"{attempt.committed.end.value.lower()}: {attempt.committed.commit_id or attempt.committed.probe}")
    if attempt.is_pinned:
        pin = view.journal.read_pin(region, attempt.number, attempt.pin_turn)
        marks.append(f"pinned by {pin.who}: {pin.why}")
    if attempt.is_withdrawn:
        turn = view.journal.read_withdrawal(region, attempt.number, attempt.withdrawn_turn)
        marks.append(f"withdrawn from other DAGs by {turn.who}: {turn.reason}")
    if attempt.is_released:
        marks.append("its data was released")
    return marks
