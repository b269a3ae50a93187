"""The components of an operator's fingerprint, made of what its job computes (`DropInOperator.computes`).

What is not in it: where a job runs and what it is called there (`PLACES`), and settings that do not change rows
(`airflow_recovery.job.row_settings`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CellType, CodeType
from typing import Any

from airflow.sdk import Context

from airflow_recovery.job.fingerprint import is_installed
from airflow_recovery.job.row_settings import IMAGES, PROPERTIES_FIELDS, SETTINGS_FIELDS, without_other_settings
from airflow_recovery.model.components import Component, value_of
from airflow_recovery.task.code_places import APPLICATION, PROPERTIES_FILE

_AMAZON = "airflow.providers.amazon.aws.operators"
_KUBERNETES = "airflow.providers.cncf.kubernetes.operators"
_DATABRICKS = "airflow.providers.databricks.operators.databricks"
_DATAPROC = "airflow.providers.google.cloud.operators.dataproc"
_EMR = ("aws_conn_id", "execution_role_arn", "region_name", "verify")
_POD = (
    *("annotations", "cluster_context", "config_file", "container_resources", "hostname", "kubernetes_conn_id"),
    *("labels", "name", "namespace", "node_selector", "trigger_kwargs"),
)
_SIZES = ("driver_cores", "driver_memory", "executor_cores", "executor_memory", "num_executors")
_RUN = ("access_control_list", "existing_cluster_id", "idempotency_token", "run_name", "timeout_seconds")

PLACES: Mapping[str, tuple[str, ...]] = {
    f"{_AMAZON}.emr.EmrAddStepsOperator": (*_EMR, "cluster_states", "job_flow_id", "job_flow_name"),
    f"{_AMAZON}.emr.EmrContainerOperator": (*_EMR, "name", "virtual_cluster_id"),
    f"{_AMAZON}.emr.EmrServerlessStartJobOperator": (*_EMR, "application_id", "name"),
    f"{_AMAZON}.glue.GlueJobOperator": ("aws_conn_id", "iam_role_arn", "iam_role_name", "region_name", "verify"),
    f"{_AMAZON}.batch.BatchOperator": ("aws_conn_id", "job_name", "job_queue", "region_name", "tags", "verify"),
    "airflow.providers.apache.livy.operators.livy.LivyOperator": tuple(
        f"spark_params.{name}" for name in ("name", "proxy_user", "queue", *_SIZES)
    ),
    "airflow.providers.apache.spark.operators.spark_jdbc.SparkJDBCOperator": (
        *("batch_size", "fetch_size", "keytab", "name", "num_partitions", "principal", "spark_app_name", *_SIZES),
    ),
    "airflow.providers.apache.spark.operators.spark_pyspark.PySparkOperator": ("conn_id",),
    "airflow.providers.apache.spark.operators.spark_pipelines.SparkPipelinesOperator": ("keytab", "principal"),
    f"{_KUBERNETES}.pod.KubernetesPodOperator": _POD,
    f"{_KUBERNETES}.spark_kubernetes.SparkKubernetesOperator": ("kubernetes_conn_id", "name", "namespace"),
    f"{_DATABRICKS}.DatabricksSubmitRunOperator": (
        *("databricks_conn_id", "performance_target", *_RUN),
        *(f"json.{name}" for name in _RUN),
    ),
    f"{_DATABRICKS}.DatabricksRunNowOperator": ("databricks_conn_id", "idempotency_token", "performance_target"),
    f"{_DATAPROC}.DataprocSubmitJobOperator": (
        *("gcp_conn_id", "impersonation_chain", "project_id", "region", "request_id"),
        *("job.placement", "job.reference"),
    ),
    f"{_DATAPROC}.DataprocCreateBatchOperator": (
        *("batch_id", "gcp_conn_id", "impersonation_chain", "project_id", "region", "request_id"),
    ),
}
"""Fields that only say where a job runs, with whose rights, and what it is called: by the class that declares them.

