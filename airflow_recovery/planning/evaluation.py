"""`valid`, `available`, `wanted`, `must_run` (docs/protocol.md#evaluation): the one function behind every decision.

    valid(R)     = it has a current finish, its fingerprint is today's, its external inputs are as it read them, its
                   mode has nothing against it, and every input is valid and counts as the one that R read:
                       always: it is the same attempt      verify: what R read of it has equal digests
                       assume: whichever it is
    wanted(R, q) = q is a final result of R, or some consumer that reads q must run, or one has reported that it misses
                   a result of R's present attempt
    must_run(R)  = not valid(R), or for some result q: wanted(R, q) and not available(R, q)
    follows(C,R) = once R has been made again, C can't be valid with what it has read of it

Who wants a result, who must run and who follows is said here and nowhere else: the pre-check of a try, `lost_inputs`,
the final check and the release of results ask for one region; a plan asks for all of them, and for what follows from
that (`airflow_recovery.planning.restart_set`). Nothing is evaluated unasked: of one region's pre-check, its
ancestors decide whether it is valid, and its descendants whether somebody wants what it has made.

`valid` is about identity, `available` about data: a region whose results are gone is kept while nobody wants them.
Availability belongs to the single result, as in FLIP-1: of two results of a region, the one that nobody wants may be
gone. It is asked for only where it can matter, and once for each result of an attempt.

**Early cut-off.** Nothing extra is recorded of it: a trace is always compared with the *current* finish of its inputs.
So C@1, which read P@1, is valid with P@2 and P@3, as long as their digests equal that of P@1; and E, which read C@1,
never hears of it. While P has no current finish, its consumers are *undecided*: not kept, and not cleared either. They
want nothing yet: another input of theirs that is gone is made again once it is known that they must run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from airflow_recovery.errors import UnknownRegion
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.locations import is_stated, is_table, name_of
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import WIDE, RegionGroup
from airflow_recovery.model.inputs import InputRef, Inputs
from airflow_recovery.model.manifest import PartitionManifest, is_of_rows
from airflow_recovery.model.mode import BATCH, RegionMode
from airflow_recovery.model.records import ExternalObject, FenceCause, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.edges import Edges
from airflow_recovery.planning.inputs_read import InputsRead
from airflow_recovery.planning.mode import PlanningMode, planning, planning_of
from airflow_recovery.planning.reason import ASKS_OWN_TASK, EarlyCutoff, Reason, Why

Available = Callable[[str, Attempt, str], "Reason | None"]
"""Answers for one result of a region's attempt: `None` where all its objects are there as registered, else why not."""


class AskedResult(NamedTuple):
    """A question to `Available`."""

    region: str
    attempt: Attempt
    result: str


