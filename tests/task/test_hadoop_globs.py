"""Patterns against Hadoop's own ``FileSystem.globStatus``, and against what Spark reads by them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from expected_errors import fails_with

from airflow_recovery import globs
from airflow_recovery.checks import check_location
from airflow_recovery.errors import ObjectMissing
from airflow_recovery.store import open_store
from airflow_recovery.task.inventory import list_objects

NAMES = "a|b|ab|a.csv|b.csv|a,b|a{b}|r[1]|x y|^a|!a|a-b|a\\b|%41|_a|.a|{}".split("|")  # noqa: SIM905
PIECES = [*"ab.,-^!|+()$%_ ", *"ab**?[]{},\\//", "a.csv", "[ab]", "[!a]", "[^b]", "[a-b]", "[b-a]", "[]", "[a", "{a"]
PIECES += [
    "{a*,b}",
    "{?,ab}",
    "{x,[ab]}",
    "{a,b}",
    "{a/a,b}",
    "{a,{b,ab}}",
    "\\{",
    "\\[",
    "\\\\",
    "[.]",
    "[a^]",
    "[*]",
    "{a\\,b,a}",
]
IN_SUITE, IN_DRILL = 1_500, 100_000


def tree(folder: Path) -> list[str]:
    """Two levels of all the names, and files: the keys, sorted."""
    for name in NAMES:
        (folder / f"d{name}").mkdir()
        (folder / name).mkdir()
        for file in NAMES:
            (folder / name / file).write_text("1\n")
        (folder / f"d{name}" / name).write_text("1\n")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def patterns(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 7))).strip("/") for _ in range(number)]


def ours(paths: list[str], pattern: str) -> list[str] | None:
    """The paths that match, files and folders; `None` for a pattern that is refused."""
    try:
        found = set()
        for each in globs.alternatives(pattern):
            matchers = [globs.matcher(segment) for segment in each.split("/") if segment]
            for path in paths:
                names = path.split("/")
                if len(names) == len(matchers) and all(m.fullmatch(n) for m, n in zip(matchers, names, strict=True)):
                    found.add(path)
    except ValueError:
        return None
    return sorted(found)


def of_hadoop(spark: Any, folder: Path, pattern: str) -> list[str] | None:
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf).getRawFileSystem()
    try:
        found = files.globStatus(jvm.org.apache.hadoop.fs.Path(f"{folder}/{pattern}"))
    except Exception:
        return None
    return sorted({each.getPath().toString().removeprefix(f"file:{folder}/") for each in found or ()})


def check_patterns(spark: Any, folder: Path, number: int) -> dict[str, int]:
    paths, counts = tree(folder), {"equal": 0, "refused by both": 0, "refused here alone": 0}
    for pattern in dict.fromkeys(patterns(1, number)):
        if not pattern or {".", ".."}.intersection(pattern.split("/")):
            continue
        here, there = ours(paths, pattern), of_hadoop(spark, folder, pattern)
        if here is None:
            counts["refused by both" if there is None else "refused here alone"] += 1
            continue
        assert here == there, pattern
        counts["equal"] += 1
    return counts


@pytest.mark.spark
def test_patterns_match_what_hadoop_matches_or_are_refused(spark: Any, tmp_path: Path) -> None:
    counts = check_patterns(spark, tmp_path, IN_SUITE)
    assert counts["equal"] > IN_SUITE // 4, counts


@pytest.mark.drill
@pytest.mark.spark
def test_many_patterns_match_what_hadoop_matches_or_are_refused(spark: Any, tmp_path: Path) -> None:
    assert check_patterns(spark, tmp_path, IN_DRILL)["equal"] > IN_DRILL // 4


@pytest.mark.control
@pytest.mark.spark
def test_control_braces_that_are_literal_inside_are_found(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a ``*``, ``?`` or ``[`` inside of braces stood for itself."""
    real = globs.matcher

    def literal_in_braces(segment: str) -> re.Pattern[str]:
        real(segment)
        return real(re.sub(r"\{[^{}\\]*\}", lambda found: re.sub(r"([*?\[\]])", r"\\\1", found[0]), segment))

    monkeypatch.setattr(globs, "matcher", literal_in_braces)
    with pytest.raises(AssertionError, match=r"^[^{]*\{[^}]*[*?\[]"):
        check_patterns(spark, tmp_path, IN_SUITE)


@pytest.mark.spark
@pytest.mark.parametrize(
    "pattern", ["in/*/*.csv", "in/*/x.csv", "in/{2013,_tmp}/*.csv", "in/2013", "in/{2013/*,b}.csv"]
)
def test_what_is_listed_is_what_spark_reads(spark: Any, tmp_path: Path, pattern: str) -> None:
    for key in ("in/2013/a.csv", "in/2013/_x.csv", "in/_tmp/x.csv", "in/_tmp/_y.csv", "in/.h/x.csv", "in/b.csv"):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_text("1\n")
    uris = spark.read.text(f"{tmp_path}/{pattern}").inputFiles()
    read = {unquote(uri).removeprefix("file://") for uri in uris}
    try:
        found = list_objects(f"{tmp_path}/{pattern}", vertex="raw", open_location=open_store)
        listed = {each.uri.removeprefix("file://") for each in found}
    except ObjectMissing:
        listed = set()
    assert listed == read


@pytest.mark.parametrize(
    "pattern", ["[ab", "{a", "{a/b", "x[]", "[!]", "[*]", "[b-a]", "{[a,b]}", "a\\", "\\a", "{a\\,b/c}"]
)
def test_what_hadoop_refuses_or_reads_otherwise_is_refused_at_parse(pattern: str) -> None:
    for place in ("s3://bucket/in", "/lake/in", "s3://bucket/{{ ds }}"):
        with fails_with("glob-unfit"):
            check_location(f"{place}/{pattern}", "flights", to_read=True)


def test_a_template_stands_for_a_name() -> None:
    for pattern in ("{{ ds }}/*.csv", "{{ params['a'] }}", "{a,{{ ds }}}/x", "{% if x %}a{% endif %}"):
        check_location(f"s3://bucket/{pattern}", "flights", to_read=True)