They hold for its subclasses too. ``a.b`` is key ``b`` of field ``a``. A field that is not listed counts.
"""

NOT_ROWS: frozenset[str] = frozenset(
    {
        # how the task waits, and how often it looks
        *("check_interval", "deferrable", "job_poll_interval", "poke_interval", "poll", "poll_interval", "timeout"),
        *("polling_interval", "polling_period_seconds", "status_poll_interval", "startup_check_interval_seconds"),
        *("timeout_seconds", "startup_timeout_seconds", "schedule_timeout_seconds", "active_deadline_seconds"),
        *("wait_for_completion", "wait_for_termination", "waiter_check_interval_seconds", "waiter_countdown"),
        *("waiter_delay", "waiter_max_attempts", "wait_policy", "base_container_status_polling_interval"),
        # how often it asks a service again
        *("databricks_retry_args", "databricks_retry_delay", "databricks_retry_limit", "max_tries", "num_of_retries"),
        *("result_retry_threshold", "retry_args", "retry_limit"),
        # what becomes of the job when its task ends
        *("cancel_on_kill", "delete_on_termination", "is_delete_operator_pod", "on_finish_action", "on_kill_action"),
        *("random_name_suffix", "reattach_on_restart", "stop_job_run_on_kill", "termination_grace_period"),
        # what is logged, and what is left in Airflow
        *("awslogs_fetch_interval", "awslogs_group", "awslogs_region", "awslogs_stream_prefix", "container_logs"),
        *("enable_application_ui_links", "get_logs", "init_container_logs", "log_events_on_failure"),
        *(
            "log_pod_spec_on_failure",
            "logging_interval",
            "callbacks",
            "progress_callback",
            "verbose",
            "multiple_outputs",
        ),
        # with whose rights, and on which machines
        *("affinity", "automount_service_account_token", "botocore_config", "conn_id", "container_resources"),
        *("container_security_context", "delegate_to", "dns_config", "dnspolicy", "host_aliases", "hostnetwork"),
        *("impersonation_chain", "image_pull_secrets", "in_cluster", "namespace", "node_selector", "ports"),
        *("priority_class_name", "region_name", "resources", "schedulername", "security_context"),
        *("service_account_name", "tolerations", "verify"),
    }
)
"""Arguments of providers' operators that say nothing of the rows. So do all whose names end with ``_conn_id``."""

_OF_JOB = {"given": "argument", "fields": "field", "settings": "setting", "context": "context"}
_OF_RUN = ("conf", "params")
_ASKS_FOR = {"get_current_context": "context", "Variable": "var"}
"""By a word in a function's code, what the function may take that is not in its signature."""
_OF_FUNCTION = frozenset({"op_args", "op_kwargs", "python_callable"})
_WHOLE_CONTEXT = ("context", "dag_run", "ti", "task_instance")
_NOTHING_OF_RUN = frozenset(
    {
        *("asset_state_store", "conn", "dag", "exception", "expanded_ti_count", "inlet_events", "inlets", "macros"),
        *("map_index_template", "outlet_events", "outlets", "reason", "task", "task_instance_key_str"),
        *("task_reschedule_count", "task_state_store", "templates_dict", "test_mode", "try_number", "ti_start_date"),
    }
)
"""Tools of Airflow and facts of one try, which say nothing of the rows."""


