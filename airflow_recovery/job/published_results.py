"""A result that another DAG has published, as an input: ``published("flights", "busiest", group_id="flights")``."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_recovery.checks import check_arguments, is_template
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.templates import checked_moment
from airflow_recovery.locations import PublishedLocation
from airflow_recovery.model.keys import OPERATORS_GROUP

SAME_LOGICAL_DATE = "{{ ts if ts is defined and ts else '' }}"
"""Empty in a run without a logical date, which is then refused by name."""


def published(
    dag_id: str,
    result: str,
    *,
    group_id: str = OPERATORS_GROUP,
    logical_date: datetime | str | None = None,
    execution_delta: timedelta | None = None,
    partition_key: str | None = None,
    run_id: str | None = None,
) -> str:
    """Name what the newest publish of another DAG's run has of ``result``, to be read as an input.

    ::

        inputs={"up": published("upstream", "clean.cleaned")}           # of a recoverable operator
        @flights.source(splits=files(published("upstream", "clean.cleaned")))    # of a job's source: its files

    The run is the one with this run's logical date, minus ``execution_delta``; or the one named by ``logical_date``
    (ISO 8601), ``partition_key`` or ``run_id``, which may be templates. ``group_id`` is that of the other DAG's
    `SparkJobTaskGroup`; without it ``result`` is ``<task id>.<output>`` of its recoverable operators.

    The publish is looked up at each try, and the claim takes what it names then. What was read belongs to the trace: by
    the digest of its rows, if the other DAG has taken one, else by its files. So a new publish with other rows makes
    the reader run again. A try fails with `NotPublished` if there is none; `RecoveryResultSensor` waits for it.

    Raises `JobDefinitionError` for names that no result can have.
    """
    arguments = locals()
    check_arguments(published, arguments, "published()")
    ways = ("logical_date", "execution_delta", "partition_key", "run_id")
    named = [name for name in ways if arguments[name] is not None]
    if len(named) > 1:
        raise JobDefinitionError(
            f"published(): expected at most one of {', '.join(ways)}, found {', '.join(named)}: leave all but one out",
            code="published-ways-exclude",
        )
    for name in ("dag_id", "result", "group_id"):
        if is_template(arguments[name]):
            raise JobDefinitionError(
                f"published(): expected {name}= without a template, found {arguments[name]!r}: the DAG says whose "
                "results it reads, and only the run may differ. Write it out",
                code="published-template",
            )
    if group_id == OPERATORS_GROUP and "." not in result:
        raise JobDefinitionError(
            f"published(): expected result= as '<task id>.<output>' where no group_id= is given, found {result!r}: no "
            "operator's result has such a name. Name the output, or the SparkJobTaskGroup with group_id=",
            code="published-without-group",
        )
    if logical_date is not None and not (isinstance(logical_date, str) and is_template(logical_date)):
        logical_date = checked_moment(logical_date, "published()").isoformat()
    by_date = partition_key is None and run_id is None
    return PublishedLocation(
        dag_id,
        result,
        group_id,
        before_s=execution_delta.total_seconds() if execution_delta is not None else 0.0,
        logical_date=(logical_date or SAME_LOGICAL_DATE) if by_date else None,
        partition_key=partition_key,
        run_id=run_id,
    ).uri
