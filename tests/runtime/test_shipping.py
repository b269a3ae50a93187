from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.runtime.shipping import build_archive


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"airflow-recovery-{os.getuid()}"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "code"
    for name in ("shippedjobs/__init__.py", "shippedjobs/deep/steps.py", "shippedjobs/data/airports.csv", "lonely.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    (folder / "shippedjobs/__pycache__").mkdir()
    (folder / "shippedjobs/__pycache__/x.cpython-311.pyc").write_bytes(b"")
    (folder / "shippedjobs/.git").mkdir()
    (folder / "shippedjobs/.git/config").write_text("secret")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def names(archive: Path) -> set[str]:
    return set(zipfile.ZipFile(archive).namelist())


def test_holds_our_airflow_free_packages_and_the_jobs_package(code: Path) -> None:
    found = names(build_archive("shippedjobs.deep.steps:job"))
    jobs = {each for each in found if not each.startswith("airflow_recovery/")}
    assert jobs == {"shippedjobs/__init__.py", "shippedjobs/deep/steps.py", "shippedjobs/data/airports.csv"}
    assert {"airflow_recovery/__init__.py", "airflow_recovery/errors.py", "airflow_recovery/runtime/main.py"} <= found
    assert not {each.split("/")[1] for each in found} & {"operators", "sensors", "hooks", "plugins", "testing"}


def test_single_module_and_extra_packages(code: Path) -> None:
    found = names(build_archive("lonely:job", ["shippedjobs"]))
    assert {"lonely.py", "shippedjobs/deep/steps.py"} <= found


def test_named_by_content_and_reused(code: Path, own_cache: Path) -> None:
    first = build_archive("shippedjobs.deep.steps:job")
    made_at = first.stat().st_mtime_ns
    os.utime(code / "shippedjobs/__init__.py", (1, 1))  # a new checkout: the same content
    assert build_archive("shippedjobs.deep.steps:job") == first
    assert first.stat().st_mtime_ns == made_at

    bytes_before = first.read_bytes()
    first.unlink()
    assert build_archive("shippedjobs.deep.steps:job").read_bytes() == bytes_before

    (code / "shippedjobs/data/airports.csv").write_text("changed")
    assert build_archive("shippedjobs.deep.steps:job") != first
    assert {each.suffix for each in own_cache.iterdir()} == {".zip"}


def test_folder_of_somebody_else_is_refused(code: Path, own_cache: Path) -> None:
    own_cache.mkdir(mode=0o777)
    own_cache.chmod(0o777)
    with pytest.raises(ConfigurationError, match="only this user"):
        build_archive("lonely:job")


def test_code_that_is_nowhere_is_refused(code: Path) -> None:
    for job in ("nosuchpackage.jobs:job", "sys:job"):
        with pytest.raises(ConfigurationError, match="package or module in files"):
            build_archive(job)


def test_archive_works_on_a_machine_without_airflow_and_without_our_checkout(code: Path, tmp_path: Path) -> None:
    archive = build_archive("lonely:job")
    blocked = "import sys\nfor name in ('airflow', 'pyspark', 'boto3'): sys.modules[name] = None\n"
    program = (
        blocked
        + "import airflow_recovery, airflow_recovery.runtime.driver as d, airflow_recovery.runtime.connect, lonely\n"
        "import airflow_recovery.shuffle, airflow_recovery.journal.journal\nprint(d.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(str(archive))
