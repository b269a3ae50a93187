"""The write-once records that recovery is a fold over (docs/protocol.md#objects), and their JSON form.

Every record carries the identity of the run it belongs to, so that a journal of another DAG, run or environment under
the same prefix is refused. `airflow_recovery.journal.codec` turns records into bytes and back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, ClassVar

from airflow_recovery.errors import Failure
from airflow_recovery.locations import is_stated
from airflow_recovery.model.codec import AttemptFolder, Id, Key, digest_of, flat, later, to_json
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.components import Component
from airflow_recovery.model.dag_run import DagRunRecord
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.groups import DistributionPattern, GroupedRegions, RegionGroup, Regions
from airflow_recovery.model.inputs import InputRef, InputRefs, Inputs, grouped
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.mode import BATCH, RegionMode, value_class
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.retention import Retention


@dataclass(frozen=True)
class RunIdentity:
    """Which run of which job a journal belongs to.

    ``run_key`` names the logical date, else the asset partition, else the run id (`airflow_recovery.journal.layout`),
    so that a backfill, a cleared run or a re-created run finds the same journal.
    """

    dag_id: str
    run_key: str
    group_id: str


class AttemptState(str, Enum):
    """How an attempt ended: with a result (``FINISHED``), or without one (``FENCED``, see `FenceCause`)."""

    FINISHED = "FINISHED"
    FENCED = "FENCED"


class FenceCause(str, Enum):
    """Why an attempt was ended without a result."""

    OWN_FAILURE = "own failure"
    SUPERSEDED = "superseded"
    LOST_INPUT = "lost input"


@dataclass(frozen=True)
class ExternalObject:
    """One object outside the job that a vertex read: its full URI and identity."""

    vertex: str
    uri: str
    size: int
    etag: str


@dataclass(frozen=True)
class CoordinatorSnapshot:
    """What the coordinator of ``vertex`` left with the finish of ``region``: an outcome's, as a driver is given it.

    ``body`` is base64.
    """

    vertex: str
    region: str
    body: str


@dataclass(frozen=True)
class PlanRecord:
    """``plan/<hash>``: topology and fingerprints of one version of the job for one run.

    A plan is made of groups of regions (`GroupedRegions`) or of regions. Either way it has both: regions that are not
    grouped are groups of one.
    """

    job: str
    regions: Regions
    """In topological order. Those of a group are made when they are asked for."""
    retention: Retention | None = later(None)
    """When intermediate results may go; `None`: as configured where they are released."""
    failover_strategy: FailoverStrategy = later(FailoverStrategy.REGION)

    @property
    def groups(self) -> Sequence[RegionGroup]:
        """The groups, in topological order. `regions` has them one after the other."""
        return self._grouped.groups

    @property
    def groups_by_name(self) -> Mapping[str, RegionGroup]:
        """The groups by name, in topological order."""
        return self._grouped.by_group

    @property
    def reading_groups(self) -> Mapping[str, Sequence[tuple[RegionGroup, DistributionPattern]]]:
        """The groups that read something of each group, in topological order, and by which pattern."""
        return self._grouped.reading

    def group_of(self, region: str) -> RegionGroup:
        """The group that has the region of that name. Raises `KeyError`."""
        return self._grouped.group_of(region)

    def place(self, region: str) -> tuple[RegionGroup, int]:
        """The group that has the region of that name, and the region's index in it. Raises `KeyError`."""
        return self._grouped.place(region)

    def reads(self, region: str, refs: Sequence[InputRef], absent: Collection[str] = ()) -> bool:
        """Whether ``refs`` are the inputs of the region of that name: all but the ``absent`` ones, and no others."""
        return self.reads_at(*self.place(region), refs, absent)

    def reads_at(self, group: RegionGroup, index: int, refs: Sequence[InputRef], absent: Collection[str] = ()) -> bool:
        """As `reads`, of the region at that `place`. Only an optional input of the region may be absent.

        False too where what ``refs`` stand for is not known. As cheap as there are groups, if both name the same ones.
        """
        if not group.inputs:
            return not refs
        whole: Mapping[str, str] = {}
        if type(refs) is Inputs:
            whole = {producer.name: producer.keys_digest for producer in self._read_as_groups(group)}
            if whole == {name: ref.keys for name, ref in refs.groups.items()}:
                read = list(refs.singles)
            elif refs.is_known:
                read, whole = [ref.region for ref in refs], {}
            else:
                return False
        else:
            read = [ref.region for ref in refs]
        expected: list[str] = []
        groups = self.groups_by_name
        for edge in group.inputs:
            producer = groups[edge.group]
            if producer.keys is None:
                expected.append(edge.group)
            elif edge.pattern is DistributionPattern.POINTWISE:
                expected.append(producer.name_at(index))
            elif edge.group not in whole:
                expected += producer.names
        if absent:
            if not set(absent) <= set(group.template.optional):
                return False
            expected = [name for name in expected if name not in absent]
        return read == expected or set(read) == set(expected)

    def grouped(self, region: str, refs: Sequence[InputRef]) -> Sequence[InputRef]:
        """``refs`` as a record of that region has them: a wide group that it reads as a whole is named once."""
        return grouped(refs, self._read_as_groups(self.group_of(region)))

    def find_group(self, name: str, keys: str) -> RegionGroup | None:
        """The group of that name whose keys have that digest (`RegionGroup.keys_digest`), if it is in this plan."""
        group = self.groups_by_name.get(name)
        return group if group is not None and group.keys_digest == keys else None

    @cached_property
    def by_name(self) -> Mapping[str, RegionPlan]:
        """The regions by name, in topological order."""
        if isinstance(self.regions, GroupedRegions):
            return self.regions.by_name
        return {region.name: region for region in self.regions}

    @property
    def position(self) -> Mapping[str, int]:
        """Where each region stands in topological order."""
        return self._grouped.position

    @property
    def readers(self) -> Mapping[str, Sequence[str]]:
        """The regions that read something of each region, in topological order."""
        return self._grouped.readers

    @cached_property
    def read(self) -> frozenset[str]:
        """The results that some region reads."""
        return frozenset(result for group in self.groups for result in group.template.reads)

    @cached_property
    def subtasks(self) -> Mapping[str, Sequence[RegionPlan]]:
        """The regions that are subtasks, by what they are subtasks of."""
        if isinstance(self.regions, GroupedRegions):
            return self.regions.subtasks
        subtasks: dict[str, list[RegionPlan]] = {}
        for region in self.regions:
            if region.subtask is not None:
                subtasks.setdefault(region.subtask.of, []).append(region)
        return subtasks

    @cached_property
    def subtask_names(self) -> Mapping[str, Sequence[str]]:
        """As `subtasks`: their names."""
        if isinstance(self.regions, GroupedRegions):
            return {group.name: group.names for group in self.groups if group.keys is not None}
        return {vertex: [region.name for region in regions] for vertex, regions in self.subtasks.items()}

    def _read_as_groups(self, group: RegionGroup) -> Sequence[RegionGroup]:
        edges = group.inputs
        whole = (self.groups_by_name[edge.group] for edge in edges if edge.pattern is DistributionPattern.ALL_TO_ALL)
        return [group for group in whole if group.is_wide]

    @cached_property
    def _grouped(self) -> GroupedRegions:
        return GroupedRegions.of(self.regions)


