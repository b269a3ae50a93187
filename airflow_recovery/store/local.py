"""A directory as an object store: for results of one machine, for tests, and as the second reading of the contract."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import IO, Any, NoReturn

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
from airflow_recovery.store.object_store import (
    MAX_OBJECT_BYTES,
    ObjectInfo,
    StoredObject,
    check_size,
    checked_key,
    checked_prefix,
    content_hash,
)
from airflow_recovery.store.scheme import StoreAccess, StoreScheme

_TEMPORARY = ".tmp-"
_CHUNK_BYTES = 1024 * 1024
_RACY_NS = 2_000_000_000
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NOT_A_FOLDER = {errno.ENOTDIR, errno.ELOOP}
"""What opening a symbolic link as a folder is answered with: by Linux, and by macOS."""
_TRIES = 100

_etags: dict[tuple[str, int, int, int, int], str] = {}
_etags_lock = threading.Lock()


class LocalStore:
    """Objects are files below a directory; an object's etag is the hash of its content.

    A write is a temporary file beside its target, flushed to disk, then linked (`put_if_absent`, which the file system
    makes atomic) or renamed (`put`): nobody ever sees half an object. A process that dies in between leaves a file
    whose name begins with ``.tmp-``; it is never listed, and such names are refused as keys.

    The directory itself may be a symbolic link, which is followed once, here. Below it none is followed: what a link
    leads to would be read, or deleted, at another place. `StoreMisconfigured` names the one that is in the way.

    Does not create its directory before the first write: until then it is an empty store. Not for a directory that
    several machines mount without POSIX semantics, nor for one that takes ``A`` and ``a`` for the same name.
    """

    def __init__(self, base_uri: str) -> None:
        path = base_uri.removeprefix("file://") if base_uri.startswith("file://") else base_uri.removeprefix("file:")
        if not path.startswith("/"):
            raise ConfigurationError(
                f"Expected file:///<absolute folder>, found {base_uri!r}. Give an absolute path without a host.",
                code="local-uri-unfit",
            )
        self._base = os.path.normpath("/" + path.strip("/"))
        self._root = os.path.realpath(self._base)

    @property
    def base_uri(self) -> str:
        """``file:///folder``, without a slash at the end."""
        return f"file://{self._base}"

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create ``key``. Raises `ObjectExists` where it is there already, whoever wrote it."""
        return self._write(key, body, self._link)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite ``key``. A reader sees the old object or the new one, never a part of one."""
        return self._write(key, body, _replace)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectMissing`, and `ObjectTooLarge` for more than ``max_bytes``."""
        folder, name = self._split(key)
        try:
            with closing(self._folders(keeps=False)) as folders, folders.open(folder, name) as file:
                status = os.fstat(file.fileno())
                check_size(self._path(key), status.st_size, max_bytes)
                body = file.read(status.st_size)
        except OSError as error:
            self._refuse("read", self._path(key), error)
        return StoredObject(_info(key, len(body), content_hash(body).hexdigest(), status.st_mtime), body)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes of ``key`` from ``start`` on; fewer at its end. Raises `ObjectMissing`."""
        folder, name = self._split(key)
        try:
            with closing(self._folders(keeps=False)) as folders, folders.open(folder, name) as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            self._refuse("read", self._path(key), error)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with ``prefix``, in key order. Each listed file is read once a process."""
        folder = checked_prefix(prefix).rpartition("/")[0]
        with closing(self._folders()) as folders:
            keys: list[str] = []
            try:
                _collect(folders, folder, prefix, keys)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                self._refuse("list", self._path(folder), error)
            for key in sorted(keys):
                if key <= start_after:
                    continue
                folder, _, name = key.rpartition("/")
                try:
                    with folders.open(folder, name) as file:
                        status = os.fstat(file.fileno())
                        etag = _etag(self._path(key), file, status)
                except FileNotFoundError:
                    continue  # deleted since the folder was read: a listing is no snapshot
                except OSError as error:
                    self._refuse("list", self._path(key), error)
                yield _info(key, status.st_size, etag, status.st_mtime)

    def empty_folders(self) -> Iterator[ObjectInfo]:
        """All folders that hold nothing, as keys that end with a slash: what S3 has a marker for."""
        with closing(self._folders()) as folders:
            found: list[str] = []
            try:
                _collect(folders, "", "", [], found)
                for folder in sorted(found):
                    with suppress(FileNotFoundError, NotADirectoryError):  # deleted since
                        yield _info(f"{folder}/", 0, "", os.fstat(folders.enter(folder)).st_mtime)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                self._refuse("list", self._base, error)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects and the folders that become empty; a key that is not there is not an error."""
        with closing(self._folders()) as folders:
            for key in keys:
                folder, name = self._split(key)
                try:
                    os.unlink(name, dir_fd=folders.enter(folder))
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    self._refuse("delete", self._path(key), error)
                folders.prune()

    def _folders(self, *, keeps: bool = True) -> _Folders:
        return _Folders(self._root, self._base, keeps=keeps)

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}"

    def _split(self, key: str) -> tuple[str, str]:
        """The folder of ``key``, and its name there."""
        if any(segment.startswith(_TEMPORARY) for segment in checked_key(key).split("/")):
            raise ValueError(f"expected a key without a segment that begins with {_TEMPORARY!r}, found {key!r}")
        folder, _, name = key.rpartition("/")
        return folder, name

    def _write(self, key: str, body: bytes, place: Callable[[str, str, int], None]) -> ObjectInfo:
        folder, name = self._split(key)
        temporary = f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with closing(self._folders(keeps=False)) as folders:
                within, file = _open_temporary(folders, folder, temporary)
                try:
                    with file:
                        file.write(body)
                        file.flush()
                        os.fsync(file.fileno())
                        modified_s = os.fstat(file.fileno()).st_mtime
                    place(temporary, name, within)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=within)
                # The new name itself has to be durable: promise 3 (what Airflow shows as success is in the store).
                os.fsync(within)
        except OSError as error:
            self._refuse("write", self._path(key), error)
        return _info(key, len(body), content_hash(body).hexdigest(), modified_s)

    def _link(self, temporary: str, name: str, within: int) -> None:
        try:
            os.link(temporary, name, src_dir_fd=within, dst_dir_fd=within)
        except FileExistsError:
            raise ObjectExists(f"{name} exists already in {self._base}: another process wrote it first.") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreUnsuitable(
                    f"The file system of {self._base} has no hard links ({error.strerror}), so no write can be made "
                    "conditional there. Use a POSIX file system, or an S3 bucket.",
                    code="no-hard-links",
                ) from error
            raise

    def _refuse(self, action: str, path: str, error: OSError) -> NoReturn:
        what = f"Could not {action} {path}: {error.strerror or error}."
        if isinstance(error, PermissionError):
            raise StoreAccessDenied(
                f"{what} Give this user access to {self._base}; nothing is known of the object.",
                code="credentials-refused",
            )
        if error.errno in _FULL:
            raise StoreFull(f"{what} Make room below {self._base}, then clear this task.", code="disk-full")
        if action == "read" and isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            raise ObjectMissing(f"{path} is not there.")
        if isinstance(error, (NotADirectoryError, IsADirectoryError, FileExistsError)):
            raise StoreMisconfigured(
                f"{what} Expected a folder at each level above the object: look at the path.", code="path-through-file"
            )
        raise StoreUnavailable(f"{what} Nothing is known of the object; the same request may succeed later.")


class _Folders:
    """The way from the base of a store down to one folder, then another: each is opened in the one above it.

    So nothing that is done in a folder happens at another place, whoever puts a symbolic link there in between.
    ``keeps``: the folders above the last one stay open, for the next folder and for `prune`. Not for several threads.
    """

    def __init__(self, root: str, shown: str, *, keeps: bool) -> None:
        self._root = root
        self._shown = shown
        self._keeps = keeps
        self._names: list[str] = []
        self._opened: list[int] = []

    def enter(self, folder: str, *, makes: bool = False) -> int:
        """A descriptor of ``folder`` (as in a key; empty for the base), which is good until the next call.

        ``makes``: folders that are missing. Raises `StoreMisconfigured` for a symbolic link on the way.
        """
        names = folder.split("/") if folder else []
        if not self._keeps and names != self._names:
            self.close()
        common = 0
        while common < min(len(names), len(self._names)) and names[common] == self._names[common]:
            common += 1
        self._leave(common)
        if not self._opened:
            if makes:
                os.makedirs(self._root, exist_ok=True)
            self._opened.append(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY))
        for name in names[common:]:
            below = self._enter_one(name, makes)
            if not self._keeps:
                os.close(self._opened.pop())
            self._opened.append(below)
            self._names.append(name)
        return self._opened[-1]

    def open(self, folder: str, name: str, mode: str = "rb", *, makes: bool = False) -> IO[bytes]:
        """The file ``name`` in ``folder``. Raises as `enter`."""
        self.enter(folder, makes=makes)
        file: IO[bytes] = open(name, mode, opener=self._open)  # noqa: SIM115  for whoever asked
        return file

    def prune(self) -> None:
        """Remove the folder that was entered last, and those above it, as far as they are empty; never the base."""
        while self._names:
            name = self._names[-1]
            self._leave(len(self._names) - 1)
            try:
                os.rmdir(name, dir_fd=self._opened[-1])
            except OSError:
                return  # not empty, or somebody was faster

    def close(self) -> None:
        """Close every folder, the base included. It can be entered again."""
        self._leave(-1)

    def refuse_link(self, name: str) -> NoReturn:
        """Raise `StoreMisconfigured`: ``name`` in the folder that was entered last is a symbolic link."""
        raise StoreMisconfigured(
            f"Expected files and folders below {self._shown}, found the symbolic link "
            f"{'/'.join([self._shown, *self._names, name])}: it leads to another place, and is not followed. Put what "
            "it leads to there itself, or give the folder that it leads to as the location.",
            code="symbolic-link",
        )

    def _enter_one(self, name: str, makes: bool) -> int:
        try:
            return self._open(name, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not makes:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._opened[-1])
        return self._open(name, os.O_RDONLY | os.O_DIRECTORY)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=self._opened[-1])
        except OSError as error:
            if error.errno in _NOT_A_FOLDER and stat.S_ISLNK(os.lstat(name, dir_fd=self._opened[-1]).st_mode):
                self.refuse_link(name)
            raise

    def _leave(self, depth: int) -> None:
        """Go up to the folder that is ``depth`` below the base; -1 leaves that as well."""
        while len(self._opened) > depth + 1:
            os.close(self._opened.pop())
        del self._names[max(depth, 0) :]


def _collect(folders: _Folders, folder: str, prefix: str, keys: list[str], empty: list[str] | None = None) -> None:
    """Add to ``keys`` those below ``folder`` that begin with ``prefix``, and to ``empty`` the folders without any."""
    below = []
    is_empty = bool(folder)
    with os.scandir(folders.enter(folder)) as entries:
        for entry in entries:
            is_empty = False
            key = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith(_TEMPORARY) or not (key.startswith(prefix) or prefix.startswith(f"{key}/")):
                continue
            if entry.is_symlink():
                if not entry.name.startswith("."):  # as an editor's lock: hidden from Spark too
                    folders.refuse_link(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                below.append(key)
            elif entry.is_file(follow_symlinks=False) and key.startswith(prefix):
                keys.append(key)
    if is_empty and empty is not None:
        empty.append(folder)
    for name in below:
        with suppress(FileNotFoundError, NotADirectoryError):  # deleted since
            _collect(folders, name, prefix, keys, empty)


def _open_temporary(folders: _Folders, folder: str, name: str) -> tuple[int, IO[bytes]]:
    """A new file in ``folder``, which is made, and a descriptor of the folder."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # `delete` has pruned the empty folder just now
            file = folders.open(folder, name, "xb", makes=True)
            return folders.enter(folder), file
        folders.close()
    raise FileNotFoundError(errno.ENOENT, f"the folder was removed {_TRIES} times while a file was to be made in it")


def _replace(temporary: str, name: str, within: int) -> None:
    os.replace(temporary, name, src_dir_fd=within, dst_dir_fd=within)


def _info(key: str, size: int, etag: str, modified_s: float) -> ObjectInfo:
    return ObjectInfo(key, size, etag, modified_s)


def _etag(path: str, file: IO[bytes], status: os.stat_result) -> str:
    identity = (path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    known = _etags.get(identity)
    if known is not None:
        return known
    digest = content_hash()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    etag = digest.hexdigest()
    # A file written within the clock's granularity can change again without a new time stamp: hash it next time too.
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS:
        with _etags_lock:
            if len(_etags) > 100_000:
                _etags.clear()
            _etags[identity] = etag
    return etag


class FolderScheme(StoreScheme):
    """``file:///folder``, ``file:/folder`` or an absolute path. It has no buckets, and needs no credentials."""

    name = "file"
    form = "file:///<folder>"
    is_folder = True

    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> LocalStore:
        """As `StoreScheme.store_at`. There is no server to wait for."""
        return LocalStore(uri)


SCHEME = FolderScheme()
