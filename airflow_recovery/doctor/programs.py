"""Runs a program for its output: java, bash, a driver's Python."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def run_program(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end, without input, and return its output as text, whatever its exit code is.

    Raises `OSError` where it can't be started, and `subprocess.TimeoutExpired`.
    """
    return subprocess.run(
        command,
        env={**environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