class Evaluation:
    """One state of one run, evaluated. An answer is found out once, when it is first asked for, and kept.

    ``externals`` holds today's external inputs of the regions that may be evaluated by them: a region's own process
    lists its own. For any other region the recorded ones are taken as they are; its own task evaluates them.
    ``absent``: likewise the optional inputs that this DAG run does not have.
    ``unkept``: why the finish that counts of a region does not, as only this process knows: its own task can't keep it,
    or its operator is declared otherwise.
    ``known``: what each mode knows of the run besides its records, by its name, read after ``state`` was listed.
    ``changes_since``: what in today's DAG run differs from the one that an outcome was made for; empty if not known.
    ``before``: the same plan in an earlier state, or a supposed one. What it has found out of traces that rest on
    nothing that has changed since is taken over, and nothing that it has heard of data.
    What was evaluated stays readable: ``topology``, ``state``, ``available``.
    """

    def __init__(  # noqa: PLR0913 - what only some processes know, each with its default
        self,
        plan: PlanRecord,
        state: RunState,
        *,
        available: Available,
        externals: Mapping[str, tuple[ExternalObject, ...]] | None = None,
        absent: Mapping[str, tuple[str, ...]] | None = None,
        unkept: Mapping[str, Reason] | None = None,
        known: Mapping[str, object] | None = None,
        before: Evaluation | None = None,
        changes_since: Callable[[Outcome], str] | None = None,
    ) -> None:
        self.topology = plan
        self.state = state
        self.edges: Edges = Edges(plan) if before is None else before.edges
        self._regions = plan.by_name
        self.available = available
        self._asks = True
        self._externals = externals or {}
        self._absent = absent or {}
        self._unkept = unkept or {}
        self._known = known or {}
        self._changes_since = changes_since
        self._read = InputsRead(plan, state)
        self._invalid: dict[str, Reason | None] = {}
        self._decided: dict[str, list[str]] = {}
        """The regions of a node whose trace is not valid, whatever their producers come to."""
        self._asked: dict[str, dict[str, Reason | None]] = {}
        self._must: dict[str, Reason | None] = {}
        """Why a node is not valid, and why it must run: of a group of several, the first of its regions that does."""
        self._read_by: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self._final: dict[str, tuple[str, ...]] = {}
        if before is not None:
            self._take_over(before)

    def of(self, plan: PlanRecord, state: RunState, available: Available) -> Evaluation:
        """Another run, or a supposed one, evaluated by the same external inputs."""
        before = self if plan is self.topology else None
        externals, absent, known = self._externals, self._absent, self._known
        return Evaluation(
            plan,
            state,
            available=available,
            externals=externals,
            absent=absent,
            unkept=self._unkept,
            known=known,
            before=before,
            changes_since=self._changes_since,
        )

    def without_asking(self) -> Evaluation:
        """The same evaluation, which asks for no more data: what was not asked for so far is taken to be there."""
        evaluation = copy.copy(self)
        evaluation._asks, evaluation._must, evaluation._read_by = False, {}, {}
        return evaluation

    def current(self, region: str) -> Attempt | None:
        """The attempt that counts, or `None`."""
        self._check(region)
        return self.state.of(region).current

    def invalid_because(self, region: str) -> Reason | None:
        """`None` where the region's trace is valid."""
        if region in self._invalid:
            return self._invalid[region]
        self._check(region)
        return self._validity(region)

    def _validity(self, node: str) -> Reason | None:
        """Why a node is not valid, once all that this rests on is known as well."""
        if node not in self._invalid:
            for needed in in_order(node, self._rests_on, self._invalid):
                self._evaluate(needed)
        return self._invalid[node]

    def why_not_available(self, region: str, results: Iterable[str]) -> Reason | None:
        """`None` where these results of the current attempt are there. Only for regions with a current attempt."""
        attempt = self.state.of(region).current
        if attempt is None:
            return self.invalid_because(region)
        known = self._asked.setdefault(region, {})
        for result in results:
            if result not in known:
                if attempt.is_released:
                    known[result] = Reason(region, Why.OUTPUT_RELEASED, f"attempt {attempt.number}")
                elif self._asks:
                    known[result] = self.available(region, attempt, result)
            if known.get(result) is not None:
                return known[result]
        return None

    def unreadable(
        self, consumer: str, node: str, *, wants_data: bool = True, but: Container[str] = ()
    ) -> Iterator[tuple[str, Reason]]:
        """The regions of ``node`` that must run before ``consumer``, a node, and why: not valid, or not there.

        Without ``wants_data`` only those that are not valid: nothing is asked for. Nor is anything of those in ``but``.
        """
        is_valid = self._validity(node) is None
        results = self.results_read(consumer, node)
        for producer in self.edges.members(node) or (node,):
            if producer in but:
                continue
            reason = None if is_valid else self._invalid[producer]
            if reason is None and wants_data:
                reason = self.why_not_available(producer, results)
            if reason is not None:
                yield producer, reason

    def results_read(self, consumer: str, producer: str) -> tuple[str, ...]:
        """The results of ``producer`` that ``consumer`` reads."""
        return self.edges.group(consumer).template.reads_of(self.edges.group(producer).template)

    def final_results(self, region: str) -> tuple[str, ...]:
        """The results of ``region`` that are read outside the job.

        Of a final region, where the plan names none, those that nobody reads in the job, or else all.
        """
        planned = self.edges.group(region).template
        if not planned.final:
            return ()
        if planned.name not in self._final:
            unread = tuple(result for result in planned.results if result not in self.topology.read)
            self._final[planned.name] = planned.finals or unread or planned.named_results
        return self._final[planned.name]

    def files_checked(self, region: str) -> int:
        """How many registered objects were found as registered; 0 where the data was not asked for."""
        asked = self._asked.get(region)
        attempt = self.state.of(region).current if asked else None
        if not asked or attempt is None or attempt.outcome is None:
            return 0
        there = [result for result, reason in asked.items() if reason is None]
        return sum([len(output.objects) for output in attempt.outcome.outputs if output.result in there])

    def was_asked(self, region: str, result: str | None = None) -> bool:
        """The store was asked for this result, or any, of the region's current attempt."""
        asked = self._asked.get(region, {})
        return bool(asked) if result is None else result in asked

    def wanted_in_any_case(self, region: str) -> tuple[str, ...]:
        """The results of ``region`` that are wanted whoever runs: what is read outside the job, and what is missed."""
        current = self.state.of(region).current
        # Why a consumer must run may be known to its own process alone (its external inputs): its report says so. A
        # report makes the owner look, and no more: where everything is there, the region is kept.
        if current is not None and current.is_lost:
            return self.edges.group(region).template.named_results
        # What a sink has taken over is in its target: what was prepared for it has done its work.
        commit = self.edges.group(region).template.commit
        taken_over = commit.result if commit is not None and current is not None and current.is_committed else None
        return tuple(result for result in self.final_results(region) if result != taken_over)

    def why_must_run(self, region: str) -> Reason | None:
        """`None` where the region is kept."""
        if region in self._must:
            return self._must[region]
        self._check(region)
        # Consumers first, over this region's descendants only: the data of no other region is asked for.
        for node in in_order(region, self.edges.readers, self._must):
            self._evaluate_must_run(node)
        return self._must[region]

    def invalid(self) -> dict[str, Reason]:
        """The regions whose trace is not valid, and why, in topological order. All are looked at, in fewest steps."""
        for group in self.topology.groups:
            self._validity(self.edges.node(group))
        reasons = ((name, self._invalid[name]) for name in self.topology.by_name)
        return {name: reason for name, reason in reasons if reason is not None}

    def must_run(self) -> list[str]:
        """The regions that must run, in topological order. All are looked at, in the order of fewest steps."""
        self.invalid()
        for group in reversed(self.topology.groups):
            self._evaluate_must_run(self.edges.node(group))
        return [name for name in self.topology.by_name if self._must[name] is not None]

    def is_decided(self, region: str) -> bool:
        """It must run, whatever its producers come to."""
        return self.why_must_run(region) is not None and not self.is_undecided(region)

    def lost_inputs(self, region: str) -> dict[str, Reason]:
        """The ancestors that must run so that ``region`` can, in topological order, each with its reason.

        The walk goes up from a producer only while that producer itself is not there or is not valid, and asks for
        every result that a region on the way reads (FLIP-1: one decision sees every loss). Not of those of an
        undecided one: it may never read them.
        """
        self._check(region)
        reasons: dict[str, Reason] = {}
        seen: set[tuple[str, str, bool]] = set()
        queue = [region]
        while queue:
            name = queue.pop()
            wants_data = not self.is_undecided(name)
            # Whether an optional input is absent only the region's own task can tell: it has it made.
            inputs = self.inputs_of(name) if name == region else self.edges.required_inputs(name)
            for node in inputs:
                edge = self.edges.group(name).name if self.edges.members(node) else name, node, wants_data
                if edge in seen:
                    continue
                seen.add(edge)
                for producer, reason in self.unreadable(name, node, wants_data=wants_data):
                    if producer not in reasons:
                        reasons[producer] = reason
                        queue.append(producer)
        return {name: reasons[name] for name in sorted(reasons, key=self.edges.position)}

    def inputs_of(self, region: str) -> Sequence[str]:
        """The nodes that ``region`` reads in this DAG run, as far as that is known: its inputs but for absent ones."""
        absent = self.absent(region)
        inputs = self.edges.inputs(region)
        return [node for node in inputs if node not in absent] if absent else inputs

    def absent(self, region: str) -> tuple[str, ...]:
        """The optional inputs that this DAG run does not have; where nobody has asked, as the finish says."""
        if region in self._absent:
            return self._absent[region]
        current = self.state.of(region).current
        return current.outcome.absent if current is not None and current.outcome is not None else ()

    def why_not_committed(self, region: str) -> Reason | None:
        """Of a valid region: its finish is prepared, and has to be committed to its sink before it counts."""
        self._check(region)
        prepared = self.state.of(region).prepared_attempt
        return None if prepared is None else Reason(region, Why.NOT_COMMITTED, f"attempt {prepared.number}")

    def basis(self, region: str, ti_id: str | None) -> Sequence[InputRef] | None:
        """What the task instance ``ti_id`` of ``region`` relies on: its own open claim, else the current finish.

        A zombie's open claim is nobody's basis. ``ti_id`` is `None` where Airflow could not be asked: an open claim is
        then taken for the task's.
        """
        self._check(region)
        opened = self.state.of(region).open_attempt
        if opened is not None and opened.claim is not None and ti_id in (None, opened.claim.ti_id):
            return opened.claim.inputs
        current = self.current(region)
        return current.outcome.inputs if current is not None and current.outcome is not None else None

    def why_overtaken(self, region: str, basis: Sequence[InputRef] | None) -> Reason | None:
        """Has anything that ``basis`` names been superseded by a finish? Or was the finish itself reset?"""
        self._check(region)
        if basis is None:
            return Reason(region, Why.RESET) if self.state.of(region).was_reset else None
        if not self._groups_are_known(basis):
            return Reason(region, Why.INPUTS_CHANGED, _other_inputs(basis, ()))
        remade = self._read.remade(basis)
        superseded = (self.why_superseded(region, pin) for pin in remade if self._is_planned(pin.region))
        return next((reason for reason in superseded if reason is not None), None)

    def mode_basis(self, region: str, ti_id: str | None) -> RegionMode:
        """As `basis`: what the region's mode has written of it."""
        self._check(region)
        opened = self.state.of(region).open_attempt
        if opened is not None and opened.claim is not None and ti_id in (None, opened.claim.ti_id):
            return opened.claim.mode
        current = self.current(region)
        return current.outcome.mode if current is not None and current.outcome is not None else BATCH

    def why_disconnected(self, region: str, basis: RegionMode) -> Reason | None:
        """Does what an attempt works, or has worked, with at the same time as others not count any more?"""
        self._check(region)
        return planning_of(self.edges.group(region).template).why_disconnected(self._regions, region, self.state, basis)

    def early_cutoffs(self, region: str, basis: Sequence[InputRef] | None) -> tuple[EarlyCutoff, ...]:
        """The inputs in ``basis`` that were made again, and that ``region`` keeps its result on all the same."""
        self._check(region)
        cutoffs = []
        if basis is None or not self._groups_are_known(basis):
            return ()
        for pin in self._read.remade(basis):
            now = self._remade(pin)
            if now is None or not self._is_planned(pin.region) or self.why_superseded(region, pin) is not None:
                continue
            assumed = [result for result, mode in self.edge(region, pin.region) if mode is Determinism.ASSUME]
            by = Determinism.ASSUME if assumed else Determinism.VERIFY
            detail = self._changed_rows(pin, now, assumed)
            cutoffs.append(EarlyCutoff(region, pin.region, pin.attempt, now.number, by, detail))
        return tuple(cutoffs)

    def may_come_right(self, region: str) -> bool:
        """It is not valid, and may be once others have run again: its own trace is sound."""
        return self.invalid_because(region) is not None and region not in self._decided

    def always_follows(self, region: str, producer: str) -> bool:
        """``region`` runs again whenever its input ``producer`` has, whatever that writes."""
        return self.edge_follows(region, producer, same_rows=True) is True

    def edge_follows(self, consumer: str, producer: str, *, same_rows: bool) -> bool | None:
        """As `follows`, as far as the plan alone tells, so that it is true of any two regions of two nodes.

        `None`: the digests of what ``consumer`` has read decide.
        """
        if not self.edges.group(producer).template.determinism:
            return True
        modes = [mode for _, mode in self.edge(consumer, producer)]
        if Determinism.ALWAYS in modes:
            return True
        if Determinism.VERIFY not in modes:
            return False
        return None if same_rows else True

    def follows(self, consumer: str, producer: str, *, same_rows: bool = True) -> bool:
        """Must ``consumer`` run again, or for the first time, once its input ``producer`` has been made again?

        With ``same_rows`` as it was read, so that a ``verify`` edge holds where what was read has a digest. `False` of
        an optional input that is absent.
        """
        if producer in self.absent(consumer):
            return False
        follows = self.edge_follows(consumer, producer, same_rows=same_rows)
        if follows is not None:
            return follows
        pin = self.pins(consumer).get(producer)
        if pin is None:
            return True
        digested = dict(pin.digests)
        edge = self.edge(consumer, producer)
        return any(mode is Determinism.VERIFY and result not in digested for result, mode in edge)

    def why_invalid_by_itself(self, region: str) -> Reason | None:
        """As `invalid_because`, as far as it is not about other regions."""
        return self._evaluate_alone(region, *self.edges.place(region), self.state.of(region).current)

    def why_disconnected_now(self, region: str) -> Reason | None:
        """`why_disconnected` of the finish that counts."""
        current = self.state.of(region).current
        if current is None or current.outcome is None:
            return None
        mode = planning(self.edges.group(region).template.mode.name)
        return mode.why_disconnected(self._regions, region, self.state, current.outcome.mode)

    def pins(self, region: str) -> Mapping[str, InputRef]:
        """What the finish that counts has read, by region; nothing where there is none."""
        current = self.state.of(region).current
        # What nobody can tell is no finish that is valid: `PlanRecord.reads` is False of it.
        outcome = current.outcome if current is not None else None
        if outcome is None or not self._groups_are_known(outcome.inputs):
            return {}
        return self._read.by_region(outcome.inputs)

    def _groups_are_known(self, refs: Sequence[InputRef]) -> bool:
        return type(refs) is not Inputs or self._read.with_known_groups(refs).is_known

    def why_node_superseded(
        self, consumer: str, node: str, is_made_again: Callable[[str], bool] = lambda name: False
    ) -> Reason | None:
        """As `why_superseded`, of the regions of a node, but for those that are made again anyhow."""
        for pin in self._remade_pins(consumer, node):
            superseded = None if is_made_again(pin.region) else self.why_superseded(consumer, pin)
            if superseded is not None:
                return superseded
        return None

    def _remade_pins(self, consumer: str, node: str) -> Iterable[InputRef]:
        current = self.state.of(consumer).current
        inputs = current.outcome.inputs if current is not None and current.outcome is not None else ()
        if type(inputs) is Inputs and node in inputs.groups:
            return self._read.remade(inputs, node)
        pins = self.pins(consumer)
        return [pins[producer] for producer in self.edges.members(node) or (node,) if producer in pins]

    def attempt_in(self, basis: Sequence[InputRef] | None, producer: str) -> int | None:
        """Which attempt of ``producer`` the `basis` names; `None` where it names none, or nobody can tell."""
        if basis is None:
            return None
        read = self._read.with_known_groups(Inputs.of(basis))
        return read.attempt_of(producer) if read.is_known else None

    def attempt_read(self, consumer: str, producer: str) -> int:
        """Which attempt of ``producer`` the finish that counts of ``consumer`` has read."""
        return self.pins(consumer)[producer].attempt

    def is_undecided(self, region: str) -> bool:
        """Nothing but a producer's next finish can tell whether it must run: it may turn out to be valid as it is."""
        reason = self.invalid_because(region)
        return reason is not None and region not in self._decided and self.why_must_run(region) is reason

    def _take_over(self, before: Evaluation) -> None:
        known = before._invalid
        # What a trace rests on was evaluated with it: whatever else has changed makes no difference to what is known.
        mine, earlier = self.state.regions, before.state.regions
        changed = [name for name in known if mine.get(name) is not earlier.get(name)]
        changed += [
            name
            for name in {*self._told_of, *before._told_of}
            if self._told(name) != before._told(name) and self._is_planned(name)
        ]
        doubtful = self.edges.downstream([*changed, *self.edges.of_modes]) if known else set()
        self._invalid = {node: reason for node, reason in known.items() if node not in doubtful}
        self._decided = {node: names for node, names in before._decided.items() if node not in doubtful}
        self._read.take_over(before._read, self._invalid)

    @property
    def _told_of(self) -> set[str]:
        """The regions of which something is known that only their own process knows."""
        return {*self._externals, *self._absent, *self._unkept}

    def _told(self, region: str) -> tuple[object, ...]:
        return self._externals.get(region), self._absent.get(region), self._unkept.get(region)

    def _rests_on(self, node: str) -> Sequence[str]:
        """Whose validity decides on that of ``node``: nobody else's where it has no finish that counts."""
        group = self.edges.group(node)
        template = group.template
        is_region = group.keys is None or node != template.name
        if is_region and self.state.of(node).current is None:
            return ()
        inputs = self.inputs_of(node) if template.optional else self.edges.inputs(node)
        more = planning(template.mode.name).producers(template)
        return (*inputs, *more) if more else inputs

    def _evaluate(self, node: str) -> None:
        """Find out whether a node is valid. What it rests on is known."""
        members = self.edges.members(node)
        if not members:
            self._evaluate_region(node, *self.edges.place(node))
            return
        group = self.edges.group(node)
        for index, name in enumerate(members):
            if name not in self._invalid:
                self._evaluate_region(name, group, index)
        self._invalid[node] = next(filter(None, map(self._invalid.__getitem__, members)), None)
        decided = list(filter(self._decided.__contains__, members))
        if decided:
            self._decided[node] = decided

    def _evaluate_region(self, name: str, group: RegionGroup, index: int) -> None:
        current = self.state.of(name).current
        reason = self._evaluate_alone(name, group, index, current)
        if reason is None and current is not None and current.outcome is not None:
            reason = self._evaluate_inputs(name, current.outcome, planning(group.template.mode.name))
        self._invalid[name] = reason
        if reason is not None and reason.why not in ASKS_OWN_TASK and not self._awaits_a_producer(name):
            self._decided[name] = [name]

    def _evaluate_alone(self, name: str, group: RegionGroup, index: int, attempt: Attempt | None) -> Reason | None:
        """Why ``attempt``, the finish that counts, is not valid, as far as it is not about other regions."""
        outcome = None if attempt is None else attempt.outcome
        if attempt is None or outcome is None:
            return self._why_no_finish(name)
        if attempt.is_abandoned:
            return Reason(name, Why.NOT_COMMITTED, f"attempt {attempt.number} was abandoned")
        today = group.fingerprint(index)
        if today is not None and outcome.fingerprint != today:
            detail = f"since attempt {attempt.number}" + self._changes(name, outcome)
            return Reason(name, Why.CODE_CHANGED, detail)
        if name in self._externals:
            changed = _changed_external(outcome.externals, self._externals[name])
            if changed is not None:
                return Reason(name, Why.EXTERNAL_CHANGED, changed)
        mode = group.template.mode.name
        if mode in self._known:
            moved = planning(mode).why_source_changed(self._regions, name, outcome, self._known[mode])
            if moved is not None:
                return Reason(name, Why.SPLITS_CHANGED, moved)
        if name in self._absent and outcome.absent != self._absent[name]:
            return Reason(name, Why.INPUTS_CHANGED, _other_absent(outcome.absent, self._absent[name]))
        if not self.topology.reads_at(group, index, outcome.inputs, outcome.absent):
            return Reason(name, Why.INPUTS_CHANGED, _other_inputs(outcome.inputs, self._regions[name].inputs))
        outdated = None if name in self._externals else self.state.of(name).outdated_since
        if outdated is not None:
            detail = f"attempt {outdated} was claimed since attempt {attempt.number} was" + self._changes(name, outcome)
            return Reason(name, Why.OUTDATED, detail)
        template = group.template
        may_be_overwritten = template.fixed or template.writes_elsewhere
        overwritten = self._why_overwritten(name, template, attempt.number) if may_be_overwritten else None
        return overwritten or self._unkept.get(name)

    def _changes(self, name: str, outcome: Outcome) -> str:
        """What differs between the DAG run of ``outcome`` and this one; if that is not known, the newest claim's."""
        if self._changes_since is not None:
            changes = self._changes_since(outcome)
        else:
            newest = self.state.of(name).attempts.get(self.state.of(name).latest_attempt)
            now = newest.claim.dag_run if newest is not None and newest.claim is not None else None
            was = outcome.dag_run
            changes = "" if now is None or was is None else ", ".join(now.changes_since(was))
        return f"; other now: {changes}" if changes else ""

    def _why_overwritten(self, name: str, planned: RegionPlan, number: int) -> Reason | None:
        """A later attempt that does not count may have written over what this one has, which counts again."""
        latest = self.state.of(name).latest_attempt
        if latest == number:
            return None
        if planned.writes_elsewhere:
            return Reason(name, Why.OUTPUT_ALTERED, f"attempt {latest} may have written over what attempt {number} has")
        if not any(is_table(uri) for _, uri in planned.fixed):
            return None
        detail = f"attempt {latest} may have been committed to its table after attempt {number}"
        return Reason(name, Why.OUTPUT_ALTERED, detail)

    def _evaluate_inputs(self, name: str, outcome: Outcome, mode: PlanningMode) -> Reason | None:
        reason = None if self._are_as_read(outcome.inputs) else self._why_input_invalid(name)
        if reason is not None:
            return reason
        return mode.why_disconnected(self._regions, name, self.state, outcome.mode) or mode.why_peer_invalid(
            self._regions, name, self.state, self._invalid
        )

    def _are_as_read(self, refs: Sequence[InputRef]) -> bool:
        """Each is valid, at the very attempt that was read. False of groups, which are cheap to look at themselves."""
        if type(refs) is Inputs:
            return False
        for ref in refs:
            if self._invalid[ref.region] is not None:
                return False
            now = self.state.of(ref.region).current
            if now is None or not _is_read_at(ref, now):
                return False
        return True

    def _why_input_invalid(self, name: str) -> Reason | None:
        for node in self.inputs_of(name):
            below = self._invalid[node]
            superseded = None
            if below is None or self.edges.members(node):
                superseded = self.why_node_superseded(name, node, self._is_invalid)
            if below is not None and not self._is_before(superseded, below.region):
                return Reason(name, Why.INPUT_INVALID, below.region, below)
            if superseded is not None:
                return superseded
        return None

    def _awaits_a_producer(self, name: str) -> bool:
        """Its own trace is sound, and each input that is not valid may yet turn out as it was read."""
        reason = self._invalid[name]
        attempt = self.state.of(name).current
        if reason is None or reason.why is not Why.INPUT_INVALID or attempt is None or attempt.outcome is None:
            return False
        if reason.source is not None:
            return False  # what was read of a region while it ran is made anew with it
        return all(self._may_come_right(name, node) for node in self.inputs_of(name))

    def _is_invalid(self, name: str) -> bool:
        return self._invalid[name] is not None

    def _is_before(self, reason: Reason | None, region: str) -> bool:
        """It is about an input that stands before ``region``."""
        position = self.edges.position
        return reason is not None and reason.source is not None and position(reason.source) < position(region)

    def _may_come_right(self, name: str, node: str) -> bool:
        """What ``name`` has read of a node counts, or may do so once it has been made again."""
        follows = self.edge_follows(name, node, same_rows=True)
        decided = self._decided.get(node, ())
        if follows is not None:
            # What is undecided counts as it is, or is made again: either way it is not what ``name`` has read.
            return not follows or (not decided and self.why_node_superseded(name, node) is None)
        return not any(self.follows(name, producer) for producer in decided) and (
            self.why_node_superseded(name, node, self._is_invalid) is None
        )

    # edges

    def edge(self, consumer: str, producer: str) -> Sequence[tuple[str, Determinism]]:
        """What ``consumer`` reads of ``producer``, each with its mode."""
        modes = dict(self.edges.group(producer).template.determinism)
        # Of a region without results nothing can be compared: the edge is held to the attempt.
        return [(result, modes.get(result, Determinism.ALWAYS)) for result in self.results_read(consumer, producer)]

    def _remade(self, pin: InputRef) -> Attempt | None:
        """The current finish of what was read, where it is another one. `None` while there is none."""
        now = self.state.of(pin.region).current
        return now if now is not None and not _is_read_at(pin, now) else None

    def why_superseded(self, consumer: str, pin: InputRef) -> Reason | None:
        """Why the finish that counts of what was read at ``pin`` does not count as what ``consumer`` has read."""
        now = self._remade(pin)
        if now is None:
            return None
        edge = self.edge(consumer, pin.region)
        read = f"read {pin.region}@{pin.attempt}, now @{now.number}"
        if now.number == pin.attempt:
            read = f"read another {pin.region}@{pin.attempt} than there is now"
        digests, present = dict(pin.digests), _manifests(now)
        for result, mode in edge:
            if mode is Determinism.ALWAYS:
                return Reason(consumer, Why.INPUT_REMADE, read, source=pin.region)
            if mode is Determinism.ASSUME:
                continue
            before = digests.get(result)
            after = present[result].digest if result in present else None
            if before is None or after is None:
                detail = f"{read}; {result} has no digest of both"
                return Reason(consumer, Why.INPUT_REMADE, detail, source=pin.region)
            if before != after and not (is_of_rows(before) and is_of_rows(after)):
                detail = f"{read}; {result} has other files, or its rows in another order"
                return Reason(consumer, Why.INPUT_REMADE, detail, source=pin.region)
            if before != after:
                detail = f"{read}; {result} has other rows: digest {before}, now {after}"
                return Reason(consumer, Why.INPUT_DIFFERS, detail, source=pin.region)
        return None

    def _changed_rows(self, pin: InputRef, now: Attempt, results: list[str]) -> str:
        """What is known against the user's word that any finish will do: other numbers of rows."""
        read = self.state.of(pin.region).attempts.get(pin.attempt)
        before, after = _manifests(read) if read is not None else {}, _manifests(now)
        counts = [
            (result, before[result].rows, after[result].rows)
            for result in results
            if result in before and result in after
        ]
        return ", ".join(f"{result} had {was} rows, has {has}" for result, was, has in counts if was != has)

    def _why_no_finish(self, name: str) -> Reason:
        state = self.state.of(name)
        newest = state.attempts.get(state.latest_attempt)
        ended = newest.outcome if newest is not None and newest.number > state.reset_watermark else None
        if ended is not None and ended.cause is FenceCause.OWN_FAILURE:
            return Reason(name, Why.FAILED, f"attempt {ended.attempt}: {(ended.detail or '')[:200]}")
        if state.was_reset:
            marked = state.attempts[state.reset_watermark].reset
            return Reason(name, Why.RESET, f"{marked.who}: {marked.why}" if marked is not None else "")
        return Reason(name, Why.NEVER_FINISHED, f"attempt {state.latest_attempt} is open" if state.open_attempt else "")

    def _evaluate_must_run(self, node: str) -> None:
        members = self.edges.members(node)
        # Where no region of the groups that read this one runs, none of its regions is asked who reads it.
        is_read = not members or any(self._must.get(reader, ...) is not None for reader in self.edges.readers(node))
        for name in members or (node,):
            if name not in self._must:
                reason = self.invalid_because(name)
                wanted = () if name in self._decided else self._wanted(name, is_read)
                self._must[name] = (self.why_not_available(name, wanted) if wanted else None) or reason
        if members:
            self._must[node] = next((self._must[name] for name in members if self.is_decided(name)), None)

    def _wanted(self, name: str, is_read: bool) -> tuple[str, ...]:
        """The results of ``name`` that somebody wants: who reads outside the job or, if it ``is_read``, who runs."""
        in_any_case = self.wanted_in_any_case(name)
        return tuple(dict.fromkeys((*in_any_case, *self._read_by_who_runs(name)))) if is_read else in_any_case

    def _read_by_who_runs(self, name: str) -> tuple[str, ...]:
        readers = self.edges.readers(name)
        # Alike for all regions of a group that the same nodes read.
        key = self.edges.group(name).template.name, readers
        if key not in self._read_by:
            running = [
                node
                for node in readers
                if (self._must[node] is not None if self.edges.members(node) else self.is_decided(node))
            ]
            results = chain.from_iterable(self.results_read(node, name) for node in running)
            self._read_by[key] = tuple(dict.fromkeys(results))
        return self._read_by[key]

    def _check(self, region: str) -> None:
        if not self._is_planned(region):
            raise UnknownRegion(
                f"{region!r} is not a region of this plan, which has {', '.join(self._regions)}.",
                code="region-not-planned",
                found=region,
            )

    def _is_planned(self, region: str) -> bool:
        try:
            self.edges.place(region)
        except KeyError:
            return False
        return True


