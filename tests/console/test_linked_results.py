"""``gc`` over results of which a folder is a symbolic link: what it leads to is nobody's to delete."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.store import local as local_module

PRECIOUS = ("orders.csv", "part-0")


@pytest.fixture
def precious(recorded, tmp_path: Path) -> Path:
    """A folder elsewhere, to which a link leads where the superseded results of by_route were."""
    world = recorded.world(results="results")
    world.until_green()
    world.restart("by_route")
    world.new_airflow()
    world.until_green()
    data = tmp_path / "results" / world.data_of("by_route", 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in PRECIOUS:
        (elsewhere / name).write_bytes(b"a person's")
    (out,) = data.iterdir()
    for candidate in out.iterdir():
        candidate.unlink()
    out.rmdir()
    out.symlink_to(elsewhere)
    for path in (*tmp_path.rglob("*"), elsewhere):
        os.utime(path, (time.time() - 7200,) * 2)
    return elsewhere


def gc(recorded, tmp_path: Path) -> tuple[int, str]:
    return recorded.call("gc", "--results", f"file://{tmp_path}/results")


def test_gc_deletes_nothing_behind_a_symbolic_link_and_names_it(recorded, precious: Path, tmp_path: Path) -> None:
    code, said = gc(recorded, tmp_path)
    assert code == ExitCode.NO_ANSWER
    assert "was left as it is: StoreMisconfigured: Expected files and folders" in said
    assert f"found the symbolic link {tmp_path}/results/" in said
    assert sorted(os.listdir(precious)) == sorted(PRECIOUS)


def test_control_where_links_are_followed_gc_deletes_what_is_elsewhere(
    recorded, precious: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    monkeypatch.setattr(local_module, "_collect", following)
    assert gc(recorded, tmp_path)[0] == ExitCode.DONE
    assert not precious.exists() or os.listdir(precious) == []


def following(folders: local_module._Folders, folder: str, prefix: str, keys: list[str]) -> None:
    base = Path(folders._root)
    for path, _, names in os.walk(base / folder, followlinks=True):
        found = (str((Path(path) / name).relative_to(base)) for name in names)
        keys += [key for key in found if key.startswith(prefix)]
