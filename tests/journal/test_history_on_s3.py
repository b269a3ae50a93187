"""Faults of event streams once more, with the streams on an S3 server."""

from __future__ import annotations

import pytest
from test_history import (  # noqa: F401
    stream,
    test_fault_34_control_a_cut_in_the_middle_of_the_stream_is_loud,
    test_fault_37_a_huge_declared_length_is_refused_with_bounded_memory,
    test_fault_37_an_empty_segment_is_refused,
    test_fault_38_an_optional_event_of_a_newer_version_is_skipped,
    test_fault_43_a_segment_that_a_stalled_writer_adds_after_the_purge_does_not_count,
    test_fault_44_streams_of_another_journal_under_the_prefix_are_refused,
)
from test_stream import (  # noqa: F401
    test_fault_40_and_42_recording_goes_on_while_the_store_is_down_and_nothing_is_doubled_or_lost,
)

from airflow_recovery.store.s3 import S3Store


@pytest.fixture
def local_store(s3_store: S3Store) -> S3Store:
    """In its place."""
    return s3_store
