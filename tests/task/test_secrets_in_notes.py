"""What a try says of its end where every reader of the DAG sees it: in its note, and as the reason of its retry."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from tries import task_context

from airflow_recovery.api_server import notes as plugin_notes
from airflow_recovery.errors import InputLost, RegionFailed
from airflow_recovery.task import notes, retry_policy

KNOWN = "hunter2-and-more"
"""Airflow knows it in this process."""
SAID = f"can't open the table as etl/{KNOWN}, with fs.s3a.secret.key=abc/def"
MASKED = "can't open the table as etl/***, with fs.s3a.secret.key=***"


@pytest.fixture(autouse=True)
def secret() -> Iterator[None]:
    reset_secrets_masker()
    mask_secret(KNOWN)
    yield
    reset_secrets_masker()


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes that were sent through a clear client."""
    found: list[str] = []
    clear_client = SimpleNamespace(note=found.append)
    monkeypatch.setattr(
        "airflow_recovery.hooks.clear_clients.open_clear_client", lambda context, connection: clear_client
    )
    monkeypatch.setattr(
        "airflow_recovery.hooks.settings.RecoverySettings.load", lambda: SimpleNamespace(api_conn_id=None)
    )
    return found


def fail() -> None:
    with pytest.raises(RegionFailed), notes.noting_failure(task_context()):
        raise RegionFailed(SAID)


def test_fault_119_the_note_of_a_failed_try_is_masked(left: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "is_last_try", lambda context: False)
    fail()
    assert left == [f"not yet: {MASKED}"]


def test_fault_119_control_without_the_mask_it_stands_in_the_note(
    left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "is_last_try", lambda context: False)
    monkeypatch.setattr("airflow_recovery.hooks.masking.mask_secrets", lambda text: text)
    fail()
    assert KNOWN in left[0]


def test_fault_119_the_api_server_masks_what_it_is_sent() -> None:
    namespace = SimpleNamespace(note=None)
    session: Any = SimpleNamespace(scalar=lambda query: namespace, flush=lambda: None)
    scope: Any = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    plugin_notes.leave_note(session, scope, f"recovery: not yet: {SAID}")
    assert namespace.note == f"recovery: not yet: {MASKED}"


def test_fault_119_the_reason_of_a_retry_is_masked() -> None:
    policy = retry_policy.RecoveryRetryPolicy(retries=3)
    assert policy.evaluate(InputLost(SAID), 1, 3).reason == MASKED
