"""A folder of this user's own on this machine, for what must not be anybody else's: code, servers' files."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from airflow_recovery.errors import ConfigurationError


def private_folder(name: str) -> Path:
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
            f"expected {folder} to be a folder that only this user may enter, found {found}: remove it, or set TMPDIR"
        )
    return folder
