"""Whether an application can be submitted from here: spark-submit, Java, Spark's jars, and the master."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from airflow_recovery.doctor.programs import run_program
from airflow_recovery.doctor.result import CheckResult, not_checked, ok, wrong
from airflow_recovery.driver.submit import submit_environment
from airflow_recovery.store.scheme import StoreScheme
from airflow_recovery.store.schemes import scheme_for

SPARK_SERIES = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""Those that were tried, from the oldest on which regions run to the newest."""
OLDEST_JAVA = 17
OLDEST_JAVA_OF = {"3.5": 8}
"""Where it is not `OLDEST_JAVA`."""
CONNECT_MODULES = ("pyspark", "pandas", "pyarrow", "grpc", "grpc_status", "google.rpc")
"""The modules that the client of Spark Connect imports."""
NO_PYTHON_IN_CLUSTER_MODE = "deploy-mode cluster, in which a standalone cluster takes no Python application"

_PROGRAM_TIMEOUT_S = 15.0
_REACH_TIMEOUT_S = 5.0
_CLASS_PATHS = {
    "driver": ("spark.driver.extraClassPath", "spark.jars"),
    "executor": ("spark.executor.extraClassPath", "spark.jars"),
}
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:/,\[\]]+):(?P<port>\d+)")


@dataclass(frozen=True)
class SparkConnection:
    """What a connection says of where Spark is; nothing of it is secret.

    ``master``: as spark-submit is told, or ``sc://host:port``. ``binary``: what the provider's hook calls.
    """

    conn_id: str
    master: str
    binary: str = "spark-submit"
    is_connect: bool = False
    is_cluster: bool = False


@dataclass(frozen=True)
class Installation:
    """The Spark that a binary belongs to. Versions are those of its jars; `None` where they have other names."""

    binary: str
    home: Path
    spark: str | None
    hadoop: str | None
    conf: Mapping[str, str] = field(default_factory=dict)
    """Its ``spark-defaults.conf``."""
    dist_class_path: str = ""
    """``SPARK_DIST_CLASSPATH``: the end of the class path of each JVM that has this variable."""


def check_submission(name: str, environment: Mapping[str, str], stores: Sequence[str] = ()) -> Iterator[CheckResult]:
    """All that spark-submit needs here. ``name``: what is called; ``stores``: URIs of journal and results."""
    binary = find_binary(name, environment)
    yield from check_binary(name, binary)
    installation = None if binary is None else installation_of(binary, environment)
    yield from check_java(environment, None if installation is None else installation.spark)
    if binary is None:
        return
    yield from check_spark_version(installation, binary)
    # Spark never touches the journal, but sources may be in the same store.
    for scheme in dict.fromkeys(map(scheme_for, stores)):
        is_used = scheme is not None and (scheme.is_for_sources or scheme is scheme_for(stores[-1]))
        if installation is not None and scheme is not None and scheme.connector and is_used:
            yield from check_jars(installation, scheme)


def find_binary(name: str, environment: Mapping[str, str]) -> str | None:
    """The path of ``spark-submit`` as a task finds it: on the PATH, else beside this Python."""
    return shutil.which(name, path=submit_environment(environment).get("PATH", ""))


def check_binary(name: str, text: str | None) -> Iterator[CheckResult]:
    """Whether the program ``name`` was found: ``text`` is its path, or `None`."""
    if text is not None:
        yield ok(name, text)
        return
    yield wrong(
        name,
        expected=f"{name} on the PATH of this component, or beside its Python",
        found="none",
        next_step="pip install 'airflow-recovery[spark]', or put the bin folder of a Spark on the PATH.",
    )


def installation_of(binary: str, environment: Mapping[str, str]) -> Installation | None:
    """The Spark that ``binary`` starts, found as its own script finds it; `None` where that fails."""
    home = environment.get("SPARK_HOME") or _home_by_script(binary, submit_environment(environment))
    if not home or not (Path(home) / "jars").is_dir():
        return None
    names = [path.name for path in (Path(home) / "jars").glob("*.jar")]
    folder = Path(environment.get("SPARK_CONF_DIR") or Path(home) / "conf")
    return Installation(
        binary,
        Path(home),
        _version_in(names, r"spark-core_[\d.]+-(.+)\.jar"),
        _version_in(names, r"hadoop-client-api-(.+)\.jar"),
        _defaults(folder / "spark-defaults.conf"),
        environment.get("SPARK_DIST_CLASSPATH", ""),
    )


