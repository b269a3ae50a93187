"""Versions that fit each other, and the Python that a driver gets."""

from __future__ import annotations

import os
import stat
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from doctor_results import wrongs

from airflow_recovery.doctor import versions
from airflow_recovery.doctor.result import CheckResult, Status
from airflow_recovery.doctor.versions import (
    check_archive,
    check_entry_points,
    check_packages,
    check_pyspark,
    check_python,
    installed_versions,
    requirements,
)
from airflow_recovery.driver.code_archive import build_archive

WANTED: dict[str, tuple[str, str | None]] = {
    "apache-airflow": (">=3.3,<3.4", None),
    "apache-airflow-providers-apache-spark": (">=6.3.2", None),
    "boto3": (">=1.40", None),
    "pyspark": ("==4.2.0", "spark"),
    "pyarrow": (">=18", "spark"),
}
FITTING = {
    "airflow-recovery": "0.1.0",
    "apache-airflow": "3.3.2",
    "apache-airflow-providers-apache-spark": "6.3.4",
    "boto3": "1.44.5",
    "pyspark": "4.2.0",
    "pyarrow": "22.0",
}


@pytest.mark.parametrize("version", [(3, 10), (3, 13)])
def test_a_python_that_is_supported(version: tuple[int, int]) -> None:
    assert [each.status for each in check_python(version)] == [Status.OK]


@pytest.mark.parametrize("version", [(3, 9), (3, 14)])
def test_a_python_that_is_not(version: tuple[int, int]) -> None:
    assert wrongs(check_python(version))["Python"].expected == "3.10 to 3.13"


def test_the_package_says_itself_what_it_needs() -> None:
    wanted = requirements()
    assert wanted["apache-airflow"] == ("<3.4,>=3.3", None)
    assert wanted["pyspark"][1] == wanted["pyspark-client"][1] == "spark"
    assert {"apache-airflow-providers-apache-spark", "apache-airflow-providers-amazon", "boto3"} <= set(wanted)
    assert not {"mypy", "mkdocs-material", "deltalake"} & set(wanted)
    assert wrongs(check_packages(wanted, installed_versions(), in_airflow=True)) == {}


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("apache-airflow", "3.2.1"),
        ("apache-airflow", "3.4.0"),
        ("apache-airflow-providers-apache-spark", "5.0.0"),
        ("boto3", "1.30.0"),
        ("apache-airflow-providers-apache-spark", None),
        ("boto3", None),
        ("pyarrow", "11.0"),
    ],
)
def test_a_package_that_does_not_fit_is_named(package: str, version: str | None) -> None:
    installed = {name: each for name, each in FITTING.items() if name != package}
    if version is not None:
        installed[package] = version
    assert wrongs(check_packages(WANTED, FITTING, in_airflow=True)) == {}
    found = wrongs(check_packages(WANTED, installed, in_airflow=True))
    assert list(found) == [package]
    assert found[package].found == (version or "nothing")
    assert "pip install 'airflow-recovery" in found[package].next_step


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.3.0"])
def test_any_spark_may_be_installed(version: str) -> None:
    """The extra pins a pair that fits. It is for those who have none."""
    assert wrongs(check_packages(WANTED, {**FITTING, "pyspark": version}, in_airflow=True)) == {}
    assert wrongs(check_pyspark({"pyspark": version})) == {}


def test_without_airflow_what_is_airflows_is_not_missed() -> None:
    assert wrongs(check_packages(WANTED, {"boto3": "1.44.5"}, in_airflow=False)) == {}
    assert list(wrongs(check_packages(WANTED, {}, in_airflow=False))) == ["boto3"]


def test_what_pip_has_not_installed_is_not_judged() -> None:
    (found,) = check_packages({}, {}, in_airflow=False)
    assert found.status is Status.NOT_CHECKED


def test_two_versions_of_spark_in_one_place() -> None:
    assert list(check_pyspark({"pyspark": "4.2.0"})) == []
    assert wrongs(check_pyspark({"pyspark": "4.2.0", "pyspark-client": "4.2.0"})) == {}
    found = wrongs(check_pyspark({"pyspark": "4.3.0", "pyspark-client": "4.2.0"}))
    assert "pip uninstall" in found["pyspark and pyspark-client"].next_step


def test_airflow_finds_us_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrongs(check_entry_points()) == {}
    monkeypatch.setattr(versions, "entry_points", lambda group: ())
    assert "Install the package with pip" in wrongs(check_entry_points())["entry points"].next_step


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def checked(python: str) -> dict[str, CheckResult]:
    environment = {"PATH": os.environ["PATH"], "PYSPARK_PYTHON": python}
    return wrongs(check_archive(environment, ["s3://b"]))


@pytest.mark.slow
def test_a_driver_imports_all_of_the_archive() -> None:
    assert checked(sys.executable) == {}


@pytest.mark.slow
def test_a_python_with_nothing_of_its_own_imports_it_too(tmp_path: Path) -> None:
    """Neither pendulum nor Jinja, nor a client of S3: as in a stock image of Spark."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    assert checked(str(tmp_path / "bare" / "bin" / "python")) == {}


@pytest.mark.slow
def test_control_an_archive_that_lacks_a_package_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wheel had that listed its packages by hand."""
    less = tmp_path / "less.zip"
    with zipfile.ZipFile(build_archive(versions.REGION_JOB)) as whole, zipfile.ZipFile(less, "w") as part:
        for name in whole.namelist():
            if not name.startswith("airflow_recovery/results/"):
                part.writestr(name, whole.read(name))
    monkeypatch.setattr(versions, "build_archive", lambda job, packages: less)
    found = checked(sys.executable)["the driver's archive"]
    # Where airflow_recovery is installed from a checkout, what the archive lacks comes from there.
    assert "airflow_recovery.results" in found.found or "airflow_recovery/results" in found.found


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo no module named pendulum >&2; exit 1", "no module named pendulum"),
        ("""echo '{"python": [3, 9], "elsewhere": [], "failed": ""}'""", "Python 3.9"),
        ("""echo '{"python": [3, 9], "elsewhere": [], "failed": "ModuleNotFoundError: boto3"}'""", "boto3"),
        ("""echo '{"python": [3, 9], "elsewhere": ["/usr/airflow_recovery/a.py"], "failed": ""}'""", "/usr/airflow"),
    ],
)
def test_a_python_that_can_not_run_a_driver(tmp_path: Path, does: str, told: str) -> None:
    found = checked(program(tmp_path / "python", does))["the driver's archive"]
    assert told in found.found
    assert "PYSPARK_PYTHON" in found.next_step or "pip" in found.next_step


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in checked(str(tmp_path / "python"))["the driver's archive"].found
