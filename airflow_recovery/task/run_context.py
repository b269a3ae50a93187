"""From Airflow's task context to the values that the region protocol works with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_recovery.airflow_compat import bundle_of, is_supervised
from airflow_recovery.attempt.clear_protocol import CLEARS_KEY, RecoveryClear, clears_from_json
from airflow_recovery.attempt.run import ALL_SUCCESS, RetryGrant, TaskIdentity
from airflow_recovery.checks import check_no_address
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import ConfigurationError, JobDefinitionError
from airflow_recovery.hooks.settings import CodeVersion
from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.dag_run import RECOVERY, DagRunFacts
from airflow_recovery.model.records import RunIdentity

if TYPE_CHECKING:
    from airflow.sdk import TaskGroup

MODES = ("recover", "recompute")
_ALIKE = 0.75


def run_facts(context: Mapping[str, Any]) -> RunFacts:
    """What parameters may be templates over: the run alone, never the task instance or the clock."""
    dag_run = context["dag_run"]
    return RunFacts(
        logical_date=_iso(dag_run.logical_date),
        data_interval_start=_iso(context.get("data_interval_start")),
        data_interval_end=_iso(context.get("data_interval_end")),
        conf=dict(dag_run.conf or {}),
        params={key: context["params"][key] for key in context.get("params") or {}},
    )


def dag_run_facts(context: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]] | None = None) -> DagRunFacts:
    """What is recorded of the run with each attempt. ``fields``: what is rendered for a region, by name."""
    dag_run, facts = context["dag_run"], run_facts(context)
    return DagRunFacts(
        run_id=dag_run.run_id,
        run_type=str(getattr(dag_run.run_type, "value", dag_run.run_type)),
        logical_date=facts.logical_date,
        data_interval_start=facts.data_interval_start,
        data_interval_end=facts.data_interval_end,
        run_after=_iso(dag_run.run_after),
        partition_key=getattr(dag_run, "partition_key", None),
        conf=facts.conf,
        # Airflow puts conf among the params.
        params={name: value for name, value in facts.params.items() if name not in facts.conf},
        fields=fields or {},
    )


def run_identity(context: Mapping[str, Any], group_id: str) -> RunIdentity:
    """Which journal belongs to this run: the same for a cleared, re-created or backfilled run of one logical date."""
    dag_run = context["dag_run"]
    key = run_key(
        logical_date=_iso(dag_run.logical_date),
        partition_key=getattr(dag_run, "partition_key", None),
        run_id=dag_run.run_id,
    )
    check_no_address(key, "The run's partition key or run id", ConfigurationError)
    return RunIdentity(dag_id=dag_run.dag_id, run_key=key, group_id=group_id)


def task_identity(context: Mapping[str, Any]) -> TaskIdentity:
    """The task instance that this process works for."""
    instance = context["ti"]
    grant = retry_grant(context)
    rule = getattr(getattr(instance, "task", None) or context.get("task"), "trigger_rule", ALL_SUCCESS)
    rule = getattr(rule, "value", rule)  # the text of Airflow's enumeration is another one
    return TaskIdentity(context["dag_run"].run_id, int(instance.try_number), str(instance.id), grant, rule)


def code_version(context: Mapping[str, Any], kind: CodeVersion) -> str:
    """Return the version that counts besides the code itself; empty without one.

    Raises `ConfigurationError` if ``[recovery] code_version`` asks for the version of a bundle that has none.
    """
    if kind is not CodeVersion.BUNDLE:
        return ""
    name, version = bundle_of(context["ti"])
    if version is None:
        raise ConfigurationError(
            f"Expected DAG bundle {name!r} to have a version, as [recovery] code_version = bundle asks for it, found "
            "none: a folder on the worker has no versions. A deploy of other code could not be noticed. Load the DAGs "
            "from a bundle with versions, such as airflow.providers.git.bundles.git.GitDagBundle, or set "
            "code_version = none.",
            code="bundle-without-version",
            bundle=name,
        )
    return version


def is_live_run(context: Mapping[str, Any], run_id: str) -> bool:
    """Whether Airflow has another run of this DAG by that id, and it has not ended. True where Airflow can't say."""
    from airflow.sdk.exceptions import AirflowRuntimeError

    try:
        state = context["ti"].get_dagrun_state(dag_id=context["dag_run"].dag_id, run_id=run_id)
    except AirflowRuntimeError as error:
        return (error.error.detail or {}).get("status_code") != 404
    return str(state) not in ("success", "failed")


def retry_grant(context: Mapping[str, Any]) -> RetryGrant | None:
    """Since when the task's failures count: since its start, or since the last clear by a person.

    A clear sets ``max_tries`` to the try that it ended plus ``retries``, so that each clear can be told; those that the
    API server has noted as recovery's own are passed over. `None` where Airflow says nothing of it. Where ``retries``
    was changed in the middle of a run, the count starts over.
    """
    instance = context["ti"]
    max_tries = getattr(instance, "max_tries", None)
    retries = getattr(getattr(instance, "task", None) or context.get("task"), "retries", None)
    if max_tries is None or retries is None:
        return None
    clears: tuple[RecoveryClear, ...] = ()
    if int(instance.try_number) > 1:
        clears = clears_from_json(context["task_state_store"].get(CLEARS_KEY))
    by_recovery = {clear.try_number: clear.max_tries for clear in clears}
    grant = int(max_tries)
    # Each step goes back to an earlier clear, so this ends.
    while (before := by_recovery.get(grant - retries)) is not None and before < grant:
        grant = before
    return RetryGrant(grant, is_renewed=grant != retries, cancelled=frozenset(by_recovery))


