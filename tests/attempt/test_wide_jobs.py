"""A plan of groups leads to what the same plan leads to that has every region, and every input, by itself."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pytest
from expected_errors import fails_with
from fakes import IDENTITY, PUBLISH, MemoryStore, World

from airflow_recovery import BLOCKING, job, same_as
from airflow_recovery.attempt.job_plan import JobPlan, plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import InputsUnknown, ObjectMissing
from airflow_recovery.job import Job
from airflow_recovery.journal import codec
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model import groups
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import DistributionPattern, GroupEdge, GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import InputRef, Inputs
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, AttemptTrace, Claim, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.results.readers import read_by, readers_of

POINTWISE, ALL_TO_ALL = DistributionPattern.POINTWISE, DistributionPattern.ALL_TO_ALL


@pytest.fixture
def every_group_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "WIDE", 1)


@dataclass(frozen=True)
class Layout:
    """A group of a world: its keys, and whom it reads."""

    keys: tuple[str, ...] | None = None
    reads: Mapping[str, DistributionPattern] = field(default_factory=dict)


@dataclass
class GroupWorld(World):
    """A world whose plan is made of groups; ``is_written_out``: the same plan, region by region."""

    layout: Mapping[str, Layout] = field(default_factory=dict)
    is_written_out: bool = False
    code: dict[str, str] = field(default_factory=dict)

    @cached_property
    def group_names(self) -> dict[str, str]:
        return {name: group.name for group in self._groups() for name in group.names}

    def _groups(self) -> list[RegionGroup]:
        return [self._group(name, layout) for name, layout in self.layout.items()]

    def _group(self, name: str, layout: Layout) -> RegionGroup:
        vertices = ((name, self.code.get(name, "code 1")),)
        template = RegionPlan(
            name=name,
            vertices=(name,),
            results=(name,),
            inputs=(),
            final=not any(name in other.reads for other in self.layout.values()),
            fingerprint=None if layout.keys else groups.region_fingerprint(vertices, (name,)),
            vertex_fingerprints=vertices,
            reads=tuple(layout.reads),
            determinism=((name, self.modes[name]),) if name in self.modes else (),
        )
        edges = tuple(GroupEdge(producer, pattern) for producer, pattern in layout.reads.items())
        return RegionGroup(template, edges, layout.keys)

    @property
    def plan(self) -> PlanRecord:
        regions = GroupedRegions(self._groups())
        return PlanRecord("x:y", tuple(regions) if self.is_written_out else regions)

    def results_of(self, region: str) -> tuple[str, ...]:
        return (self.group_names[region],)

    def content_of(self, region: str, attempt: int, read: str) -> str:
        made = region if self.group_names[region] in self.constant else f"{region} of {read}"
        return f"{made} by attempt {attempt}" if self.group_names[region] in self.unstable else made


def world(layout: Mapping[str, Layout], **more: Any) -> GroupWorld:
    empty = GroupWorld({}, layout=layout)
    upstream = {region.name: tuple(region.inputs) for region in empty.plan.regions}
    return GroupWorld(upstream, layout=layout, **more)


def random_layout(draw: random.Random) -> dict[str, Layout]:
    keys = [tuple("123"), tuple("ab")]
    layout: dict[str, Layout] = {}
    for name in "PQRST"[: draw.randint(2, 5)]:
        own = draw.choice([None, *keys])
        reads = {}
        for producer in draw.sample(sorted(layout), draw.randint(0, min(2, len(layout)))):
            can_match = own is not None and layout[producer].keys == own
            reads[producer] = POINTWISE if can_match and draw.random() < 0.4 else ALL_TO_ALL
        layout[name] = Layout(own, reads)
    return layout


def disturb(draw: random.Random, twins: tuple[GroupWorld, GroupWorld]) -> None:
    region = draw.choice(list(twins[0].upstream))
    action = draw.choice(["lose", "lose", "restart", "change"])
    group = twins[0].group_names[region]
    for twin in twins:
        if action == "lose":
            twin.delete_results(region, twin.current(region))
            for reader in twin.plan.readers[region][-1:]:
                twin.restart(reader)
        elif action == "restart":
            twin.restart(region)
        else:
            twin.code[group] = twin.code.get(group, "code 1") + "+"
            twin.airflow.clear(region)


def read_in(state: Any) -> dict[tuple[str, int], tuple[tuple[str, int], ...]]:
    return {
        (name, number): tuple((ref.region, ref.attempt) for ref in attempt.outcome.inputs)
        for name, region in state.regions.items()
        for number, attempt in region.attempts.items()
        if attempt.outcome is not None
    }


@pytest.mark.slow
@pytest.mark.usefixtures("every_group_is_wide")
@pytest.mark.parametrize("seed", range(25))
def test_a_grouped_plan_runs_again_what_the_plan_written_out_runs_again(seed: int) -> None:
    draw = random.Random(seed)
    layout = random_layout(draw)
    modes = {name: draw.choice(list(Determinism)) for name in layout}
    constant = frozenset(name for name in layout if draw.random() < 0.5)
    unstable = frozenset(name for name in layout if draw.random() < 0.2)
    settings = {"modes": modes, "constant": constant, "unstable": unstable}
    twins = (world(layout, **settings), world(layout, is_written_out=True, **settings))
    grouped, flat = twins
    for twin in twins:
        twin.until_green(200)
    for _ in range(4):
        disturb(draw, twins)
        assert grouped.until_green(200) == flat.until_green(200)
        assert grouped.ran == flat.ran
        assert read_in(grouped.state()) == read_in(flat.state())
    for twin in twins:
        twin.airflow.clear(PUBLISH)
        twin.until_green(200)
    reports = [twin.verify() for twin in twins]
    assert [report.violated for report in reports] == [(), ()], reports[0].text()
    formats = {json.loads(stored)["format"] for stored in bodies(grouped)}
    has_group = any(layout[name].keys for each in layout.values() for name in each.reads)
    assert formats == ({1, 2} if has_group else formats)
    assert {json.loads(stored)["format"] for stored in bodies(flat)} == {1}


def bodies(of: World) -> list[bytes]:
    found = [of.journal_store.get(info.key).body for info in of.journal_store.list("")]
    return [body for body in found if body.startswith(b'{"body"')]


WIDE_PAIR = {"P": Layout(tuple("123")), "C": Layout(tuple("ab"), {"P": ALL_TO_ALL})}


def test_records_of_both_formats_stand_side_by_side_after_an_upgrade_in_the_middle_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = world(WIDE_PAIR)
    run.go_all(["P[1]", "P[2]", "P[3]", "C[a]"])
    assert {json.loads(body)["format"] for body in bodies(run)} == {1}
    monkeypatch.setattr(groups, "WIDE", 1)
    run.go("C[b]")
    assert run.ran[-1] == ("C[b]", 1)
    assert {json.loads(body)["format"] for body in bodies(run)} == {1, 2}
    # What the version before had made is kept, and what is lost is made again, by groups.
    run.delete_results("P[2]", 1)
    run.restart("C[a]")
    run.until_green()
    assert run.ran[-3:] == [("P[2]", 2), ("C[a]", 2), ("C[b]", 2)]
    claim = run.journal().read_claim("C[b]", 2)
    assert isinstance(claim.inputs, Inputs)
    assert list(claim.inputs) == [InputRef("P[1]", 1), InputRef("P[2]", 2), InputRef("P[3]", 1)]
    assert run.verify().violated == ()


@pytest.mark.usefixtures("every_group_is_wide")
def test_an_older_version_refuses_a_grouped_record_by_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    run = world(WIDE_PAIR)
    run.go_all()
    monkeypatch.setattr(codec, "FORMAT_VERSION", 1)
    monkeypatch.setattr(codec, "_end_of_record", codec._end_of_record.__wrapped__)  # it knows the formats of before
    with fails_with("record-newer", format=2):
        run.journal().read_claim("C[a]", 1)
    with fails_with("record-newer"):
        run.journal().read_plan(plan_hash(run.plan))
    assert run.journal().read_claim("P[1]", 1).inputs == ()


@pytest.mark.usefixtures("every_group_is_wide")
def test_without_any_plan_that_has_the_group_nothing_is_kept_and_nothing_deleted() -> None:
    run = world(WIDE_PAIR)
    run.go_all(["P[1]", "P[2]", "P[3]", "C[a]"])
    claimed = run.journal().read_claim("C[a]", 1)
    open_claim = replace(claimed, region="C[b]")
    run.journal().claim(open_claim)
    journal = run.journal()
    assert readers_of(journal, "P[1]", 1) == ["C[b]@1"]
    assert readers_of(journal, "P[1]", 2) == []
    run.journal_store.delete([info.key for info in run.journal_store.list("") if "/plan/" in info.key])
    lost = run.journal()
    with pytest.raises(ObjectMissing):
        lost.read_plan(claimed.plan_hash)
    assert readers_of(lost, "P[1]", 2) == readers_of(lost, "C[a]", 5) == ["C[b]@1"]
    with pytest.raises(InputsUnknown):
        read_by(lost.open_claims())
    other = PlanRecord(
        "x:y", tuple(replace(region, inputs=region.inputs[:2] if region.inputs else ()) for region in run.plan.regions)
    )
    state = lost.load(lost.list(run.upstream))
    evaluation = Evaluation(other, state, available=lambda region, attempt, result: None)
    reason = evaluation.invalid_because("C[a]")
    assert reason is not None
    assert reason.why is Why.INPUTS_CHANGED
    assert "no recorded plan" in reason.detail
    # Whoever has the group in the plan in use can tell, whatever is recorded: also that it was made again since.
    assert Evaluation(run.plan, state, available=lambda *asked: None).invalid_because("C[a]") is None
    made_again = replace(state.of("P[2]").attempts[1], number=2)
    producer = replace(state.of("P[2]"), attempts={**state.of("P[2]").attempts, 2: made_again})
    later = replace(state, regions={**state.regions, "P[2]": producer})
    reason = Evaluation(run.plan, later, available=lambda *asked: None).invalid_because("C[a]")
    assert reason is not None
    assert reason.why is Why.INPUT_REMADE


# --- a declared job, from its declaration to a plan after a lost result


AT = "2026-01-01T00:00:00+00:00"


def wide_job(count: int) -> Job:
    made = job("wide", version="1")

    @made.source(result=BLOCKING, parallelism=count, version="1")
    def made_of(spark: Any) -> Any: ...

    @made.vertex(result=BLOCKING, parallelism=same_as("made_of"), params={"key": "{{ subtask }}"}, version="1")
    def cleaned(made_of: Any, key: str) -> Any: ...

    @made.sink(parallelism=[f"k{number}" for number in range(count)], version="1")
    def shown(cleaned: Any) -> Any: ...

    return made


def declared(count: int) -> JobPlan:
    return plan_job(wide_job(count), "x:y", RunFacts(AT, None, None, {}, {}))


def test_a_narrow_job_has_the_plan_and_the_bytes_that_it_had_without_groups() -> None:
    plan = declared(groups.WIDE)
    flat = replace(plan.record, regions=tuple(plan.record.regions))
    assert plan_hash(plan.record) == plan_hash(flat)
    assert codec.encode_record(IDENTITY, plan.record) == codec.encode_record(IDENTITY, flat)
    assert not isinstance(plan.record.grouped("shown[k1]", []), Inputs)


def test_a_plan_of_groups_says_of_each_region_what_is_rendered_for_it() -> None:
    plan = declared(groups.WIDE + 1)
    region = plan.record.by_name["cleaned[7]"]
    execution = plan.regions["cleaned[7]"]
    assert execution.params == {"cleaned": {"key": "7"}}
    assert (execution.subtask.index, execution.subtask.key) == (7, "7") if execution.subtask else False
    assert execution.inputs == region.inputs == ("made_of[7]",)
    assert len({planned.fingerprint for planned in plan.record.regions}) == len(plan.record.regions)
    batched = plan.in_batches(lambda count: 10).record
    assert [each.subtask.batch for each in batched.subtasks["shown"] if each.subtask] == [
        at // 10 for at in range(groups.WIDE + 1)
    ]


@pytest.mark.slow
def test_1000_by_1000_all_to_all_from_the_declaration_to_the_plan_after_a_lost_result() -> None:
    plan = declared(1_000).record
    body = codec.encode_record(IDENTITY, plan)
    assert len(body) < 256 * 1024
    again = codec.decode_record(IDENTITY, PlanRecord, body, where="x")
    assert again == plan
    assert plan_hash(again) == plan_hash(plan)

    journal = Journal(MemoryStore("memory://journal"), IDENTITY, writer="w")
    journal.put_plan(plan)
    finished: dict[str, Outcome] = {}
    for region in plan.regions:
        refs = [InputRef(name, finished[name].attempt) for name in region.inputs]
        claim = Claim(
            region.name, 1, "w", plan_hash(plan), plan.grouped(region.name, refs), "run", 1, "ti", "tag", claimed_at=AT
        )
        assert len(codec.encode_record(IDENTITY, claim)) < 16 * 1024
        journal.claim(claim)
        if region.name == "shown[k3]":
            continue
        trace = AttemptTrace(region.name, 1, "w", region.fingerprint or "", claim.inputs, ())
        output = PartitionManifest(region.results[0], f"s3://lake/{region.name}", (ResultObject("part-0", 1, "etag"),))
        finished[region.name] = trace.finished(AT, (output,))
        assert len(codec.encode_record(IDENTITY, finished[region.name])) < 16 * 1024
        journal.finish(finished[region.name])

    reader = Journal(journal.store, IDENTITY, writer="other")
    recorded = reader.read_plan(plan_hash(plan))
    state = reader.load(reader.list(recorded.by_name))

    def available(region: str, attempt: Any, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING, "part-0 is gone") if region == "cleaned[7]" else None

    evaluation = Evaluation(recorded, state, available=available)
    assert list(evaluation.lost_inputs("shown[k3]")) == ["cleaned[7]"]
    assert evaluation.why_must_run("shown[k4]") is None
    assert evaluation.why_must_run("cleaned[7]") is not None
    assert evaluation.why_must_run("cleaned[8]") is None
    assert state.of("shown[k4]").current is not None
    assert state.of("shown[k4]").attempts[1].outcome == replace(finished["shown[k4]"], state=AttemptState.FINISHED)
