"""A driver that outlives its task: followed to its end and adopted, or ended after a silence (faults 2, 3, 11, 13, 14,
18-20, 75-77). One application a result, except where the first one is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from expected_errors import fails_with
from fakes import PAIR, Cluster, Killed, Process, World

from airflow_recovery.attempt import heartbeat_watch as liveness
from airflow_recovery.attempt import reconnect as reconnect
from airflow_recovery.attempt.application import ApplicationStatus, ClaimedAttempt
from airflow_recovery.attempt.heartbeat_watch import NO_HEARTBEAT_TIMEOUTS, HeartbeatTimeouts, beat_of
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.attempt.run import Run
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.errors import AttemptLost, DriverLeft, Failure, NotMine, RecoveryError
from airflow_recovery.model.codec import from_json
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, AttemptTrace, Claim, FenceCause, Outcome, Reset
from airflow_recovery.store.object_store import ObjectInfo

TIMEOUT_S = 30.0
FOREVER_S = 100 * TIMEOUT_S
LOST = Failure("ProcessLost", "killed")


@dataclass
class Time:
    """A clock that passes only while somebody waits. ``meanwhile`` is called every two seconds of it."""

    now_s: float = 0.0
    meanwhile: Callable[[float], object] = lambda now_s: None

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < FOREVER_S, "waits for ever"
        self.meanwhile(self.now_s)


@dataclass
class DetachedCluster(Cluster):
    """Drivers in deploy mode cluster."""

    outlives_task: bool = True
    is_killed: bool = False
    said: ApplicationStatus = ApplicationStatus.UNKNOWN
    failure: Failure | None = None
    adopted: list[ClaimedAttempt] = field(default_factory=list)
    adopts: Callable[[ClaimedAttempt], Outcome | None] = lambda attempt: None

    def status(self, claim: Claim) -> ApplicationStatus:
        return self.said

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        self.adopted.append(attempt)
        return self.adopts(attempt)

    def failure_of(self, claim: Claim) -> Failure | None:
        return self.failure


class KilledTask:
    """`P` and its reader `C`; the task process of P@1 has been killed after it submitted."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S, run_id: str = "run") -> None:
        self.time = Time()
        self.cluster = DetachedCluster()
        heartbeat_timeouts = HeartbeatTimeouts(timeout_s, clock=lambda: self.time.now_s, sleep=self.time.sleep)
        self.world = World(PAIR, heartbeat_timeouts=heartbeat_timeouts, cluster=self.cluster, run_id=run_id)
        self.kill("P")
        self.world.run_id = "run"
        self.claim = self.world.journal().read_claim("P", 1)
        self.beats = 0

    def kill(self, region: str) -> None:
        process = Process()
        with pytest.raises(Killed):
            self.world.go(region, process=process, on_start=process.kill)
        self.world.airflow.lose_heartbeat(region)

    def beat(self, *, tag: str | None = None, attempt: int = 1, **changes: object) -> None:
        self.beats += 1
        beat = replace(Beat(tag or self.claim.tag, self.beats), **changes)  # type: ignore[arg-type]
        self.world.journal_store.put(self.world.journal().layout.heartbeat("P", attempt), beat.to_bytes())

    def finish(self) -> Outcome:
        """The driver of P@1 writes its result and its outcome."""
        world, claim = self.world, self.claim
        location = f"{world.journal().layout.data_of(claim)}/out"
        info = world.results.put(f"{location}/part-0", b"P of []")
        objects = (ResultObject("part-0", 7, info.etag),)
        manifest = PartitionManifest("P", f"{world.results.base_uri}/{location}", objects, 1)
        trace = AttemptTrace("P", 1, claim.writer, "code 1", claim.inputs, ())
        outcome = trace.finished("now", (manifest,), spark_seconds=3600.0)
        world.journal(writer=claim.writer).finish(outcome)
        return outcome

    def works(self, *, beats_until_s: float = FOREVER_S, finishes_at_s: float = FOREVER_S) -> None:
        """What the driver of P@1 does while somebody waits."""

        def step(now_s: float) -> None:
            if now_s <= beats_until_s:
                self.beat()
            if now_s == finishes_at_s:
                self.finish()

        self.time.meanwhile = step

    def outcome(self) -> Outcome:
        found = self.world.journal().read_outcome("P", 1)
        assert found is not None
        return found


# --- it lives ---------------------------------------------------------------------------------------------------------


