"""A folder of this user's own on this machine, for what must not be anybody else's: code, servers' files.

What a killed process has left there is removed by later ones. The kernel tells which that is: a process holds a lock on
what it uses, and a lock ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_recovery.errors import ConfigurationError


def private_folder(name: str = "airflow-recovery") -> Path:
    """``<name>-<user id>`` among the temporary files; made where it is missing.

    Raises `ConfigurationError` where it is somebody else's, or others may enter it.
    """
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    is_own = folder.is_dir() and not folder.is_symlink() and about.st_uid == os.getuid()
    if not is_own or about.st_mode & 0o077:
        found = f"mode {about.st_mode & 0o777:o}" if is_own else "another owner"
        raise ConfigurationError(
            f"expected {folder} to be a folder that only this user may enter, found {found}: remove it, or set TMPDIR",
            code="folder-not-private",
        )
    return folder


@contextmanager
def own_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder ``<parent>/<name>-...`` of this process. No other process removes it while this one lives.

    Those of the same name whose processes have ended are removed. A child that this process forks, and that does not
    exec, counts as this process. A process that holds the folder as well keeps it, after this one has left the block.
    """
    for left in parent.glob(f"{name}-*"):
        remove_unused(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
        with suppress(FileNotFoundError):  # taken for one that was left, before it was held
            held = hold(folder)
            break
    try:
        yield folder
    finally:
        os.close(held)
        remove_unused(folder)


def hold(path: Path) -> int:
    """Keep `remove_unused` from the file or folder at ``path`` until the returned file descriptor is closed.

    Raises `FileNotFoundError` where it was removed before.
    """
    held = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)
        if not os.path.samestat(os.fstat(held), path.stat()):
            raise FileNotFoundError(f"{path} was replaced meanwhile")
    except BaseException:
        os.close(held)
        raise
    return held


def remove_unused(path: Path) -> None:
    """Remove the file or folder at ``path``, unless a process holds it. Raises nothing."""
    with suppress(OSError):
        locked = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        finally:
            os.close(locked)
