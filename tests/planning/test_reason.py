"""Reasons as a person reads them."""

from __future__ import annotations

from airflow_recovery.planning.reason import Reason, Why


def test_a_reason_is_told_down_to_its_root_cause():
    root = Reason("P", Why.OUTPUT_MISSING, "attempt 1: part-0 is gone")
    text = Reason("C", Why.INPUT_INVALID, "P", root).text()
    assert text == "C: input is not valid (P) <- P: result is missing (attempt 1: part-0 is gone)"


def test_the_middle_of_a_long_chain_is_left_out():
    reason = Reason("r0", Why.RESET)
    for at in range(1, 10):
        reason = Reason(f"r{at}", Why.INPUT_INVALID, cause=reason)
    parts = reason.text().split(" <- ")
    assert [part.split(":")[0] for part in parts] == ["r9", "r8", "r7", "r6", "... 5 more ...", "r0"]


def test_five_links_are_told_in_full():
    reason = Reason("r0", Why.RESET)
    for at in range(1, 5):
        reason = Reason(f"r{at}", Why.INPUT_INVALID, cause=reason)
    assert [piece.split(":")[0] for piece in reason.text().split(" <- ")] == ["r4", "r3", "r2", "r1", "r0"]
