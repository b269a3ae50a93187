"""The files of a user's package: which modules it has, and its other files, which travel with it to Spark.

Files are read in folders and in zip archives. Each content is hashed once in a process, for as long as its file is the
same by device, inode, size, mtime and ctime.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from airflow_recovery.errors import CodeReplaced

_MOST_KEPT = 64 * 1024 * 1024
"""Bytes of hashed files that a process keeps, all together."""
FileIdentity = tuple[int, int, int, int, int]
_NOT_READ_BY_PYTHON = (".pyi", ".pyc", ".pyo")
_OF_TOOLS = frozenset(
    [".eggs", ".git", ".github", ".hg", ".idea", ".ipynb_checkpoints", ".nox", ".svn", ".tox", ".venv", ".vscode"]
)
_OF_TESTS = re.compile(r"tests?|test_.*|.*_test|conftest")
_RECORDED_FROM = 16 * 1024 * 1024
"""Bytes from which a file's hash is taken from its wheel's RECORD, if the file is as old as that, instead of read."""


def identity_of(stat: os.stat_result) -> FileIdentity:
    """Return what changes with the content of a file."""
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def modules_below(name: str, spec: ModuleSpec) -> tuple[str, ...]:
    """Return the names of all modules of a package, itself included. A module that is no package has only itself."""
    found = {name}
    for below, _ in _files(spec):
        if below.endswith(".py"):
            parts = below[: -len(".py")].split("/")
            if all(part.isidentifier() for part in parts):
                found.add(".".join([name, *(parts[:-1] if parts[-1] == "__init__" else parts)]))
    return tuple(sorted(found))


def data_files(name: str, spec: ModuleSpec) -> Iterator[tuple[str, DataFile]]:
    """Return each file of a package that is no Python source, as its path on Python's path, and what hashes it.

    ``py.typed``, stubs, bytecode beside its source and folders of tools such as ``.git`` are left out: no program
    reads them.
    """
    files = dict(_files(spec))
    for below, digest in sorted(files.items()):
        if below.endswith(".py") or below.rpartition("/")[2] == "py.typed":
            continue
        if below.endswith(_NOT_READ_BY_PYTHON) and (below.endswith(".pyi") or below[:-1] in files):
            continue
        yield f"{name.replace('.', '/')}/{below}", digest


def _files(spec: ModuleSpec) -> Iterator[tuple[str, DataFile]]:
    for location in spec.submodule_search_locations or ():
        if os.path.isdir(location):
            yield from _in_folder(location)
        else:
            yield from _in_archive(location)


class DataFile:
    """Reads and hashes a file when it is called.

    ``identity`` is then that of the file when it was read; `None` for one in an archive.
    """

    def __init__(self, path: str, member: str = "") -> None:
        self.path, self._member = path, member
        self.identity: FileIdentity | None = None

    def __call__(self) -> str:
        """Return its SHA-256."""
        if not self._member:
            self.identity = identity_of(os.stat(self.path))
            return _content_digest(self.path, self.identity)
        with zipfile.ZipFile(self.path) as archive:
            return hashlib.sha256(archive.read(self._member)).hexdigest()


def _in_folder(root: str, above: tuple[Path, ...] = ()) -> Iterator[tuple[str, DataFile]]:
    """The files below a folder. ``above``: the real folders that links have led through."""
    above = (*above, Path(os.path.realpath(root)))
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not _is_left_out(name))
        below = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if below == "." else f"{below}/"
        for name in files:
            yield f"{prefix}{name}", DataFile(os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            if _leads_to_data(path, above):
                yield from ((f"{prefix}{name}/{inner}", file) for inner, file in _in_folder(path, above))


def _leads_to_data(path: str, above: Sequence[Path]) -> bool:
    """Whether a folder is a link, which `os.walk` does not follow, to another folder of the same deployment.

    A deployment is the folder in which the package lies.
    """
    target = Path(os.path.realpath(path))
    is_new = not any(each.is_relative_to(target) for each in above)
    return os.path.islink(path) and is_new and target.is_relative_to(above[0].parent)


def _in_archive(location: str) -> Iterator[tuple[str, DataFile]]:
    archive = next((str(path) for path in Path(location).parents if path.is_file()), None)
    if archive is None or not zipfile.is_zipfile(archive):
        return
    prefix = f"{os.path.relpath(location, archive).replace(os.sep, '/')}/"
    for member in _members(archive, identity_of(os.stat(archive))):
        below = member.removeprefix(prefix)
        if below != member and not below.endswith("/") and not any(map(_is_left_out, below.split("/")[:-1])):
            yield below, DataFile(archive, member)


@lru_cache(maxsize=16)
def _members(archive: str, _: FileIdentity) -> tuple[str, ...]:
    with zipfile.ZipFile(archive) as files:
        return tuple(files.namelist())


def _is_left_out(name: str) -> bool:
    return name == "__pycache__" or name in _OF_TOOLS or name.endswith("_cache")


def of_tests(parts: Sequence[str]) -> str:
    """Return the part of a path that shows that pytest or unittest alone loads the file; empty if none does."""
    return next((part for part in parts if _OF_TESTS.fullmatch(part)), "")


class HashedFiles:
    """What this process has hashed of each file last. So the bytes that are shipped are those that were hashed."""

    def __init__(self, most_bytes: int = _MOST_KEPT) -> None:
        """``most_bytes`` are kept, all together. Of further files only the SHA-256 is kept."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._contents: dict[str, bytes] = {}
        self._digests: dict[str, str] = {}

    def keep(self, path: str, content: bytes) -> str:
        """Remember the content of a file. Returns its SHA-256."""
        digest = hashlib.sha256(content).hexdigest()
        self.keep_digest(path, digest)
        if self._bytes + len(content) <= self._most_bytes:
            self._bytes += len(content)
            self._contents[path] = content
        return digest

    def keep_digest(self, path: str, digest: str) -> None:
        """Remember the SHA-256 of a file alone."""
        self._bytes -= len(self._contents.pop(path, b""))
        self._digests[path] = digest

    def content(self, path: str) -> bytes:
        """Return the content of a file as it was hashed; if it was not hashed, as it is now.

        Raises `CodeReplaced` if that content was not kept, and the file has another one now.
        """
        if path in self._contents:
            return self._contents[path]
        content = Path(path).read_bytes()
        if path in self._digests and hashlib.sha256(content).hexdigest() != self._digests[path]:
            raise CodeReplaced(
                f"Expected {path} to stay as it was when this try began, found that it was replaced since. Nothing has "
                "run. The next try runs with the code as it is then.",
                code="code-replaced-before-start",
            )
        return content