def test_fault_3_a_driver_that_lives_is_followed_to_its_end_and_adopted() -> None:
    killed = KilledTask()
    killed.works(finishes_at_s=600)
    result = killed.world.go("P")
    assert (result.decision, result.attempt, result.seconds_saved) == (Decision.KEPT, 1, 3600.0)
    assert killed.world.ran == [("P", 1)]
    assert killed.time.now_s == 600
    assert killed.world.orphans_stopped == []
    killed.world.go("C")
    assert killed.world.content("C") == "C of ['P of []']"


def test_control_without_patience_hours_of_work_are_thrown_away() -> None:
    killed = KilledTask(timeout_s=0)
    killed.works(finishes_at_s=600)
    assert killed.world.go("P").attempt == 2
    assert killed.world.ran == [("P", 1), ("P", 2)]
    with pytest.raises(AttemptLost):
        killed.finish()


def test_what_it_needs_is_there_nobody_waits() -> None:
    killed = KilledTask()
    killed.finish()
    assert killed.world.go("P").decision is Decision.KEPT
    assert killed.time.now_s == 0


def test_a_queued_driver_is_waited_for_as_long_as_the_cluster_manager_knows_it() -> None:
    killed = KilledTask()
    killed.cluster.said = ApplicationStatus.ACTIVE  # no heartbeat yet: it waits for resources
    killed.works(beats_until_s=0, finishes_at_s=1000)
    assert killed.world.go("P").attempt == 1


def test_fault_11_the_cluster_manager_does_not_know_that_a_driver_is_frozen() -> None:
    killed = KilledTask()
    killed.cluster.said = ApplicationStatus.ACTIVE
    killed.works(beats_until_s=20)
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 20 + TIMEOUT_S


# --- nobody knows -----------------------------------------------------------------------------------------------------


def test_fault_2_no_job_and_no_sign_another_attempt_is_submitted() -> None:
    killed = KilledTask()
    result = killed.world.go("P")
    assert (result.decision, result.attempt, killed.time.now_s) == (Decision.RAN, 2, TIMEOUT_S)
    assert killed.outcome().cause is FenceCause.OWN_FAILURE
    assert killed.world.orphans_stopped == [("P", 1)]


def test_faults_13_and_14_one_that_was_taken_for_dead_is_rejected_when_it_wakes() -> None:
    killed = KilledTask()
    killed.works(beats_until_s=100)
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 100 + TIMEOUT_S
    with pytest.raises(AttemptLost):
        killed.finish()
    assert killed.world.current("P") == 2
    killed.world.go("C")
    assert killed.world.state().of("C").current.outcome.inputs[0].attempt == 2


class Clocks:
    """The store's clock is ``store_s`` off, and the waiter's own wall clock is set ``wall_s`` further at every look."""

    def __init__(self, killed: KilledTask, monkeypatch: pytest.MonkeyPatch, store_s: float, wall_s: float) -> None:
        self.killed, self.inner = killed, killed.world.journal_store
        self.store_s, self.wall_s = store_s, wall_s
        self.stamps: dict[str, float] = {}
        killed.world.journal_store = self
        monkeypatch.setattr(time, "time", self.wall)

    def wall(self) -> float:
        return 1e9 + self.killed.time.now_s * (1 + self.wall_s / liveness.HeartbeatTimeouts.poll_s)

    def put(self, key: str, body: bytes) -> object:
        self.stamps[key] = 1e9 + self.killed.time.now_s + self.store_s
        return self.inner.put(key, body)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for each in self.inner.list(prefix, start_after=start_after):
            yield each._replace(modified_s=self.stamps.get(each.key, 0.0))

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


WRONG_CLOCKS = pytest.mark.parametrize(
    ("store_s", "wall_s"), [(-7200, 0), (7200, 0), (0, -3600), (0, 3600), (7200, -3600)], ids=str
)


@WRONG_CLOCKS
def test_fault_33_a_driver_that_lives_is_followed_whatever_the_clocks_say(
    monkeypatch: pytest.MonkeyPatch, store_s: float, wall_s: float
) -> None:
    killed = KilledTask()
    Clocks(killed, monkeypatch, store_s, wall_s)
    killed.works(finishes_at_s=600)
    assert killed.world.go("P").decision is Decision.KEPT
    assert (killed.time.now_s, killed.world.ran) == (600, [("P", 1)])


