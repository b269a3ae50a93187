"""Faults of dynamic splits once more, with journal and results on an S3 server."""

from __future__ import annotations

from on_s3 import on_s3  # noqa: F401 - for every test
from test_dynamic_splits import (  # noqa: F401
    test_fault_92_a_reader_takes_no_finish_whose_splits_were_given_back,
    test_fault_94_what_is_known_is_not_asked_for_again,
    world,
)