def fields_that_count(operator_class: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an operator's fields without places (`PLACES`) and settings that do not change rows."""
    places = _listed_for(operator_class, PLACES)
    counting = {}
    for name, value in fields.items():
        if name in places:
            continue
        if isinstance(value, Mapping):
            value = {key: item for key, item in value.items() if f"{name}.{key}" not in places}
        counting[name] = without_other_settings(value)
    return counting


def arguments_that_count(operator: Any, operator_class: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that an operator was given and that Airflow does not render, by name, sorted.

    Without those of every operator, places (`PLACES`), arguments that say nothing of the rows (`NOT_ROWS`), and those
    that a field, a setting or the function holds already.
    """
    given = getattr(operator, "_BaseOperator__init_kwargs", {})
    inside = {str(key) for value in fields.values() if isinstance(value, Mapping) for key in value}
    places = {name.rpartition(".")[2] for name in _listed_for(operator_class, PLACES)}
    known = {*operator.template_fields, *fields, *inside, *places, *NOT_ROWS}
    known |= {*SETTINGS_FIELDS, *PROPERTIES_FIELDS, *_of_every_operator(type(operator))}
    return {
        name: given[name]
        for name in sorted(given)
        if not {name, f"_{name}"} & known and not name.endswith("_conn_id") and not name.startswith("_")
    }


def _of_every_operator(recovering: type) -> set[str]:
    """The arguments that Airflow's base class and recovery's own classes take."""
    names: set[str] = set(_OF_FUNCTION)
    for each in recovering.__mro__:
        if "__init__" in vars(each) and each.__module__.startswith(("airflow.sdk.", "airflow_recovery.")):
            names |= inspect.signature(vars(each)["__init__"]).parameters.keys()
    return names


def components_of_document(document: Mapping[str, Any]) -> tuple[Component, ...]:
    """Return the components of what a job computes, in an order that does not depend on the order of declaration."""
    found = {component.name: component for component in _code_of(document.get("code", ()))}
    for key, value in document.items():
        if key in _OF_JOB:
            # Images are among the code.
            parts = {f"{_OF_JOB[key]} {name}": item for name, item in value.items() if name not in IMAGES}
        else:
            parts = {key: value} if key != "code" else {}
        found |= {name: _component(name, item) for name, item in parts.items()}
    return tuple(found[name] for name in sorted(found))


def _code_of(code: Iterable[Sequence[Any]]) -> list[Component]:
    """The components of code, of which some do not decide.

    An image is where the program runs, if the program is not in it. Of a properties file on this machine its settings
    are components of their own.
    """
    components = [Component(name, value, seen=seen) for name, value, seen in code]
    programs = [each.name for each in components if each.name.partition(" ")[0] == APPLICATION]
    is_outside = any(not name.startswith(f"{APPLICATION} local:") for name in programs)

    def decides(each: Component) -> bool:
        if each.name.startswith(f"{PROPERTIES_FILE} "):
            return not each.seen or "://" in each.name
        return not (is_outside and each.name.startswith("image "))

    return [replace(each, decides=decides(each)) for each in components]


def _component(name: str, value: Any) -> Component:
    if isinstance(value, Mapping) and value.get(UNSEEN) is True:
        return Component(name, value_of(value["value"]), seen=False)
    return Component(name, value_of(value))


UNSEEN = "(unseen)"
"""The key in a value of a document whose content can't be read."""


def _listed_for(operator_class: type, table: Mapping[str, Sequence[str]]) -> set[str]:
    classes = (f"{each.__module__}.{each.__qualname__}" for each in operator_class.__mro__)
    return {name for path in classes for name in table.get(path, ())}


# --- a function's arguments from Airflow's context


def names_from_context(operator: Any) -> tuple[str, ...]:
    """Return the names that an operator's ``python_callable`` takes from Airflow's context, as in its signature.

    ``context`` stands for ``**context``, and for a function whose code asks Airflow for the context; ``var`` also for
    one whose code names Airflow's ``Variable``. Arguments that the operator gives itself are not among them.
    """
    function = getattr(operator, "python_callable", None)
    if not callable(function):
        return ()
    given = getattr(operator, "op_kwargs", None) or {}
    try:
        signature = inspect.signature(function)
        positional = signature.bind_partial(*(getattr(operator, "op_args", None) or ())).arguments
    except (TypeError, ValueError):  # a function of a compiled module
        return ()
    names = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            names.append("context")
        elif parameter.kind is not parameter.VAR_POSITIONAL and name not in given and name not in positional:
            names.append(name)
    asked = _asked_for(function)
    names += [_ASKS_FOR[word] for word in sorted(asked) if _ASKS_FOR[word] not in names]
    known = Context.__annotations__
    return tuple(name for name in names if name in known or name == "context")


def _asked_for(function: Any) -> set[str]:
    """The words of `_ASKS_FOR` in the code of a function, and in that of the user's functions that it names."""
    found: set[str] = set()
    known: set[int] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        name = getattr(one, "__name__", "")
        if name in _ASKS_FOR and str(getattr(one, "__module__", "")).startswith("airflow."):
            found.add(name)
        elif isinstance(one, partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif inspect.ismethod(one):
            waiting += [one.__func__, type(one.__self__)]
        elif inspect.isfunction(one) and not is_installed(one.__module__):
            names = set(_names_in(one.__code__))
            found |= names & _ASKS_FOR.keys()
            values = [one.__globals__[each] for each in names if each in one.__globals__]
            modules = [value for value in values if inspect.ismodule(value) and not is_installed(value.__name__)]
            values += [vars(module)[each] for module in modules for each in names if each in vars(module)]
            cells = [cell.cell_contents for cell in one.__closure__ or () if cell != CellType()]
            waiting += [*values, *cells, getattr(one, "__wrapped__", None)]
        elif inspect.isclass(one) and not is_installed(one.__module__):
            waiting += [each for parent in one.__mro__ for each in vars(parent).values()]
        elif inspect.isfunction(getattr(type(one), "__call__", None)):  # noqa: B004 - its code is wanted
            waiting.append(type(one))
        else:
            waiting.append(getattr(one, "__wrapped__", getattr(one, "__func__", None)))
    return found


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names_in(const)


def context_document(operator: Any, context: Mapping[str, Any], describe: Any) -> dict[str, Any]:
    """Return the values of the run's context that an operator's function takes by name.

    ``**context``, ``dag_run`` and ``ti`` stand for the run's conf and params. Variables (``var``) can't be seen.
    """
    found: dict[str, Any] = {}
    dag_run = context["dag_run"]
    run = {"conf": dict(dag_run.conf or {}), "params": dict(context.get("params") or {})}
    run["conf"].pop("recovery", None)
    for name in names_from_context(operator):
        if name in _WHOLE_CONTEXT or (name in _OF_RUN and name in context):
            wanted = ("params",) if name == "params" else _OF_RUN
            found |= {each: describe(run[each]) for each in wanted}
        elif name == "var":
            found[name] = {UNSEEN: True, "value": "Variables of Airflow"}
        elif name in context and name not in _NOTHING_OF_RUN:
            found[name] = describe(_plain_moment(context[name]))
    return found


def _plain_moment(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
