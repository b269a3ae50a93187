"""A streaming region where Spark's Python has what Spark asks for alone: its processes get the rest from the driver."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest
from bare_python import OF_STREAMS, bare_environment, make_bare_python
from spark_streaming_run import JOB, SparkStreamingRun

from airflow_recovery.driver import StoreSpec, driver
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.store_sdks import sdk_archives
from airflow_recovery.driver.submit import QUIET_CONF, store_conf
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import REGION
from airflow_recovery.testing.spark_cluster import spark_home
from scripts.jars import class_path_variables

APPLICATION = """
import sys
from pathlib import Path
from airflow_recovery.driver import driver
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.store_sdks import provide_sdk
from airflow_recovery.streaming import region

told, sdk = sys.argv[1:]
provide_sdk(Path(sdk))
equip = region.equip_workers
for number, given in enumerate((lambda *_: None, lambda spark, _: equip(spark, "file:///elsewhere"), equip), 1):
    region.equip_workers = given
    spec = RegionSpec.from_json(Path(told, f"{number}.json").read_text())
    print(f"attempt {number}: {driver.drive(spec)} is over", flush=True)
"""
"""Three attempts, one after the other. Spark's processes are given nothing, then our code, then the client as well."""


@pytest.mark.spark
@pytest.mark.s3
def test_fault_155_a_stock_python_plans_reads_and_writes_channels_on_s3(
    one_s3_server: S3Server, tmp_path: Path
) -> None:
    """With its controls: without our code there is no source, and without the client no store."""
    base = f"s3://recovery-tests/{uuid.uuid4().hex}"
    spark_run = SparkStreamingRun(
        tmp_path,
        StoreSpec(base, one_s3_server.endpoint_url, REGION),
        store=S3Store(base, endpoint_url=one_s3_server.endpoint_url, session=one_s3_server.session()),
    )
    made = spark_run.producer("scores")
    made.emit(*range(10))
    made.finish()
    for attempt in (1, 2, 3):
        (tmp_path / f"{attempt}.json").write_text(spark_run.spec("board", attempt).to_json())
    application = tmp_path / "application.py"
    application.write_text(APPLICATION)
    variables = {**bare_environment(""), **one_s3_server.environment(), **class_path_variables()}
    variables["JDK_JAVA_OPTIONS"] = os.environ["JDK_JAVA_OPTIONS"]
    python = make_bare_python(tmp_path / "python", *OF_STREAMS)
    conf = {
        **QUIET_CONF,
        **store_conf(spark_run.results, {**os.environ, **variables}),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.log.level": "WARN",
    }
    (sdk,) = sdk_archives(base)
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--py-files", str(build_archive(JOB))]
    done = subprocess.run(
        [
            *submit,
            *(word for setting in conf.items() for word in ("--conf", "=".join(setting))),
            *(str(application), str(tmp_path), str(sdk)),
        ],
        cwd=tmp_path,
        env={**variables, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": str(python)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )

    *attempts, _ = done.stdout.split("is over\n")
    assert len(attempts) == 3, done.stdout
    without_code, without_client, whole = attempts
    assert without_code.endswith(f"attempt 1: {driver.FAILED} "), without_code
    assert "No module named 'airflow_recovery'" in without_code
    assert without_client.endswith(f"attempt 2: {driver.FAILED} "), without_client
    assert "No module named 'botocore'" in without_client
    assert whole.endswith(f"attempt 3: {driver.FINISHED} "), whole
    assert spark_run.committed() == list(range(10))
