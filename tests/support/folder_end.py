"""When what the tests of a folder share is stopped.

At the end of the session would be too late: two Airflows take a core from the tests of other folders.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def is_last_of(folder: Path, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Whether no test of the folder comes behind ``item``, for the hook `pytest_runtest_teardown` of its conftest.py.

    False where pytest-rerunfailures is about to run that one again.
    """
    is_last = nextitem is None or folder not in nextitem.path.parents
    return is_last and not getattr(item, "_finalizers_suspended", False)
