"""One archive of what a driver runs of this package, and of the job's code: ``--py-files``, and Connect's artifacts.

Functions of a package are pickled by reference: without the archive a UDF fails on the worker. Which rooms of this
package travel follows from what the driver's may import (`airflow_recovery.rooms`), so that none can be forgotten.

Beside each source lies its bytecode, for the Python that makes the archive: else a driver, and each Python worker of
Spark's, would compile all of it. A Python of another version takes the sources; so does one that finds them altered.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

from airflow_recovery.driver.private_folder import hold, private_folder, remove_unused
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.job.package_files import hashed_files
from airflow_recovery.rooms import ANNEX_ROOMS, ROOMS, reachable

_OURS = "airflow_recovery"
_ARCHIVES = "airflow-recovery-"
"""What the name of every archive begins with."""
_ARCHIVE = f"{_ARCHIVES}code-"
_UNFINISHED = ".unfinished"
_UNUSED_S = 7 * 86_400.0
"""An archive that no process has asked for in so long, and that none has in use, is removed when another is built."""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time that a zip can say: archives of equal files are equal


def build_archive(job_ref: str, extra_packages: Iterable[str] = ()) -> Path:
    """The archive for ``job_ref`` (``package.module:name``), named by the hash of its content; built once, then reused.

    Holds the job's top-level package, or its single module, with its data files, and the ``extra_packages`` (dotted
    names) that it needs besides; not what pip installed for them. Imports nothing of the job. Stays there for as long
    as this process lives, and so every driver that ends with this process. Files that this process has hashed for a
    fingerprint are in it with the very bytes that were hashed. Raises `ConfigurationError` for code that is not in
    files on this machine, and `CodeReplaced` if a file's bytes were not kept and it was replaced since.
    """
    files = dict(_our_files())
    for extra_package in (_top_level(job_ref), *extra_packages):
        files.update(files_of(extra_package))
    contents = _read(files)
    named_by = {**contents, "": importlib.util.MAGIC_NUMBER}
    return _in_folder(
        _path(_ARCHIVE, named_by), lambda archive: _write(archive, {**contents, **dict(_bytecode(contents))})
    )


def build_from_files(prefix: str, files: Mapping[str, Path]) -> Path:
    """The archive ``<prefix><hash>.zip`` of ``files``, by their names in it; kept as `build_archive` does."""
    contents = _read(files)
    return _in_folder(_path(prefix, contents), lambda archive: _write(archive, contents))


def _read(files: Mapping[str, Path]) -> dict[str, bytes]:
    return {name: hashed_files.content(str(path)) for name, path in sorted(files.items())}


def _path(prefix: str, contents: Mapping[str, bytes]) -> Path:
    return private_folder() / f"{prefix}{_hash(contents)}.zip"  # code is run from there


def unpacked(archive: Path) -> Path:
    """The folder of ``archive``'s files, in this machine's private folder: unpacked once, then kept as archives are."""
    return _in_folder(private_folder() / archive.stem, lambda folder: _unpack(archive, folder))


_in_use: dict[Path, int] = {}
"""The archives and folders that this process holds, with their file descriptors."""


def _in_folder(path: Path, make: Callable[[Path], None]) -> Path:
    """``path``, made where it is missing, and in use from now on until this process ends."""
    while True:
        if not path.exists():
            _remove_unused(path.parent)
            make(path)
        with suppress(FileNotFoundError):  # removed meanwhile, as one that nobody used
            _use(path)
            return path


def _use(path: Path) -> None:
    os.utime(path)
    held = hold(path)
    before = _in_use.pop(path, None)
    _in_use[path] = held
    if before is not None:
        os.close(before)


def _remove_unused(folder: Path) -> None:
    """Archives of code that has gone, and what a builder that was killed has left."""
    for path in (*folder.glob(f"{_ARCHIVES}*"), *folder.glob(f"*{_UNFINISHED}")):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _UNUSED_S:
                remove_unused(path)


def _top_level(job_ref: str) -> str:
    module = job_ref.partition(":")[0]
    parts = module.split(".")
    # A job inside our own package (an example) brings its sub-package only: the rest of ours may need Airflow.
    return ".".join(parts[:2]) if parts[0] == _OURS else parts[0]


def _our_files() -> Iterator[tuple[str, Path]]:
    """The package itself, which a job's module imports, the driver's room, the annexes, and all that these may import.

    An annex that is not here is left out: no region of this machine can be of it.
    """
    root = Path(__file__).resolve().parents[1]
    for name in sorted(reachable("__init__", "driver", *ANNEX_ROOMS)):
        room, module = root / name, root / f"{name}.py"
        if room.is_dir():
            in_airflow = {room / f"{each}.py" for each in ROOMS[name].in_airflow}
            yield from ((inside, path) for inside, path in _tree(room, f"{_OURS}/{name}") if path not in in_airflow)
        elif name not in ANNEX_ROOMS:
            yield f"{_OURS}/{name}.py", module


def files_of(name: str) -> Iterator[tuple[str, Path]]:
    """The files of a package or a module, and where in an archive each belongs. Raises as `build_archive`."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None and any(map(_is_archive, Path(spec.origin).parents)):
        # Spark's Connect client puts every archive on this process's path, and then the code is found in there.
        spec = PathFinder.find_spec(name, [entry for entry in sys.path if not _is_archive(Path(entry))])
    below = name.replace(".", "/")
    folders = [Path(location) for location in (spec.submodule_search_locations if spec is not None else None) or ()]
    if folders and all(folder.is_dir() for folder in folders):
        for package_folder in folders:  # a namespace package has several
            yield from _tree(package_folder, below)
        return
    if not folders and spec is not None and spec.origin is not None and Path(spec.origin).suffix == ".py":
        yield f"{below}.py", Path(spec.origin)
        return
    raise ConfigurationError(
        f"expected {name!r} to be a package or module in files on this machine, found "
        f"{'nothing' if spec is None else spec.origin}: put its folder on the Python path of the worker",
        code="package-not-in-files",
    )