def die_with_supervisor() -> None:
    """A task whose supervisor is killed would run on, and a second try beside it: end with the supervisor.

    Not in ``dag.test()``, which runs the task in the user's own process: that one ends when its user says so.
    """
    if is_supervised():
        die_with_parent()


def is_last_try(context: Mapping[str, Any]) -> bool:
    """Airflow has no retry left for this task instance."""
    instance = context["ti"]
    max_tries = getattr(instance, "max_tries", None)
    return max_tries is not None and (max_tries == 0 or int(instance.try_number) > max_tries)


def refuse_mapped(context: Mapping[str, Any]) -> None:
    """Raises `ConfigurationError` in a mapped task (``expand``, or inside a mapped task group)."""
    instance = context["ti"]
    if instance.map_index is not None and instance.map_index >= 0:
        raise ConfigurationError(
            f"{instance.task_id} is mapped (map index {instance.map_index}): expected a recoverable task once in a "
            "run, since all its instances would share one entry of the journal. Make one task each, or declare a job.",
            code="mapped",
            task=instance.task_id,
        )


def refuse_expand(operator: str, task_id: object, found: str = ".partial(...)") -> NoReturn:
    """A mapped recoverable operator. Raises `JobDefinitionError`, while the DAG file is parsed."""
    raise JobDefinitionError(
        f"{task_id}: expected a {operator} once in a run, found {found}: all the instances of an .expand(...) "
        "would share one entry of the journal. Make one task each in a loop, or declare a job with parallelism=",
        code="expanded",
    )


def refuse_mapped_group(group: TaskGroup | None, where: str) -> None:
    """Raise `JobDefinitionError` for a place inside a mapped task group, whose copies would share one journal."""
    from airflow_recovery.airflow_compat import MappedTaskGroup

    while group is not None:
        if isinstance(group, MappedTaskGroup):
            raise JobDefinitionError(
                f"{where}: expected to be there once in a run, found inside the mapped task group {group.group_id!r}: "
                "all its copies would share one journal. Declare a job with parallelism=, which SparkJobTaskGroup maps "
                "by itself, or make one each outside of it.",
                code="in-mapped-group",
            )
        group = group.parent_group


def recompute_epoch(context: Mapping[str, Any]) -> str | None:
    """The epoch of ``recovery: {mode: recompute, epoch: N}`` in the run's conf, `None` in mode ``recover``.

    Everything runs again once an epoch: a later retry or clear keeps what that epoch has made. The default is epoch 1.
    Raises `ConfigurationError` for anything else under ``recovery``, and for a key that seems to be meant for it.
    """
    conf = context["dag_run"].conf or {}
    dag = context.get("dag")
    _refuse_misspelt(conf, () if dag is None else dag.params)
    asked = conf.get(RECOVERY)
    if asked is None:
        return None
    advice = 'Write {"recovery": {"mode": "recompute", "epoch": 2}}, or leave it out to recover.'
    if not isinstance(asked, dict) or not set(asked) <= {"mode", "epoch"}:
        raise ConfigurationError(
            f"The run's conf: expected recovery to hold mode and epoch only, found {asked!r}. {advice}",
            code="conf-recovery-unfit",
        )
    mode = asked.get("mode", "recover")
    if mode not in MODES:
        raise ConfigurationError(
            f"The run's conf: expected recovery.mode to be one of {', '.join(MODES)}, found {mode!r}. {advice}",
            code="conf-mode-unfit",
        )
    if "epoch" in asked and "mode" not in asked:
        raise ConfigurationError(
            f"The run's conf: expected recovery.mode beside recovery.epoch, found {asked!r}: an epoch alone changes "
            f"nothing. {advice}",
            code="conf-mode-missing",
        )
    epoch = asked.get("epoch", 1)
    if isinstance(epoch, bool) or not isinstance(epoch, (int, str)) or epoch == "":
        raise ConfigurationError(
            f"The run's conf: expected recovery.epoch to be a number or a name, found {epoch!r}. {advice}",
            code="conf-epoch-unfit",
        )
    return str(epoch) if mode == "recompute" else None


def _refuse_misspelt(conf: Mapping[str, Any], params: Collection[str]) -> None:
    """Conf belongs to the DAG, but for one key. One that looks like that key, and holds what it holds, is a mistake."""
    for name, value in conf.items():
        is_meant = (
            value in MODES if isinstance(value, str) else isinstance(value, dict) and {"mode", "epoch"} & {*value}
        )
        if name != RECOVERY and name not in params and is_meant and _is_like_recovery(name):
            raise ConfigurationError(
                f"The run's conf: expected the key {RECOVERY!r}, found {name!r} with {value!r}: recovery does not read "
                'that key, and would keep everything. Write {"recovery": {"mode": "recompute", "epoch": 2}}. If the '
                f"DAG has a use for {name!r}, declare it among its params.",
                code="conf-key-unread",
            )


def _is_like_recovery(name: str) -> bool:
    words = name.lower()
    return RECOVERY[:-1] in words or SequenceMatcher(None, words, RECOVERY).ratio() > _ALIKE


def _iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC: one spelling for one moment, since the run key is made of it."""
    return None if moment is None else moment.astimezone(timezone.utc).isoformat()
