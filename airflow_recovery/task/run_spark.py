"""A run's own Spark (``spark="per-run"``): a Spark Connect server for all regions of one run.

Where it listens stands in the next slot of a write-once log beside the journal's records (`JournalLayout.servers`).
Whoever needs it reads the newest slot, and asks the server there; if nobody answers, it starts another one, for the
next slot. A server that was started for a slot which somebody else has filled meanwhile is ended before anybody uses
it. The process that keeps a server, and ends it, is `airflow_recovery.driver.server_keeper`.

Both sides prove who they are. The server shows a certificate that stands in the slot, and the slot is signed with the
run's secret; only then is it sent a token, which is made with the same secret (`secret_of`).
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import ipaddress
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.connect_server import CLIENT_VARIABLES, TOKEN_VARIABLE, ServerAddress
from airflow_recovery.driver.connect_session import CONNECT_RETRIES
from airflow_recovery.driver.process_identity import is_gone
from airflow_recovery.driver.server_gate import LOOPBACK, listen
from airflow_recovery.driver.server_keeper import Order, StartedKeeper, end_key, servers_folder
from airflow_recovery.driver.submit import QUIET_CONF, store_conf, submit_environment
from airflow_recovery.errors import ConfigurationError, ObjectMissing, RecordInvalid
from airflow_recovery.hooks.masking import mask_secret
from airflow_recovery.hooks.settings import has_remote_workers
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.codec import Unlike, from_json, to_json
from airflow_recovery.store.write_once import Slots
from airflow_recovery.task.attempt_sessions import ServerChoice
from airflow_recovery.task.dag_operators import job_recovery_of
from airflow_recovery.task.open_run import OpenRun, RunPlace
from airflow_recovery.task.spark_connection import SUBMIT
from airflow_recovery.task.spark_submission import connect_server_command

if TYPE_CHECKING:
    import grpc  # type: ignore[import-untyped]
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import Connection

    from airflow_recovery.hooks.settings import RecoverySettings
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.model.records import RunIdentity

log = logging.getLogger(__name__)

_SET_HOST = "Set SPARK_LOCAL_IP, or spark.driver.host in the group's conf, to an address that every worker reaches"
END_TIMEOUT_S = 40.0
"""How long the teardown waits for the server's keeper, which may be on another worker."""
_NEWEST_FORMAT = 2
_OF_FORMAT_2 = ("certificate", "process", "signature")
_OUT_OF_MEMORY_EXITS = (3, 52)
"""Of the JVM with ``-XX:+ExitOnOutOfMemoryError``, and Spark's own."""


@dataclass(frozen=True)
class ServerSlot:
    """A slot of the log: the server that is the run's Spark from now on; without ``host``, there is to be none.

    ``salt`` is what its token is made of. ``certificate`` (DER in base64) is what the server shows, and ``process`` the
    name of its keeper (`own_process`). ``signature`` covers all fields that a client uses. ``worker`` and ``keeper``
    (a process id) are only shown to people. Format 1 has no certificate.
    """

    salt: str = ""
    host: str | None = None
    port: int = 0
    worker: str = ""
    keeper: int = 0
    certificate: str = ""
    process: str | None = None
    signature: str = ""
    format: int = 1


@dataclass(frozen=True)
class _Server:
    number: int
    address: ServerAddress
    process: str | None = None


