"""What ``doctor`` can only be told by Airflow: its settings, its connections, and the API server.

The API server is asked as a task asks it: through the task's own state store, where there is a task (`ask_in_task`),
else through the connection ``[recovery] api_conn_id`` (`ask_over_rest`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.task_instances import HOW_TO_CONFIGURE_CLEARS, ClearRequest
from airflow_recovery.doctor.checking import Check
from airflow_recovery.doctor.clocks import check_clock
from airflow_recovery.doctor.components import DRIVING, READING, Component, Right
from airflow_recovery.doctor.fault_detection import check_detection
from airflow_recovery.doctor.result import CheckResult, not_checked, ok, wrong
from airflow_recovery.doctor.spark import SparkConnection, check_connect_client, check_master, check_submission
from airflow_recovery.doctor.stores import (
    check_deletion,
    check_expiry,
    check_owners,
    check_places,
    check_reach,
    check_store,
)
from airflow_recovery.doctor.versions import check_archive, check_versions, installed_versions
from airflow_recovery.errors import ConfigurationError, RecoveryError
from airflow_recovery.hooks.clear_clients import (
    BACKEND_PATH,
    BackendNotInstalled,
    OwnTaskInstance,
    RestClient,
    StateStoreClient,
)
from airflow_recovery.hooks.recovery_api import RecoveryApiHook
from airflow_recovery.hooks.settings import SECTION, RecoverySettings, has_remote_workers
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.locations import scheme_of
from airflow_recovery.store.schemes import registered

if TYPE_CHECKING:
    from airflow.sdk import Connection

API_SERVER = "API server"
STATE_STORE = "[state_store] backend"
NO_RUN = "airflow-recovery-doctor"
"""No DAG has a run of this name: a clear in it is answered, and clears nothing."""

_OPERATOR = "airflow_recovery.operators.doctor.RecoveryDoctorOperator"
_AS_A_TASK = f"Run {_OPERATOR} as a task: it asks as every task does."


@dataclass(frozen=True)
class Asked:
    """What the API server said of itself (`airflow_recovery.api_server.description`), and when by this clock."""

    description: Mapping[str, Any]
    began_s: float
    ended_s: float


class ApiServer:
    """The ways to the API server. ``context`` is that of a task, where one runs in this process."""

    def __init__(self, api_conn_id: str | None, context: Mapping[str, Any] | None) -> None:
        self._api_conn_id = api_conn_id
        self._context = context

    def checks(self, settings: RecoverySettings | None) -> Iterator[Check]:
        """Each way to clear tasks, and what is behind it."""
        if self._context is not None:
            yield Check("clears by the state store", partial(self._through_state_store, settings))
        if self._api_conn_id:
            yield Check("clears over REST", partial(self._over_rest, settings))
        elif self._context is None:
            yield Check(API_SERVER, self._by_nobody)

    def _through_state_store(self, settings: RecoverySettings | None) -> Iterator[CheckResult]:
        assert self._context is not None
        clear_client = StateStoreClient(OwnTaskInstance(self._context))
        try:
            clear_client.clear(ClearRequest())
        except BackendNotInstalled as error:
            if self._api_conn_id:
                yield not_checked("clears by the state store", error, "[recovery] api_conn_id is used in its place.")
            else:
                yield wrong(
                    "clears by the state store",
                    expected="a way to clear tasks",
                    found=error,
                    next_step=HOW_TO_CONFIGURE_CLEARS,
                )
            return
        except RecoveryError as error:
            yield wrong(
                "clears by the state store",
                expected="an answer to a clear of nothing",
                found=error,
                next_step="See the API server's log.",
            )
            return
        yield ok("clears by the state store", "a clear of nothing was answered")
        try:
            asked = _timed(clear_client.describe)
        except RecoveryError as error:
            yield wrong(
                f"{API_SERVER}'s airflow-recovery",
                expected="the version that is installed here",
                found=error,
                next_step="Install the same version where the API server runs, and restart it.",
            )
            return
        yield from check_description(asked, settings)

    def _over_rest(self, settings: RecoverySettings | None) -> Iterator[CheckResult]:
        assert self._api_conn_id is not None
        hook = RecoveryApiHook(self._api_conn_id)
        name = f"{API_SERVER}'s plugin"
        try:
            yield from check_description(_timed(hook.describe), settings, has_other_clear_client=True)
        except RecoveryError as error:
            if self._context is None or "HTTP 403" not in str(error):
                yield wrong(
                    name,
                    expected=f"an answer over connection {self._api_conn_id}",
                    found=error,
                    next_step="Where its user may clear the tasks of some DAGs only, run this as a task of such a DAG: "
                    f"{_OPERATOR}.",
                )
                return
            yield not_checked(name, error, "A clear is tried all the same.")
        yield self._cleared_over_rest(hook)

    def _cleared_over_rest(self, hook: RecoveryApiHook) -> CheckResult:
        check = "clears over REST"
        try:
            if self._context is not None:
                RestClient(OwnTaskInstance(self._context), hook).clear(ClearRequest())
            else:
                hook.clear(NO_RUN, NO_RUN, ClearRequest())
        except RecoveryError as error:
            if self._context is None and f"to have a run {NO_RUN!r}" in str(error):
                return ok(check, "a clear in a run that does not exist was answered")
            return wrong(
                check,
                expected="an answer to a clear of nothing",
                found=error,
                next_step=f"Give the user of connection {self._api_conn_id} edit rights on task instances.",
            )
        return ok(check, "a clear of nothing was answered")

    def _by_nobody(self) -> Iterator[CheckResult]:
        yield not_checked(
            f"{API_SERVER}: plugin, {STATE_STORE}, ways to clear tasks",
            "[recovery] api_conn_id is empty, and only a task may ask without a connection",
            _AS_A_TASK,
        )


def check_description(
    asked: Asked, settings: RecoverySettings | None, *, has_other_clear_client: bool = False
) -> Iterator[CheckResult]:
    """Compare what the API server says of itself with what is installed and configured here.

    ``has_other_clear_client``: tasks clear over REST, so that its state store back end may be another one.
    """
    description = asked.description
    here = installed_versions().get("airflow-recovery")
    name = f"{API_SERVER}'s airflow-recovery"
    if description.get("version") == here or here is None:
        yield ok(name, f"{description.get('version')}, and its plugin is loaded")
    else:
        yield wrong(
            name,
            expected=f"version {here}, as here",
            found=f"{description.get('version')}",
            next_step="Install one version in every component, and restart them.",
        )
    name = f"{API_SERVER}'s {STATE_STORE}"
    if description.get("answers_calls"):
        yield ok(name, str(description.get("state_store_backend")))
    elif has_other_clear_client:
        yield ok(name, f"{description.get('state_store_backend')}; tasks use [recovery] api_conn_id")
    else:
        yield wrong(
            name,
            expected=BACKEND_PATH,
            found=description.get("state_store_backend"),
            next_step="Set it in the API server's configuration, and restart it; or set [recovery] api_conn_id.",
        )
    yield from _check_same_places(description, settings)
    yield check_clock(
        f"clock of the {API_SERVER}", "it", asked.began_s, asked.ended_s, float(description["now_s"]), unit_s=0.0
    )
    if description.get("database_s") is not None:
        database = float(description["database_s"])
        yield check_clock("clock of the database", "it", asked.began_s, asked.ended_s, database, unit_s=1.0)


def _check_same_places(description: Mapping[str, Any], settings: RecoverySettings | None) -> Iterator[CheckResult]:
    name = f"{API_SERVER}'s [recovery]"
    if description.get("wrong"):
        yield wrong(
            name,
            expected="settings that the Recovery tab can work with",
            found=description["wrong"],
            next_step="Set them there as they are here, and restart it.",
        )
        return
    if settings is None:
        return
    here = {"journal": settings.journal, "results": settings.results, "deployment": settings.deployment}
    differing = [option for option, value in here.items() if description.get(option) != value]
    if not differing:
        yield ok(name, "journal, results and deployment as here")
        return
    yield wrong(
        name,
        expected=", ".join(f"{option} = {here[option]}" for option in differing),
        found=", ".join(f"{option} = {description.get(option)}" for option in differing),
        next_step="Give every component the same; where this one is wrong, it would begin a second journal.",
    )


def check_settings(component: Component) -> Iterator[CheckResult]:
    """``[recovery]`` as this component has it, and what of Airflow's own settings decides whether it works."""
    from airflow.sdk import conf

    try:
        settings = RecoverySettings.load()
    except ConfigurationError as error:
        yield wrong(
            "[recovery]",
            expected="settings that can be used",
            found=error,
            next_step="Set it in every component, and call this again in each.",
        )
        return
    yield ok("[recovery]", f"journal = {settings.journal}, results = {settings.results}")
    if not settings.job_recovery.in_effect().enabled:
        yield wrong(
            "[recovery] job_recovery_enabled",
            expected="True, for anything to be recovered",
            found="False: plain Airflow",
            next_step="Set it to True; what a DAG says itself wins.",
        )
    if component is Component.WORKER and conf.get("workers", "state_store_backend", fallback=""):
        hidden = f"[workers] state_store_backend = {conf.get('workers', 'state_store_backend')}"
        if settings.api_conn_id:
            yield ok("[workers] state_store_backend", "set; tasks use [recovery] api_conn_id")
        else:
            yield wrong(
                "[workers] state_store_backend",
                expected="none, since what it stores elsewhere never reaches the API server",
                found=hidden,
                next_step="Unset it, or set [recovery] api_conn_id to a connection of type airflow_recovery.",
            )
    if component is Component.API_SERVER:
        yield _check_own_backend(settings)


