"""An archive of the classes that Spark loads at its start (Java's class data sharing): with it a JVM starts sooner.

There is one for each Java and Spark of a machine, in a folder that belongs to this user alone. Where it is missing, a
process in the background makes it, for later drivers; nobody waits for it. It appears under its name when it is whole
and a JVM has started with it. A JVM checks by itself whether its Java and its class path are the archive's, and starts
without it where they are not.

    python -m airflow_recovery.task.class_archive [--folder FOLDER]     makes it now, for example in an image

This file is run by Spark's Python as well (`main`), so it imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USER_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""Variables in which somebody says how JVMs start."""

SILENT = "-Xlog:disable"
"""A JVM says on its standard output why it leaves an archive aside, and Spark's own scripts read that."""

HOT_CODE_LATER = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Java's own numbers times ten: code is given to the second compiler, the dear one, when it has run so often. What a
start runs a few thousand times is not; what a job runs for long gets there within the next seconds."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The first compiler alone, and one thread for garbage: a fifth less to start, and slower in a driver that computes."""

NEEDED_BYTES = 1_000_000_000
"""Free space without which none is made. An archive of Spark 4 has 200 MB."""
MAKING_S = 1_800.0
"""At the lowest priority, on a machine that is busy with drivers."""
UNUSED_S = 30 * 86_400.0
"""An archive that nobody has used for so long is deleted when another one is made."""

_LOAD = "--load-classes"
_OFF_THE_CLASS_PATH = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


class NoArchive(Exception):
    """There is none now; the message says why."""


class _Interrupted(NoArchive):
    """Another time it may be made: the machine was too busy, or had no room."""


@dataclass(frozen=True)
class SparkInstallation:
    """A ``spark-submit`` with its Java.

    ``submit`` and ``java`` are programs; ``home`` has the folder ``jars``; ``conf`` need not be there.
    """

    submit: Path
    java: Path
    home: Path
    conf: Path

    @classmethod
    def locate(cls, environment: Mapping[str, str], submit: str = "spark-submit") -> SparkInstallation:
        """What ``submit`` would start, found as Spark's own scripts find it. Raises `NoArchive`."""
        path = environment.get("PATH", os.defpath)
        program = shutil.which(submit, path=path)
        java_home = environment.get("JAVA_HOME")
        java = f"{java_home}/bin/java" if java_home else shutil.which("java", path=path)
        if program is None or java is None or not os.access(java, os.X_OK):
            raise NoArchive(f"expected {submit} and java, found {program or 'no ' + submit} and {java or 'no java'}")
        home = environment.get("SPARK_HOME") or _home_of(Path(program))
        if not Path(home, "jars").is_dir():
            raise NoArchive(f"expected Spark's jars in {home}/jars, found no such folder")
        conf = Path(environment.get("SPARK_CONF_DIR") or f"{home}/conf")
        return cls(Path(program), Path(java).resolve(), Path(home).resolve(), conf)

    def key(self) -> str:
        """Another one for each Java and each set of jars, by name, size and time, as the JVM compares them.

        Raises `NoArchive` where there can be none.
        """
        if self.conf.is_dir() and any(self.conf.iterdir()):
            raise NoArchive(f"Java archives no class path with a folder that has files, and {self.conf} is its first")
        digest = hashlib.sha256()
        for path in (self.java, *sorted(Path(self.home, "jars").iterdir())):
            about = path.stat()
            digest.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:16]

    def conf_files(self) -> list[Path]:
        """Those of them that are there in which a user may say how a JVM starts."""
        files = [self.conf / name for name in ("spark-defaults.conf", "spark-env.sh")]
        return [file for file in files if file.is_file()]


def _home_of(submit: Path) -> Path:
    """A distribution's, else that of the package for whose Python ``submit`` was installed."""
    home = submit.resolve().parents[1]
    if not (home / "jars").is_dir() and submit.parent == Path(sys.executable).parent:
        spec = importlib.util.find_spec("pyspark")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return home


def default_folder(environment: Mapping[str, str]) -> Path:
    """Below the user's folder of caches."""
    caches = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "airflow-recovery", "spark-classes")


def java_options(archive: Path) -> str:
    """The options with which a JVM uses it."""
    return f"{SILENT} -XX:SharedArchiveFile={archive}"


def find_archive(spark: SparkInstallation, folder: Path) -> Path:
    """The archive that is there for it. Raises `NoArchive` where none is, or somebody else could have put it there."""
    _check_owner(folder)
    archive = folder / f"{spark.key()}.jsa"
    try:
        os.utime(archive)  # it is in use (`UNUSED_S`)
    except FileNotFoundError as error:
        raise NoArchive(f"{archive} is not there yet") from error
    except OSError:
        pass  # a read-only file system
    return archive


