"""FLIP-383's options: their names, defaults and values."""

from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.job_recovery import (
    NOTHING_DECLARED,
    DeclaredJobRecovery,
    JobRecovery,
    OnStoreFailure,
    declared_job_recovery,
)


def test_defaults_are_flinks_but_recovery_is_on():
    assert NOTHING_DECLARED.in_effect() == JobRecovery(
        enabled=True,
        buffer_bytes=1024 * 1024,
        flush_interval_s=1.0,
        snapshot_min_pause_s=180.0,
        on_store_failure=OnStoreFailure.DEGRADE,
    )


@pytest.mark.parametrize(
    ("key", "value", "name", "expected"),
    [
        ("execution.batch.job-recovery.enabled", "False", "enabled", False),
        ("execution.batch.job-recovery.enabled", True, "enabled", True),
        ("job-event.store.write-buffer.size", "4 mb", "buffer_bytes", 4 * 1024 * 1024),
        ("job-event.store.write-buffer.size", "512kb", "buffer_bytes", 512 * 1024),
        ("job-event.store.write-buffer.size", 100, "buffer_bytes", 100),
        ("job-event.store.write-buffer.flush-interval", "500 ms", "flush_interval_s", 0.5),
        ("job-event.store.write-buffer.flush-interval", 2, "flush_interval_s", 2.0),
        ("execution.batch.job-recovery.snapshot.min-pause", "10 min", "snapshot_min_pause_s", 600.0),
        ("execution.batch.job-recovery.snapshot.min-pause", "0 s", "snapshot_min_pause_s", 0.0),
        ("execution.batch.job-recovery.previous-worker.recovery.timeout", "1 min", "previous_worker_timeout_s", 60.0),
        ("job-event.store.on-failure", "fail", "on_store_failure", OnStoreFailure.FAIL),
        ("job-event.store.on-failure", OnStoreFailure.FAIL, "on_store_failure", OnStoreFailure.FAIL),
    ],
)
def test_values_are_read_as_flink_writes_them(key, value, name, expected):
    assert getattr(DeclaredJobRecovery.parse({key: value}), name) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.batch.job-recovery.enabled", "yes"),
        ("execution.batch.job-recovery.enabled", 1),
        ("job-event.store.write-buffer.size", "1 s"),
        ("job-event.store.write-buffer.size", 0),
        ("job-event.store.write-buffer.size", "1000 mb"),
        ("job-event.store.write-buffer.size", True),
        ("job-event.store.write-buffer.flush-interval", "0 s"),
        ("job-event.store.write-buffer.flush-interval", "-1 s"),
        ("job-event.store.write-buffer.flush-interval", "soon"),
        ("job-event.store.on-failure", "ignore"),
        ("execution.batch.job-recovery.snapshot.min-pause", "never"),
        ("execution.batch.job-recovery.snapshot.min-pause", float("inf")),
        ("execution.batch.job-recovery.previous-worker.recovery.timeout", "-1 s"),
        ("execution.batch.job-recovery.enable", True),
    ],
)
def test_other_keys_and_values_are_refused_by_name(key, value):
    with pytest.raises(ConfigurationError, match=key.replace(".", r"\.")):
        DeclaredJobRecovery.parse({key: value})


def test_the_nearer_place_wins_option_by_option():
    near = DeclaredJobRecovery(enabled=False)
    far = DeclaredJobRecovery(enabled=True, buffer_bytes=5)
    assert near.over(far) == DeclaredJobRecovery(enabled=False, buffer_bytes=5)


def test_a_declaration_that_is_none_is_an_error_of_the_dag():
    assert declared_job_recovery(None, "job") is NOTHING_DECLARED
    for wrong in ({"x": 1}, "false"):
        with fails_with("option-unknown", "options-no-mapping"):
            declared_job_recovery(wrong, "job 'f'")  # type: ignore[arg-type]