def check_airflow_settings(component: Component) -> Iterator[CheckResult]:
    """Airflow's own settings that decide how soon a fault is noticed, as this process has them."""
    from airflow.sdk import conf

    yield from check_detection(component, conf.getfloat, is_local_executor=not has_remote_workers())


def _check_own_backend(settings: RecoverySettings) -> CheckResult:
    from airflow_recovery.airflow_compat import resolve_state_backend
    from airflow_recovery.api_server.state_backend import RecoveryCallsMixin

    backend_text: object
    try:
        backend = resolve_state_backend()
        backend_text, answers = f"{backend.__module__}.{backend.__qualname__}", issubclass(backend, RecoveryCallsMixin)
    except Exception as error:  # somebody else's class
        backend_text, answers = error, False
    if answers:
        return ok(STATE_STORE, str(backend_text))
    if settings.api_conn_id:
        return ok(STATE_STORE, f"{backend_text}; tasks use [recovery] api_conn_id")
    return wrong(
        STATE_STORE,
        expected=BACKEND_PATH,
        found=backend_text,
        next_step="Set it here, and restart the API server; or set [recovery] api_conn_id everywhere.",
    )


def check_connection(option: str, conn_id: str, types: tuple[str, ...]) -> Iterator[CheckResult]:
    """Whether the connection can be read here, and is of one of ``types``."""
    connection = read_connection(conn_id)
    if connection is None:
        yield wrong(
            option,
            expected=f"the connection {conn_id!r}",
            found="none that can be read here",
            next_step="Define it, and give every component the same [core] fernet_key and secrets back end.",
        )
    elif connection.conn_type not in types:
        yield wrong(
            option,
            expected=f"a connection of type {' or '.join(types)}",
            found=f"{conn_id!r} of type {connection.conn_type!r}",
            next_step="Name another one, or correct its type.",
        )
    else:
        yield ok(option, f"{conn_id}, of type {connection.conn_type}")


