"""scripts/s3a-ivy.xml: the jars for `s3a://` are those of the Spark wheel's Hadoop, and everything that they need.

So is hadoop-azure in scripts/clouds-ivy.xml.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pyspark
import pytest

from airflow_recovery.errors import ConfigurationError
from scripts.jars import class_path_conf, class_path_variables, s3a_jars

SCRIPTS = Path(__file__).parents[2] / "scripts"


def versions(name: str, file: str = "s3a-ivy.xml") -> set[str]:
    found = ElementTree.parse(SCRIPTS / file).getroot().iter("dependency")
    return {each.attrib["rev"] for each in found if each.attrib["org"] == name}


def test_hadoops_version_is_that_of_the_wheel() -> None:
    (jar,) = (Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-api-*.jar")
    hadoop = jar.stem.removeprefix("hadoop-client-api-")
    assert versions("org.apache.hadoop") == versions("org.apache.hadoop", "clouds-ivy.xml") == {hadoop}
    assert len(versions("software.amazon.awssdk")) == 1


def test_what_was_fetched_is_what_is_named_and_spark_has_nothing_of_it_twice() -> None:
    names = {path.name for path in s3a_jars().glob("*.jar")}
    (hadoop,), (sdk,) = versions("org.apache.hadoop"), versions("software.amazon.awssdk")
    assert {f"hadoop-aws-{hadoop}.jar", f"s3-{sdk}.jar", f"sts-{sdk}.jar"} <= names
    spark = {path.name.rpartition("-")[0] for path in (Path(pyspark.__path__[0]) / "jars").glob("*.jar")}
    assert {name.rpartition("-")[0] for name in names} & spark == set()


def test_settings_and_variables_put_them_on_both_class_paths() -> None:
    jars = f"{s3a_jars()}/*"
    assert class_path_conf() == {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    assert class_path_variables() == {"SPARK_DIST_CLASSPATH": jars}


def test_where_they_are_not_it_says_what_fetches_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"setup\.sh --s3a"):
        s3a_jars()
