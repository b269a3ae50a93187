"""What attempts have read, region by region: what stands for a whole group as well, told once for all its readers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Iterator, Mapping, Sequence

from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import GroupAttempts, InputGroupRef, InputRef, Inputs, combined_digest
from airflow_recovery.model.records import PlanRecord

UNLIKE_ANY = "?"
"""Stands for a token that no finish has."""


class InputsRead:
    """The inputs of records of one state of a run, told by the plan in use where no recorded plan could tell them.

    A record has one digest of the rows of a whole group. Those of its regions are in their own outcomes, and are taken
    from there if together they come to that one digest.
    """

    def __init__(self, plan: PlanRecord, state: RunState) -> None:
        self._plan = plan
        self._state = state
        self._groups: dict[tuple[InputGroupRef, str], dict[str, InputRef]] = {}
        self._present: dict[tuple[str, str], GroupAttempts] = {}
        self._are_same: dict[tuple[InputGroupRef, str], bool] = {}

    def take_over(self, before: InputsRead, same: Container[str]) -> None:
        """Which attempts of a group count, where it is one of the ``same``: none of its regions has changed."""
        find = self._plan.find_group
        self._present = {key: now for key, now in before._present.items() if key[0] in same and find(*key) is not None}

    def by_region(self, refs: Sequence[InputRef]) -> Mapping[str, InputRef]:
        """``refs`` by region. Raises `InputsUnknown`; not where `PlanRecord.reads` is true of them."""
        if not isinstance(refs, Inputs):
            return {ref.region: ref for ref in refs}
        refs = self.with_known_groups(refs)
        parts = [dict(refs.singles)] if refs.singles else []
        parts += [self._of_group(refs, ref) for ref in refs.groups.values()]
        return parts[0] if len(parts) == 1 else ChainMap(*parts)

    def remade(self, refs: Sequence[InputRef], group: str | None = None) -> Iterator[InputRef]:
        """Of ``refs``, or of one of their groups, those whose region has another attempt by now.

        As cheap as there are exceptions in groups; references to single regions are all handed out. Raises
        `InputsUnknown` as `by_region` does.
        """
        if type(refs) is not Inputs:
            yield from refs
            return
        known = self.with_known_groups(refs)
        if group is None:
            yield from known.singles.values()
        for name, ref in known.groups.items():
            if group in (None, name):
                names = known.group(ref).names
                remade = ref.attempts.differences(self._now(ref, names))
                if not self._are_those_read(ref, names):
                    remade = [*remade, *sorted(set(range(len(names))) - set(remade))]
                by_name = self._of_group(known, ref) if remade else {}
                yield from (by_name[names[index]] for index in remade)

    def _are_those_read(self, ref: InputGroupRef, names: Sequence[str]) -> bool:
        """The attempts of a group that were read are those that the journal has under their numbers."""
        if not ref.tokens:
            return True
        key = ref, ref.tokens
        if key not in self._are_same:
            found = ((name, self._writer(name, number)) for name, number in zip(names, ref.attempts, strict=True))
            self._are_same[key] = combined_digest(found) == ref.tokens
        return self._are_same[key]

    def _writer(self, region: str, number: int) -> str:
        attempt = self._state.of(region).attempts.get(number)
        return attempt.outcome.writer if attempt is not None and attempt.outcome is not None else ""

    def _now(self, ref: InputGroupRef, names: Sequence[str]) -> GroupAttempts:
        """The attempts of a group that count; 0 where there is none."""
        key = ref.group, ref.keys
        if key not in self._present:
            currents = (self._state.of(name).current for name in names)
            self._present[key] = GroupAttempts.of([0 if current is None else current.number for current in currents])
        return self._present[key]

    def with_known_groups(self, refs: Inputs) -> Inputs:
        """``refs`` with all groups that are known by now."""
        return refs if refs.is_known else refs.with_groups(self._plan.find_group)

    def _of_group(self, refs: Inputs, ref: InputGroupRef) -> dict[str, InputRef]:
        key = ref, ref.tokens
        if key not in self._groups:
            attempts = dict(zip(refs.group(ref).names, ref.attempts, strict=True))
            digests: dict[str, list[tuple[str, str]]] = {name: [] for name in attempts}
            for result, combined in ref.digests:
                own = {name: self._digest(name, number, result) for name, number in attempts.items()}
                if combined_digest((name, digest or "") for name, digest in own.items()) == combined:
                    for name, digest in own.items():
                        digests[name].append((result, digest or ""))
            # Of one digest over all tokens it can't be told which attempt is another one than was read.
            token = "" if self._are_those_read(ref, refs.group(ref).names) else UNLIKE_ANY
            self._groups[key] = {
                name: InputRef(name, number, tuple(digests[name]), token) for name, number in attempts.items()
            }
        return self._groups[key]

    def _digest(self, region: str, number: int, result: str) -> str | None:
        attempt = self._state.of(region).attempts.get(number)
        outputs = attempt.outcome.outputs if attempt is not None and attempt.outcome is not None else ()
        return next((output.digest for output in outputs if output.result == result), None)