@WRONG_CLOCKS
def test_fault_33_one_that_is_silent_is_ended_after_the_waiters_own_seconds(
    monkeypatch: pytest.MonkeyPatch, store_s: float, wall_s: float
) -> None:
    killed = KilledTask()
    Clocks(killed, monkeypatch, store_s, wall_s)
    killed.works(beats_until_s=100)
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 100 + TIMEOUT_S


def test_fault_33_a_sign_of_life_tells_no_time() -> None:
    told = {"tag", "count", "process", "application_id", "ended", "progress", "succeeded", "rests_on"}
    assert set(vars(Beat("tag", 1))) == told


@pytest.mark.parametrize(("store_s", "wall_s"), [(-7200, 0), (0, 3600)])
def test_fault_33_control_by_the_stores_stamp_a_driver_at_work_is_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch, store_s: float, wall_s: float
) -> None:
    killed = judged_by_the_stamp(monkeypatch, store_s, wall_s)
    killed.works(finishes_at_s=600)
    assert killed.world.go("P").attempt == 2
    assert killed.world.ran == [("P", 1), ("P", 2)]


@pytest.mark.parametrize(("store_s", "wall_s"), [(7200, 0), (0, -3600)])
def test_fault_33_control_by_the_stores_stamp_a_dead_driver_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, store_s: float, wall_s: float
) -> None:
    killed = judged_by_the_stamp(monkeypatch, store_s, wall_s)
    killed.works(beats_until_s=100)
    with pytest.raises(AssertionError, match="waits for ever"):
        killed.world.go("P")


def judged_by_the_stamp(monkeypatch: pytest.MonkeyPatch, store_s: float, wall_s: float) -> KilledTask:
    killed = KilledTask()
    clocks = Clocks(killed, monkeypatch, store_s, wall_s)
    key = killed.world.journal().layout.heartbeat("P", 1)

    def has_timed_out(self: object, attempt: int, beat: object) -> bool:
        return time.time() - clocks.stamps.get(key, time.time()) >= TIMEOUT_S

    monkeypatch.setattr(liveness.HeartbeatWatch, "has_timed_out", has_timed_out)
    return killed


@pytest.mark.parametrize("tag", ["airflow-recovery-of another journal", ""])
def test_faults_18_and_77_a_driver_of_the_same_name_with_another_tag_is_not_it(tag: str) -> None:
    killed = KilledTask()
    killed.time.meanwhile = lambda now_s: killed.beat(tag=tag or "other", count=int(now_s))
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == TIMEOUT_S


def test_control_without_the_tag_a_foreign_driver_is_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_beat(journal: object, claim: Claim) -> Beat | None:
        stored = killed.world.journal_store.objects.get(killed.world.journal().layout.heartbeat("P", 1))
        return Beat.from_bytes(stored) if stored is not None else None

    killed = KilledTask()
    monkeypatch.setattr(reconnect, "beat_of", any_beat)
    killed.time.meanwhile = lambda now_s: killed.beat(tag="other", count=int(now_s))
    with pytest.raises(AssertionError, match="waits for ever"):
        killed.world.go("P")


def test_fault_20_of_several_attempts_the_newest_is_looked_at() -> None:
    killed = KilledTask()
    killed.time.meanwhile = lambda now_s: killed.beat(count=int(now_s))  # P@1 is fenced, and does not know it yet
    killed.world.journal().fence(Outcome("P", 1, AttemptState.FENCED, "w", "now", cause=FenceCause.SUPERSEDED))
    killed.kill("P")
    assert killed.world.go("P").attempt == 3
    assert killed.time.now_s == TIMEOUT_S


OTHER_VERSIONS = {
    "the first, which had no progress": b'{"tag": "%s", "count": %d, "process": null, "application_id": null, '
    b'"ended": false}',
    "one to come, which says more": b'{"tag": "%s", "count": %d, "process": null, "ended": false, "rows": 7}',
}
"""Heartbeats of drivers that another version has submitted, by which version."""


def goes_on_with(killed: KilledTask, heartbeat: bytes) -> None:
    """The driver, of another version, gives such heartbeats until it finishes."""
    key = killed.world.journal().layout.heartbeat("P", 1)

    def step(now_s: float) -> None:
        killed.world.journal_store.put(key, heartbeat % (killed.claim.tag.encode(), now_s))
        if now_s == 600:
            killed.finish()

    killed.time.meanwhile = step


