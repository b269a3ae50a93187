"""What is used of Airflow beyond its public interface: the one file that an Airflow version may change.

Public are `airflow.sdk` with its exceptions, the classes of providers, `airflow.triggers.base` and
`airflow.plugins_manager`; every other name of Airflow is taken from here, and branches on its version belong here. This
version is for Airflow 3.3. Names are looked up when they are asked for: a worker loads nothing of the API server, and a
DAG file nothing at all. What is used beyond the Spark provider's public interface is in
`airflow_recovery.task.spark_submission`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.api_fastapi.app import get_auth_manager as get_auth_manager
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser as BaseUser
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity as DagAccessEntity
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails as DagDetails
    from airflow.api_fastapi.common.db.common import SessionDep as SessionDep
    from airflow.api_fastapi.core_api.security import GetUserDep as GetUserDep
    from airflow.api_fastapi.core_api.security import requires_access_dag as requires_access_dag
    from airflow.cli.cli_config import ActionCommand as ActionCommand
    from airflow.cli.cli_config import CLICommand as CLICommand
    from airflow.cli.cli_config import GroupCommand as GroupCommand
    from airflow.dag_processing.dagbag import DagBag as DagBag
    from airflow.dag_processing.importers import get_importer_registry as get_importer_registry
    from airflow.jobs.job import Job as Job
    from airflow.listeners import hookimpl as hookimpl
    from airflow.models import Log as Log
    from airflow.models.dag import DagModel as DagModel
    from airflow.models.dagbag import DBDagBag as DBDagBag
    from airflow.models.dagrun import DagRun as DagRun
    from airflow.models.pool import Pool as Pool
    from airflow.models.serialized_dag import SerializedDagModel as SerializedDagModel
    from airflow.models.task_state_store import TaskStateStoreModel as TaskStateStoreModel
    from airflow.models.taskinstance import TaskInstance as TaskInstance
    from airflow.models.taskinstance import clear_task_instances as clear_task_instances
    from airflow.sdk.definitions.asset import Asset as Asset
    from airflow.sdk.definitions.asset import AssetRef as AssetRef
    from airflow.sdk.definitions.asset import BaseAsset as BaseAsset
    from airflow.sdk.definitions.taskgroup import MappedTaskGroup as MappedTaskGroup
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance as RuntimeTaskInstance
    from airflow.sdk.log import mask_secret as mask_secret
    from airflow.sdk.log import redact as redact  # type: ignore[attr-defined]  # for all to use, but not re-exported
    from airflow.sdk.observability import stats as stats
    from airflow.sdk.serde import deserialize as deserialize
    from airflow.sdk.serde import serialize as serialize
    from airflow.serialization.definitions.dag import SerializedDAG as SerializedDAG
    from airflow.state import StoreScope as StoreScope
    from airflow.state import TaskScope as TaskScope
    from airflow.state import get_state_backend as get_state_backend
    from airflow.state import resolve_state_backend as resolve_state_backend
    from airflow.state.metastore import MetastoreBackend as MetastoreBackend
    from airflow.utils.cli import suppress_logs_and_warning as suppress_logs_and_warning
    from airflow.utils.session import create_session as create_session
    from airflow.utils.sqlalchemy import get_dialect_name as get_dialect_name
    from airflow.utils.state import DagRunState as DagRunState
    from airflow.utils.state import State as State
    from airflow.utils.state import TaskInstanceState as TaskInstanceState
else:
    _NAMES = {
        "airflow.api_fastapi.app": "get_auth_manager",
        "airflow.api_fastapi.auth.managers.models.base_user": "BaseUser",
        "airflow.api_fastapi.auth.managers.models.resource_details": "DagAccessEntity DagDetails",
        "airflow.api_fastapi.common.db.common": "SessionDep",
        "airflow.api_fastapi.core_api.security": "GetUserDep requires_access_dag",
        "airflow.cli.cli_config": "ActionCommand CLICommand GroupCommand",
        "airflow.dag_processing.dagbag": "DagBag",
        "airflow.dag_processing.importers": "get_importer_registry",
        "airflow.jobs.job": "Job",
        "airflow.listeners": "hookimpl",
        "airflow.models": "Log",
        "airflow.models.dag": "DagModel",
        "airflow.models.dagbag": "DBDagBag",
        "airflow.models.dagrun": "DagRun",
        "airflow.models.pool": "Pool",
        "airflow.models.serialized_dag": "SerializedDagModel",
        "airflow.models.task_state_store": "TaskStateStoreModel",
        "airflow.models.taskinstance": "TaskInstance clear_task_instances",
        "airflow.sdk.definitions.asset": "Asset AssetRef BaseAsset",
        "airflow.sdk.definitions.taskgroup": "MappedTaskGroup",
        "airflow.sdk.execution_time.task_runner": "RuntimeTaskInstance",
        "airflow.sdk.log": "mask_secret redact",
        "airflow.sdk.observability": "stats",
        "airflow.sdk.serde": "deserialize serialize",
        "airflow.serialization.definitions.dag": "SerializedDAG",
        "airflow.state": "StoreScope TaskScope get_state_backend resolve_state_backend",
        "airflow.state.metastore": "MetastoreBackend",
        "airflow.utils.cli": "suppress_logs_and_warning",
        "airflow.utils.session": "create_session",
        "airflow.utils.sqlalchemy": "get_dialect_name",
        "airflow.utils.state": "DagRunState State TaskInstanceState",
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_MODULE_OF[name])
        return getattr(module, name) if hasattr(module, name) else import_module(f"{module.__name__}.{name}")


def is_supervised() -> bool:
    """This process is a task's, with a supervisor above it; not so in ``dag.test()``."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), CommsDecoder)


