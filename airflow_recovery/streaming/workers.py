"""What Spark's Python processes are given of the driver's: its code where a source is planned, and the store's client.

Executors find the files of ``--py-files`` by themselves. The process that plans a Python source does not: Spark 4.2 and
4.3 tell it of a folder below the one that they are in. All of them talk to the store of the channels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery.driver.store_sdks import given_sdks, provide_sdk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SDKS = "AIRFLOW_RECOVERY_SDKS"
"""The variable with the names of the archives, which Spark hands out as files."""


def equip_workers(spark: SparkSession, uri: str) -> None:
    """Hand the driver's code, and its client of the store at ``uri``, to the processes of what is declared from now on.

    Once more for the same application changes nothing. Not over Spark Connect, where there is no driver of ours.
    """
    from pyspark import SparkFiles

    context, root = spark.sparkContext, Path(SparkFiles.getRootDirectory())
    submitted = (context.getConf().get("spark.submit.pyFiles") or "").split(",")
    files = [str(root / Path(file).name) for file in submitted if file]
    before = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys([str(root), *files, *before])))
    sdks = given_sdks(uri)
    for archive in sdks:
        context.addFile(str(archive))
    context.environment[_SDKS] = os.pathsep.join(archive.name for archive in sdks)


def provide_sdks() -> None:
    """Let this process of Spark's import what `equip_workers` has handed out, as `provide_sdk` does.

    Does nothing in any other process. Raises `RuntimeError` as that does, and `FileNotFoundError` where Spark has not
    brought it.
    """
    names = list(filter(None, os.environ.get(_SDKS, "").split(os.pathsep)))
    if not names:
        return
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    for name in names:
        # In the process that plans, the folder that Spark tells of is below the right one.
        provide_sdk(next((path for path in (root / name, root.parent / name) if path.is_file()), root / name))