hashed_files = HashedFiles()
"""Those of this process."""


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file's content. Raises `OSError`."""
    return _content_digest(path, identity_of(os.stat(path)))


@lru_cache(maxsize=16_384)
def _content_digest(path: str, identity: FileIdentity) -> str:
    size = identity[2]
    if size >= _RECORDED_FROM:
        digest = _recorded_digest(path, size) or _digest_by_pieces(path)
        hashed_files.keep_digest(path, digest)
        return digest
    with open(path, "rb") as file:
        content = file.read()
    return hashed_files.keep(path, content)


def _digest_by_pieces(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _recorded_digest(path: str, size: int) -> str | None:
    """What the RECORD of the wheel that installed a file has as its SHA-256; `None` if it may have changed since."""
    for folder in Path(path).parents:
        for record in folder.glob("*.dist-info/RECORD"):
            stat = record.stat()
            recorded = _records(str(record), identity_of(stat)).get(Path(path).relative_to(folder).as_posix())
            if recorded is not None:
                is_old = os.stat(path).st_mtime_ns <= stat.st_mtime_ns
                return recorded[0] if is_old and recorded[1] == size else None
    return None


@lru_cache(maxsize=64)
def _records(record: str, _: FileIdentity) -> dict[str, tuple[str, int]]:
    found = {}
    with open(record, encoding="utf-8", newline="") as lines:
        for row in csv.reader(lines):
            if len(row) == 3 and row[1].startswith("sha256=") and row[2].isdigit():
                text = row[1].removeprefix("sha256=")
                digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
                found[row[0]] = digest, int(row[2])
    return found
