"""The configuration section ``[recovery]``, read once by every task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.components import UnseenCode
from airflow_recovery.model.job_recovery import ALL_DEFAULTS, SETTINGS, DeclaredJobRecovery
from airflow_recovery.model.retention import DEFAULT_GRACE_S, DEFAULT_RETENTION, Retention, parse_duration_s

Choice = TypeVar("Choice", bound=Enum)

SECTION = "recovery"
DEFAULT_SPARK_IDLE_S = 600
DEFAULT_SPARK_MAX_LIFE_S = 7 * 86_400
DEFAULT_ORPHANED_DRIVER = "1h"
RESULTS_BELOW_JOURNAL = "_results"
"""No id begins with an underscore (`airflow_recovery.model.names`), so results never meet a DAG's journal."""

_CONN_IDS = ("aws_conn_id", "results_aws_conn_id", "gcp_conn_id", "wasb_conn_id")


class DriverJvm(str, Enum):
    """How the JVM of a driver on the worker starts, where nobody says else."""

    QUICK = "quick"
    """With an archive of Spark's classes; code is optimised when it has run ten times as often as Java asks for."""
    SHORT_LIVED = "short-lived"
    """With that archive, and Java's options for a JVM that lives for seconds: nothing is ever optimised."""
    PLAIN = "plain"
    """As spark-submit starts it."""


class CodeVersion(str, Enum):
    """What every fingerprint holds beside the code."""

    NONE = "none"
    """Nothing."""
    BUNDLE = "bundle"
    """The version of the DAG bundle."""


class Preload(str, Enum):
    """What is imported in the process from which tasks are forked."""

    TASKS = "tasks"
    """What the tasks of this provider import."""
    CONNECT = "connect"
    """That, and Spark's Connect client."""
    NONE = "none"


@dataclass(frozen=True)
class RecoverySettings:
    """Where journal and results are, and how they and Airflow are reached. URIs have no slash at the end.

    ``request_timeout``: seconds until a journal write with an unknown outcome fails the task. ``retention`` holds for
    jobs that declare none. ``grace_s``: for so many seconds, what nobody counts on is kept all the same.
    """

    journal: str
    results: str
    aws_conn_id: str | None = None
    api_conn_id: str | None = None
    request_timeout: int = 60
    retention: Retention = DEFAULT_RETENTION
    grace_s: int = DEFAULT_GRACE_S
    job_recovery: DeclaredJobRecovery = ALL_DEFAULTS
    """For jobs that declare nothing else."""
    results_aws_conn_id: str | None = None
    """Reaches results, inputs and outputs, where that takes other credentials than the journal does."""
    spark_idle_timeout_s: int = DEFAULT_SPARK_IDLE_S
    """A run's own Spark ends when nobody has been connected to it for so many seconds."""
    spark_max_life_s: int = DEFAULT_SPARK_MAX_LIFE_S
    """A run's own Spark ends when it is so many seconds old, whoever is connected to it."""
    gcp_conn_id: str | None = None
    """Reaches Google Cloud Storage: journal, results and inputs."""
    wasb_conn_id: str | None = None
    """Reaches Azure Blob Storage."""
    deployment: str | None = None
    """This deployment's name, where the journal's prefix shall belong to it alone."""
    unseen_code: UnseenCode = UnseenCode.RUN_ON_CLEAR
    """For operators that declare nothing else."""
    code_version: CodeVersion = CodeVersion.NONE
    allowed_locations: tuple[str, ...] = ()
    """Where the credentials may be used although a run's conf, a record or a redirect has named the location."""

    def conn_id(self, option: str) -> str | None:
        """The connection that ``option`` names in ``[recovery]``: one of ours, or of a store that was added."""
        if not option:
            return None
        if option in _CONN_IDS:
            named: str | None = getattr(self, option)
            return named
        from airflow.sdk import conf

        return conf.get(SECTION, option, fallback="") or None

    @property
    def previous_worker_timeout_s(self) -> float:
        """Seconds without a heartbeat until somebody's attempt is taken for dead, where a job declares no others."""
        return self.job_recovery.in_effect().previous_worker_timeout_s

    @classmethod
    def load(cls) -> RecoverySettings:
        """The settings as Airflow has them. Raises `ConfigurationError` naming what is missing or wrong."""
        from airflow.sdk import conf

        from airflow_recovery.store.allowed import read_allowed

        journal = (conf.get(SECTION, "journal", fallback="") or "").rstrip("/")
        if not journal:
            raise ConfigurationError(
                "Expected the URI of the journal in [recovery] journal, found nothing. Set it in airflow.cfg or as "
                "AIRFLOW__RECOVERY__JOURNAL, for example s3://my-bucket/recovery/journal, in the same way everywhere.",
                code="journal-not-set",
            )
        results = (conf.get(SECTION, "results", fallback="") or "").rstrip("/")
        if results and _is_below_a_dag(journal, results):
            raise ConfigurationError(
                f"Expected [recovery] results beside the journal, found {results!r}, which is among the journals of "
                f"{journal!r}: every listing of a journal would page through data. Leave it empty (that is "
                f"{journal}/{RESULTS_BELOW_JOURNAL}), or give it a prefix of its own.",
                code="results-among-journals",
            )
        aws_conn_id = conf.get(SECTION, "aws_conn_id", fallback="") or None
        results_aws_conn_id = conf.get(SECTION, "results_aws_conn_id", fallback="") or None
        if results_aws_conn_id and not aws_conn_id:
            raise ConfigurationError(
                f"Expected [recovery] aws_conn_id beside results_aws_conn_id = {results_aws_conn_id}, found nothing: a "
                "Spark driver would take the results' credentials for the journal's. Name the journal's too.",
                code="journal-connection-missing",
            )
        try:
            request_timeout = int(conf.get(SECTION, "request_timeout", fallback="60"))
        except ValueError as error:
            raise ConfigurationError(
                f"Expected a whole number of seconds in [recovery] request_timeout, found: {error}",
                code="request-timeout-unfit",
            ) from error
        if request_timeout <= 0:
            raise ConfigurationError(
                f"Expected [recovery] request_timeout to be above 0 s, found {request_timeout}.",
                code="request-timeout-not-above-0",
            )
        return cls(
            journal=journal,
            results=results or f"{journal}/{RESULTS_BELOW_JOURNAL}",
            aws_conn_id=aws_conn_id,
            results_aws_conn_id=results_aws_conn_id,
            gcp_conn_id=conf.get(SECTION, "gcp_conn_id", fallback="") or None,
            wasb_conn_id=conf.get(SECTION, "wasb_conn_id", fallback="") or None,
            deployment=(conf.get(SECTION, "deployment", fallback="") or "").strip() or None,
            api_conn_id=conf.get(SECTION, "api_conn_id", fallback="") or None,
            request_timeout=request_timeout,
            retention=Retention.parse(conf.get(SECTION, "retention", fallback="") or DEFAULT_RETENTION.text()),
            spark_idle_timeout_s=parse_duration_s(
                conf.get(SECTION, "spark_idle_timeout", fallback="") or f"{DEFAULT_SPARK_IDLE_S}s"
            ),
            spark_max_life_s=parse_duration_s(
                conf.get(SECTION, "spark_max_life", fallback="") or f"{DEFAULT_SPARK_MAX_LIFE_S}s"
            ),
            grace_s=parse_duration_s(conf.get(SECTION, "grace", fallback="") or f"{DEFAULT_GRACE_S}s"),
            job_recovery=configured_job_recovery(),
            unseen_code=configured_unseen_code(),
            code_version=configured_code_version(),
            allowed_locations=read_allowed(conf.get(SECTION, "allowed_locations", fallback="")),
        )


