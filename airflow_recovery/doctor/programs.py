"""Programs that doctor runs to hear what they say."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def run_program(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, without input, whatever its exit code is; its output as text.

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