@dataclass(frozen=True)
class ReadMetrics:
    """How much an attempt read, by its inputs' manifests: files, bytes, rows (`None`: some are not counted)."""

    files: int
    bytes: int
    rows: int | None

    @classmethod
    def of(cls, inputs: Sequence[PartitionManifest], externals: Sequence[ExternalObject]) -> ReadMetrics:
        """The sums over everything that was read. The rows of external objects are not known."""
        counted = [manifest.rows for manifest in inputs if manifest.rows is not None]
        return cls(
            files=sum(len(manifest.objects) for manifest in inputs)
            + sum(not is_stated(external.uri) for external in externals),
            bytes=sum(manifest.size for manifest in inputs) + sum(external.size for external in externals),
            rows=sum(counted) if len(counted) == len(inputs) and not externals else None,
        )


@dataclass(frozen=True)
class StoredXComs:
    """The object with the XComs of an attempt's task, its return value, and what its asset events carry.

    ``digest``: the SHA-256 of the object, 64 hex digits, which also is its name. Empty if the task left something that
    could not be stored; ``why`` then has the reason. ``size``: its bytes.
    """

    digest: str
    size: int
    why: str = ""
    folder: AttemptFolder | None = later(None)
    """`Claim.folder` of the attempt, below which the object lies."""


