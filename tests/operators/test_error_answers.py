"""What Airflow, the REST endpoints and the commands answer to each error: one table of all of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_recovery import errors
from airflow_recovery.api_server import compare_and_clear, rest_errors
from airflow_recovery.console.exit_codes import exit_code_of
from airflow_recovery.errors import kind_of
from airflow_recovery.hooks import clear_clients
from airflow_recovery.model import build_in_progress
from airflow_recovery.streaming import start_gate
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy

# Task: "at once" and "later" are retried, after no pause and after one.
ANSWERS: dict[tuple[str, int, str, str], str] = {
    # task, HTTP status and code, exit code of a command: errors
    ("at once", 409, "in_use", "NO_ANSWER"): "AttemptLost",
    ("at once", 410, "gone", "NO_ANSWER"): "NotMine",
    ("at once", 502, "unreadable", "NO_ANSWER"): "ChannelEvicted CodeReplaced InputLost InputReleased Overtaken",
    ("at once", 503, "no_answer", "NO_ANSWER"): "PagesDisagree WriteLost",
    ("final", 409, "in_use", "NO_ANSWER"): "JournalInUse OutputAltered",
    ("final", 502, "misconfigured", "USAGE"): "ConfigurationError LocationNotAllowed",
    ("final", 502, "store_denied", "NO_ANSWER"): "StoreAccessDenied",
    ("final", 502, "unreadable", "NO_ANSWER"): """
        AppendedAlready ChannelFailed FingerprintError HoldsOther InputDenied InputFailed InputMalformed
        InputUnreachable InputsUnknown LossBudgetExceeded ClearNotConfigured NotSetUp ObjectTooLarge RecordInvalid
        RestartsExhausted SinkInDoubt SinkRefused SinkUnreadable SplitIdentityError SplitsNotCovered SplitsVanished
        StreamDamaged SubtasksUnknown UserCodeError""",
    ("final", 502, "unreadable", "USAGE"): "JobDefinitionError",
    ("final", 503, "no_answer", "NO_ANSWER"): "StoreMisconfigured StoreUnsuitable",
    ("later", 404, "not_found", "NOT_FOUND"): "NothingRecorded RunMissing UnknownRegion",
    ("later", 409, "in_use", "REFUSED"): "Refused",
    ("later", 409, "outdated", "OUTDATED"): "Outdated PlanOutdated",
    ("later", 502, "store_denied", "NO_ANSWER"): "StoreCredentialsExpired",
    ("later", 502, "unreadable", "NO_ANSWER"): """
        BackendNotInstalled ChannelAltered ChannelError ChannelInconsistent ChannelNotOpen ClusterFull DriverLost
        ExecutorLost HistoryIncomplete InfrastructureFailed InputAltered InputPending InputSkipped InputTimedOut
        InputUnreadable JournalError ManifestInvalid NotPublished OutOfMemory PartitionMissing RecoveryError
        RegionFailed RestartPending SessionLost BuiltElsewhere SinkNotApplied SinkSuperseded SinkUnavailable
        SubtasksFailed TransferBroken""",
    ("later", 503, "no_answer", "NO_ANSWER"): """
        CacheUnreachable ObjectExists ObjectMissing ReadingStopped StoreError StoreFull StoreSilent StoreTimeout
        StoreUnavailable""",
}


def every_error() -> Iterator[type[errors.RecoveryError]]:
    for module in (errors, build_in_progress, start_gate, clear_clients, compare_and_clear, rest_errors):
        for _, member in inspect.getmembers(module, inspect.isclass):
            if issubclass(member, errors.RecoveryError) and member.__module__ == module.__name__:
                yield member


def an_error(kind: type[errors.RecoveryError]) -> errors.RecoveryError:
    more: dict[str, Any] = {
        "RestartPending": 5.0,
        "Outdated": (),
        "ChannelNotOpen": "why",
        "SubtasksFailed": {"each[0]": errors.StoreTimeout("later")},
    }
    return kind("the reason", more[kind.__name__]) if kind.__name__ in more else kind("the reason")


def answers_to(error: errors.RecoveryError) -> tuple[str, int, str, str]:
    request: Any = SimpleNamespace(method="GET", url=SimpleNamespace(path="/"))
    response = rest_errors._of_recovery(request, error)
    delay = RecoveryRetryPolicy(retries=3).evaluate(error, 1, 3).retry_delay
    task = "final" if kind_of(error).is_final else "later" if delay else "at once"
    return task, response.status_code, json.loads(bytes(response.body))["code"], exit_code_of(error).name


@pytest.mark.parametrize("kind", sorted(set(every_error()), key=str))
def test_what_each_error_is_answered_with(kind: type[errors.RecoveryError]) -> None:
    expected = [answers for answers, names in ANSWERS.items() if kind.__name__ in names.split()]
    assert [answers_to(an_error(kind))] == expected


def test_several_failed_subtasks_are_final_where_each_of_them_is() -> None:
    final, retried = errors.ConfigurationError("a"), errors.StoreTimeout("b")
    assert kind_of(errors.SubtasksFailed("both", {"1": final, "2": final})).is_final
    assert not kind_of(errors.SubtasksFailed("one", {"1": final, "2": retried})).is_final
    assert not kind_of(errors.SubtasksFailed("none", {})).is_final


def test_an_error_of_another_program_may_be_cured_by_a_retry() -> None:
    assert not kind_of(ValueError("what?")).is_final