def check_spark_version(installation: Installation | None, binary: str) -> Iterator[CheckResult]:
    """Whether regions run on the Spark that ``binary`` submits with. Drop-ins run on any."""
    if installation is None:
        yield wrong(
            "Spark",
            expected=f"{binary} to belong to a Spark with a folder of jars",
            found="none",
            next_step="Set SPARK_HOME to the folder of that Spark, or unset it where it names another one.",
        )
    elif installation.spark is None:
        yield not_checked("Spark", f"no jar in {installation.home}/jars tells its version")
    elif series_of(installation.spark) in SPARK_SERIES:
        yield ok("Spark", f"{installation.spark} in {installation.home}")
    elif _numbers(installation.spark) > _numbers(SPARK_SERIES[-1]):
        text = (
            f"{installation.spark} in {installation.home} is newer than {SPARK_SERIES[-1]}, the newest that was tried"
        )
        yield not_checked("Spark", text, "Call this with --spark.")
    else:
        yield wrong(
            "Spark",
            expected=f"{SPARK_SERIES[0]} or later",
            found=f"{installation.spark} in {installation.home}",
            next_step="pip install 'airflow-recovery[spark]', or name a later Spark with SPARK_HOME.",
        )


def series_of(version: str) -> str:
    """``4.2`` of ``4.2.1`` or ``4.2.0-amzn-1``."""
    return ".".join(version.split(".")[:2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def check_java(environment: Mapping[str, str], spark: str | None = None) -> Iterator[CheckResult]:
    """The ``java`` that spark-submit takes: of JAVA_HOME, else of the PATH. ``spark``: the version that it is for."""
    oldest = OLDEST_JAVA_OF.get(series_of(spark or ""), OLDEST_JAVA)
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH", ""))
    how = "JAVA_HOME" if home else "the PATH"
    expected = f"Java {oldest} or newer, by JAVA_HOME or on the PATH"
    advice = f"Install Java {OLDEST_JAVA}, and set JAVA_HOME to it in this component."
    if java is None:
        yield wrong("Java", expected=expected, found="none", next_step=advice)
        return
    try:
        done = run_program([java, "-version"], environment, _PROGRAM_TIMEOUT_S)
        output = done.stderr + done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        yield wrong(
            "Java", expected=expected, found=f"{java} (by {how}), which does not run: {error}", next_step=advice
        )
        return
    version = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', output)
    if version is None:
        text = f"{java} (by {how}), which does not tell its version: {output.strip()[:200] or 'it says nothing'}"
        yield wrong("Java", expected=expected, found=text, next_step=advice)
    elif int(version[2]) < oldest:
        yield wrong("Java", expected=expected, found=f"{version[1]} at {java} (by {how})", next_step=advice)
    else:
        yield ok("Java", f"{version[1]} at {java} (by {how})")


def check_jars(installation: Installation, scheme: StoreScheme) -> Iterator[CheckResult]:
    """Whether this Spark can read and write in a store: its connector is on both class paths.

    On the class paths of drivers and executors, in its own folder of jars, or in ``SPARK_DIST_CLASSPATH``, which
    executors on other machines are taken to have as well. With what credentials is the image's to choose. What a task
    adds by its own ``jars=``, ``packages=`` or ``conf=`` is not seen here.
    """
    check = f"Spark's jars for {scheme.jars_for}"
    packages = installation.conf.get("spark.jars.packages", "")
    if scheme.connector in packages:
        yield ok(check, f"spark.jars.packages = {packages}")
        return
    for side, names in _jars_of(installation):
        found = scheme.jars_missing(names, installation.hadoop)
        if found is not None:
            expected = f"{scheme.jars_expected(installation.hadoop)} on the {side}'s class path"
            yield wrong(check, expected=expected, found=found, next_step=scheme.jars_advice)
            return
    yield ok(check, f"{scheme.jars_expected(installation.hadoop)} on both class paths")


def _jars_of(installation: Installation) -> Iterator[tuple[str, list[str]]]:
    """Driver and executor, each with the names of the jars on its class path."""
    own = [path.name for path in (installation.home / "jars").glob("*.jar")]
    own += [name for entry in installation.dist_class_path.split(":") for name in _jars_at(entry)]
    for side, keys in _CLASS_PATHS.items():
        entries = [piece for key in keys for piece in re.split("[:,]", installation.conf.get(key, "")) if piece]
        yield side, [*own, *(name for entry in entries for name in _jars_at(entry))]


def check_connect_client(find: Iterable[str] = CONNECT_MODULES) -> Iterator[CheckResult]:
    """Whether Spark's client can be imported in this process. Imports nothing."""
    missing = [name for name in find if not _is_there(name)]
    if not missing:
        yield ok("Spark Connect's client", "installed")
        return
    yield wrong(
        "Spark Connect's client",
        expected="pyspark, pandas, pyarrow and gRPC in this environment",
        found=f"no {', '.join(missing)}",
        next_step="pip install 'airflow-recovery[spark]'.",
    )


def check_master(connection: SparkConnection, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Whether somebody listens where the connection says. Nothing is asked of the master."""
    check, master = f"address of {connection.conn_id}", connection.master
    if connection.is_cluster and master.startswith("spark://"):
        yield wrong(
            check,
            expected="deploy mode client for a master spark://",
            found=NO_PYTHON_IN_CLUSTER_MODE,
            next_step="Take deploy-mode out of the connection's extra.",
        )
    elif master.startswith("local"):
        yield ok(check, f"{master}, in a process of this machine")
    elif master.startswith(("spark://", "sc://")):
        yield _reached(check, master)
    elif master == "yarn" and not (environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")):
        yield wrong(
            check,
            expected="HADOOP_CONF_DIR or YARN_CONF_DIR for the master yarn",
            found="neither",
            next_step="Set one of them in this component, to the folder of the cluster's configuration.",
        )
    else:
        yield not_checked(check, f"whether {master} answers is seen by a region alone", "Call this with --spark.")


def _reached(check: str, master: str) -> CheckResult:
    scheme, _, rest = master.partition("://")
    addresses = [(match["host"].strip("[]"), int(match["port"])) for match in _ADDRESS.finditer(rest)]
    expected = f"{scheme}://host:port with somebody who listens"
    advice = "Start it, correct the connection, or open the way from this component to it."
    if not addresses:
        return wrong(check, expected=expected, found=f"{master}, without a port", next_step=advice)
    failed = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=_REACH_TIMEOUT_S):
                return ok(check, f"{scheme}://{host}:{port} listens")
        except OSError as error:  # noqa: PERF203  a standby of the master may be down
            failed.append(f"{host}:{port}: {error}")
    return wrong(check, expected=expected, found="; ".join(failed), next_step=advice)


def _home_by_script(binary: str, environment: Mapping[str, str]) -> str:
    """By the script that ``spark-submit`` itself asks."""
    folder = Path(binary).resolve().parent
    script = folder / "find-spark-home"
    if not script.is_file():
        return str(folder.parent)
    try:
        done = run_program(
            ["bash", "-c", 'source "$0"; echo "$SPARK_HOME"', str(script)], environment, _PROGRAM_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _version_in(names: Iterable[str], pattern: str) -> str | None:
    return next((match[1] for name in names if (match := re.fullmatch(pattern, name))), None)


def _defaults(path: Path) -> dict[str, str]:
    """A file of properties as Spark reads it: a key, then blanks or an equals sign, then its value."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    matches = (re.fullmatch(r"\s*([^#\s=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def _jars_at(entry: str) -> list[str]:
    """The names of the jars that one entry of a class path stands for."""
    path = entry.removeprefix("file://").removeprefix("file:").removeprefix("local:")
    if path.endswith("/*"):
        path = f"{path}.jar"
    return [Path(jar).name for jar in glob(path)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