@dataclass(frozen=True)
class Declaration:
    """Digests of what an operator declares, before Airflow renders its arguments: 32 hex digits each.

    ``own``: its class, its arguments as they are written, and the files of this machine that they name. ``above``: the
    same of all operators that it reads, directly or through others.
    """

    own: str
    above: str


@dataclass(frozen=True)
class RunAttempt:
    """One attempt of one run's region, as a shared result's journal names it: who makes it, or who reads it."""

    dag_id: Id
    run_key: Id
    group_id: Id
    region: Id
    attempt: int


@dataclass(frozen=True)
class SharedRef:
    """Attempt ``attempt`` of the shared region ``region``, in the journal of the shared results ``key``."""

    key: Id
    region: Id
    attempt: int


@dataclass(frozen=True)
class CommittedBatch:
    """``t/<region>/<n>.part-<k>``: these splits are read, and what became of them is written. One writer, no holes.

    ``splits`` are content keys. ``outputs`` has a manifest for every result of the region, each in a folder of its own.
    ``lost``: why its splits could not be read, within the loss budget; it has no outputs then.
    """

    region: Id
    attempt: int
    number: int
    writer: str
    splits: tuple[str, ...]
    outputs: tuple[PartitionManifest, ...]
    written_at: str
    seconds: float | None = None
    lost: Failure | None = None
    accumulators: tuple[tuple[str, float], ...] = later(())
    """What user code counted while it read these splits: (name, sum), by name."""


@dataclass(frozen=True)
class Claim:
    """``t/<region>/<n>.claim``: written before Spark is submitted; pins the inputs while the attempt is open."""

    region: Id
    attempt: int
    writer: str
    plan_hash: str
    inputs: InputRefs
    airflow_run_id: str
    try_number: int
    ti_id: str
    tag: str
    claimed_at: str
    epoch: str | None = None
    max_tries: int | None = later(None)
    """Airflow's ``max_tries`` since the start or the last clear by a person: claims with one value share a budget."""
    owner: RunAttempt | None = later(None)
    """In the journal of shared results: whose claim this is."""
    process: str | None = later(None)
    """The process with which the attempt ends (`airflow_recovery.driver.process_identity`), unless its driver has a
    keeper on that machine (`airflow_recovery.driver.submit_keeper`); `None`: none is known."""
    commit_number: int | None = later(None)
    """As which attempt the target of its sink is to count it: above whatever was committed there before."""
    outdated: int | None = later(None)
    """The finish that its region had then and that was not valid any more. It counts for nobody else either, until the
    region's own task has found it valid again (`Kept`)."""
    absent: tuple[Id, ...] = later(())
    """The optional inputs that this DAG run does not have: regions that were skipped, or have failed."""
    dag_run: DagRunRecord | None = later(None)
    """The DAG run that the attempt is made for. `None` in claims of earlier versions, and of shared results."""
    assets: tuple[ExternalObject, ...] = later(())
    """The inputs that are assets of Airflow, as they were found: what Airflow knows of them may be deleted."""
    folder: AttemptFolder | None = later(None)
    """The folder that the attempt writes to. Its random part makes it the folder of this claim only, even if a journal
    that came back from a backup gives the number again. `None` in claims of earlier versions: the number alone."""
    components: str | None = later(None)
    """Names the `FingerprintRecord` of what the attempt is made of. `None` in claims of earlier versions."""
    after_clear: bool = later(False)
    """The result before it was valid. The task was cleared, and code that it depends on can't be seen."""
    declared: Declaration | None = later(None)
    """What the DAG of this try declares of the operator; `None` for a region of a declared job."""
    mode: RegionMode = flat(BATCH, value_class)
    """What the region's mode pins with the claim."""


