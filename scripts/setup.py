"""Make .venv with everything that the demo and the tests need. A second run does nothing and needs no network.

    scripts/setup.sh          for `make demo`: Python packages, the wheel, Java, an archive of Spark's classes
    scripts/setup.sh --s3a    and Spark's jars for S3 (12 MB), and versitygw, a real S3 server, if `go` is on the PATH:
                              for `make demo S3A=1`
    scripts/setup.sh --dev    for `make setup`: the demo's parts, and the packages of tests, lint, docs and benchmarks
    scripts/setup.sh --test   for `make test`: all of these, PostgreSQL, and Chromium for the Recovery tab
    scripts/setup.sh --all    for `make test-all`: and Redis, libfaketime, a YARN (66 MB), and servers of Google's and
                              Azure's stores, if `go` and `npm` are on the PATH
    scripts/setup.sh --drill  for `make drill`: and a Kubernetes API server, built with `go` (minutes), Iceberg's REST
                              catalog, Delta for Spark, PostgreSQL's JDBC driver, Spark's connectors to Google's and
                              Azure's stores (41 MB), and beside the environment Airflow's provider of Google (130 MB)

`parts_for` is the table of the parts. Each part begins as soon as the parts that it needs exist (scripts/parts.py).
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts import wheel
from scripts.parts import Commands, Failed, LeftOut, Maker, Part, Progress

REPOSITORY = Path(__file__).resolve().parents[1]
VENV = REPOSITORY / ".venv"
PYTHON = VENV / "bin" / "python"
BUILD = REPOSITORY / "build"
LOGS = BUILD / "setup"
PROGRAMS = BUILD / "go"
"""Programs that `go` builds. They stay when the environment is made again."""
AZURITE = BUILD / "azurite"
AZURITE_VERSION = "3.35.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
VERSITYGW = REPOSITORY / "scripts" / "versitygw"
KUBERNETES = REPOSITORY / "tests" / "support" / "kube_apiserver"
CLASS_ARCHIVE = REPOSITORY / "airflow_recovery" / "task" / "class_archive.py"
GOOGLE_LIST = REPOSITORY / "scripts" / "google-provider.txt"

TARGETS = ("", "--s3a", "--dev", "--test", "--all", "--drill")
JAVA_MAJOR = 17
DEBIAN = {
    "java": ("openjdk-17-jre-headless",),
    "postgresql": ("postgresql",),
    "chromium": ("chromium", "chromium-driver", "fonts-dejavu-core"),
    "redis": ("redis-server",),
    "faketime": ("faketime",),
}
SERVERS = {
    "--s3a": ("versitygw",),
    "--test": ("versitygw",),
    "--all": ("versitygw", "fake-gcs-server", "Azurite"),
    "--drill": ("versitygw", "fake-gcs-server", "Azurite", "Kubernetes API server"),
}
JARS = {
    "--s3a": ("s3a",),
    "--test": ("s3a",),
    "--all": ("s3a", "yarn"),
    "--drill": ("s3a", "yarn", "delta", "jdbc", "iceberg-rest", "clouds"),
}
PROGRAMS_OF_DEBIAN = {
    "--test": ("postgresql", "chromium"),
    "--all": ("postgresql", "chromium", "redis", "faketime"),
    "--drill": ("postgresql", "chromium", "redis", "faketime"),
}
POSTGRESQL = ("initdb", "postgres", "pg_isready", "createdb", "dropdb", "pg_dump", "pg_restore")
COMPILED = (
    "airflow", "airflow_shared", "aiohttp", "alembic", "boto3", "botocore", "build", "cadwyn", "click", "cryptography",
    "dateutil", "fastapi", "flask", "fsspec", "grpc", "httpx", "jinja2", "jsonschema", "moto/core", "moto/s3", "numpy",
    "opentelemetry", "packaging", "pandas", "pendulum", "pip", "psutil", "py4j", "pyarrow", "pydantic", "pygments",
    "pyspark", "requests", "rich", "s3transfer", "setuptools", "sqlalchemy", "starlette", "structlog", "upath",
    "urllib3", "uvicorn", "werkzeug", "yaml",
)  # fmt: skip
"""Packages that most processes import. Python compiles all others at their first import."""

commands = Commands(LOGS)
_apt = threading.Lock()
_ivy = threading.Lock()


def parts_for(target: str) -> list[Part]:
    """Return the parts that a target needs. ``target`` is one of `TARGETS`."""
    extras = ("spark", "demo") if target in ("", "--s3a") else ("spark", "demo", "dev")
    parts = [
        Part("virtual environment", environment_exists, make_environment, seconds=6),
        Part(
            "Python packages",
            lambda: packages_exist(extras),
            lambda: install_packages(extras),
            needs=("virtual environment",),
            seconds=20 if target in ("", "--s3a") else 35,
        ),
        Part("Spark's Python", spark_is_compiled, compile_spark, needs=("Python packages",), seconds=5),
        Part("bytecode", bytecode_exists, compile_packages, needs=("Python packages",), seconds=20),
        Part("wheel", wheel_exists, make_wheel, needs=("Python packages",), seconds=8),
        Part("Java", java_fits, install_java, seconds=15),
        Part("Spark's classes", classes_exist, archive_classes, needs=("Spark's Python", "Java"), seconds=40),
    ]
    parts += [server_part(name) for name in SERVERS.get(target, ())]
    if target in SERVERS:
        parts.append(
            Part("programs of servers", servers_are_linked, link_servers, ("virtual environment", *SERVERS[target]))
        )
    parts += [jars_part(name) for name in JARS.get(target, ())]
    if target in PROGRAMS_OF_DEBIAN:
        parts.append(programs_part(PROGRAMS_OF_DEBIAN[target]))
    if target == "--drill":
        parts.append(Part("Google's provider", google_exists, install_google, ("virtual environment",), 20))
    return parts


# The environment and its packages.


def environment_exists() -> bool:
    """Whether the environment was made from today's list of packages, and its Python starts."""
    with contextlib.suppress(OSError):
        if _stamp().read_text().split(" ")[0] == packages_hash():
            return subprocess.run([PYTHON, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0
    return False


def make_environment() -> None:
    """Make an empty environment with pip and uv. Spark's jars and all else in the old one are deleted."""
    if not _runs([sys.executable, "-c", "import ensurepip, venv"]):
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        apt_install(f"{sys.executable} has no module venv", [package])
    advice = "Check that the folder of the project can be written and that the package index can be reached."
    commands.run("environment", [sys.executable, "-m", "venv", "--clear", VENV], advice=advice)
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    commands.run("environment", [*pip, "-c", "constraints.txt", "uv"], advice=advice)
    _stamp().write_text(f"{packages_hash()} ")


def packages_exist(extras: tuple[str, ...]) -> bool:
    """Whether the packages of these extras are installed."""
    with contextlib.suppress(OSError):
        return _stamp().read_text().startswith(_packages_stamp(extras))
    return False


def install_packages(extras: tuple[str, ...]) -> None:
    """Install the packages that the project needs, but not the project: scripts/wheel.py installs its wheel."""
    settings, arguments = uv_settings(pip_settings(), os.environ)
    command: list[object] = [
        VENV / "bin" / "uv", "pip", "install", "--python", PYTHON, *arguments, "-r", "pyproject.toml",
        "-c", "constraints.txt", "--build-constraint", "constraints.txt",
        # Spark comes as a source distribution: uv makes a wheel of it and unpacks that, so compression is wasted.
        "--config-settings-package", "pyspark:--build-option=--compression=stored",
    ]  # fmt: skip
    for extra in extras:
        command += ["--extra", extra]
    advice = "Check that the package index can be reached (uv uses pip's settings), and run the same command again."
    commands.run("packages", command, env={**os.environ, **settings}, advice=advice)
    _stamp().write_text(_packages_stamp(extras))


def packages_hash() -> str:
    """Return a hash of the files that decide what is installed."""
    return hash_of(REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt")


def _packages_stamp(extras: tuple[str, ...]) -> str:
    return f"{packages_hash()} {','.join(extras)}"


def _stamp() -> Path:
    return VENV / ".setup-stamp"


def spark_is_compiled() -> bool:
    """Whether Spark's archives of modules were compiled since they were installed."""
    return _is_stamped(VENV / ".spark-stamp", packages_hash())


def compile_spark() -> None:
    """Compile the modules in Spark's archives.

    No Spark may run meanwhile: a Python worker that reads an archive ends when another file takes its place.
    """
    archives = sorted(VENV.glob("lib/python*/site-packages/pyspark/python/lib/*.zip"))
    commands.run("spark-python", [PYTHON, "-m", "scripts.compiled_archives", *archives])
    (VENV / ".spark-stamp").write_text(packages_hash())


def bytecode_exists() -> bool:
    """Whether the packages were compiled since they were installed."""
    return _is_stamped(VENV / ".bytecode-stamp", _stamp().read_text())


def compile_packages() -> None:
    """Compile the modules that most processes import."""
    site = next(VENV.glob("lib/python*/site-packages"))
    # Some packages contain files that are not valid Python. compileall reports them, and nothing needs them.
    folders = [path for name in COMPILED if (path := site / name).exists()]
    script = "import compileall, sys; [compileall.compile_dir(each, quiet=2, workers=2) for each in sys.argv[1:]]"
    commands.run("bytecode", _nice([PYTHON, "-c", script, *folders]))
    (VENV / ".bytecode-stamp").write_text(_stamp().read_text())


def wheel_exists() -> bool:
    """Whether the wheel of the files that are here now is installed in build/installed."""
    return wheel.is_installed()


def make_wheel() -> None:
    """Build the project's wheel, and install it in build/installed."""
    commands.run("wheel", [PYTHON, "-m", "scripts.wheel"], advice="The project's own files may be at fault.")


def pip_settings() -> dict[str, str]:
    """Return the settings of pip from its variables and files: ``index_url``, ``cert``, ``find_links`` and others."""
    command = [str(PYTHON), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return parse_pip_settings(listed)


def parse_pip_settings(listed: str) -> dict[str, str]:
    """Return the settings in an output of ``pip config list``. A variable wins over a file, as in pip."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in sections:
            sections[section][key.replace("-", "_")] = str(ast.literal_eval(value))
    return {key: value for section in sections.values() for key, value in section.items()}


def uv_settings(pip: Mapping[str, str], environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return variables and arguments with which uv uses the index, the links and the certificates that pip uses.

    A variable of uv's own in ``environment`` stays as it is.
    """
    # pip trusts the certificates of the machine, too.
    settings = {"UV_SYSTEM_CERTS": "true", "UV_PYTHON_DOWNLOADS": "never"}
    names = {
        "cert": "SSL_CERT_FILE",
        "client_cert": "SSL_CLIENT_CERT",
        "index_url": "UV_DEFAULT_INDEX",
        "extra_index_url": "UV_INDEX",
        "proxy": "ALL_PROXY",
        "timeout": "UV_HTTP_TIMEOUT",
        "default_timeout": "UV_HTTP_TIMEOUT",
        "trusted_host": "UV_INSECURE_HOST",
    }
    settings |= {names[key]: " ".join(value.split()) for key, value in pip.items() if key in names and value.strip()}
    if links := pip.get("find_links", "").split():
        settings["UV_FIND_LINKS"] = ",".join(links)
    if "UV_INDEX" in settings:
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip treats all indexes as one
    is_offline = pip.get("no_index", "").lower() in ("1", "true", "yes", "on")
    return {**settings, **{name: environment[name] for name in settings if name in environment}}, (
        ["--no-index"] if is_offline else []
    )


# Java, and an archive of Spark's classes.


def java() -> str:
    """Return the program that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def java_version() -> str:
    """Return what Java prints about itself; nothing if it does not start."""
    with contextlib.suppress(OSError):
        command = [java(), "-version"]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return ""


def java_major() -> int:
    """Return Java's major version; 0 if there is no Java."""
    found = re.search(r'version "(\d+)', java_version())
    return int(found[1]) if found else 0


def java_fits() -> bool:
    """Whether Java is new enough for Spark."""
    return java_major() >= JAVA_MAJOR


def install_java() -> None:
    """Install Java on Debian. Raises `Failed` if ``JAVA_HOME`` has another Java."""
    found = java_major() or "none"
    if home := os.environ.get("JAVA_HOME"):
        raise Failed(f"Spark needs Java 17 or newer, JAVA_HOME={home} has {found}; correct it or unset it")
    apt_install(f"Spark needs Java 17 or newer, found {found}", DEBIAN["java"])
    if not java_fits():
        raise Failed(
            f"java on the PATH is still {java_major() or 'none'} after the installation; set JAVA_HOME to a newer one"
        )


def classes_exist() -> bool:
    """Whether there is an archive for this Spark and this Java, or making one has failed."""
    folder = VENV / "spark-classes"
    made = [*folder.glob("*.jsa"), *folder.glob("*.failed")]
    return bool(made) and _is_stamped(folder / "stamp", _classes_stamp())


def archive_classes() -> None:
    """Archive the classes that Spark loads at its start, so that its JVMs start sooner."""
    folder = VENV / "spark-classes"
    environment = {**os.environ, "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    try:
        commands.run("classes", [PYTHON, CLASS_ARCHIVE, "--folder", folder], env=environment)
    except Failed as error:
        raise LeftOut(f"no archive was made, and Spark starts more slowly. {str(error).splitlines()[-1]}") from error
    finally:
        if folder.exists():
            (folder / "stamp").write_text(_classes_stamp())


def _classes_stamp() -> str:
    return f"{packages_hash()} {java()} {java_version()}"


# Jars.

_JARS = {
    "s3a": ("Spark's jars for S3", 10),
    "yarn": ("YARN", 15),
    "delta": ("Delta for Spark", 8),
    "jdbc": ("PostgreSQL's JDBC driver", 5),
    "iceberg-rest": ("Iceberg's REST catalog", 8),
    "clouds": ("Spark's connectors to Google's and Azure's stores", 12),
}


def jars_part(name: str) -> Part:
    """Return the part that fetches the jars of ``scripts/NAME-ivy.xml`` into ``.venv/NAME-jars``."""
    folder, ivy = VENV / f"{name}-jars", REPOSITORY / "scripts" / f"{name}-ivy.xml"
    title, seconds = _JARS[name]

    def fetch() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (program,) = VENV.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar")
        pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
        # The JVM is short-lived: one compiler and one thread for garbage need half the time.
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command = [java(), *options, "-jar", program, "-ivy", ivy, "-types", "jar", "-retrieve", pattern]
        with _ivy:  # Its cache is not made for two at once.
            commands.run(f"{name}-jars", command, advice="Check that Maven's repository can be reached.")
        (folder / "stamp").write_text(hash_of(ivy))

    return Part(title, lambda: _is_stamped(folder / "stamp", hash_of(ivy)), fetch, ("Python packages", "Java"), seconds)


# Servers.


def server_part(name: str) -> Part:
    """Return the part that builds or installs a server outside the environment."""
    makers: dict[str, tuple[Callable[[], bool], Callable[[], None], float]] = {
        "versitygw": (versitygw_exists, build_versitygw, 65),
        "fake-gcs-server": (fake_gcs_exists, build_fake_gcs, 60),
        "Azurite": (azurite_exists, install_azurite, 20),
        "Kubernetes API server": (kubernetes_exists, build_kubernetes, 600),
    }
    exists, make, seconds = makers[name]
    return Part(name, exists, make, seconds=seconds)


def versitygw_exists() -> bool:
    """Whether a versitygw is on the PATH, or was built from the files that are here now."""
    return shutil.which("versitygw") is not None or (
        (PROGRAMS / "versitygw").exists() and _is_stamped(PROGRAMS / "versitygw.stamp", hash_of(VERSITYGW))
    )


def build_versitygw() -> None:
    """Build a small versitygw: `go install` of the real one needs three times as much CPU time."""
    _need_program("go", "versitygw, the S3 server of the tests,")
    program = PROGRAMS / "versitygw"
    command = [sys.executable, VERSITYGW / "small_build.py", program]
    commands.run("versitygw", _nice(command), advice="Check that the proxy of Go's modules can be reached.")
    (PROGRAMS / "versitygw.stamp").write_text(hash_of(VERSITYGW))


def fake_gcs_exists() -> bool:
    """Whether this version of fake-gcs-server was built."""
    return _is_stamped(PROGRAMS / "fake-gcs-server.stamp", FAKE_GCS)


def build_fake_gcs() -> None:
    """Build the server of Google's API."""
    _need_program("go", "fake-gcs-server, the server of Google's API,")
    advice = "Check that the proxy of Go's modules can be reached."
    environment = {**os.environ, "GOBIN": str(PROGRAMS)}
    commands.run("fake-gcs-server", _nice(["go", "install", FAKE_GCS]), env=environment, advice=advice)
    (PROGRAMS / "fake-gcs-server.stamp").write_text(FAKE_GCS)


def azurite_exists() -> bool:
    """Whether this version of Azurite is installed."""
    return _is_stamped(AZURITE / "stamp", AZURITE_VERSION)


def install_azurite() -> None:
    """Install the server of Azure's API."""
    _need_program("npm", "Azurite, the server of Azure's API,")
    AZURITE.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--prefix", AZURITE, "--no-fund", "--no-audit", f"azurite@{AZURITE_VERSION}"]
    commands.run("azurite", command, advice="Check that the registry of npm can be reached.")
    (AZURITE / "stamp").write_text(AZURITE_VERSION)


def kubernetes_exists() -> bool:
    """Whether the Kubernetes API server was built."""
    return _is_stamped(PROGRAMS / "kube-apiserver-with-etcd.stamp", hash_of(KUBERNETES))


def build_kubernetes() -> None:
    """Build a Kubernetes API server with its etcd in one program."""
    _need_program("go", "the Kubernetes API server")
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(PROGRAMS / "kube-apiserver-with-etcd"), "."]
    advice = "Check that the proxy of Go's modules can be reached."
    commands.run("kubernetes", _nice(command), folder=KUBERNETES, advice=advice)
    (PROGRAMS / "kube-apiserver-with-etcd.stamp").write_text(hash_of(KUBERNETES))


def _links() -> dict[Path, Path]:
    names = ("versitygw", "fake-gcs-server", "kube-apiserver-with-etcd")
    links = {VENV / "bin" / name: PROGRAMS / name for name in names if (PROGRAMS / name).exists()}
    azurite = AZURITE / "node_modules" / ".bin" / "azurite-blob"
    return links | ({VENV / "bin" / azurite.name: azurite} if azurite.exists() else {})


def servers_are_linked() -> bool:
    """Whether the environment has all servers that were built."""
    return all(link.is_symlink() and link.resolve() == target.resolve() for link, target in _links().items())


def link_servers() -> None:
    """Put the servers into the environment's folder of programs."""
    for link, target in _links().items():
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


def google_exists() -> bool:
    """Whether Airflow's provider of Google is installed beside the environment."""
    return _is_stamped(VENV / "google-provider" / "stamp", hash_of(GOOGLE_LIST))


def install_google() -> None:
    """Install Airflow's provider of Google into a folder for PYTHONPATH, so that no other test has it."""
    folder = VENV / "google-provider"
    shutil.rmtree(folder, ignore_errors=True)
    settings, arguments = uv_settings(pip_settings(), os.environ)
    command = [VENV / "bin" / "uv", "pip", "install", "--python", PYTHON, *arguments, "--no-deps", "--target", folder]
    advice = "Check that the package index can be reached (uv uses pip's settings), and run the same command again."
    commands.run("google", [*command, "-r", GOOGLE_LIST], env={**os.environ, **settings}, advice=advice)
    (folder / "stamp").write_text(hash_of(GOOGLE_LIST))


# Debian's programs.


def missing_programs(names: Sequence[str]) -> list[str]:
    """Return those names of `DEBIAN` whose programs are not on this machine."""
    found = {
        "postgresql": _has_postgresql(),
        "chromium": _is_program("chromium") and _is_program("chromedriver"),
        "redis": _is_program("redis-server"),
        "faketime": _is_program("faketime"),
    }
    return [name for name in names if not found[name]]


def programs_part(names: tuple[str, ...]) -> Part:
    """Return the part that installs those names of `DEBIAN` that are missing, with one call of `apt-get`."""

    def install() -> None:
        missing = missing_programs(names)
        packages = [package for name in missing for package in DEBIAN[name]]
        apt_install(f"the tests need {', '.join(missing)}, and found none", packages)
        if left := missing_programs(names):
            raise Failed(f"{', '.join(left)}: not found after the installation; put the programs on the PATH")

    return Part("Debian's programs", lambda: not missing_programs(names), install, seconds=30)


def apt_install(reason: str, packages: Sequence[str]) -> None:
    """Install Debian's packages. Raises `Failed` with ``reason`` if this is no Debian, or the user is not root."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed(f"{reason}; install what Debian calls {' '.join(packages)}, and put it on the PATH")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    advice = "Correct what it reports, and run the same command again."
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    with _apt, open("/tmp/airflow-recovery-apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["apt-get", "update"], install):
            commands.run("apt", command, env=environment, advice=advice, interruptible=False)


def _has_postgresql() -> bool:
    """Search the folders that `find_programs` of airflow_recovery.testing.local_airflow.postgres searches."""
    program = shutil.which("initdb")
    folders = [Path(program).resolve().parent] if program else []
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    return any(all((folder / name).exists() for name in POSTGRESQL) for folder in folders)


# What several parts use.


def hash_of(*paths: Path) -> str:
    """Return a hash of files, and of all files in folders."""
    digest = hashlib.sha256()
    for path in paths:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            if file.suffix != ".pyc":
                body = file.read_bytes()
                digest.update(f"{file.relative_to(path.parent)} {len(body)} ".encode() + body)
    return digest.hexdigest()


def _is_stamped(stamp: Path, wanted: str) -> bool:
    with contextlib.suppress(OSError):
        return stamp.read_text() == wanted
    return False


def _is_program(name: str) -> bool:
    return shutil.which(name) is not None or (PROGRAMS / name).exists()


def _need_program(name: str, without_it: str) -> None:
    if shutil.which(name) is None:
        raise LeftOut(f"{name} is not on the PATH, so {without_it} is left out")
    PROGRAMS.mkdir(parents=True, exist_ok=True)


def _nice(command: Sequence[object]) -> Sequence[object]:
    """Give way to the Python packages, for which most other parts wait. No other part waits for this program."""
    return ["nice", "-n", "5", *command] if shutil.which("nice") else command


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def _stop(number: int, frame: object) -> None:
    del frame
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(arguments: list[str]) -> int:
    """Make all parts of the target that the arguments name; return the exit code."""
    target = arguments[0] if arguments else ""
    if len(arguments) > 1 or target not in TARGETS:
        expected = f"nothing, {', '.join(TARGETS[1:-1])} or {TARGETS[-1]}"
        print(f"setup: error: unknown argument {' '.join(arguments)}; expected {expected}", file=sys.stderr)
        return 1
    os.chdir(REPOSITORY)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    BUILD.mkdir(exist_ok=True)
    progress = Progress()
    with (BUILD / "setup.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress.say("waiting for another set-up of this folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return _make(parts_for(target), progress)


def _make(parts: list[Part], progress: Progress) -> int:
    try:
        took = Maker(parts, progress).make()
    except Failed as error:
        progress.end()
        *log, message = str(error).splitlines()
        print("\n".join([*log, f"setup: error: {message}"]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.end()
        print("setup: error: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    finally:
        commands.stop()
    LOGS.mkdir(parents=True, exist_ok=True)
    slowest = sorted(took.items(), key=lambda item: -item[1])
    (LOGS / "seconds.txt").write_text("".join(f"{seconds:7.1f} {name}\n" for name, seconds in slowest))
    progress.say(f"ready after {progress.elapsed_s:.0f} s (Python {_python_version()}, Java {java_major()})")
    return 0


def _python_version() -> str:
    for line in (VENV / "pyvenv.cfg").read_text().splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return value.strip()
    return "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
