"""What a process has in the private folder of its user: there while it lives, removed by others when it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_recovery.driver import code_archive, private_folder
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.private_folder import hold, own_folder, remove_unused

HAS_A_FOLDER = """
import sys
from pathlib import Path
from airflow_recovery.driver import private_folder
if sys.argv[2] == "unlocked":
    private_folder.fcntl.flock = lambda *_: None
with private_folder.own_folder(Path(sys.argv[1]), "attempt") as folder:
    (folder / "spec.json").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""
HAS_AN_ARCHIVE = """
import sys
from airflow_recovery.driver.code_archive import build_archive
print(build_archive("lonely:job"), flush=True)
sys.stdin.read()
"""
LONG_AGO_S = 1_000_000_000


@pytest.fixture(autouse=True)
def _own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "lonely.py").write_text("# a job\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "code"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))


@contextmanager
def process(program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has said which file or folder is its own, and then waits."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, Path(running.stdout.readline().strip())
        finally:
            running.kill()


def begin_another(parent: Path) -> None:
    with own_folder(parent, "attempt"):
        pass


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    with process(HAS_A_FOLDER, str(tmp_path), "locked") as (running, folder):
        begin_another(tmp_path)
        assert (folder / "spec.json").exists()
        running.kill()
        running.wait()
        assert (folder / "spec.json").exists()
        begin_another(tmp_path)
        assert not folder.exists()


def test_control_without_the_lock_the_folder_of_a_living_process_is_removed(tmp_path: Path) -> None:
    with process(HAS_A_FOLDER, str(tmp_path), "unlocked") as (_, folder):
        begin_another(tmp_path)
        assert not folder.exists()


def test_a_folder_goes_with_its_process_and_others_of_that_place_stay(tmp_path: Path) -> None:
    (tmp_path / "another-thing").mkdir()
    with own_folder(tmp_path, "attempt") as first, own_folder(tmp_path, "attempt") as second:
        assert first.is_dir()
        assert second.is_dir()
    assert not list(tmp_path.glob("attempt-*"))
    assert (tmp_path / "another-thing").is_dir()


def test_a_folder_that_is_taken_for_one_that_was_left_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def hold_late(path: Path) -> int:
        made.append(path)
        if len(made) == 1:
            remove_unused(path)
        return hold(path)

    monkeypatch.setattr(private_folder, "hold", hold_late)
    with own_folder(tmp_path, "attempt") as folder:
        assert folder == made[1] != made[0]
        remove_unused(folder)
        assert folder.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("is_old", [True, False])
def test_an_archive_is_removed_when_nobody_has_asked_for_it_in_days(tmp_path: Path, is_old: bool) -> None:
    with process(HAS_AN_ARCHIVE) as (running, archive):
        unfinished = archive.with_name("tmp1.unfinished")
        unfinished.touch()
        for path in (archive, unfinished) if is_old else ():
            os.utime(path, (LONG_AGO_S, LONG_AGO_S))
        build_another(tmp_path, "a later version")
        assert archive.exists()  # a driver of that process may have it on its path
        running.kill()
        running.wait()
        build_another(tmp_path, "the next version")
        assert archive.exists() is not is_old
        assert unfinished.exists() is not is_old


def build_another(tmp_path: Path, content: str) -> None:
    (tmp_path / "code" / "lonely.py").write_text(f"# {content}\n")
    assert build_archive("lonely:job").exists()


@pytest.mark.slow
def test_an_archive_that_is_asked_for_again_is_not_an_old_one(tmp_path: Path) -> None:
    archive = build_archive("lonely:job")
    os.utime(archive, (LONG_AGO_S, LONG_AGO_S))
    assert build_archive("lonely:job") == archive
    assert archive.stat().st_mtime > LONG_AGO_S


@pytest.mark.slow
def test_an_archive_that_is_removed_before_it_is_held_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[Path] = []

    def hold_late(path: Path) -> int:
        if not removed:
            removed.append(path)
            remove_unused(path)
        return hold(path)

    monkeypatch.setattr(code_archive, "hold", hold_late)
    archive = build_archive("lonely:job")
    assert removed == [archive]
    assert archive.exists()


@pytest.mark.slow
def test_control_an_archive_that_is_not_held_is_removed_under_a_living_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_held: Callable[[Path], int] = lambda path: os.open(path, os.O_RDONLY)  # noqa: E731
    monkeypatch.setattr(code_archive, "hold", not_held)
    archive = build_archive("lonely:job")
    os.utime(archive, (LONG_AGO_S, LONG_AGO_S))
    build_another(tmp_path, "a later version")
    assert not archive.exists()