@dataclass(frozen=True)
class FingerprintRecord:
    """``fingerprint/<name>``: what attempts are made of: their code, settings and arguments. For users only.

    No decision depends on it. ``name`` is a digest of its content, so that attempts with equal components share it. A
    value that Airflow masks is a keyed digest here.
    """

    components: tuple[Component, ...]

    @property
    def name(self) -> str:
        """32 hex digits."""
        return digest_of(to_json(self))[:32]


@dataclass(frozen=True)
class Outcome:
    """``t/<region>/<n>.outcome``: the one object that ends an attempt. Finished: the trace and the manifests."""

    free_text: ClassVar[frozenset[str]] = frozenset({"detail", "undeclared"})

    region: Id
    attempt: int
    state: AttemptState
    writer: str
    ended_at: str
    fingerprint: str | None = None
    inputs: InputRefs = ()
    externals: tuple[ExternalObject, ...] = ()
    outputs: tuple[PartitionManifest, ...] = ()
    spark_seconds: float | None = None
    application_id: str | None = None
    cause: FenceCause | None = None
    detail: str | None = None
    failure: Failure | None = None
    shared: SharedRef | None = later(None)
    """The outputs are those of a shared result, which this attempt holds until it is released."""
    subtasks: tuple[str, ...] = later(())
    """Of what decides a parallelism in the run: the keys by map index (FLIP-383's initialised job vertex)."""
    read: ReadMetrics | None = later(None)
    accumulators: tuple[tuple[str, float], ...] = later(())
    """What user code has counted (`airflow_recovery.job.accumulators`): (name, sum), by name."""
    worker: str | None = later(None)
    """The host on which the driver ran."""
    commit: CommitSpec | None = later(None)
    """FINISHED is only prepared: it counts for success once `Committed` says that this was done."""
    coordinators: tuple[tuple[str, str], ...] = later(())
    """(vertex, snapshot of its coordinator as base64)."""
    xcoms: StoredXComs | None = later(None)
    """What the task left in Airflow besides its state, which a kept try leaves there again; `None`: nothing."""
    budget_ended: str | None = later(None)
    """Of a failure after which the region is not restarted: which restart budget it has ended, in words."""
    absent: tuple[Id, ...] = later(())
    """As in its claim."""
    dag_run: DagRunRecord | None = later(None)
    """As its claim has it, if the attempt is finished."""
    undeclared: tuple[str, ...] = later(())
    """What the driver of a declared job has seen its vertices read, and nobody has declared, each as a text."""
    declared: Declaration | None = later(None)
    """As its claim has it, if the attempt is finished."""
    mode: RegionMode = flat(BATCH, value_class)
    """What the region's mode has recorded of the attempt."""

    def is_of_other_code(self, fingerprint: str | None) -> bool:
        """Whether code with another fingerprint made the attempt. `False` where one of the two is not known."""
        return None not in (self.fingerprint, fingerprint) and self.fingerprint != fingerprint


@dataclass(frozen=True)
class AttemptTrace:
    """Which attempt it is and what it rests on: known at its claim, and written down in its outcome."""

    region: str
    attempt: int
    writer: str
    fingerprint: str
    inputs: InputRefs
    externals: tuple[ExternalObject, ...]
    commit: CommitSpec | None = None
    absent: tuple[Id, ...] = later(())
    mode: RegionMode = flat(BATCH, value_class)
    dag_run: DagRunRecord | None = later(None)
    declared: Declaration | None = later(None)

    def finished(  # noqa: PLR0913 - what an outcome says
        self,
        ended_at: str,
        outputs: tuple[PartitionManifest, ...],
        *,
        spark_seconds: float | None = None,
        application_id: str | None = None,
        subtasks: tuple[str, ...] = (),
        read: ReadMetrics | None = None,
        accumulators: tuple[tuple[str, float], ...] = (),
        worker: str | None = None,
        coordinators: tuple[tuple[str, str], ...] = (),
        xcoms: StoredXComs | None = None,
        mode: RegionMode | None = None,
        undeclared: tuple[str, ...] = (),
    ) -> Outcome:
        """The outcome with which the attempt is finished. The only place that makes one for an attempt that ran.

        ``mode``: what the region's mode records of it, where that was not known at the claim.
        """
        return Outcome(
            region=self.region,
            attempt=self.attempt,
            state=AttemptState.FINISHED,
            writer=self.writer,
            ended_at=ended_at,
            fingerprint=self.fingerprint,
            inputs=self.inputs,
            externals=self.externals,
            outputs=outputs,
            spark_seconds=spark_seconds,
            application_id=application_id,
            subtasks=subtasks,
            read=read,
            accumulators=accumulators,
            worker=worker,
            commit=self.commit,
            coordinators=coordinators,
            absent=self.absent,
            dag_run=self.dag_run,
            declared=self.declared,
            xcoms=xcoms,
            undeclared=undeclared,
            mode=self.mode if mode is None else mode,
        )