@pytest.mark.parametrize("heartbeat", OTHER_VERSIONS.values(), ids=OTHER_VERSIONS)
def test_a_driver_of_another_version_is_followed_to_its_end(heartbeat: bytes) -> None:
    killed = KilledTask()
    goes_on_with(killed, heartbeat)
    assert killed.world.go("P").attempt == 1
    assert killed.world.ran == [("P", 1)]


@pytest.mark.parametrize("heartbeat", OTHER_VERSIONS.values(), ids=OTHER_VERSIONS)
def test_control_where_its_fields_must_be_this_versions_it_is_taken_for_dead(
    heartbeat: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = KilledTask()
    goes_on_with(killed, heartbeat)
    monkeypatch.setattr("airflow_recovery.driver.heartbeat.from_json", partial(from_json, exact=True))
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == TIMEOUT_S


def test_what_is_no_heartbeat_is_no_sign() -> None:
    assert Beat.from_bytes(b"12") is None
    assert Beat.from_bytes(b'{"count": 1}') is None
    assert Beat.from_bytes(b"[" * 5000) is None
    assert Beat.from_bytes(Beat("t", 1, "p", "app", True).to_bytes()) == Beat("t", 1, "p", "app", True)


# --- it is over -------------------------------------------------------------------------------------------------------


def test_fault_19_a_failed_job_never_counts_as_the_new_one() -> None:
    killed = KilledTask()
    killed.cluster.said = ApplicationStatus.OVER
    result = killed.world.go("P")
    assert (result.decision, result.attempt, killed.time.now_s) == (Decision.RAN, 2, 0)


@pytest.mark.parametrize("said", [ApplicationStatus.UNKNOWN, ApplicationStatus.OVER, ApplicationStatus.SUCCEEDED])
def test_fault_76_whatever_the_status_says_the_outcome_decides(said: ApplicationStatus) -> None:
    killed = KilledTask()
    killed.cluster.said = said
    # Between the listing and the first look.
    killed.cluster.status = lambda claim: killed.finish() and said  # type: ignore[assignment,return-value]
    assert killed.world.go("P").attempt == 1
    assert killed.world.ran == [("P", 1)]


def test_fault_76_a_job_that_succeeded_without_an_outcome_has_not() -> None:
    killed = KilledTask()
    killed.cluster.said = ApplicationStatus.SUCCEEDED
    assert killed.world.go("P").attempt == 2
    assert [each.claim.attempt for each in killed.cluster.adopted] == [1]


def test_what_succeeded_is_finished_in_its_tasks_place() -> None:
    killed = KilledTask()
    killed.cluster.said = ApplicationStatus.SUCCEEDED
    killed.cluster.adopts = lambda attempt: killed.finish()
    assert killed.world.go("P").decision is Decision.KEPT
    assert killed.cluster.adopted[0].claim == killed.claim


def test_a_driver_that_says_that_it_failed_is_not_waited_for_and_its_failure_is_told() -> None:
    killed = KilledTask()
    killed.cluster.failure = Failure("ArithmeticError", "by zero")
    killed.time.meanwhile = lambda now_s: killed.beat(ended=now_s >= 10)
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 10
    assert (killed.outcome().detail, killed.outcome().failure.type) == ("ArithmeticError: by zero", "ArithmeticError")


def test_a_driver_whose_process_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = KilledTask()
    monkeypatch.setattr(reconnect, "is_gone", lambda process: process == "gone")
    killed.time.meanwhile = lambda now_s: killed.beat(process="gone" if now_s >= 10 else "there")
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 10


def test_in_client_mode_the_attempt_ends_with_the_process_that_claimed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = KilledTask()
    killed.cluster.outlives_task = False
    assert killed.world.go("P").attempt == 2
    killed.world.airflow.clear("P")
    killed.world.journal().reset(Reset("P", 2, "test", "to run again"))
    killed.kill("P")
    assert killed.world.journal().read_claim("P", 3).process == own_process()
    waited_s = killed.time.now_s
    assert killed.world.go("P").attempt == 4  # an earlier try in this very process is over
    assert killed.time.now_s == waited_s


# --- nobody wants it --------------------------------------------------------------------------------------------------


def _reset(killed: KilledTask) -> None:
    killed.world.restart("P")


def _deploy(killed: KilledTask) -> None:
    killed.world.fingerprints["P"] = "code 2"


@pytest.mark.parametrize("change", [_reset, _deploy])
def test_a_driver_whose_result_would_not_be_used_is_ended_at_once(change: Callable[[KilledTask], None]) -> None:
    killed = KilledTask()
    killed.works(finishes_at_s=600)
    change(killed)
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 0


def test_a_driver_that_reads_what_was_made_again_is_ended_at_once() -> None:
    killed = KilledTask()
    killed.world.go("P")  # P@2
    killed.kill("C")  # C@1 reads it
    killed.world.restart("P")
    killed.world.go("P")
    before_s = killed.time.now_s
    assert killed.world.go("C").attempt == 2
    assert killed.time.now_s == before_s


def test_recompute_does_not_wait_for_what_began_before() -> None:
    killed = KilledTask()
    killed.works(finishes_at_s=600)
    assert killed.world.go("P", epoch="2").attempt == 2
    assert killed.time.now_s == 0


def test_other_code_elsewhere_does_not_end_it() -> None:
    killed = KilledTask()
    killed.works(finishes_at_s=600)
    killed.world.fingerprints["C"] = "code 2"
    assert killed.world.go("P").attempt == 1


# --- two runs on one journal ------------------------------------------------------------------------------------------


def test_fault_15_journal_in_use_by_another_run_that_lives() -> None:
    killed = KilledTask(run_id="reprocess-1")
    killed.world.live_runs = ("reprocess-1",)
    killed.works(finishes_at_s=600)
    with fails_with("journal-of-another-run", run_id="reprocess-1"):
        killed.world.go("P")
    assert killed.world.journal().read_outcome("P", 1) is None
    assert killed.world.ran == [("P", 1)]


def test_fault_15_control_two_runs_end_each_others_attempts() -> None:
    killed = KilledTask(run_id="reprocess-1")
    killed.world.live_runs = ("reprocess-1",)
    killed.world.heartbeat_timeouts = NO_HEARTBEAT_TIMEOUTS
    killed.works()
    killed.world.go("P")
    assert killed.outcome().state is AttemptState.FENCED


def test_fault_60_the_driver_of_a_run_that_the_database_lost_is_followed() -> None:
    killed = KilledTask(run_id="a run that Airflow does not know")
    killed.works(finishes_at_s=600)
    killed.world.new_airflow()
    assert killed.world.go("P").attempt == 1


def test_another_run_without_a_sign_of_life_is_no_obstacle() -> None:
    killed = KilledTask(run_id="reprocess-1")
    killed.world.live_runs = ("reprocess-1",)
    assert killed.world.go("P").attempt == 2
    assert killed.outcome().cause is FenceCause.SUPERSEDED


# --- the waiting ends -------------------------------------------------------------------------------------------------


def test_a_clear_ends_the_waiting_and_changes_nothing() -> None:
    killed = KilledTask()

    def step(now_s: float) -> None:
        killed.beat()
        if now_s == 60:
            killed.world.airflow.clear("P")

    killed.time.meanwhile = step
    with pytest.raises(NotMine):
        killed.world.go("P")
    assert killed.time.now_s <= 60 + reconnect.LIVE_CHECK_EVERY_S
    assert killed.world.journal().read_outcome("P", 1) is None


def test_sigterm_ends_the_waiting_at_the_next_look() -> None:
    killed = KilledTask()

    def step(now_s: float) -> None:
        killed.beat()
        killed.cluster.is_killed = now_s >= 8

    killed.time.meanwhile = step
    with fails_with("told-to-end-while-waiting"):
        killed.world.go("P")
    assert killed.time.now_s == 8
    assert killed.world.journal().read_outcome("P", 1) is None


def test_an_api_server_that_is_down_for_a_minute_ends_no_waiting() -> None:
    killed = KilledTask()
    killed.works(finishes_at_s=120)
    process = Process()

    def gate(request: str) -> None:
        if request == "live check" and 30 <= killed.time.now_s <= 90:
            raise RecoveryError("HTTP 503")

    process.gate = gate
    assert killed.world.go("P", process=process).attempt == 1


def test_beats_are_looked_up_by_region_and_attempt() -> None:
    killed = KilledTask()
    assert beat_of(killed.world.journal(), killed.claim) is None
    killed.beat(application_id="app-1")
    beat = liveness.beat_of(killed.world.journal(), killed.claim)
    assert beat is not None
    assert beat.application_id == "app-1"


# --- who decides about a driver that outlives its task ----------------------------------------------------------------


def test_fault_236_a_driver_is_ended_where_a_person_has_cleared_its_task_since_the_claim() -> None:
    killed = KilledTask()
    killed.works(finishes_at_s=600)
    killed.world.airflow.clear("P")
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 0
    assert killed.world.orphans_stopped == [("P", 1)]
    assert killed.outcome().cause is FenceCause.SUPERSEDED


def test_fault_236_control_where_the_clear_is_not_seen_the_cleared_task_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "was_cleared_by_hand", lambda run, claim: False)
    killed = KilledTask()
    killed.works(finishes_at_s=600)
    killed.world.airflow.clear("P")
    assert killed.world.go("P").attempt == 1
    assert killed.time.now_s == 600


