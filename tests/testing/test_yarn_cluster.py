"""The YARN for tests: its jars are those of the Spark wheel's Hadoop, and nothing of it is left."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import psutil
import pyspark
import pytest
from yarn_cluster import yarn_cluster, yarn_jars

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.testing.local_airflow.reaper import MARKER

IVY = Path(__file__).parents[2] / "scripts" / "yarn-ivy.xml"


@pytest.mark.slow
def test_its_version_is_that_of_the_wheel_and_what_was_fetched_is_what_is_named() -> None:
    (client,) = (Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-api-*.jar")
    named = {each.attrib["name"]: each.attrib["rev"] for each in ElementTree.parse(IVY).getroot().iter("dependency")}
    assert named["hadoop-client-minicluster"] == client.stem.removeprefix("hadoop-client-api-")
    assert {path.name for path in yarn_jars().glob("*.jar")} == {f"{name}-{named[name]}.jar" for name in named}


def test_where_the_jars_are_not_it_says_what_fetches_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"setup\.sh --all"), yarn_cluster():
        pass


@pytest.mark.spark
@pytest.mark.drill
def test_no_process_of_it_and_no_container_is_left() -> None:
    with yarn_cluster(memory_mb=1024) as cluster:
        kept = cluster.occupy(512)
        running = list(cluster.processes.running.values())
        marker = cluster.processes.marker[MARKER]
        while not (ours := [each for each in processes_of(marker) if each.name() == "sleep"]):
            assert cluster.application(kept)["state"] in ("SUBMITTED", "ACCEPTED")
        assert len(ours) == 1
    assert [process.poll() is None for process in running] == [False, False]
    assert processes_of(marker) == []
    assert not cluster.folder.exists()


def processes_of(marker: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if marker_of(process) == marker]


def marker_of(process: psutil.Process) -> str | None:
    try:
        found: str | None = process.environ().get(MARKER)
        return found
    except psutil.Error:
        return None