@dataclass(frozen=True)
class Reset:
    """``t/<region>/<n>.reset``: attempts up to and including ``attempt`` do not count."""

    free_text: ClassVar[frozenset[str]] = frozenset({"who", "why"})

    region: Id
    attempt: int
    who: str
    why: str
    epoch: str | None = None
    failover: bool = later(False)
    """By a strategy that restarts more than the region, not by a person: it forgives no failure.

    See docs/protocol.md#principles.
    """
    answers: str | None = later(None)
    """Of a failover: ``region@attempt``, whose restart takes this one along."""
    altered: bool = later(False)
    """Of a streaming region: what it makes is another thing now (its schema, its subpartitions). Only its output
    channel begins a new generation; what it has read so far stays read, and its checkpoints stand."""


@dataclass(frozen=True)
class Kept:
    """``t/<region>/<n>.kept``: after attempt n was claimed, the region's own task has found an earlier finish valid.

    ``kept``: the number of that finish. Written only where the claim of attempt n calls it outdated.
    """

    region: Id
    attempt: int
    kept: int


@dataclass(frozen=True)
class Declared:
    """``t/<region>/<n>.declared-<turn>``: attempt n is compared with another declaration of its operator.

    ``who``: a task that reads the operator asks whether attempt n is what it makes today. The operator's own task
    answers that it is, under ``own``, the digest that it has itself.
    """

    region: Id
    attempt: int
    turn: int
    who: Id
    own: str

    @property
    def is_answer(self) -> bool:
        """Whether the operator's own task has written it."""
        return self.who == self.region


@dataclass(frozen=True)
class Lost:
    """``t/<region>/<n>.lost``: a consumer's report that a result is gone. Has no authority; the owner evaluates."""

    free_text: ClassVar[frozenset[str]] = frozenset({"evidence", "plan"})

    region: Id
    attempt: int
    reporter: str
    evidence: tuple[str, ...]
    producer_ti_id: str = ""
    """The producer's task instance when it was cleared: another one later has verified the result since."""
    plan: tuple[tuple[str, str], ...] = ()
    """The decision as shown to a person: (region, why it must run)."""
    airflow_run_id: str | None = later(None)
    """The DAG run of that task instance, in which alone its task may have been cleared for this report."""


@dataclass(frozen=True)
class Released:
    """``t/<region>/<n>.released``: the data of this attempt may not be used any more."""

    free_text: ClassVar[frozenset[str]] = frozenset({"who"})

    region: Id
    attempt: int
    who: str


@dataclass(frozen=True)
class SplitGeneration:
    """``_splits/<run>/<vertex>/assignment-<g>``: which subtask of a source reads which split; the highest ``g`` counts.

    A split is (URI, size, etag, index of its subtask), in the order of the URIs. ``gone`` are those that are not listed
    any more: should one come back, it has the home that it had. (Written by earlier versions, they are there only where
    their source keeps what was read of them.) ``enumerator``: the state, as JSON, of one that goes on where it was.
    """

    vertex: Id
    generation: int
    writer: str
    parallelism: int
    splits: tuple[tuple[str, int, str, int], ...]
    gone: tuple[tuple[str, int, str, int], ...] = later(())
    enumerator: str | None = later(None)


