"""Puts the bytecode of all modules into zip archives, beside them: what ``python -m compileall`` does for folders.

    python -m scripts.compiled_archives ARCHIVE.zip ...

Spark's drivers and Python workers import Spark's own Python from a zip, and Python keeps no bytecode of what is in one:
each of them would compile some 200 modules anew. A Python of another version leaves the bytecode aside.
"""

from __future__ import annotations

import compileall
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode


def add_bytecode(archive: Path) -> None:
    """Write ``archive`` anew, with ``x.pyc`` beside each ``x.py``; nothing is done where it has some."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        folder = Path(scratch, "modules")
        with zipfile.ZipFile(archive) as modules:
            if any(name.endswith(".pyc") for name in modules.namelist()):
                return
            modules.extractall(folder)
        # By times of files no bytecode would be right: a zip knows them to two seconds.
        how = PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(folder, legacy=True, stripdir=scratch, quiet=1, workers=0, invalidation_mode=how)
        shutil.make_archive(str(Path(scratch, "fresh")), "zip", folder)
        Path(scratch, "fresh.zip").replace(archive)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        add_bytecode(Path(name))