def execute_operator(operator: Any, context: Any, execute: Any = None) -> Any:
    """`execute` of an operator inside another one's, as the task runner calls it; or that of a parent, ``execute``."""
    from airflow.sdk.bases.operator import ExecutorSafeguard

    sentinel = {f"{type(operator).__name__}__sentinel": ExecutorSafeguard.sentinel_value}
    return (execute or operator.execute)(context=context, **sentinel)


@contextmanager
def hearing_xcoms(ti: Any, heard: Callable[[str, Any], None]) -> Iterator[None]:
    """Call ``heard`` with key and value of each XCom that this process pushes for ``ti``, before Airflow is sent it.

    Whatever way it is pushed: ``ti.xcom_push`` and its asynchronous form, an operator's link, or ``XCom.set``.
    """
    xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    push, push_async = xcom.set, xcom.aset

    def hear(key: str, value: Any, of: dict[str, Any]) -> None:
        if (of.get("dag_id"), of.get("run_id"), of.get("task_id")) == (ti.dag_id, ti.run_id, ti.task_id):
            heard(key, value)

    def heard_set(key: str, value: Any, **of: Any) -> None:
        hear(key, value, of)
        push(key, value, **of)

    async def heard_aset(key: str, value: Any, **of: Any) -> None:
        hear(key, value, of)
        await push_async(key, value, **of)

    with _replaced(xcom, set=heard_set, aset=heard_aset):
        yield


@contextmanager
def reading_xcoms(one: Callable[..., Any], all_of: Callable[..., Any]) -> Iterator[None]:
    """Let this process read XComs by ``one`` and ``all_of``, in place of ``XCom.get_one`` and ``XCom.get_all``.

    ``one`` gets ``XCom.get_one`` and its arguments by name, ``all_of`` gets ``XCom.get_one`` after ``XCom.get_all``.
    Templates and `XComArg` read by these two.
    """
    xcom = import_module("airflow.sdk.execution_time.xcom").XCom
    get_one = xcom.get_one
    with _replaced(xcom, get_one=partial(one, get_one), get_all=partial(all_of, xcom.get_all, get_one)):
        yield


@contextmanager
def _replaced(xcom: Any, **methods: Callable[..., Any]) -> Iterator[None]:
    """Replace these methods of the class of XComs, which may be a backend of the user's own, for a while."""
    own = {name: vars(xcom).get(name) for name in methods}
    for name, method in methods.items():
        setattr(xcom, name, staticmethod(method))
    try:
        yield
    finally:
        for name, before in own.items():
            if before is None:
                delattr(xcom, name)
            else:
                setattr(xcom, name, before)


def bundle_of(ti: Any) -> tuple[str, str | None]:
    """Return the name of the DAG bundle that a task's code was loaded from, and its version; `None` without one."""
    bundle = ti.bundle_instance
    version = bundle.version or bundle.get_current_version()
    # Newer bundles return an object with the text and data of their own.
    return bundle.name, getattr(version, "version", version) or None


def last_asset_event(name: str | None, uri: str | None) -> Any:
    """The newest event of the asset; `None` if there is none. Raises `AirflowRuntimeError`."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    return next(iter(InletEventsAccessor(asset_name=name, asset_uri=uri).ascending(False).limit(1)), None)


def asset_events(name: str | None, uri: str | None, since: datetime, page: int = 1000) -> Iterator[Any]:
    """The events of the asset since then, the oldest first; a request each ``page``. Raises `AirflowRuntimeError`."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    while True:
        accessor = InletEventsAccessor(asset_name=name, asset_uri=uri)
        events = list(accessor.after(since.isoformat()).limit(page))
        yield from events
        if len(events) < page or events[-1].timestamp <= since:
            return
        since = events[-1].timestamp
