"""The soak itself, for some minutes: the same command as ``make soak``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

ROOT = Path(__file__).parents[2]


def test_a_soak_of_some_minutes_finds_nothing_wrong_and_writes_its_page(tmp_path: Path) -> None:
    page = tmp_path / "soak.md"
    command = [sys.executable, "-m", "scripts.soak", "--hours", "0.06", "--pause-every", "120", "--seed", "1"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "soak"), "--page", str(page)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2700,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "nothing wrong was found" in page.read_text()
    assert "<polyline" in page.with_suffix(".svg").read_text()