def _is_archive(path: Path) -> bool:
    return path.name.startswith(_ARCHIVE) and path.suffix == ".zip"


def _tree(folder: Path, below: str) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if path.is_file() and path.suffix != ".pyc" and not any(_is_left_out(part) for part in inside.parts):
            yield f"{below}/{inside.as_posix()}", path


def _is_left_out(name: str) -> bool:
    return name == "__pycache__" or name.startswith(".")


_CHECKED_HASH = (0b11).to_bytes(4, "little")
"""Flags of a ``.pyc`` that is used where its source has the hash that stands in it (PEP 552)."""
_SAME_BYTES = 2
"""The newest version of marshal's format in which equal code has equal bytes, whoever else refers to its parts."""


def _bytecode(contents: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """A ``.pyc`` for each source that this Python can compile. What can't be fails as ever, when it is imported."""
    for name, source in contents.items():
        if not name.endswith(".py"):
            continue
        with suppress(SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = marshal.dumps(compile(source, name, "exec", dont_inherit=True), _SAME_BYTES)
            source_hash = importlib.util.source_hash(source)
            yield f"{name}c", importlib.util.MAGIC_NUMBER + _CHECKED_HASH + source_hash + body


def _hash(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, body in contents.items():
        encoded = name.encode()
        digest.update(f"{len(encoded)} {len(body)} ".encode() + encoded + body)
    return digest.hexdigest()[:32]


def _folders(names: Iterable[str]) -> list[str]:
    """The folders of files. Before 3.13 a Python finds a package without `__init__.py` by its folder's entry alone."""
    return sorted({str(folder) for name in names for folder in PurePosixPath(name).parents} - {"."})


def _write(archive: Path, contents: Mapping[str, bytes]) -> None:
    handle, unfinished = tempfile.mkstemp(dir=archive.parent, suffix=_UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as code:
            for folder in _folders(contents):
                code.writestr(zipfile.ZipInfo(f"{folder}/", _EPOCH), b"")
            for name, body in contents.items():
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                code.writestr(entry, body)
        os.replace(unfinished, archive)  # two builders of equal content: either's archive is right
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _unpack(archive: Path, folder: Path) -> None:
    unfinished = tempfile.mkdtemp(dir=folder.parent, suffix=_UNFINISHED)
    try:
        with zipfile.ZipFile(archive) as files:
            files.extractall(unfinished)
        os.rename(unfinished, folder)
    except OSError:
        if not folder.is_dir():  # else another driver was sooner
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
