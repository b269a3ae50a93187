"""Kubernetes' client, imported when it is used: the Spark provider's operators import it where they are imported.

That is 1,700 modules, half a second and 70 MB for each process that parses a DAG file or runs a task of ours, and a
task uses it where its master is Kubernetes. Imported before those operators are, in `airflow_recovery.operators`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

_PROVIDER = "airflow.providers.cncf.kubernetes"
_CLIENT = "kube_client"


class _WhenUsed(ModuleType):
    """Stands where ``from package import module`` looks, until somebody imports the module or asks for a name of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what is asked of every module says nothing of its use
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self.__name__), name)


def import_when_used() -> None:
    """Let the Spark provider have Kubernetes' client without importing it. Nothing, where it could not import it."""
    name = f"{_PROVIDER}.{_CLIENT}"
    if name not in sys.modules:
        with suppress(ImportError):
            # The import of the module itself replaces this.
            setattr(import_module(_PROVIDER), _CLIENT, _WhenUsed(name))


import_when_used()
