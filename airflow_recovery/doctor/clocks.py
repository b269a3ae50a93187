"""How far this machine's clock and another one are apart."""

from __future__ import annotations

from airflow_recovery.doctor.result import CheckResult, ok, wrong

MAX_APART_S = 10.0
"""A heartbeat is missed after 30 s, and S3 refuses requests that are a quarter of an hour old."""


def check_clock(check: str, other: str, began_s: float, ended_s: float, told_s: float, *, unit_s: float) -> CheckResult:
    """Compare ``told_s``, the time by ``other``'s clock, with ``began_s`` and ``ended_s``, this machine's around it.

    All are seconds since the epoch. ``unit_s``: ``told_s`` is rounded down to so many seconds.
    """
    apart = 0.0
    if told_s > ended_s:
        apart = told_s - ended_s
    elif told_s + unit_s < began_s:
        apart = told_s + unit_s - began_s
    if abs(apart) <= MAX_APART_S:
        return ok(check, f"this machine and {other} are less than {max(1.0, abs(apart)):.0f} s apart")
    return wrong(
        check,
        expected=f"this machine's clock and that of {other} at most {MAX_APART_S:.0f} s apart",
        found=f"{abs(apart):.0f} s: {other} is {'ahead' if apart > 0 else 'behind'}",
        next_step="Have both take their time from a server (NTP); heartbeats and grace times go by them.",
    )
