"""A directory as an object store: for results of one machine, for tests, and as the second reading of the contract."""

from __future__ import annotations

import errno
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

from airflow_recovery.errors import (
    ConfigurationError,
    ObjectExists,
    ObjectMissing,
    StoreAccessDenied,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    StoreUnsuitable,
)
from airflow_recovery.storage.names import checked_key, checked_prefix
from airflow_recovery.storage.object_store import MAX_OBJECT_BYTES, ObjectInfo, StoredObject, check_size

_TEMPORARY = ".tmp-"
_CHUNK_BYTES = 1024 * 1024
_RACY_NS = 2_000_000_000
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

_etags: dict[tuple[str, int, int, int, int], str] = {}
_etags_lock = threading.Lock()


class LocalStore:
    """Objects are files below a directory; an object's etag is the hash of its content.

    A write is a temporary file beside its target, flushed to disk, then linked (`put_if_absent`, which the file system
    makes atomic) or renamed (`put`): nobody ever sees half an object. A process that dies in between leaves a file
    whose name begins with ``.tmp-``; it is never listed, and such names are refused as keys.

    Does not create its directory before the first write: until then it is an empty store. Not for a directory that
    several machines mount without POSIX semantics.
    """

    def __init__(self, base_uri: str) -> None:
        path = base_uri.removeprefix("file://") if base_uri.startswith("file://") else base_uri.removeprefix("file:")
        if not path.startswith("/"):
            raise ConfigurationError(
                f"Expected file:///<absolute folder>, found {base_uri!r}. Give an absolute path without a host."
            )
        self._base = os.path.normpath("/" + path.strip("/"))

    @property
    def base_uri(self) -> str:
        """``file:///folder``, without a slash at the end."""
        return f"file://{self._base}"

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create ``key``. Raises `ObjectExists` where it is there already, whoever wrote it."""
        return self._write(key, body, self._link)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite ``key``."""
        return self._write(key, body, os.replace)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectMissing`, and `ObjectTooLarge` for more than ``max_bytes``."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                stat = os.fstat(file.fileno())
                check_size(path, stat.st_size, max_bytes)
                body = file.read(stat.st_size)
        except OSError as error:
            self._refuse("read", path, error)
        return StoredObject(_info(key, len(body), blake2b(body, digest_size=16).hexdigest(), stat.st_mtime), body)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with ``prefix``, in key order. Each listed file is read once a process."""
        folder = checked_prefix(prefix).rpartition("/")[0]
        try:
            keys = sorted(self._keys(folder, prefix))
        except OSError as error:
            self._refuse("list", f"{self._base}/{folder}", error)
        for key in keys:
            if key <= start_after:
                continue
            path = self._path(key)
            try:
                stat = os.stat(path)
                yield _info(key, stat.st_size, _etag(path), stat.st_mtime)
            except FileNotFoundError:
                continue  # deleted since the folder was read: a listing is no snapshot
            except OSError as error:
                self._refuse("list", path, error)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects and the folders that become empty; a key that is not there is not an error."""
        for key in keys:
            path = self._path(key)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._refuse("delete", path, error)
            self._prune(os.path.dirname(path))

    def _path(self, key: str) -> str:
        if any(segment.startswith(_TEMPORARY) for segment in checked_key(key).split("/")):
            raise ValueError(f"expected a key without a segment that begins with {_TEMPORARY!r}, found {key!r}")
        return f"{self._base}/{key}"

    def _write(self, key: str, body: bytes, place: Callable[[str, str], None]) -> ObjectInfo:
        path = self._path(key)
        folder = os.path.dirname(path)
        temporary = f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            modified_s = self._write_temporary(folder, temporary, body)
            try:
                place(temporary, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
            _flush_folder(folder)
        except OSError as error:
            self._refuse("write", path, error)
        return _info(key, len(body), blake2b(body, digest_size=16).hexdigest(), modified_s)

    def _write_temporary(self, folder: str, temporary: str, body: bytes) -> float:
        while True:
            os.makedirs(folder, exist_ok=True)
            try:
                file = open(temporary, "xb")  # noqa: SIM115  closed below; only the opening may be repeated
            except FileNotFoundError:
                continue  # `delete` pruned the empty folder just now
            with file:
                try:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                    return os.fstat(file.fileno()).st_mtime
                except OSError:
                    with suppress(OSError):
                        os.unlink(temporary)
                    raise

    def _link(self, temporary: str, path: str) -> None:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise ObjectExists(f"{path} exists already: somebody wrote it before this process.") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreUnsuitable(
                    f"The file system of {self._base} has no hard links ({error.strerror}), so no write can be made "
                    "conditional there. Use a POSIX file system, or an S3 bucket."
                ) from error
            raise

    def _keys(self, folder: str, prefix: str) -> Iterator[str]:
        start = f"{self._base}/{folder}" if folder else self._base
        pending = [(start, f"{folder}/" if folder else "")]
        while pending:
            path, key = pending.pop()
            try:
                entries = list(os.scandir(path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                found = key + entry.name
                if entry.name.startswith(_TEMPORARY):
                    continue
                if entry.is_dir():
                    if f"{found}/".startswith(prefix) or prefix.startswith(f"{found}/"):
                        pending.append((entry.path, f"{found}/"))
                elif found.startswith(prefix) and entry.is_file():
                    yield found

    def _prune(self, folder: str) -> None:
        while Path(self._base) in Path(folder).parents:
            try:
                os.rmdir(folder)
            except OSError:
                return  # not empty, or somebody was faster
            folder = os.path.dirname(folder)

    def _refuse(self, action: str, path: str, error: OSError) -> NoReturn:
        what = f"Could not {action} {path}: {error.strerror or error}."
        if isinstance(error, PermissionError):
            raise StoreAccessDenied(f"{what} Give this user access to {self._base}; nothing is known of the object.")
        if error.errno in _FULL:
            raise StoreFull(f"{what} Make room below {self._base}, then clear this task.")
        if action == "read" and isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            raise ObjectMissing(f"{path} is not there.")
        if isinstance(error, (NotADirectoryError, IsADirectoryError, FileExistsError)):
            raise StoreMisconfigured(f"{what} Expected a folder at each level above the object: look at the path.")
        raise StoreUnavailable(f"{what} Nothing is known of the object; the same request may succeed later.")


def _info(key: str, size: int, etag: str, modified_s: float) -> ObjectInfo:
    from pendulum import from_timestamp

    return ObjectInfo(key, size, etag, from_timestamp(modified_s))


def _flush_folder(folder: str) -> None:
    """Make the new name itself durable: promise 4 (what Airflow shows as success is in the store)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return  # the object was deleted already, and its folder with it
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _etag(path: str) -> str:
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        identity = (path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        known = _etags.get(identity)
        if known is not None:
            return known
        digest = blake2b(digest_size=16)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    etag = digest.hexdigest()
    # A file written within the clock's granularity can change again without a new time stamp: hash it next time too.
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _RACY_NS:
        with _etags_lock:
            if len(_etags) > 100_000:
                _etags.clear()
            _etags[identity] = etag
    return etag