def read_connection(conn_id: str) -> Connection | None:
    """As a task reads it; `None` where there is none, or it can't be decrypted."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowRuntimeError

    try:
        return BaseHook.get_connection(conn_id)
    except (AirflowRuntimeError, ValueError):
        return None
    except Exception as error:
        if type(error).__name__ in ("AirflowNotFoundException", "InvalidToken"):
            return None
        raise


class AirflowChecks:
    """The checks of one component, as Airflow's settings and connections have it.

    ``writes``: to the stores, and removed again. ``asks_api_server``: and tries the ways to clear. ``run_region``:
    makes the check that runs a region, where one was asked for.
    """

    def __init__(
        self,
        component: Component,
        conn_id: str,
        *,
        context: Mapping[str, Any] | None = None,
        writes: bool = True,
        asks_api_server: bool = True,
        run_region: Callable[[RecoverySettings, str], Check] | None = None,
    ) -> None:
        self._component = component
        self._conn_id = conn_id
        self._context = context
        self._writes = writes
        self._asks_api_server = asks_api_server
        self._run_region = run_region
        self._environment = dict(os.environ)

    def checks(self) -> Iterator[Check]:
        """In the order in which they are told. Made while they run: what one has found out, a later one uses."""
        needs = self._component.needs
        settings = self._settings
        stores = () if settings is None else (settings.journal, settings.results)
        yield Check("versions", partial(check_versions, in_airflow=True))
        if needs.spark:
            yield Check("the driver's archive", partial(check_archive, self._environment, stores), timeout_s=60.0)
        yield Check("[recovery]", partial(check_settings, self._component))
        yield Check("how soon Airflow notices a fault", partial(check_airflow_settings, self._component))
        if settings is not None:
            yield from self._of_stores(settings)
        if needs.asks_api_server and self._asks_api_server:
            yield from ApiServer(settings.api_conn_id if settings else None, self._context).checks(settings)
        if needs.spark:
            yield Check(f"connection {self._conn_id}", partial(self._of_spark, stores), timeout_s=60.0)
            if self._run_region is not None and settings is not None:
                yield self._run_region(settings, self._conn_id)

    @cached_property
    def _settings(self) -> RecoverySettings | None:
        try:
            return RecoverySettings.load()
        except ConfigurationError:
            return None

    def _of_stores(self, settings: RecoverySettings) -> Iterator[Check]:
        needs = self._component.needs
        of_stores = (settings.journal, settings.results)
        named = {}
        for scheme in registered():
            is_there = any(scheme_of(uri) == scheme.name for uri in of_stores)
            for option, is_asked in (
                (scheme.conn_option, needs.journal),
                (scheme.results_conn_option, needs.results),
            ):
                is_needed = bool(is_asked) if scheme.is_for_sources else is_there
                named[option] = (settings.conn_id(option), scheme.conn_type, is_needed)
        named["api_conn_id"] = (settings.api_conn_id, RecoveryApiHook.conn_type, needs.asks_api_server)
        for name, (conn_id, kind, is_needed) in named.items():
            if conn_id and is_needed:
                option = f"[{SECTION}] {name}"
                yield Check(option, partial(check_connection, option, conn_id, (kind,)))
        yield Check("journal and results", partial(check_places, settings.journal, settings.results))
        if has_remote_workers():
            yield Check("folders", partial(check_reach, settings.journal, settings.results))
        stores = open_stores(settings)
        if needs.journal:
            yield Check("the journal", partial(self._of_journal, stores))
        if needs.results:
            yield Check("the results", partial(self._of_results, stores))
        if needs.journal and needs.results:
            yield Check("owners", partial(self._of_owners, stores, settings.deployment))

    # Each opens its store by itself, since a connection is asked for then, and may not be answered.

    def _of_journal(self, stores: Stores) -> Iterator[CheckResult]:
        needs = self._component.needs
        rights, buttons = self._allowed(needs.journal), self._allowed(needs.buttons[0])
        yield from check_store("journal", stores.journal, rights, needs.policies[0], buttons=buttons)
        yield from check_expiry(stores.journal)

    def _of_results(self, stores: Stores) -> Iterator[CheckResult]:
        needs = self._component.needs
        rights = needs.results | (DRIVING if needs.spark and self._drivers_run_here() else Right.NONE)
        allowed, buttons = self._allowed(rights), self._allowed(needs.buttons[1])
        yield from check_store(
            "results", stores.results, allowed, needs.policies[1], buttons=buttons, advised=needs.advised
        )
        if Right.DELETE in rights | needs.buttons[1]:
            yield from check_deletion(stores.results)

    @staticmethod
    def _of_owners(stores: Stores, deployment: str | None) -> Iterator[CheckResult]:
        return check_owners(stores.journal, stores.results, deployment)

    def _allowed(self, needed: Right) -> Right:
        return needed if self._writes else needed & (READING | Right.UPLOADS)

    def _drivers_run_here(self) -> bool:
        """With this machine's credentials. Where the connection can't be read, that is told apart from this."""
        with suppress(Exception):
            read = read_connection(self._conn_id)
            if read is not None:
                connection = spark_connection(read)
                return not (connection.is_connect or connection.is_cluster)
        return True

    def _of_spark(self, stores: Sequence[str]) -> Iterator[CheckResult]:
        from airflow_recovery.task.spark_connection import CONNECT, SUBMIT

        results = list(check_connection(f"connection {self._conn_id}", self._conn_id, (CONNECT, *SUBMIT)))
        yield from results
        airflow_connection = read_connection(self._conn_id)
        if airflow_connection is None or airflow_connection.conn_type not in (CONNECT, *SUBMIT):
            return
        connection = spark_connection(airflow_connection)
        if connection.is_connect:
            yield from check_connect_client()
        else:
            yield from check_submission(connection.binary, self._environment, stores)
        yield from check_master(connection, self._environment)


def spark_connection(connection: Connection) -> SparkConnection:
    """Where ``connection`` leads, as the provider's hooks read it."""
    from airflow_recovery.task.spark_connection import CONNECT, connect_url

    if connection.conn_type == CONNECT:
        from airflow_recovery.driver.connect_session import host_of

        host = host_of(connect_url(connection))
        has_port = ":" in host.rpartition("]")[2]
        return SparkConnection(connection.conn_id, f"sc://{host if has_port else f'{host}:15002'}", is_connect=True)
    from airflow_recovery.task.spark_submission import resolved_connection

    master, binary, is_cluster = resolved_connection(connection.conn_id)
    return SparkConnection(connection.conn_id, master, binary, is_cluster=is_cluster)


def _timed(ask: Callable[[], Mapping[str, Any]]) -> Asked:
    began_s = time.time()
    description = ask()
    return Asked(description, began_s, time.time())
