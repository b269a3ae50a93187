"""Every error this package raises, as one tree, and what is known of a failure. Imports nothing of ours.

A message says what was expected, what was found, and what to do next. "Missing", "access denied" and "timed out" are
three different answers everywhere: only a *missing* (or altered) result may restart its producer.

An error has a code for programs, such as ``vertex-unread``. It names the case, as the class names the family, and it
stays when the message is worded anew. docs/errors.md lists them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Kind(Enum):
    """What an error means for whoever asked for something. An error has its own kind, else that of its base."""

    RETRY = "retry"
    """The next try may succeed, and nothing has to be changed for it."""
    FENCED = "fenced"
    """Nothing failed: what this process owned or has read is not the newest any more. The next try starts at once."""
    FINAL = "final"
    """The same try would end the same way: somebody must change something first."""
    IN_DOUBT = "in doubt"
    """Whether something was done can't be told from here: a person must say so first."""
    CORRUPT = "corrupt"
    """What lies in a store is not what was written there: a person must look."""
    NOT_FOUND = "not found"
    """What was asked for is not there."""
    OUTDATED = "outdated"
    """The run is not as it was when the request was made. Nothing was changed: look again."""
    REFUSED = "refused"
    """The request would do harm, or comes too late. Nothing was changed."""

    @property
    def is_final(self) -> bool:
        """No retry of a task can help: it fails with the reason, so that somebody looks (docs/faults.md)."""
        return self in (Kind.FINAL, Kind.IN_DOUBT, Kind.CORRUPT)


class RecoveryError(Exception):
    """Base of every error of this package. ``kind`` says what it means for whoever asked; a subclass may change it.

    ``code`` names the case. A case that has none of its own has the name of its class: ``input-lost``. ``fields`` are
    texts, numbers, and lists and mappings of them. Each of them is also an attribute: ``error.region``.
    """

    kind: Kind = Kind.RETRY
    code: str = "recovery-error"
    fields: Mapping[str, Any] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, *args: object, code: str | None = None, **fields: Any) -> None:
        super().__init__(*args)
        self.code = code or self.code
        self.fields = fields
        vars(self).update(fields)


def kind_of(error: BaseException) -> Kind:
    """The kind of any error. Nothing is known of one that is not ours, so that it may be retried."""
    return error.kind if isinstance(error, RecoveryError) else Kind.RETRY


# --- declaration -----------------------------------------------------------------------------------------------------


class JobDefinitionError(RecoveryError, ValueError):
    """A job cannot be what its declaration says. The message names the job, the vertex, and what to change."""

    kind = Kind.FINAL


class FingerprintError(RecoveryError):
    """The code of a vertex cannot be read, so it cannot be told whether it changed."""

    kind = Kind.FINAL


class ConfigurationError(RecoveryError):
    """A setting is missing or contradictory. The message names the setting."""

    kind = Kind.FINAL


class LocationNotAllowed(ConfigurationError):
    """The deployment's credentials may not be used at a location. Nothing was sent there."""


# --- object store ----------------------------------------------------------------------------------------------------


class StoreError(RecoveryError):
    """An object store answered with something other than the object."""


class ObjectMissing(StoreError):
    """The store answered, and the object is not there. Never raised for a denied or timed-out request."""


class ObjectExists(StoreError):
    """A conditional write lost: the key already holds an object (HTTP 412)."""


class WriteLost(StoreError):
    """A write-once object holds what another process has written first: ``held``. Nothing was overwritten."""

    kind = Kind.FENCED

    def __init__(self, message: str, held: bytes = b"", **named: Any) -> None:
        super().__init__(message, **named)
        self.held = held


class StoreAccessDenied(StoreError):
    """The store refused the credentials or the action (HTTP 401 or 403). Says nothing about the object."""

    kind = Kind.FINAL


class StoreCredentialsExpired(StoreError):
    """The credentials have expired, or may not use the KMS key, also after they were fetched anew once.

    The request had no effect. A later try, with other credentials, may succeed.
    """


class StoreTimeout(StoreError):
    """No answer in time. For a write the outcome is unknown; for a read nothing is known about the object."""


class StoreSilent(StoreTimeout):
    """The store gave no answer in time a moment ago. It is not asked again for ``retry_after_s``."""

    def __init__(self, message: str, retry_after_s: float = 0.0, **named: Any) -> None:
        super().__init__(message, **named)
        self.retry_after_s = retry_after_s