def configured_code_version() -> CodeVersion:
    """``[recovery] code_version``. Raises `ConfigurationError`."""
    return _chosen("code_version", CodeVersion.NONE)


def configured_unseen_code() -> UnseenCode:
    """What happens if code can't be seen. Raises `ConfigurationError`."""
    return _chosen("unseen_code", UnseenCode.RUN_ON_CLEAR)


def configured_driver_jvm() -> tuple[DriverJvm, Path | None]:
    """How drivers' JVMs start, and the folder of the archives if it is not the default. Raises `ConfigurationError`."""
    from airflow.sdk import conf

    driver_jvm = _chosen("driver_jvm", DriverJvm.QUICK)
    folder = (conf.get(SECTION, "class_archives", fallback="") or "").strip()
    if folder and not Path(folder).is_absolute():
        raise ConfigurationError(
            f"Expected an absolute path of a folder in [recovery] class_archives, found {folder!r}.",
            code="class-archives-unfit",
        )
    return driver_jvm, Path(folder) if folder else None


def configured_orphaned_driver_timeout_s() -> int:
    """For how long a driver on the worker outlives its task. Raises `ConfigurationError`."""
    from airflow.sdk import conf

    return parse_duration_s(conf.get(SECTION, "orphaned_driver_timeout", fallback="") or DEFAULT_ORPHANED_DRIVER)


def configured_preload() -> Preload:
    """What tasks find imported already. Raises `ConfigurationError`."""
    from airflow.sdk import conf

    preload = conf.get(SECTION, "preload", fallback=Preload.TASKS.value)
    *choices, last = [choice.value for choice in Preload]
    if preload not in (*choices, last):
        raise ConfigurationError(f"Expected {', '.join(choices)} or {last} in [recovery] preload, found {preload!r}.")
    return Preload(preload)


def configured_job_recovery() -> DeclaredJobRecovery:
    """FLIP-383's options as ``[recovery]`` has them, in Airflow's spelling. Raises `ConfigurationError`."""
    from airflow.sdk import conf

    values = {key: conf.get(SECTION, name, fallback="") for name, key in SETTINGS.items()}
    return DeclaredJobRecovery.parse({key: value for key, value in values.items() if (value or "").strip()})


def is_recovery_on(declared: DeclaredJobRecovery) -> bool:
    """Whether what declares ``declared`` recovers: else as ``[recovery]`` says. Raises `ConfigurationError`."""
    return declared.over(configured_job_recovery()).in_effect().enabled


def has_remote_workers() -> bool:
    """Whether tasks may run on other machines than the scheduler's: by every executor but LocalExecutor."""
    from airflow.sdk import conf

    return any(executor.rpartition(".")[2] != "LocalExecutor" for executor in conf.get("core", "executor").split(","))


def _chosen(option: str, default: Choice) -> Choice:
    """The choice that ``[recovery]`` makes for an option, whatever the case of its letters, else ``default``."""
    from airflow.sdk import conf

    given = (conf.get(SECTION, option, fallback="") or default.value).strip().lower()
    kinds = type(default)
    choices = [kind.value for kind in kinds]
    if given not in choices:
        raise ConfigurationError(
            f"Expected one of {', '.join(choices)} in [recovery] {option}, found {given!r}.",
            code="setting-unfit",
            option=option,
            found=given,
        )
    return kinds(given)


def _is_below_a_dag(journal: str, results: str) -> bool:
    """Whether results would lie where the journals of DAGs lie: no DAG's name begins with an underscore."""
    return results == journal or (results.startswith(f"{journal}/") and not results[len(journal) + 1 :].startswith("_"))
