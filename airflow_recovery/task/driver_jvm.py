"""How the JVM of a driver on this machine starts, where nobody says else: with an archive of Spark's classes, with less
compiling, and with a folder of its own for temporary files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_recovery.driver.private_folder import own_folder, private_folder
from airflow_recovery.hooks.settings import DriverJvm
from airflow_recovery.task.class_archive import (
    HOT_CODE_LATER,
    SHORT_LIVED,
    USER_OPTIONS,
    NoArchive,
    SparkInstallation,
    default_folder,
    find_archive,
    find_or_make_archive,
    java_options,
)

log = logging.getLogger(__name__)

_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
_USER_CONF = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_LIVES_FOR_ONE_TASK = "AIRFLOW_IS_K8S_EXECUTOR_POD"
"""Set by Airflow's Kubernetes executor: nobody would use what such a machine has made for itself."""


def user_option(environment: Mapping[str, str], conf: Mapping[str, str], properties_file: str | None) -> str | None:
    """Where a user says how the driver's JVM starts; `None` where he does not."""
    for names, settings in ((USER_OPTIONS, environment), (_USER_CONF, conf)):
        option = next((name for name in names if settings.get(name)), None)
        if option is not None:
            return option
    return _option_in(Path(properties_file)) if properties_file else None


def _option_in(file: Path) -> str | None:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return str(file)  # spark-submit is the one to say what is wrong with it
    return next((name for name in (*USER_OPTIONS, *_USER_CONF) if name in text), None)


def jvm_variables(mode: DriverJvm, folder: Path | None, submit: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which ``submit`` starts its two JVMs, its own and the driver's. Raises nothing.

    None where Spark's own files say how a JVM starts. Where there is no archive one line in the log says why.
    ``folder`` is where archives are, if not in the cache.
    """
    if mode is DriverJvm.PLAIN:
        return {}
    options = SHORT_LIVED if mode is DriverJvm.SHORT_LIVED else HOT_CODE_LATER
    try:
        folder = folder or default_folder(environment)
        spark = SparkInstallation.locate(environment, submit)
        if any(map(_option_in, spark.conf_files())):
            return {}
        if environment.get(_LIVES_FOR_ONE_TASK):
            archive = find_archive(spark, folder)
        else:
            archive = find_or_make_archive(spark, folder, environment)
        options += f" {java_options(archive)}"
    except (NoArchive, OSError, RuntimeError) as error:  # RuntimeError: there is no home
        log.info("The driver's JVM starts without an archive of Spark's classes: %s.", error)
    # The first one only puts the command together.
    return {_JVM_OPTIONS: options, "SPARK_LAUNCHER_OPTS": f"{SHORT_LIVED} {options}"}


@contextmanager
def driver_environment(variables: Mapping[str, str]) -> Iterator[Path]:
    """Within, this process has ``variables`` for a driver, and a folder for what the driver's JVM leaves on the disk.

    That folder is removed behind it, unless a driver's keeper holds it; what is left, the next process on this machine
    removes. A user who says where a JVM, or Spark, has its temporary files is heard.
    """
    options = variables.get(_JVM_OPTIONS) or os.environ.get(_JVM_OPTIONS, "")
    with own_folder(private_folder(), "driver") as folder:
        # A JVM takes the last one of its options.
        ours = {**variables, _JVM_OPTIONS: f"-Djava.io.tmpdir={folder} {options}".rstrip()}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield folder
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({} if value is None else {name: value})