class StoreUnavailable(StoreError):
    """Throttled, in conflict, or failing inside (HTTP 409, 429, 5xx). The same request may succeed later."""


class StoreFull(StoreError):
    """No room is left on the disk, in the bucket or in the quota: a write has failed, and may succeed later.

    Nobody ever sees a part of an object.
    """


class CacheUnreachable(StoreError):
    """The Spark Connect server that keeps a cached result gave no answer, or is not known. Never means "missing"."""


class StoreMisconfigured(StoreError):
    """The bucket or base directory does not exist, or the endpoint is not an S3 API."""

    kind = Kind.FINAL


class StoreUnsuitable(StoreError):
    """The start-up probe failed: no conditional writes, or listings that do not show what was just written."""

    kind = Kind.FINAL


# --- journal ---------------------------------------------------------------------------------------------------------


class JournalError(RecoveryError):
    """The journal holds something that this version cannot accept."""


class RecordInvalid(JournalError):
    """A journal object is not a valid record: damaged, too large, from a newer version, or of another run."""

    kind = Kind.CORRUPT


class InputsUnknown(JournalError):
    """What an attempt has read of a group can't be told: no recorded plan has that group. Never means "nothing"."""

    kind = Kind.CORRUPT


class ObjectTooLarge(RecordInvalid, StoreError):
    """An object is larger than its reader takes: nothing that this version writes is. None of it was read."""


class StreamDamaged(RecordInvalid):
    """An event stream is not as its writer wrote it. The events before the damage can be used."""


class HistoryIncomplete(JournalError):
    """Events of this try could not be written, and the deployment wants a whole history."""


class AttemptLost(JournalError):
    """Another process owns what this one wanted to write: the claim exists already, or the attempt was fenced."""

    kind = Kind.FENCED


class JournalInUse(JournalError):
    """Another DAG run works on the same journal, and lives. The message names it; clear the task when it has ended."""

    kind = Kind.FINAL


class NotPublished(JournalError):
    """A result is not named by the newest publish, or is no longer valid."""


# --- failover --------------------------------------------------------------------------------------------------------


class UnknownRegion(RecoveryError, KeyError):
    """A region name that the topology does not hold."""

    kind = Kind.NOT_FOUND


class SubtasksFailed(RecoveryError):
    """Several subtasks of one task failed. ``errors`` says by region what each of them failed with."""

    def __init__(self, message: str, errors: Mapping[str, Exception] | None = None, **named: Any) -> None:
        super().__init__(message, **named)
        self.errors = dict(errors or {})
        if self.errors and all(kind_of(error).is_final for error in self.errors.values()):
            self.kind = Kind.FINAL


class SubtasksUnknown(RecoveryError):
    """A subtask, or all of a vertex, that the run has not recorded. The message says what to clear."""

    kind = Kind.FINAL


class NothingRecorded(JournalError):
    """The journal holds nothing of this DAG, run or group. The message names the nearest that it does hold."""

    kind = Kind.NOT_FOUND


class PlanOutdated(RecoveryError):
    """The run has moved on since the plan was made: nothing was changed. Make a new plan."""

    kind = Kind.OUTDATED


class Refused(RecoveryError):
    """What a person asked for would take away what somebody counts on, or comes too late: nothing was changed."""

    kind = Kind.REFUSED


class PagesDisagree(JournalError):
    """Two pages of one listing disagree: a record names an attempt that was not listed. List again."""

    kind = Kind.FENCED


class ReadingStopped(RecoveryError):
    """The API server's process for a large run was stopped: it took too long, or needed too much memory.

    A change may be incomplete, as after the kill of any process: look at the run again, and repeat the change.
    """


class Outdated(RecoveryError):
    """A plan of a page, or what it has shown, is older than the run. ``changed``: what is different."""

    kind = Kind.OUTDATED

    def __init__(self, message: str, changed: tuple[str, ...] = (), **named: Any) -> None:
        super().__init__(message, **named)
        self.changed = changed


class InputLost(RecoveryError):
    """An input must be made again before this region can run. Its producer has been cleared; this task retries."""

    kind = Kind.FENCED


