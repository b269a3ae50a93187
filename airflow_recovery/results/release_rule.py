"""Which attempts' data may go (docs/protocol.md#release). The state and the ages of objects are handed in.

    candidate: P@n finished, not named by the newest publish, and (n < cur(P), or every consumer is valid and P is
               neither final nor persistent, or its sink has all of it); or a fenced attempt

Whether every consumer is valid is Flink's release rule (FLIP-1), in one line: `ReadersLeft`. It knows no policy, no
publish and no clock. How a candidate is let go: `airflow_recovery.results.release`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.committing import CommitMode
from airflow_recovery.model.records import AttemptState, Claim, Outcome, PlanRecord, Publish
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.retention import ReleasePolicy, Retention, duration_text
from airflow_recovery.planning.edges import Edges
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.batches_in_use import BatchNumbers, batches_in_use, made_of, newest_claims


@dataclass(frozen=True)
class Verdict:
    """Whether the data of an attempt may go, and why (not)."""

    may_go: bool
    why: str


class ReleaseRule:
    """Which attempts of one run may go. A rule reads and writes nothing: the state and the ages are handed in.

    ``age_s(keys)`` is how long ago the newest of these journal objects was stored, by the store's own clock.
    ``orphan_grace_s`` is how long an attempt that no longer counts is kept all the same. ``claims`` are the newest ones
    of the regions that have batches.
    """

    def __init__(  # noqa: PLR0913 - all that the rule is told: it reads nothing itself
        self,
        plan: PlanRecord,
        state: RunState,
        publish: Publish | None,
        *,
        journal: Journal,
        retention: Retention,
        orphan_grace_s: float,
        age_s: Callable[[Iterable[str]], float],
        silent_s: float,
        claims: Mapping[str, Claim] | None = None,
    ) -> None:
        self._claims = claims or {}
        self._state = state
        self._publish = publish
        self._published: dict[str, set[int]] = {}
        for entry in publish.regions if publish is not None else ():
            self._published.setdefault(entry.region, set()).add(entry.attempt)
        self._layout = journal.layout
        self._retention = plan.retention or retention
        self._orphan_grace_s = orphan_grace_s
        self._age_s = age_s
        self._silent_s = silent_s
        self._plan = plan
        self._evaluation = Evaluation(plan, state, available=_never_asked)
        self._edges = self._evaluation.edges
        self._readers_left = ReadersLeft(self._edges, lambda reader: self._evaluation.invalid_because(reader) is None)
        self._ended_s: dict[str, float] = {}

    @classmethod
    def at_once(
        cls, journal: Journal, plan: PlanRecord, state: RunState, retention: Retention, *, orphan_grace_s: float
    ) -> ReleaseRule:
        """The rule for who lets results go in the moment in which they may: no object's age is asked for.

        ``retention``: in place of the plan's, without a grace time. Reads the newest publish and the newest claims of
        ``journal``. Raises the store's errors.
        """
        return cls(
            replace(plan, retention=retention),
            state,
            journal.read_publish(state.newest_publish) if state.newest_publish else None,
            journal=journal,
            retention=retention,
            orphan_grace_s=orphan_grace_s,
            age_s=lambda keys: 0.0,
            silent_s=0.0,
            claims=newest_claims(journal, state),
        )

    def look_at_all(self) -> None:
        """Every region will be asked about: who is valid is found out of all at once, which takes fewer steps."""
        self._evaluation.invalid()

    def verdict(self, region: str, number: int) -> Verdict:
        """Whether the data of this attempt may go, by the state that was handed in. It may have changed since."""
        attempt = self._state.of(region).attempts.get(number)
        if attempt is None or not attempt.is_claimed or attempt.outcome is None:
            return Verdict(False, "it is open" if attempt is not None and attempt.is_open else "it was never claimed")
        if attempt.is_pinned:
            return Verdict(False, "it is pinned")
        adopted = self.used_batches(region, but_finish=self._current_number(region, number)).get(number)
        if adopted:
            return Verdict(False, f"{len(adopted)} of its batches are in use")
        verdict = self._of_ended(region, number, attempt, attempt.outcome)
        if attempt.is_released and not verdict.may_go:
            # Whoever did it was killed, or has left it to the sweeper since somebody read it.
            return Verdict(True, "it was released before")
        return verdict

    def used_batches(self, region: str, *, but_finish: int | None = None) -> BatchNumbers:
        """The batches of ``region`` that are used, by attempt (`batches_in_use`); empty where it does not commit so."""
        published = self._published.get(region, ())
        return batches_in_use(self._state.of(region), self._claims.get(region), published, but_finish=but_finish)

    def released_with(self, region: str, number: int) -> tuple[int, ...]:
        """The attempts that go with this finish: it alone uses their batches."""
        makers = made_of(self._state.of(region), number)
        others = self.used_batches(region, but_finish=number) if makers else {}
        return tuple(maker for maker in makers if maker not in others)

    def _of_ended(self, region: str, number: int, attempt: Attempt, outcome: Outcome) -> Verdict:
        if outcome.state is AttemptState.FENCED:
            cause = outcome.cause
            return self._orphan(region, number, f"fenced ({cause.value if cause is not None else 'no cause'})")
        if self._publish is not None and self._is_pinned(region, number):
            return Verdict(False, f"publish {self._publish.number} names it")
        current = self._state.of(region).current
        if current is None:
            return Verdict(False, "it was reset, and nothing has replaced it")
        if number < current.number:
            return self._orphan(region, current.number, f"superseded by attempt {current.number}")
        return self._current(region, self._template(region), attempt)

    def _current_number(self, region: str, number: int) -> int | None:
        """``number`` where it is the finish that counts: its own use of its batches does not keep it."""
        current = self._state.of(region).current
        return number if current is not None and current.number == number else None

    def _is_pinned(self, region: str, number: int) -> bool:
        """Final results, and whatever was superseded, for as long as the publish names them.

        A result inside the job that still counts follows its policy: every publish names all valid regions, so it would
        never go else.
        """
        named = number in self._published.get(region, ())
        current = self._state.of(region).current
        template = self._template(region)
        if current is None or current.number != number or template is None:
            return named
        return named and self._outlives(template, current)

    def _template(self, region: str) -> RegionPlan | None:
        """What the plan says of ``region``, as of all of its group; `None` where it has no such region."""
        try:
            return self._edges.group(region).template
        except KeyError:
            return None

    @staticmethod
    def _outlives(region: RegionPlan, attempt: Attempt) -> bool:
        """Whether readers outside the run read these files. What a sink has taken over, they read there.

        Of a region that has other results beside the committed one, not every plan says which of them are final.
        """
        taken_over = () if region.commit is None or not attempt.is_committed else (region.commit.result,)
        return region.final and region.results != taken_over

    def _orphan(self, region: str, since: int, why: str) -> Verdict:
        """``since``: the attempt whose outcome made an orphan of it."""
        age_s = self._age_s([self._layout.attempt(region, since, "outcome")])
        return _after(age_s, self._orphan_grace_s, f"{why} {duration_text(age_s)} ago", "grace time")

    def _current(self, name: str, region: RegionPlan | None, attempt: Attempt) -> Verdict:
        if region is not None and self._outlives(region, attempt):
            return Verdict(False, "it outlives runs: --purge" if region.persistent else "it is a final result")
        if not self._plan.regions:
            return Verdict(False, "no plan says whether it is a final result")
        waiting = self._readers_left.first(name) if region is not None else None
        if waiting is not None:
            return Verdict(False, f"{waiting} still needs it")
        consumers = self._edges.readers(name) if region is not None else ()
        if consumers and region is not None and region.commit is not None and region.commit.mode is CommitMode.APPEND:
            return Verdict(False, "others read it, and a sink that appends takes over no second attempt")
        policy, grace_s = self._retention.policy, self._retention.grace_s
        if policy is ReleasePolicy.KEEP:
            since = f"the run has been silent for {duration_text(self._silent_s)}"
            return _after(self._silent_s, grace_s, since, "retention")
        if policy is ReleasePolicy.ON_RUN_SUCCESS:
            publish = self._publish
            if publish is None or attempt.number not in self._published.get(name, ()):
                return Verdict(False, "the run has not published it")
            age_s = self._age_s([self._layout.publish(publish.number)])
            return _after(age_s, grace_s, f"published {duration_text(age_s)} ago", "grace time")
        ages_s = [self._since_ended_s(node) for node in consumers]
        if attempt.is_committed or not consumers:
            committed = [self._layout.attempt(name, attempt.number, "committed")] if attempt.is_committed else []
            ages_s.append(self._age_s(committed))
        age_s = min(ages_s)
        return _after(age_s, grace_s, f"consumed {duration_text(age_s)} ago", "grace time")

    def _since_ended_s(self, node: str) -> float:
        """The age of the newest outcome that counts of the regions of a node; asked for once, whatever they read."""
        if node not in self._ended_s:
            currents = ((name, self._state.of(name).current) for name in self._edges.members(node) or (node,))
            outcomes = [
                self._layout.attempt(name, current.number, "outcome")
                for name, current in currents
                if current is not None
            ]
            self._ended_s[node] = self._age_s(outcomes)
        return self._ended_s[node]


class ReadersLeft:
    """Flink's release rule: what a region makes can go when all that read it are done.

    Each reader is asked about once, however many regions it reads.
    """

    def __init__(self, edges: Edges, is_done: Callable[[str], bool]) -> None:
        self._edges = edges
        self._is_done = is_done
        self._first: dict[str, str | None] = {}
        """The first region of a node that is not done."""

    def first(self, region: str) -> str | None:
        """The first reader of ``region`` that is not done."""
        return next(filter(None, map(self._first_of, self._edges.readers(region))), None)

    def _first_of(self, node: str) -> str | None:
        if node not in self._first:
            members = self._edges.members(node) or (node,)
            self._first[node] = next((name for name in members if not self._is_done(name)), None)
        return self._first[node]


def _after(age_s: float, limit_s: float, since: str, limit: str) -> Verdict:
    if age_s >= limit_s:
        return Verdict(True, since)
    return Verdict(False, f"{since}, {limit} {duration_text(limit_s)}")


def _never_asked(region: str, attempt: Attempt, result: str) -> None:
    raise AssertionError(
        f"the release rule is about identity, and asks for no data of {region}@{attempt.number}: {result}"
    )