def test_fault_235_whoever_follows_a_driver_that_has_a_keeper_says_so_again_and_again() -> None:
    killed = KilledTask()
    killed.cluster.has_keeper = True
    signs: list[bytes] = []

    def step(now_s: float) -> None:
        killed.beat()
        key = killed.world.journal().layout.follower("P", 1)
        signs.append(killed.world.journal_store.get(key).body)
        if now_s == 60:
            killed.finish()

    killed.time.meanwhile = step
    assert killed.world.go("P").attempt == 1
    assert len(set(signs)) == 1 + 60 // int(reconnect.LIVE_CHECK_EVERY_S) - 1


def test_fault_235_what_an_application_has_written_is_registered_by_the_word_of_its_keeper() -> None:
    killed = KilledTask()
    killed.cluster.adopts = lambda attempt: killed.finish()
    killed.time.meanwhile = lambda now_s: killed.beat(succeeded=now_s >= 10)
    assert killed.world.go("P").attempt == 1
    assert killed.time.now_s == 10


def test_a_success_that_nobody_can_register_is_over() -> None:
    killed = KilledTask()
    killed.time.meanwhile = lambda now_s: killed.beat(succeeded=now_s >= 10)
    assert killed.world.go("P").attempt == 2
    assert killed.time.now_s == 10