class InputSkipped(RecoveryError):
    """An input was skipped in this run, so that whoever reads it is skipped as well. ``why`` says it in few words."""

    def __init__(self, message: str, why: str = "an input was skipped", **named: Any) -> None:
        super().__init__(message, **named)
        self.why = why


class InputFailed(RecoveryError):
    """An input has failed in this run, and a trigger rule has started its reader all the same."""

    kind = Kind.FINAL


class InputPending(RecoveryError):
    """A task was started before another one that it needs has ended in this run. It waits, which uses no retry."""


class InputUnreachable(RecoveryError):
    """The producer verified its result after our report, and still it cannot be read from here: not lost."""

    kind = Kind.FINAL


class ClearNotConfigured(RecoveryError):
    """Another task would have to be cleared, and neither way to do it is configured."""

    kind = Kind.FINAL


class Overtaken(RecoveryError):
    """What this attempt read was superseded while it ran. The task retries, and evaluates again."""

    kind = Kind.FENCED


class CodeReplaced(Overtaken):
    """A file of an application was replaced after this try had read it: which code has made the rows is not known."""


class NotMine(RecoveryError):
    """Airflow has taken this task instance away from this process: it must stop without writing anything."""

    kind = Kind.FENCED


class DriverLeft(BaseException):
    """Airflow ends this process while its driver goes on: the next try of the task decides about the driver.

    It is no `Exception`: nothing on its way may take it for a failure of the application.
    """


class OutputAltered(RecoveryError):
    """Objects at a user's own output location are not those that were registered there."""

    kind = Kind.CORRUPT


# --- sinks -----------------------------------------------------------------------------------------------------------


class SinkInDoubt(RecoveryError):
    """Whether a sink was committed can't be decided while an earlier process may live: a person confirms its death."""

    kind = Kind.IN_DOUBT


class AppendedAlready(RecoveryError):
    """A sink that appends has committed, and would have to commit another attempt: its rows would be there twice."""

    kind = Kind.FINAL


class SinkRefused(RecoveryError):
    """The target refuses what was to be committed, and will refuse it again; nothing was changed."""

    kind = Kind.FINAL


class HoldsOther(SinkRefused):
    """The target holds another attempt than the one that was to be committed, and nothing was changed."""


class SinkUnreadable(SinkRefused):
    """The target can't be used, and no retry helps: its log is damaged, or access is denied. Something must be mended.

    Whether something was committed before is not known.
    """


class SinkSuperseded(RecoveryError):
    """A later date of the same task has committed to a sink with ``keeps="latest"``; nothing was changed."""


class SinkNotApplied(RecoveryError):
    """It is certain that a commit did nothing: it may be tried again. For the ``apply`` of a probe-only sink."""


class SinkUnavailable(RecoveryError):
    """The target gave no answer; the outcome of a commit is then unknown. The next try asks."""


# --- splits ----------------------------------------------------------------------------------------------------------


class SplitIdentityError(RecoveryError, ValueError):
    """A split can't be told from another one: two contents under one name, or a name or payload that can't be kept."""

    kind = Kind.FINAL


class SplitsNotCovered(RecoveryError):
    """What an attempt has read is not exactly what it had to read; it must not finish. The message names the splits."""

    kind = Kind.FINAL


class SplitsVanished(RecoveryError):
    """Splits are not listed any more, and their source says ``vanished="fail"``. The message names them."""

    kind = Kind.FINAL


# --- channels --------------------------------------------------------------------------------------------------------


class ChannelError(RecoveryError):
    """Base of what a channel between two running applications says (FLIP-135)."""


class ChannelEvicted(ChannelError):
    """A newer attempt owns this end of the channel: the process must stop, and has changed nothing."""

    kind = Kind.FENCED


class ChannelInconsistent(ChannelError):
    """Going on would lose or repeat records without counting them. The message says what did not fit."""


class ChannelAltered(ChannelError):
    """What a channel carries is another thing now: its columns, or into how many parts it is cut.

    The producer goes on at its checkpoint on a new generation of the channel, and those behind it restart.
    """


class ChannelFailed(ChannelError):
    """The other end of the channel has given up, or did not take its records in time."""

    kind = Kind.FINAL


class LossBudgetExceeded(ChannelError):
    """The next checkpoint would lose more records than the budget allows: it is not made. Not retried."""

    kind = Kind.FINAL


