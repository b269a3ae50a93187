"""How a test expects one of our errors: by its code and its fields, and not by its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_recovery.errors import RecoveryError


@contextmanager
def fails_with(
    *codes: str, by: type[BaseException] | tuple[type[BaseException], ...] = RecoveryError, **fields: Any
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error of ours with one of these codes, and with these fields among others.

    ``by``: an error of Airflow's that it is the cause of.
    """
    __tracebackhide__ = True
    with pytest.raises(by) as caught:
        yield caught
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, RecoveryError):
        error = error.__cause__
    assert isinstance(error, RecoveryError), f"expected {codes}, found no error of ours: {caught.value!r}"
    found = {name: error.fields.get(name) for name in fields}
    has = f"{error!r} has {error.code} and {error.fields}"
    assert error.code in codes, has
    assert found == fields, has
    json.dumps(error.fields)  # they travel