class RunSpark:
    """The Spark of one run, as one task of it sees it. ``secret``: see `secret_of`."""

    def __init__(
        self, stores: Stores, identity: RunIdentity, *, secret: str, log: logging.Logger, deadline_s: float = 300.0
    ) -> None:
        self._stores = stores
        self._prefix = JournalLayout(identity).servers
        self._slots = Slots(stores.journal, self._prefix, deadline_s=deadline_s)
        self._secret = secret
        self._log = log
        self._channel: grpc.Channel | None = None

    def find(self) -> ServerAddress | None:
        """The run's Spark, where it answers. From then on its keeper sees that it is used, by this process."""
        server = self._newest()[1]
        return None if server is None or not self._is_there(server) else server.address

    def end(self) -> None:
        """Have the run's Spark end as soon as nobody is connected to it, and wait for that, within `END_TIMEOUT_S`."""
        while True:
            number, server = self._newest()
            if server is None:
                self._log.info("The run has no Spark of its own that could be ended.")
                return
            end = _body(ServerSlot())
            if self._slots.put(number + 1, end) in (None, end):
                break
        if server.address.is_gone():
            self._log.info("%s was gone already.", server.address.target)
            return
        deadline = time.monotonic() + END_TIMEOUT_S
        while self._end_of(number) is None:
            if time.monotonic() > deadline:
                self._log.info("%s ends as soon as nobody is connected to it.", server.address.target)
                return
            time.sleep(0.5)
        self._log.info("%s has ended.", server.address.target)

    def find_or_start(self, start: StartServer) -> ServerAddress:
        """The run's Spark; where none answers, one that ``start`` starts on this worker, once at a time on each worker.

        Raises `ConfigurationError` where it can't be started like that, `DriverLost` where it did not come up.
        """
        address = self.find()
        if address is not None:
            return address
        with self._alone_on_this_worker():
            while True:
                number, server = self._newest()  # somebody may have started one while this one waited
                if server is not None:
                    if self._is_there(server):
                        return server.address
                    self._log.info("The run's Spark at %s does not answer: starting another.", server.address.target)
                address = self._start(start, number + 1)
                if address is not None:
                    return address

    def why_lost(self, address: ServerAddress) -> str | None:
        """Why the server at ``address`` is gone, as far as its keeper has said it; `None` where it answers."""
        if not address.is_gone():
            return None
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            server = self._newest_at(address)
            end = None if server is None else self._end_of(server.number)
            if end is not None:
                code = end.get("code")
                output = "\n".join(end.get("output") or ())
                exit_code = f"Error code is: {52 if code in _OUT_OF_MEMORY_EXITS else code}."
                return f"{end.get('why')}. {exit_code}\n{output}"
            time.sleep(0.5)
        return "it was killed, together with the process that kept it, or its worker is gone"

    def ask_cached(self, manifest: PartitionManifest, user_id: str) -> str | None:
        """`None` where the run's Spark keeps this cached result, else why it is lost."""
        from airflow_recovery.driver.cached import CacheServer

        address = self.find()
        if address is None:
            return "the run's Spark, which kept it, has ended"
        return CacheServer(address.url, user_id=user_id).ask(manifest)

    def _start(self, start: StartServer, number: int) -> ServerAddress | None:
        """`None`: somebody else has filled the slot first."""
        salt = secrets.token_hex(16)
        _check_address(start.host, is_for_others=start.has_other_workers)
        if not self._secret:
            self._log.warning(
                "The connection has no password: whoever may read the journal may use this run's Spark, and whoever "
                "may write it may take its place. Give the connection a password."
            )
        token = self._token(salt)
        began_s = time.monotonic()
        keeper = StartedKeeper(*start.order(token, self._stores, self._prefix))
        is_kept = False
        try:
            up = keeper.wait_up()
            address = ServerAddress(start.host, up.port, token, up.certificate)
            if not self._uses(address):
                raise ConfigurationError(
                    f"expected the Spark Connect server that was just started at {address.target} to take its token, "
                    "found that it does not. If the conf sets spark.connect.authenticate.token, take it out. If the "
                    f"name of this worker is not its own: {_SET_HOST}"
                )
            if address.lets_strangers_in():
                raise ConfigurationError(
                    f"expected a Spark Connect server that asks for a token, found that the one at {address.target} "
                    "lets everybody in: spark='per-run' needs Spark 4.0 or later. Leave it out, or use a newer Spark"
                )
            certificate = base64.b64encode(up.certificate).decode()
            slot = ServerSlot(salt, start.host, up.port, start.worker, keeper.pid, certificate, up.process, format=2)
            slot = replace(slot, signature=self._signature(slot))
            held = self._slots.put(number, _body(slot))
            if held is not None and held != _body(slot):
                return None
            keeper.leave(number)
            is_kept = True
        finally:
            if not is_kept:
                keeper.end()
        self._log.info("Started the run's Spark at %s in %.1f s.", address.target, time.monotonic() - began_s)
        return address

    def _newest(self) -> tuple[int, _Server | None]:
        """The newest slot's number (0: there is none), and the server in it."""
        number = max(self._slots.numbers(), default=0)
        return number, self._at(number) if number else None

    def _newest_at(self, address: ServerAddress) -> _Server | None:
        servers = (self._at(number) for number in sorted(self._slots.numbers(), reverse=True))
        return next((server for server in servers if server is not None and server.address == address), None)

    def _at(self, number: int) -> _Server | None:
        body, where = self._slots.get(number), f"{self._slots.store.base_uri}/{self._slots.key(number)}"
        try:
            slot = from_json(ServerSlot, json.loads(body or b""))
        except (Unlike, ValueError) as error:
            raise RecordInvalid(f"{where}: {error}") from error
        if slot.format > _NEWEST_FORMAT:
            raise RecordInvalid(
                f"{where}: written by a newer version (format {slot.format}, this version reads up to "
                f"{_NEWEST_FORMAT}). Upgrade airflow-recovery on this worker."
            )
        if slot.host is None:
            return None
        certificate = b""
        if hmac.compare_digest(slot.signature.encode(), self._signature(slot).encode()):
            certificate = base64.b64decode(slot.certificate)
        elif slot.signature:
            self._log.warning(
                "%s: expected to be signed with the secret of this run's Spark, found another signature. Either the "
                "connection's password was changed, or the tasks run as several users, or somebody else wrote it: the "
                "server that it names is not used.",
                where,
            )
        return _Server(number, ServerAddress(slot.host, slot.port, self._token(slot.salt), certificate), slot.process)

    def _is_there(self, server: _Server) -> bool:
        """Whether it answers. One whose end is known is not asked: somebody else may listen there by now."""
        if is_gone(server.process) or self._end_of(server.number) is not None:
            return False
        return self._uses(server.address)

    def _uses(self, address: ServerAddress) -> bool:
        channel = address.connect()
        if channel is None:
            return False
        if self._channel is not None:
            self._channel.close()
        self._channel = channel
        return True

    def _token(self, salt: str) -> str:
        token = self._mac(f"{self._prefix}/{salt}")
        mask_secret(token)
        return token

    def _signature(self, slot: ServerSlot) -> str:
        signed = [self._prefix, slot.salt, slot.host, slot.port, slot.certificate, slot.process]
        return self._mac(f"slot {json.dumps(signed)}")

    def _mac(self, text: str) -> str:
        return hmac.new(self._secret.encode(), text.encode(), hashlib.sha256).hexdigest()

    def _end_of(self, number: int) -> Mapping[str, Any] | None:
        try:
            document = json.loads(self._slots.store.get(end_key(self._prefix, number)).body)
        except (ObjectMissing, ValueError):
            return None
        return document if isinstance(document, dict) else None

    @contextmanager
    def _alone_on_this_worker(self) -> Iterator[None]:
        """All regions that ran on a server which has died want another one at the same moment."""
        name = hashlib.sha256(f"{self._slots.store.base_uri}/{self._prefix}".encode()).hexdigest()[:16]
        with (servers_folder() / f"{name}.starting").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True)
