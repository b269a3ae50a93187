"""A text that stands for the state of an input which no file shows: ``Version("{{ ti.xcom_pull('count') }}")``."""

from __future__ import annotations

from airflow_recovery.checks import check_arguments
from airflow_recovery.locations import VERSION


def Version(text: str) -> str:
    """Declare an input by a text that changes when the input does: a number of rows, a snapshot, a time.

    ::

        inputs={"orders": Version("{{ ti.xcom_pull('count_orders') }}")}                # of a recoverable operator
        @sales.source(inputs={"orders": Version("{{ ti.xcom_pull('count_orders') }}")}) # of a job's source

    ``text`` is a template that only the task itself renders, with all that Airflow has for it. It is recorded with the
    attempt, as it is: put no secret in it. A try that finds another text runs again. An operator's job is told the text
    at ``{version:orders}`` or ``{input:orders}``, a source's function by its parameter ``orders``, if it has one.

    Nothing is read, so nothing shows whether the text changes with the input. A try fails with `JobDefinitionError` if
    the text is empty, ``None``, longer than 1000 characters, or not printable.
    """
    check_arguments(Version, {"text": text}, "Version()")
    return f"{VERSION}{text}"