def _is_read_at(pin: InputRef, attempt: Attempt) -> bool:
    """Whether ``attempt``, a finish, is the one that was read at ``pin``."""
    writer = attempt.outcome.writer if attempt.outcome is not None else ""
    return attempt.number == pin.attempt and pin.token in ("", writer)


def in_order(start: str, needs: Callable[[str], Iterable[str]], done: Container[str]) -> Iterator[str]:
    """``start`` and all that it needs and is not ``done``, each one after what it needs. A long chain is no recursion.

    What is handed out is to be ``done`` before the next one is asked for.
    """
    opened: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting[-1]
        left = () if name in opened or name in done else [need for need in needs(name) if need not in done]
        if left:
            opened.add(name)
            waiting += left
        else:
            waiting.pop()
            if name not in done:
                yield name


def _changed_external(recorded: tuple[ExternalObject, ...], today: tuple[ExternalObject, ...]) -> str | None:
    before = {(external.vertex, external.uri): external for external in recorded}
    now = {(external.vertex, external.uri): external for external in today}
    for key in sorted(before.keys() | now.keys()):
        # A table's snapshot is told by its number: one that has expired tells no size any more.
        is_same = before.get(key) == now.get(key) or (
            is_table(key[1]) and key in before and key in now and before[key].etag == now[key].etag
        )
        if not is_same:
            if is_stated(key[1]) and key in before and key in now:
                return f"input {name_of(*key)} was {before[key].etag!r}, is now {now[key].etag!r}"
            what = "is new" if key not in before else "is gone" if key not in now else "has other content"
            return f"{name_of(*key) if is_stated(key[1]) else key[1]} {what}"
    return None


def _other_inputs(read: Sequence[InputRef], reads: Sequence[str]) -> str:
    if isinstance(read, Inputs) and not read.is_known:
        return f"read {', '.join(read.texts())}, of a group that no recorded plan has"
    before, now = sorted(ref.region for ref in read), sorted(reads)
    if max(len(before), len(now)) <= WIDE:
        return f"read {before}, reads {now}"
    return f"read {len(before)} regions, reads {len(now)}, of which {len({*before} & {*now})} are the same"


def _other_absent(before: Sequence[str], now: Sequence[str]) -> str:
    """Which optional inputs are absent now and were not, or are there and were absent."""
    gone, come = sorted({*now} - {*before}), sorted({*before} - {*now})
    texts = [f"{', '.join(gone)} is absent in this run"] if gone else []
    return "; ".join(texts + ([f"{', '.join(come)} was absent, and is there"] if come else []))


def _manifests(attempt: Attempt) -> dict[str, PartitionManifest]:
    return {output.result: output for output in attempt.outcome.outputs} if attempt.outcome is not None else {}