class CommitEnd(str, Enum):
    """How the commit of a finished attempt ended."""

    COMMITTED = "COMMITTED"
    ABANDONED = "ABANDONED"
    """It will never be committed: what it had prepared is gone, was reset, or is refused by its target for good; and
    nobody is left who could still commit it, or the target would refuse that."""
    SUPERSEDED = "SUPERSEDED"
    """Its sink keeps the rows of the latest date, and a later date had committed: the target was not changed. The
    finish counts. ``probe`` names the later date."""


ADOPTED_FROM = "adopted from "
"""Begins the `Committed.probe` of a finish that was made under a task's old name. What stands there is the name."""


@dataclass(frozen=True)
class Committed:
    """``t/<region>/<n>.committed``: how the commit of a finished attempt ended, by whoever completed or probed it.

    ``commit_id`` is the target's own name of the commit, ``probe`` what it said when it was asked (empty: not asked).
    """

    region: Id
    attempt: int
    end: CommitEnd
    who: str
    commit_id: str
    probe: str


@dataclass(frozen=True)
class CommitterEpoch:
    """``t/<region>/<n>.committer-<epoch>``: process ``writer`` alone may commit from now on (probe-only sinks).

    Epoch 1 needs no object: it is the process that finished the attempt.
    """

    region: Id
    attempt: int
    epoch: Annotated[int, Key("turn")]
    writer: str


@dataclass(frozen=True)
class CommitterDead:
    """``t/<region>/<n>.confirmed-<epoch>``: the process of that epoch commits no more; the next epoch may begin.

    ``who`` is the person who has confirmed it, or the process itself.
    """

    free_text: ClassVar[frozenset[str]] = frozenset({"who", "why"})

    region: Id
    attempt: int
    epoch: Annotated[int, Key("turn")]
    who: str
    why: str


@dataclass(frozen=True)
class Pin:
    """``t/<region>/<n>.hold-<turn>``: a person's word on whether the data of a finished attempt may be released.

    An odd turn pins them, the even one that follows unpins them: the names alone tell which of the two is true now.
    """

    free_text: ClassVar[frozenset[str]] = frozenset({"who", "why"})

    region: Id
    attempt: int
    turn: int
    who: str
    why: str

    @property
    def is_pinned(self) -> bool:
        """Whether this turn pins the data, and does not unpin it."""
        return self.turn % 2 == 1


@dataclass(frozen=True)
class Withdrawal:
    """``t/<region>/<n>.withdrawn-<turn>``: whether readers outside the run are given what an attempt has made.

    An odd turn withdraws the attempt, the even one that follows gives it back. The run's own tasks do not look at it.
    """

    free_text: ClassVar[frozenset[str]] = frozenset({"who", "reason"})

    region: Id
    attempt: int
    turn: int
    who: str
    reason: str

    @property
    def is_withdrawn(self) -> bool:
        """Whether this turn withdraws the attempt, and does not give it back."""
        return self.turn % 2 == 1

    def text(self) -> str:
        """Which attempt, by whom and why."""
        return f"{self.region}@{self.attempt}, by {self.who}: {self.reason}"


@dataclass(frozen=True)
class PublishedRegion:
    """One region in a publish: the attempt, the etag of its outcome object, and the results that are in it."""

    region: Id
    attempt: int
    outcome_etag: str
    results: tuple[str, ...]


@dataclass(frozen=True)
class Publish:
    """``publish/<k>``: the coherent cut that readers outside the run follow."""

    number: int
    regions: tuple[PublishedRegion, ...]
    skipped: tuple[str, ...] = ()
    published_at: str = ""


@dataclass(frozen=True)
class Closed:
    """``closed``: the run was purged; attempts up to these do not count, and a later run of this key goes on above.

    A run that came back and is purged again gets ``closed-<number>``; the highest number counts.
    """

    highest: tuple[InputRef, ...] = ()


Record = (
    PlanRecord
    | Claim
    | FingerprintRecord
    | CommittedBatch
    | Outcome
    | Reset
    | Kept
    | Declared
    | Lost
    | Released
    | SplitGeneration
    | Committed
    | CommitterEpoch
    | CommitterDead
    | Pin
    | Withdrawal
    | Publish
    | Closed
)