class StartServer:
    """How the run's Spark is started on this worker: with all that ``operator`` declares of spark-submit.

    ``host`` is the address that others know this worker by; clients reach the server there and nowhere else.
    ``has_other_workers``: tasks of the run may run on other machines. Times are in seconds.
    """

    operator: SparkSubmitOperator
    name: str
    worker: str
    host: str
    idle_s: float
    max_life_s: float
    has_other_workers: bool = False

    @classmethod
    def of(
        cls, operator: SparkSubmitOperator, context: Mapping[str, Any], group_id: str, settings: RecoverySettings
    ) -> StartServer:
        """For a task group, on the worker of ``context``: by its name as Airflow has it, if nothing else is set."""
        worker = str(context["ti"].hostname)
        conf = operator.conf or {}
        host = conf.get("spark.driver.host") or os.environ.get("SPARK_LOCAL_IP") or worker
        name = f"{operator.dag_id}.{group_id}"
        times = settings.spark_idle_timeout_s, settings.spark_max_life_s
        return cls(operator, name, worker, str(host), *times, has_other_workers=has_remote_workers())

    def order(self, token: str, stores: Stores, prefix: str) -> tuple[Order, dict[str, str]]:
        """What its keeper is told, and the environment. Raises `ConfigurationError` as `connect_server_command`."""
        environment = submit_environment(os.environ)
        for name in CLIENT_VARIABLES:
            environment.pop(name, None)
        conf = dict(QUIET_CONF)
        conf |= store_conf(stores.results_spec, environment) or store_conf(stores.journal_spec, environment)
        conf |= {str(key): str(value) for key, value in (self.operator.conf or {}).items()}
        conf |= {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": "0",  # nobody can take it before the server
        }
        command, variables = connect_server_command(self.operator, conf, self.name)
        environment |= {**variables, TOKEN_VARIABLE: token}
        order = Order(
            command=tuple(command),
            host=self.host,
            idle_s=self.idle_s,
            max_life_s=self.max_life_s,
            store=stores.journal_spec,
            prefix=prefix,
            python_path=environment.get("PYTHONPATH"),
        )
        return order, environment


