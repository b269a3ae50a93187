"""The watchdog's waiting half, without Spark; what it becomes is tested over a real server in test_connect.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.driver import watchdog_script as pipe_watch
from airflow_recovery.testing.patience import HANG_S

ORDER = b'{"url": "sc://h:1/;token=hush"}\n'


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where the stand-in for `airflow_recovery.driver.watchdog` writes what it is told."""
    package = tmp_path / "airflow_recovery" / "driver"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    out = tmp_path / "told"
    (package / "watchdog.py").write_text(f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())")
    return out


def watch(told: Path, said: bytes) -> subprocess.CompletedProcess[bytes]:
    """The script, at the end of a pipe whose writer says ``said`` and is gone."""
    return subprocess.run(
        [sys.executable, "-I", "-S", pipe_watch.__file__],
        input=said,
        cwd=told.parent,
        env={**os.environ, "PYTHONPATH": str(told.parent)},
        capture_output=True,
        timeout=HANG_S,
        check=True,
    )


def test_a_writer_that_died_is_told_to_the_watchdog_in_full(told: Path) -> None:
    watch(told, ORDER)
    assert told.read_bytes() == ORDER


@pytest.mark.parametrize("said", [ORDER + b"done\n", b""])
def test_the_end_in_order_and_a_writer_without_an_order_start_nothing(told: Path, said: bytes) -> None:
    watch(told, said)
    assert not told.exists()


def test_it_needs_nothing_but_the_bare_interpreter() -> None:
    source = Path(pipe_watch.__file__).read_text()
    imported = {line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {"os", "sys"}
