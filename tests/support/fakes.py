"""A run without Airflow, Spark or S3: the real protocol code over dictionaries, one process object per try."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from airflow_recovery.attempt.application import ApplicationStatus, ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.heartbeat_watch import NO_HEARTBEAT_TIMEOUTS, HeartbeatTimeouts
from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.run import DeclaredOperators, Run, TaskIdentity
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import (
    AttemptLost,
    Failure,
    InputPending,
    InputSkipped,
    ObjectExists,
    ObjectMissing,
    RegionFailed,
)
from airflow_recovery.journal.events import JobEvent, event_from_json, event_to_json
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.journal.stream import StreamClosed
from airflow_recovery.model.dag_run import DagRunFacts
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import (
    Claim,
    ExternalObject,
    Outcome,
    PlanRecord,
    Publish,
    Released,
    Reset,
    RunIdentity,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.restart_budget import RestartLimits
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.verify import Report, verify_run

T = TypeVar("T")

IDENTITY = RunIdentity("dag", "date 2026-01-01T00:00:00+00:00", "flights")
PUBLISH = "publish"
log = logging.getLogger("tests.execution")

PAIR = {"P": (), "C": ("P",)}
CHAIN = {"P": (), "C": ("P",), "E": ("C",)}
FORK = {"P": (), "C": ("P",), "D": ("P",)}
TRIDENT = {"P": (), "C1": ("P",), "C2": ("P",), "C3": ("P",)}
DIAMOND = {"P": (), "C": ("P",), "D": ("P",), "E": ("C", "D")}


class Killed(BaseException):
    """The process has died: it reports nothing, and no request of it arrives any more."""


@dataclass
class Process:
    """One operating system process. ``gate`` is called before each request it makes."""

    gate: Callable[[str], None] = lambda request: None
    is_dead: bool = False

    def request(self, what: str) -> None:
        if self.is_dead:
            raise Killed(what)
        self.gate(what)
        if self.is_dead:
            raise Killed(what)

    def kill(self) -> None:
        self.is_dead = True
        raise Killed("kill -9")


class InlineThread:
    """Stands in for `threading.Thread`: runs in `start`, so that a test knows the order."""

    def __init__(self, target: Callable[..., object], args: tuple[object, ...], name: str, daemon: bool) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        self._target(*self._args)

    def join(self) -> None:
        pass


class MemoryStore:
    """A store in a dictionary."""

    def __init__(self, base_uri: str) -> None:
        self.base_uri = base_uri
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        with self._lock:
            if key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = body
        return self._info(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        with self._lock:
            self.objects[key] = body
        return self._info(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        with self._lock:
            if key not in self.objects:
                raise ObjectMissing(key)
            body = self.objects[key]
        return StoredObject(self._info(key, body), body)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._lock:
            bodies = {key: body for key, body in self.objects.items() if key.startswith(prefix) and key > start_after}
        yield from (self._info(key, bodies[key]) for key in sorted(bodies))

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)

    def _info(self, key: str, body: bytes) -> ObjectInfo:
        return ObjectInfo(key, len(body), hashlib.md5(body).hexdigest())


class FolderByFolder(MemoryStore):
    """As a server over folders may list: ``a/x`` before ``a-b/x``."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        yield from sorted(super().list(prefix, start_after=start_after), key=lambda info: info.key.split("/"))


class ProcessStore:
    """A store as one process sees it."""

    def __init__(self, inner: ObjectStore, process: Process, page_keys: int | None = None) -> None:
        self._inner = inner
        self._process = process
        self._page_keys = page_keys

    @property
    def base_uri(self) -> str:
        return self._inner.base_uri

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        self._process.request(f"PUT {key}")
        return self._inner.put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        self._process.request(f"PUT {key}")
        return self._inner.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        self._process.request(f"GET {key}")
        return self._inner.get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """One request a page; what is written in between shows on later pages only."""
        while True:
            self._process.request(f"LIST {prefix}")
            found = list(self._inner.list(prefix, start_after=start_after))
            page = found[: self._page_keys]
            yield from page
            if len(page) == len(found):
                return
            start_after = page[-1].key

    def delete(self, keys: Iterable[str]) -> None:
        self._process.request("DELETE")
        self._inner.delete(keys)