def test_fault_235_a_driver_with_a_keeper_outlives_the_process_that_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first heartbeat the keeper alone tells of it."""
    claim = replace(KilledTask().claim, process="gone")
    monkeypatch.setattr(reconnect, "is_gone", lambda process: process == "gone")
    assert not reconnect._is_over(claim, ApplicationStatus.ACTIVE, None)
    assert reconnect._is_over(claim, ApplicationStatus.UNKNOWN, None)
    assert reconnect._is_over(claim, ApplicationStatus.ACTIVE, Beat(claim.tag, 1, "gone"))


@pytest.mark.parametrize("state", ["failed", "success"])
def test_fault_237_a_task_that_is_set_by_hand_while_it_follows_a_driver_ends_it(state: str) -> None:
    killed = KilledTask()

    def step(now_s: float) -> None:
        killed.beat()
        if now_s >= 8:
            killed.world.airflow.mark("P", state)
            killed.cluster.is_killed = True

    killed.time.meanwhile = step
    with fails_with("told-to-end-while-waiting"):
        killed.world.go("P")
    assert killed.world.orphans_stopped == [("P", 1)]


def test_a_driver_whose_follower_runs_out_of_time_is_ended() -> None:
    """As Airflow's ``execution_timeout`` does."""
    killed = KilledTask()

    class TaskTimeout(BaseException):
        pass

    def step(now_s: float) -> None:
        killed.beat()
        if now_s == 60:
            raise TaskTimeout

    killed.time.meanwhile = step
    with pytest.raises(TaskTimeout):
        killed.world.go("P")
    assert killed.world.orphans_stopped == [("P", 1)]


def _leave(world: World, state: str | None = None) -> None:
    """Airflow ends the process of P@1, in which the driver is waited for."""
    if state is not None:
        world.airflow.mark("P", state)
    raise DriverLeft


def test_fault_235_a_process_that_ends_before_its_driver_leaves_the_attempt_open() -> None:
    world = World(PAIR, cluster=DetachedCluster())
    with pytest.raises(DriverLeft):
        world.go("P", on_start=lambda: _leave(world))
    assert world.journal().read_outcome("P", 1) is None


@pytest.mark.parametrize("state", ["failed", "success", "skipped"])
def test_fault_237_a_process_whose_task_was_set_by_hand_ends_its_driver(state: str) -> None:
    world = World(PAIR, cluster=DetachedCluster())
    with fails_with("task-set-to-another-state"):
        world.go("P", on_start=lambda: _leave(world, state))
    outcome = world.journal().read_outcome("P", 1)
    assert outcome is not None
    assert outcome.cause is FenceCause.SUPERSEDED
