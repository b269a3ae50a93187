"""The names of Airflow that are not public are there, in the Airflow that is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_recovery import airflow_compat


@pytest.mark.slow
def test_a_worker_finds_what_it_needs_and_loads_nothing_of_the_api_server() -> None:
    script = (
        "from airflow_recovery.airflow_compat import MappedTaskGroup, TaskScope, redact, stats;"
        "import sys; print('fastapi' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.split()[-1] == "False"


def test_all_of_them_are_there() -> None:
    names = vars(airflow_compat)["_MODULE_OF"]
    assert all(getattr(airflow_compat, name) is not None for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'DagRum'"):
        getattr(airflow_compat, "DagRum")  # noqa: B009