# --- Spark -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """What is known of a failure, for a machine: error type, Spark's condition and SQLSTATE, the exception chain."""

    free_text: ClassVar[frozenset[str]] = frozenset({"message", "chain", "labels"})

    type: str
    message: str
    condition: str | None = None
    sql_state: str | None = None
    chain: tuple[str, ...] = ()
    vertex: str | None = None
    labels: tuple[tuple[str, str], ...] = field(default=(), metadata={"later": True})
    """Ours (`airflow_recovery.driver.failure_class`) and those of a user's failure enrichers: (key, value). If an error
    of ours was raised in the driver, its code and its fields are among them."""


CODE_LABEL = "code"


class RegionFailed(RecoveryError):
    """The Spark application of a region failed. ``cause`` says what is known of it for a machine.

    If an error of ours was raised in the driver, ``code`` is that of this error.
    """

    def __init__(self, message: str, cause: Failure | None = None, **named: Any) -> None:
        super().__init__(message, **{"code": cause and dict(cause.labels).get(CODE_LABEL), **named})
        self.cause = cause
        self.forget: Callable[[], object] = _nothing
        """Deletes the driver's pending failure; called once the failure is in the journal. Raises nothing."""


def _nothing() -> None: ...


class UserCodeError(RegionFailed):
    """The same code will fail again: a syntax error, a missing table, a wrong type. Not retried.

    A vertex may raise it, or a subclass, or another error ``from`` it.
    """

    kind = Kind.FINAL


class InputUnreadable(RegionFailed):
    """Data could not be read (or written). By itself it restarts no producer: it makes the region task look."""


class PartitionMissing(InputUnreadable):
    """A file that was read may be gone. Proved only by a successful listing without it; then `InputLost` is raised."""


class InputReleased(PartitionMissing):
    """An input was released, removed or exchanged after it was claimed, so it is not known what was read.

    Nothing is finished, and it counts as no failure of the task.
    """

    kind = Kind.FENCED


class InputAltered(InputUnreadable):
    """A file that was read is not the one that was registered. As `PartitionMissing`: then looked at."""


class InputMalformed(InputUnreadable):
    """A file that was read is as it was registered, and is no data that can be read: another schema, cut short, a page.

    The message names the file. Not retried: somebody must replace it first.
    """

    kind = Kind.FINAL


class InputDenied(InputUnreadable):
    """The credentials were refused inside Spark. Says nothing about the data; a retry would be refused as well."""

    kind = Kind.FINAL


class InputTimedOut(InputUnreadable):
    """No answer in time inside Spark. Says nothing about the data."""


class TransferBroken(InputUnreadable):
    """A connection broke or the store was unavailable inside Spark. The same transfer may succeed later."""


class InfrastructureFailed(RegionFailed):
    """What runs the code failed, not the code."""


class NotSetUp(InfrastructureFailed):
    """Something that the application needs is missing where it runs: a module, a jar, Python, Java, or the same
    version of one of these on the driver and the executors.

    The message says what to install. Not retried: somebody must install it first.
    """

    kind = Kind.FINAL


class DriverLost(InfrastructureFailed):
    """The Spark driver was killed, or never started: it left no report of its failure."""


class ClusterFull(InfrastructureFailed):
    """The cluster refused the driver, since what it may use at once is used up: a quota, a full queue."""


class OutOfMemory(InfrastructureFailed):
    """The driver or an executor ran out of memory. A memory policy may raise it for the next attempt."""


class ExecutorLost(InfrastructureFailed):
    """Spark lost more executors than its retries of Spark stages could make up for."""


class SessionLost(InfrastructureFailed):
    """The Spark Connect server restarted, or closed the session."""


class RestartsExhausted(RecoveryError):
    """A restart budget has ended; the message names which. A clear by hand starts the count anew."""

    kind = Kind.FINAL


class RestartPending(RecoveryError):
    """The pause before the next restart is not over. Airflow starts the task again when it is."""

    def __init__(self, message: str, delay_s: float = 0.0, **named: Any) -> None:
        super().__init__(message, **named)
        self.delay_s = delay_s


class ManifestInvalid(RecoveryError):
    """What was written is not what was observed: other rows, or files of more than one write."""