@dataclass
class Hooks:
    """What happens at the marked places of one Spark application."""

    on_start: Callable[[], object] = lambda: None
    """After the claim."""
    on_read: Callable[[], object] = lambda: None
    on_written: Callable[[], object] = lambda: None
    """All outputs are written, the outcome is not."""
    on_finished: Callable[[], object] = lambda: None
    """The outcome is there; the task does not know it yet."""
    says_nothing: bool = False
    """The application knows no outcome: it is to be looked for."""
    externals: tuple[ExternalObject, ...] = ()
    rows: int = 1


class Cluster:
    """What is known of the applications that earlier tries have left: nothing, as they end with their task."""

    outlives_task: bool = False
    has_keeper: bool = False
    is_killed: bool = False

    def status(self, claim: Claim) -> ApplicationStatus:
        return ApplicationStatus.UNKNOWN

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        return None

    def failure_of(self, claim: Claim) -> Failure | None:
        return None


class FakeApplication(SparkApplication):
    """Spark: reads every object of the claimed inputs, writes one object a result, and puts the outcome."""

    def __init__(self, world: World, region: str, process: Process, writer: str, hooks: Hooks) -> None:
        self._world = world
        self._region = region
        self._process = process
        # The driver is a process of its own, and has no event stream.
        task = world.journal(process, writer)
        self._journal = task.sibling(task.identity)
        self._results = ProcessStore(world.results, process)
        self._hooks = hooks
        self.stopped = False
        self.orphans: list[Claim] = []

    def externals(self) -> tuple[ExternalObject, ...]:
        return self._hooks.externals

    @property
    def outlives_task(self) -> bool:
        return self._world.cluster.outlives_task

    @property
    def can_be_asked(self) -> bool:
        return self.outlives_task and not self._world.cluster.has_keeper

    @property
    def is_killed(self) -> bool:
        return self._world.cluster.is_killed

    def status(self, claim: Claim) -> ApplicationStatus:
        return self._world.cluster.status(claim)

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        return self._world.cluster.finish_previous(attempt)

    def failure_of(self, claim: Claim) -> Failure | None:
        return self._world.cluster.failure_of(claim)

    def stop(self) -> None:
        self.stopped = True

    def stop_previous(self, claim: Claim) -> None:
        self._world.orphans_stopped.append((claim.region, claim.attempt))

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        claim = attempt.claim
        self._world.ran.append((claim.region, claim.attempt))
        self._hooks.on_start()
        wanted = self._world.results_read(self._region)
        outputs = [output for outcome in attempt.inputs.values() for output in outcome.outputs]
        read = [self._read(output) for output in outputs if output.result in wanted]
        self._hooks.on_read()
        content = self._world.content_of(self._region, claim.attempt, str(read))
        body = content.encode() if self._hooks.rows else b""
        manifests = tuple(self._write(claim, result, body) for result in self._world.results_of(self._region))
        self._hooks.on_written()
        outcome = attempt.trace.finished("now", manifests, spark_seconds=10.0)
        try:
            self._journal.finish(outcome)
        except AttemptLost as error:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} was fenced") from error
        self._hooks.on_finished()
        return None if self._hooks.says_nothing else outcome

    def _write(self, claim: Claim, result: str, body: bytes) -> PartitionManifest:
        name = "out" if result == claim.region else result
        location = f"{self._journal.layout.data_of(claim)}/{name}"
        info = self._results.put(f"{location}/{'part-0' if self._hooks.rows else '_SUCCESS'}", body)
        return PartitionManifest(
            result,
            f"{self._results.base_uri}/{location}",
            (ResultObject("part-0", info.size, info.etag),) if self._hooks.rows else (),
            self._hooks.rows,
            digest=hashlib.md5(body).hexdigest() if self._world.mode(self._region).is_verified else None,
        )

    def _read(self, manifest: PartitionManifest) -> str:
        prefix = manifest.location.removeprefix(f"{self._results.base_uri}/")
        try:
            return ", ".join(self._results.get(f"{prefix}/{file.path}").body.decode() for file in manifest.objects)
        except ObjectMissing as error:
            said = f"{manifest.location} is not there"
            raise RegionFailed(said, Failure("FileNotFoundException", said)) from error


