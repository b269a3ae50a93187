"""What all triggers of this provider have in common: they look, sleep, and look again."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from airflow.triggers.base import BaseTrigger

P = ParamSpec("P")
T = TypeVar("T")


class PollingTrigger(BaseTrigger):
    """A trigger whose ``__init__`` keeps each parameter as the attribute of the same name."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, for Airflow's metadata database: the triggerer makes the trigger again of them.

        An argument that has its default is left out. So a version that lacks it makes the trigger all the same, as long
        as nobody has asked for anything else. Classes, arguments and events are golden files of the tests: a task that
        is deferred lives across an upgrade.
        """
        parameters = inspect.signature(type(self)).parameters.values()
        arguments = {parameter.name: (getattr(self, parameter.name), parameter.default) for parameter in parameters}
        arguments = {name: value for name, (value, default) in arguments.items() if value != default}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments


def in_thread(look: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """``look``, which blocks, for the triggerer's event loop.

    Not `asyncio.to_thread`: a thread that asks Airflow for a connection has to find its way back to that loop.
    """
    from asgiref.sync import sync_to_async

    return sync_to_async(look, thread_sensitive=False)
