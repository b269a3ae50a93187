"""What an attempt was made of, beside the attempt before it: for `airflow recovery why` and the tab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from airflow_recovery.errors import ObjectMissing, UnknownRegion
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.components import Component, changes, unseen_in
from airflow_recovery.model.records import Claim
from airflow_recovery.planning.plan_text import cut, table
from airflow_recovery.story.question import Given
from airflow_recovery.story.run_view import RunView

_MOST_NAMED = 10


@dataclass(frozen=True)
class ComparedComponent:
    """One component: its value then and now, `None` if it did not exist.

    ``changed``: the two differ. ``decides``: it belongs to the fingerprint. ``seen``: its content could be read.
    """

    name: str
    before: str | None
    now: str | None
    changed: bool
    decides: bool
    seen: bool

    def row(self) -> tuple[str, str, str, str]:
        """The name, both values, and what is to be known of them."""
        marks = ["changed, decided"] if self.changed and self.decides else []
        marks += ["changed, does not decide"] if self.changed and not self.decides else []
        marks += ["can't be seen"] if not self.seen else []
        return self.name, cut(self.before or ""), cut(self.now or ""), "; ".join(marks)


@dataclass(frozen=True)
class ComparedComponents:
    """The components of ``attempt``, the newest, and of ``before``, the newest older attempt that has recorded them.

    ``note`` says why something is missing; ``force`` is the command with which the region runs again.
    """

    region: str
    attempt: int
    before: int | None
    after_clear: bool
    components: tuple[ComparedComponent, ...]
    note: str
    force: str

    def first_line(self) -> str:
        """Which components have decided that the newest attempt was made of something else."""
        if not self.components:
            return f"{self.region}@{self.attempt}: {self.note}"
        if self.before is None:
            return f"{self.region}@{self.attempt} is the first attempt with components: there is nothing before."
        decided = [each.name for each in self.components if each.changed and each.decides]
        if decided:
            return f"{self.region}@{self.attempt} differs from attempt {self.before} in: {', '.join(decided)}."
        if self.after_clear:
            unseen = ", ".join(each.name for each in self.components if each.decides and not each.seen)
            return f"{self.region}@{self.attempt} ran because its task was cleared, and can't be seen: {unseen}."
        return f"{self.region}@{self.attempt} has the same code, settings and arguments as attempt {self.before}."

    def text(self) -> str:
        """The first line, the table, and how to run the region again."""
        parts = [self.first_line()]
        if self.components:
            heads = ("component", f"attempt {self.before or '-'}", f"attempt {self.attempt}", "")
            parts.append(table(heads, [component.row() for component in self.components]))
        parts.append(f"To run it again whatever this table says: {self.force}")
        return "\n\n".join(parts)


def compared_components(
    view: RunView, region: Annotated[str, Given("a region, as `show` names it")]
) -> ComparedComponents:
    """Return what the newest attempts of a region were made of. Raises `UnknownRegion`, and the store's errors."""
    name = view.region(region).name
    state = view.in_use.state.of(name)
    force = f"airflow recovery restart {view.journal.identity.dag_id} {view.journal.identity.run_key} {name}"
    claims = _claims(view, name, state)
    if not claims:
        raise UnknownRegion(
            f"Expected an attempt of {name} in this run, found none: the claim of an attempt has its components."
        )
    newest = claims[0]
    now = _components(view, newest)
    earlier = next(((claim, found) for claim in claims[1:] if (found := _components(view, claim))), None)
    was = earlier[1] if earlier is not None else ()
    changed = {change.name for change in changes(was, now)} if was else set()
    old, new = {each.name: each for each in was}, {each.name: each for each in now}
    rows = tuple(
        ComparedComponent(
            each,
            old[each].value if each in old else None,
            new[each].value if each in new else None,
            each in changed,
            (new.get(each) or old[each]).decides,
            (new.get(each) or old[each]).seen,
        )
        for each in sorted({*old, *new}, key=lambda each: (each not in changed, each))
    )
    note = "" if now else "its components are not recorded: an earlier version, or a shared result, has made it."
    before = earlier[0].attempt if earlier is not None else None
    return ComparedComponents(name, newest.attempt, before, newest.after_clear, rows if now else (), note, force)


def unseen_code(view: RunView) -> dict[str, tuple[str, ...]]:
    """Return the names of code that can't be seen, by region: of the attempts that count. Raises the store's errors.

    One request for each set of components that the run has recorded. Claims are only read if one can't be seen.
    """
    recorded = view.journal.read_all_components(sorted(view.in_use.state.fingerprints))
    unseen = {name: tuple(each.name for each in unseen_in(components)) for name, components in recorded.items()}
    if not any(unseen.values()):
        return {}
    current = ((name, view.in_use.state.of(name).current) for name in view.in_use.plan.by_name)
    claims = view.journal.read_claims([(name, attempt.number) for name, attempt in current if attempt is not None])
    return {claim.region: names for claim in claims if (names := unseen.get(claim.components or "", ()))}


def unseen_text(unseen: Mapping[str, Sequence[str]]) -> str:
    """Return what `unseen_code` has found, as one text; empty if it is nothing."""
    if not unseen:
        return ""
    shown = [f"{region}: {', '.join(names)}" for region, names in list(unseen.items())[:_MOST_NAMED]]
    more = f"; and {len(unseen) - _MOST_NAMED} more regions" if len(unseen) > _MOST_NAMED else ""
    return (
        "Code that can't be seen, so that new code under the same name goes unnoticed (unseen_code= decides what a "
        f"clear does): {'; '.join(shown)}{more}."
    )


def _claims(view: RunView, region: str, state: RegionState) -> list[Claim]:
    """The newest first."""
    numbers = sorted((number for number, attempt in state.attempts.items() if attempt.is_claimed), reverse=True)
    return list(view.journal.read_claims([(region, number) for number in numbers]))


def _components(view: RunView, claim: Claim) -> tuple[Component, ...]:
    try:
        return view.journal.read_components(claim.components) if claim.components else ()
    except ObjectMissing:
        return ()