@dataclass
class Events:
    """A stream in a list. Every event must have a JSON form that is read back as itself."""

    recorded: list[JobEvent]

    def record(self, event: JobEvent) -> None:
        assert event_from_json(json.loads(json.dumps(event_to_json(event))), where="test") == event
        self.recorded.append(event)

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        return StreamClosed(len(self.recorded), 0, None)


@dataclass
class World:
    """One run of one job: its Airflow, its journal, its results. ``upstream`` in topological order."""

    upstream: Mapping[str, tuple[str, ...]]
    retries: int = 3
    can_clear: bool = True
    finals: tuple[str, ...] = ()
    publish_keys: tuple[str, ...] = ()
    """What the regions know of the publish task."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    run_id: str = "run"
    dag_run: DagRunFacts | None = None
    """What is recorded of the DAG run."""
    modes: Mapping[str, Determinism] = field(default_factory=dict)
    makes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The results of a region that makes others than the one of its own name."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The results that a region reads, where these are not all of its inputs."""
    final_results: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The results of a region that are read outside the job, where the job reads some of these as well."""
    unstable: frozenset[str] = frozenset()
    """Regions that write other rows each time."""
    constant: frozenset[str] = frozenset()
    """Regions that write the same rows whatever they read."""
    limits: RestartLimits | None = None
    """The restart budget of every region."""
    rules: dict[str, str] = field(default_factory=dict)
    """The trigger rule of a region's task, where it is not ``all_success``. Such a task waits for nobody."""
    optional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The inputs of a region that may be absent."""
    by_operators: bool = False
    """Nobody but a region's own task knows its fingerprint, as of an operator's arguments."""
    declares: Callable[[str], str | None] | None = None
    """What each reading of the DAG's file finds declared of a region; `None` for one whose operator has no digest."""
    strategy: FailoverStrategy = FailoverStrategy.REGION
    now: Callable[[], str] = field(default=lambda: "now")
    heartbeat_timeouts: HeartbeatTimeouts = NO_HEARTBEAT_TIMEOUTS
    cluster: Cluster = field(default_factory=Cluster)
    live_runs: tuple[str, ...] = ()
    """Other DAG runs that Airflow has, and has not ended."""

    def __post_init__(self) -> None:
        self.journal_store: Any = MemoryStore("memory://journal")
        """This and the next: a test puts any other store in their place."""
        self.results: Any = MemoryStore("memory://results")
        self.ran: list[tuple[str, int]] = []
        self.orphans_stopped: list[tuple[str, int]] = []
        self.page_keys: int | None = None
        self.between_process_and_journal: Callable[[ObjectStore], ObjectStore] = lambda store: store
        self.events: list[JobEvent] = []
        self.prepared = 0
        self._writers = 0
        self.new_airflow()

    def new_airflow(self) -> None:
        """Another DAG run of the same key: nothing is left of the task instances."""
        read = {producer for inputs in self.upstream.values() for producer in inputs}
        leaves = tuple(name for name in self.upstream if name not in read or name in self.finals)
        self.leaves = leaves
        waits = {name: () if name in self.rules else inputs for name, inputs in self.upstream.items()}
        self.airflow = FakeAirflow({**waits, PUBLISH: leaves}, retries=self.retries)

    @property
    def plan(self) -> PlanRecord:
        regions = tuple(
            RegionPlan(
                name=name,
                vertices=(name,),
                results=self.results_of(name),
                inputs=tuple(inputs),
                final=name in self.leaves,
                fingerprint=None if self.by_operators else self.code_of(name),
                reads=self.results_read(name),
                determinism=tuple((result, self.modes[name]) for result in self.results_of(name) if name in self.modes),
                optional=self.optional.get(name, ()),
                finals=self.final_results.get(name, ()),
            )
            for name, inputs in self.upstream.items()
        )
        return PlanRecord("jobs:flights", regions, failover_strategy=self.strategy)

    def code_of(self, region: str) -> str:
        """The fingerprint of its code of today."""
        return self.fingerprints.get(region, "code 1")

    def results_of(self, region: str) -> tuple[str, ...]:
        return self.makes.get(region, (region,))

    def results_read(self, region: str) -> tuple[str, ...]:
        everything = (result for producer in self.upstream[region] for result in self.results_of(producer))
        return self.reads.get(region) or tuple(everything)

    def content_of(self, region: str, attempt: int, read: str) -> str:
        """The rows that an attempt computes: the same from the same inputs, unless it is said otherwise."""
        made = region if region in self.constant else f"{region} of {read}"
        return f"{made} by attempt {attempt}" if region in self.unstable else made

    def mode(self, region: str) -> Determinism:
        return self.modes.get(region, Determinism.ALWAYS)

    def verify(self) -> Report:
        """What the independent checker says of the ended run."""
        return verify_run(
            self.journal_store,
            lambda location: self.results,
            dag_id=IDENTITY.dag_id,
            run_key=IDENTITY.run_key,
            group_id=IDENTITY.group_id,
            ended=True,
        )

    def journal(self, process: Process | None = None, writer: str = "test") -> Journal:
        store: ObjectStore = self.journal_store
        if process is not None:
            store = ProcessStore(self.between_process_and_journal(store), process, self.page_keys)
        return Journal(store, IDENTITY, writer=writer, listener=self.listener(), sleep=lambda seconds: None)

    def listener(self) -> Recorder:
        """Makes events of what is written."""
        return Recorder(Events(self.events).record, self.now)

    def run(self, own: TaskTry, process: Process, writer: str) -> Run:
        results = ProcessStore(self.results, process)
        return Run(
            plan=self.plan,
            journal=self.journal(process, writer),
            task_instances=self.airflow.clear_client(own, can_clear=self.can_clear, gate=process.request),
            available=ResultProber(lambda location: results),
            task_keys={name: name for name in self.upstream},
            task=TaskIdentity(
                self.run_id,
                own.try_number,
                own.ti_id,
                self.airflow.grant(own.task_id),
                self.rules.get(own.task_id, "all_success"),
            ),
            fingerprints={own.task_id: self.code_of(own.task_id)} if self.by_operators else {},
            now=self.now,
            log=log,
            events=Events(self.events),
            publish_keys=self.publish_keys,
            heartbeat_timeouts=self.heartbeat_timeouts,
            is_live_run=lambda run_id: run_id in self.live_runs,
            dag_run=self.dag_run,
            declared=self._declared(),
        )

    def _declared(self) -> DeclaredOperators | None:
        declares = self.declares
        if declares is None:
            return None
        first, again = ({name: declares(name) for name in self.upstream} for _ in range(2))
        return DeclaredOperators(first.get, again.get)

    def region_task(
        self, own: TaskTry, process: Process, hooks: Hooks | None = None, *, epoch: str | None = None
    ) -> RegionTask:
        """The process of one try, not yet run."""
        self._writers += 1
        writer = f"writer-{self._writers}"
        application = FakeApplication(self, own.task_id, process, writer, hooks or Hooks())
        run = self.run(own, process, writer)
        restarts = Restarts(run, own.task_id, self.limits, clock_s=self.clock_s, wait=self.wait)
        return RegionTask(
            run,
            own.task_id,
            application,
            epoch=epoch,
            prepare_journal=self._prepare,
            restarts=restarts,
        )

    def clock_s(self) -> float:
        """What the restart budget takes for now."""
        return datetime.fromisoformat(self.now()).timestamp()

    def wait(self, seconds: float) -> None:
        """A pause that is waited for in the process."""

    def _prepare(self) -> None:
        self.prepared += 1

    def go(
        self,
        region: str,
        *,
        process: Process | None = None,
        epoch: str | None = None,
        externals: tuple[ExternalObject, ...] = (),
        **hooks: object,
    ) -> RegionResult:
        """Airflow starts a try of ``region``; it runs to its end and reports. Raises what the task raises."""
        own = self.airflow.start(region)
        process = process or Process()
        task = self.region_task(own, process, Hooks(externals=externals, **hooks), epoch=epoch)  # type: ignore[arg-type]
        return self._report(own, task.execute)

    def publish(self) -> Publish:
        """Airflow starts a try of the publish task."""
        own = self.airflow.start(PUBLISH)
        self._writers += 1
        run = self.run(own, Process(), f"writer-{self._writers}")
        return self._report(own, PublishTask(run).execute)

    def go_all(self, regions: str | Iterable[str] | None = None) -> None:
        """One successful try of each region."""
        for region in self.upstream if regions is None else regions:
            self.go(region)

    def until_green(self, limit: int = 30) -> list[str]:
        """Airflow starts whatever it can until everything is green. Returns what was started, in order."""
        started: list[str] = []
        while ready := self.airflow.ready():
            started.append(ready[0])
            if len(started) > limit:
                raise AssertionError(f"no end: {started}")
            try:
                if ready[0] == PUBLISH:
                    self.publish()
                else:
                    self.go(ready[0])
            except Exception as error:
                log.info("%s: %s", ready[0], error)
        assert self.airflow.is_green, {each: self.airflow.state(each) for each in self.airflow.upstream}
        return started

    def _report(self, own: TaskTry, execute: Callable[[], T]) -> T:
        try:
            result = execute()
        except InputPending:
            self.airflow.reschedule(own)
            raise
        except InputSkipped:
            self.airflow.end(own, "skipped")
            raise
        except Exception:
            self.airflow.end(own, "failed")
            raise
        self.airflow.end(own, "success")
        return result

    # what outsiders do

    def data_of(self, region: str, attempt: int) -> str:
        """The prefix of the data of an attempt."""
        journal = self.journal()
        return journal.layout.data_of(journal.read_claim(region, attempt))

    def delete_results(self, region: str, attempt: int, result: str = "") -> None:
        prefix = f"{self.data_of(region, attempt)}/{result}"
        self.results.delete([info.key for info in self.results.list(prefix)])

    def release(self, region: str, attempt: int) -> None:
        self.journal().release(Released(region, attempt, "sweeper"))

    def restart(self, region: str) -> None:
        """A user's "restart region"."""
        latest_attempt = self.state().of(region).latest_attempt
        self.journal().reset(Reset(region, latest_attempt, "user", "asked for"))
        self.airflow.clear(region)

    # what a test looks at

    def state(self) -> RunState:
        journal = self.journal()
        return journal.load(journal.list(self.upstream))

    def current(self, region: str) -> int:
        attempt = self.state().of(region).current
        return attempt.number if attempt is not None else 0

    def attempts(self, region: str) -> int:
        return self.state().of(region).latest_attempt

    def content(self, region: str) -> str:
        """What the current attempt of ``region`` wrote."""
        key = f"{self.data_of(region, self.current(region))}/out/part-0"
        return self.results.get(key).body.decode()


def world_in(folder: Path) -> World:
    """A world of `PAIR` with journal and results in folders below ``folder``, as commands without Airflow open them."""
    world = World(PAIR)
    world.journal_store = LocalStore(f"file://{folder}/journal")
    world.results = LocalStore(f"file://{folder}/journal/_results")
    return world