def open_run_spark(connection: Connection, opened: OpenRun | RunPlace, identity: RunIdentity) -> RunSpark:
    """The run's own Spark, submitted with ``connection``. Raises `ConfigurationError` for one of another type."""
    if connection.conn_type not in SUBMIT:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: expected type spark, with which spark-submit starts a Spark for each "
            f"run (spark='per-run'), found {connection.conn_type!r}. Give the task group another conn_id; for a Spark "
            "Connect server that is there already, leave spark= out",
            code="per-run-not-spark-submit",
            connection=connection.conn_id,
        )
    deadline_s = float(opened.settings.request_timeout)
    return RunSpark(opened.stores, identity, secret=secret_of(connection), log=log, deadline_s=deadline_s)


def secret_of(connection: Connection) -> str:
    """Return the secret that only the run's Spark and its clients know; empty if there is none.

    It is the password of the connection. Without a password, it is a random number in a file of this user on this
    machine. If tasks then run on several machines, there is no secret. Raises as `servers_folder`.
    """
    if connection.password:
        return str(connection.password)
    return "" if has_remote_workers() else _machine_secret()


def _machine_secret() -> str:
    path = servers_folder() / "secret"
    with suppress(FileNotFoundError):
        return path.read_text()
    unfinished = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(secrets.token_hex(32))
    try:
        with suppress(FileExistsError):  # another task was sooner
            os.link(unfinished, path)
    finally:
        unfinished.unlink()
    return path.read_text()


def open_for_task(context: Mapping[str, Any], dag: Any, group_id: str, conn_id: str) -> tuple[RunPlace, RunSpark]:
    """The own Spark of the run of ``context``, for a task that runs no region."""
    from airflow.sdk import BaseHook

    place = RunPlace.of(context, group_id, job_recovery_of(dag, group_id), dag=dag)
    return place, open_run_spark(BaseHook.get_connection(conn_id), place, place.identity)


class OwnServer(ServerChoice):
    """The run's Spark, which is started where a region needs it and it is not there."""

    max_retries = CONNECT_RETRIES
    """One that is gone never comes back: the next one listens elsewhere."""

    def __init__(self, run_spark: RunSpark, start: StartServer) -> None:
        self._run_spark = run_spark
        self._start = start
        self._address: ServerAddress | None = None

    def to_run(self) -> str:
        """Raises as `RunSpark.find_or_start`."""
        self._address = self._run_spark.find_or_start(self._start)
        return self._address.url

    def to_interrupt(self) -> str | None:
        """None is started for that: what ran on one that is gone has ended with it."""
        address = self._run_spark.find()
        return None if address is None else address.url

    def why_lost(self) -> str | None:
        """As its keeper has said it."""
        return None if self._address is None else self._run_spark.why_lost(self._address)


def _body(slot: ServerSlot) -> bytes:
    document = {name: value for name, value in to_json(slot).items() if value or name not in _OF_FORMAT_2}
    return json.dumps(document, sort_keys=True).encode()


def _check_address(host: str, *, is_for_others: bool) -> None:
    """Raise `ConfigurationError` if ``host`` is not this machine's own, or others need it and can't reach it."""
    try:
        with listen(host) as probe:
            address = probe.getsockname()[0]
    except OSError as error:
        raise ConfigurationError(
            f"expected {host!r} to be an address of this worker, on which the run's Spark can listen, found: {error}. "
            f"{_SET_HOST}"
        ) from error
    if is_for_others and ipaddress.ip_address(address).is_loopback:
        raise ConfigurationError(
            f"expected the run's Spark to listen where every worker reaches it, found {host!r}, which is {address}: "
            "on each machine that is the machine itself, and the executor runs tasks on several, so that each of them "
            f"would start a Spark and end the others'. {_SET_HOST}"
        )