def find_or_make_archive(spark: SparkInstallation, folder: Path, environment: Mapping[str, str]) -> Path:
    """The archive; where it is missing, a process in the background begins to make it. Raises `NoArchive` then."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(NoArchive):
            return find_archive(spark, folder)
        _check_owner(folder)
        failed = folder / f"{spark.key()}.failed"
        if failed.exists():
            raise NoArchive(f"none could be made ({failed} says why; delete it to have it tried again)")
        free = shutil.disk_usage(folder).free
        if free < NEEDED_BYTES:
            raise NoArchive(f"expected {NEEDED_BYTES:,} bytes of free space in {folder} to make one, found {free:,}")
        with _lock(folder) as is_mine:
            if not is_mine:
                raise NoArchive("another process is making it")
        subprocess.Popen(
            [sys.executable, __file__, "--folder", str(folder), "--submit", str(spark.submit)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise NoArchive(f"{type(error).__name__}: {error}") from error
    raise NoArchive("it is made in the background, for later drivers")


def make_archive(spark: SparkInstallation, folder: Path, environment: Mapping[str, str]) -> Path:
    """Start a Spark, use it, and have it archive what it has loaded; the archive. Raises `NoArchive` where it does not.

    What went wrong is kept in a file beside it, so that it is not tried at each start of a driver.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    archive = folder / f"{spark.key()}.jsa"
    with _lock(folder) as is_mine:
        if not is_mine:
            raise NoArchive("another process is making it")
        if archive.exists():
            return archive
        _remove_old(folder)
        part, scratch = folder / f"{archive.stem}.part", folder / "scratch"
        try:
            scratch.mkdir()
            _dump(spark, part, scratch, environment)
            part.replace(archive)
            archive.with_suffix(".failed").unlink(missing_ok=True)
        except _Interrupted:
            raise
        except NoArchive as error:
            archive.with_suffix(".failed").write_text(f"{error}\n", encoding="utf-8")
            raise
        finally:
            part.unlink(missing_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)
    return archive


def _dump(spark: SparkInstallation, part: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    without = {*USER_OPTIONS, *_OFF_THE_CLASS_PATH}
    plain = {name: value for name, value in environment.items() if name not in without}
    plain["PYSPARK_PYTHON"] = plain["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = {
        "spark.ui.port": "0",  # most drivers have one
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    load = [str(spark.submit), "--master", "local[2]", *settings, __file__, _LOAD]
    _run(load, scratch, plain | {"SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} {SILENT} -XX:ArchiveClassesAtExit={part}"})
    if not part.exists():
        raise NoArchive("expected Spark's JVM to write the archive at its end, found that it did not")
    # Nobody else is the first to start with it.
    started = f"{HOT_CODE_LATER} {java_options(part)}"
    _run([str(spark.submit), "--version"], scratch, plain | {"SPARK_SUBMIT_OPTS": started})


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKING_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Interrupted(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise NoArchive(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def _check_owner(folder: Path) -> None:
    """The classes of an archive are code: nobody else may write where it is taken from."""
    about = folder.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise NoArchive(f"expected {folder} to belong to this user, and to be writable for nobody else")


def _remove_old(folder: Path) -> None:
    """Under the lock: what a maker that was killed has left, and archives of a Java or a Spark that has gone."""
    for path in folder.iterdir():
        is_unused = path.suffix == ".jsa" and path.stat().st_mtime < time.time() - UNUSED_S
        if path.suffix == ".part" or is_unused:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder / "scratch", ignore_errors=True)


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Whether nobody else makes one in this folder."""
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def load_classes() -> None:
    """In Spark: what most drivers do. Files in, Python and SQL between, files out; as a batch and as a stream."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(8).selectExpr("id", "id % 2 AS even", "cast(id AS string) AS name")
    rows.write.csv("in", header=True)
    read = spark.read.schema("id long, even long, name string").csv("in", header=True)
    with suppress(ImportError):  # pandas is an extra of pyspark
        read = read.mapInPandas(lambda frames: frames, "id long, even long, name string")
    counted = read.groupBy("even").agg({"id": "sum", "name": "max"}).join(read, "even").orderBy("id")
    counted.write.parquet("batch")
    spark.read.parquet("batch").collect()

    def write(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"stream/{number}")

    stream = spark.readStream.schema("id long, even long, name string").csv("in", header=True)
    sums = stream.groupBy("even").agg({"id": "sum"})
    options = {"checkpointLocation": "checkpoint"}
    query = sums.writeStream.outputMode("complete").options(**options).trigger(availableNow=True).foreachBatch(write)
    query.start().awaitTermination()
    spark.stop()


def main(arguments: list[str]) -> int:
    """The command; with `_LOAD` the application that loads the classes."""
    if arguments == [_LOAD]:
        load_classes()
        return 0
    parser = argparse.ArgumentParser(description="Make the archive of Spark's classes for this Java and this Spark.")
    parser.add_argument("--folder", type=Path, default=default_folder(os.environ), help="default: %(default)s")
    parser.add_argument("--submit", default="spark-submit", help="the program (default: the first on the PATH)")
    options = parser.parse_args(arguments)
    os.nice(19)  # drivers come first
    try:
        print(make_archive(SparkInstallation.locate(os.environ, options.submit), options.folder.absolute(), os.environ))
    except NoArchive as error:
        print(f"no archive: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
