"""When what the tests of a folder, or of some files, share is stopped.

At the end of the session would be too late: two Airflows take a core from the tests of other folders.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def is_last_of(paths: Path | tuple[Path, ...], item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Whether no test below ``paths`` comes after ``item``, for the hook `pytest_runtest_teardown`."""
    below = paths if isinstance(paths, tuple) else (paths,)
    return nextitem is None or not any(nextitem.path.is_relative_to(path) for path in below)
