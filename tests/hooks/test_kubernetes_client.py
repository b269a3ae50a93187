"""Kubernetes' client is imported by a task that uses it, and by no other process that imports our operators."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from airflow_recovery.testing.patience import HANG_S

pytest.importorskip("kubernetes")
pytest.importorskip("airflow.providers.cncf.kubernetes")

IS_THERE = "import sys; print('kubernetes' in sys.modules, 'kubernetes_asyncio' in sys.modules)"
OPERATORS = "from airflow.providers.apache.spark.operators import spark_submit"
HOOKS = "from airflow.providers.apache.spark.hooks import spark_submit"


def said(*lines: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, env=env, check=False, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_our_operators_do_not_import_it() -> None:
    assert said("import airflow_recovery.operators", IS_THERE) == "False False"
    # The control: without ours before them, the provider's operators import it.
    assert said(OPERATORS, IS_THERE) == "True True"


@pytest.mark.slow
@pytest.mark.parametrize("provider", [OPERATORS, HOOKS], ids=["operator", "hook"])
def test_the_provider_finds_it_when_it_asks(provider: str) -> None:
    uses = "print(spark_submit.kube_client.get_kube_client is kube_client.get_kube_client)"
    real = "from airflow.providers.cncf.kubernetes import kube_client"
    assert said("import airflow_recovery.operators", provider, real, uses) == "True"
    caught = "print(issubclass(spark_submit.kube_client.ApiException, Exception))"
    assert said("import airflow_recovery.operators", provider, caught) == "True"


@pytest.mark.slow
def test_what_looks_at_every_module_does_not_import_it() -> None:
    looks = "import inspect, sys; [inspect.getmodule(module) for module in list(sys.modules.values())]"
    assert said("import airflow_recovery.operators", looks, IS_THERE) == "False False"


@pytest.mark.slow
def test_where_there_is_none_nothing_stands_for_it() -> None:
    none = "from airflow_recovery.hooks import kubernetes_client; kubernetes_client._PROVIDER = 'airflow.no_provider'"
    assert said(none, "print(kubernetes_client.import_when_used())") == "None"
