"""What is asked of a store. Implementations: S3 (`s3.py`), two clouds (`cloud.py`) and a directory (`local.py`).

    ObjectStore    put, put if absent, get, list, delete
    RangeStore     a part of an object, which may be too large to be read at once
    UploadStore    the unfinished multipart uploads that a bucket may have besides: they are listed apart, and paid for
    FolderStore    folders that hold nothing, of a directory: a bucket has objects in their place
    SharingStore   stores at other URIs that share its client
    VersionStore   which version of an object is at a key, so that a replaced object is noticed
    get_many       many reads at once
    is_etag_of     whether a listed etag proves a content that was not read from the object itself
    in_key_order   a listing, checked

Keys are relative to the base URI that the store was opened with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b, md5
from typing import NamedTuple, Protocol, runtime_checkable

from airflow_recovery.errors import ObjectTooLarge, StoreUnsuitable

MAX_OBJECT_BYTES = 64 * 1024 * 1024
"""The largest object that is read where the reader says nothing else. What is put in one request is smaller."""

LARGE_BYTES = 4 * 1024 * 1024
"""Objects above this are read one after the other, so that 64 connections never hold 64 of the largest at a time."""

PAGE_KEYS = 1_000
"""So many keys are in one page of a listing, as S3 gives it, and so many objects go with one request to delete."""


class ObjectInfo(NamedTuple):
    """One listed object.

    ``etag`` is the identity of the object's content at this key (quotes stripped). It is compared and not interpreted:
    on S3 it is what the server says (a multipart etag is no MD5), in a directory it is the content's hash. Only
    `is_etag_of` computes it again, to check a copy of the content that comes from another place.
    ``modified_s``: when it was stored, in seconds since the epoch, by the store's clock.
    ``archived``: the storage class of an object that can't be read before it is restored; empty for all others.
    """

    key: str
    size: int
    etag: str
    modified_s: float | None = None
    archived: str = ""


def content_hash(body: bytes = b"") -> blake2b:
    """A digest of ``body``, and of what is added to it. Its hexadecimal form is the etag of a file in a directory."""
    return blake2b(body, digest_size=16)


def is_etag_of(etag: str, body: bytes) -> bool:
    """Whether ``etag`` proves that the object which a store has listed with it holds ``body``.

    False is no proof of the opposite: the etags of Azure, and of S3 with a KMS key, are no digests of the content.
    """
    return etag == md5(body, usedforsecurity=False).hexdigest() or etag == content_hash(body).hexdigest()


@dataclass(frozen=True)
class StoredObject:
    """One object that was read: all of its bytes, and what a listing says of it."""

    info: ObjectInfo
    body: bytes


class ObjectStore(Protocol):
    """A versionless key-value store with put-if-absent.

    Every method raises `StoreAccessDenied`, `StoreTimeout`, `StoreUnavailable` or `StoreMisconfigured` where the store
    gave no answer about the object. None of them retries a write whose outcome is unknown: whoever
    writes decides that (`airflow_recovery.store.write_once`).
    """

    @property
    def base_uri(self) -> str:
        """``s3://bucket/prefix`` or ``file:///folder``, without a slash at the end."""
        ...

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create ``key``. Raises `ObjectExists` where it is there already, whoever wrote it."""
        ...

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite ``key``. For liveness signals only: nothing that recovery needs is ever overwritten."""
        ...

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectMissing` where it is not there.

        Its size is looked at first: of more than ``max_bytes`` nothing is read, and `ObjectTooLarge` is raised.
        `None` reads whatever is there, for a user's own data.
        """
        ...

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with ``prefix``, in key order. Pages are not a snapshot."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a key that is not there is not an error."""
        ...


@runtime_checkable
class RangeStore(Protocol):
    """A store that can read a part of an object."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes of ``key`` from ``start`` on; fewer at its end. Raises `ObjectMissing`.

        ``length`` is at least 1, and ``start`` before the end. Nothing says that two ranges are of the same content.
        """
        ...


@dataclass(frozen=True)
class Upload:
    """One unfinished upload to ``key``, begun at ``initiated_s`` (seconds since the epoch, by the store's clock)."""

    key: str
    upload_id: str
    initiated_s: float


@runtime_checkable
class UploadStore(Protocol):
    """A store that has unfinished uploads; a directory has none."""

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        """All unfinished uploads to keys that begin with ``prefix``."""
        ...

    def abort_upload(self, upload: Upload) -> None:
        """Delete what was uploaded. One that is completed or aborted already is not an error."""
        ...


@runtime_checkable
class FolderStore(Protocol):
    """A store in which a folder exists without an object in it."""

    def empty_folders(self) -> Iterator[ObjectInfo]:
        """All folders that hold nothing, as keys that end with a slash."""
        ...


@runtime_checkable
class SharingStore(Protocol):
    """A store whose client, and so its connections, also serves other URIs."""

    def sibling(self, base_uri: str) -> ObjectStore:
        """The store at another URI with the same client. Raises `ConfigurationError`."""
        ...


@dataclass(frozen=True)
class ObjectVersion:
    """One object as it is at its key now. An object that replaced it has another version, also one with equal bytes.

    ``checksum`` is the store's checksum of the content, with its algorithm; ``generation`` is the store's own id of the
    version. Each is empty if the store has none. Without a generation, an equal object that is stored within the same
    second has an equal version.
    """

    info: ObjectInfo
    checksum: str = ""
    generation: str = ""

    @property
    def content(self) -> str:
        """What stands for the content of an object that is not read: checksum, else etag."""
        return self.checksum or f"etag:{self.info.etag}"


@runtime_checkable
class VersionStore(Protocol):
    """A store that tells in one request which version of an object is at a key."""

    def version(self, key: str) -> ObjectVersion:
        """Return the version of ``key``, without its content. Raises `ObjectMissing`, unconfirmed by a listing."""
        ...

    def read_version(self, key: str, max_bytes: int) -> tuple[ObjectVersion, bytes | None]:
        """Return the version of ``key`` and its content; `None` instead of more than ``max_bytes``.

        Raises as `version`.
        """
        ...


def get_many(store: ObjectStore, keys: Iterable[str], *, connections: int = 64) -> dict[str, StoredObject]:
    """The objects at ``keys``, read over up to ``connections`` connections; large ones are asked for once more, alone.

    Raises what the first failing key (in the order given) raised; the others have been asked by then, none is retried.
    """
    wanted = list(dict.fromkeys(keys))
    if len(wanted) < 2 or connections < 2:
        return {key: store.get(key) for key in wanted}

    def unless_large(key: str) -> StoredObject | None:
        try:
            return store.get(key, LARGE_BYTES)
        except ObjectTooLarge:
            return None

    with ThreadPoolExecutor(min(connections, len(wanted)), thread_name_prefix="recovery-get") as pool:
        small = dict(zip(wanted, pool.map(unless_large, wanted), strict=True))
    return {key: stored or store.get(key) for key, stored in small.items()}


def in_key_order(store: ObjectStore, listed: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """``listed`` by ``store``, for whoever stops at a key, or goes on behind one. Raises `StoreUnsuitable`."""
    last = ""
    for info in listed:
        if info.key < last:
            raise StoreUnsuitable(
                f"{store.base_uri} lists {info.key!r} behind {last!r}: expected the order of the names, in which S3 "
                "lists. What is recorded would go unseen. Use a server, and a kind of bucket, that lists in this order "
                "(directory buckets do not).",
                code="listing-unordered",
            )
        last = info.key
        yield info


def check_size(uri: str, size: int, max_bytes: int | None) -> None:
    """Raises `ObjectTooLarge` where the object at ``uri`` has more than ``max_bytes``."""
    if max_bytes is not None and size > max_bytes:
        raise ObjectTooLarge(
            f"{uri}: expected at most {max_bytes} bytes, found {size}: none of them were read. This version of "
            "recovery writes no such object: see who else may write there.",
            code="object-too-large-to-read",
            found=size,
        )


def checked_key(key: str, *, listed: bool = False) -> str:
    """``key`` itself, where it stays below the base of a store.

    Raises `ValueError` for an empty or absolute key, for empty, ``.`` or ``..`` segments, and for a NUL. ``listed``: as
    a listing of S3 has named what others have written, where a segment may be empty.
    """
    refused = (".", "..") if listed else ("", ".", "..")
    if not key or "\0" in key or any(segment in refused for segment in key.split("/")):
        raise ValueError(f"expected a key below the base of the store, found {key!r}")
    return key


def checked_prefix(prefix: str) -> str:
    """``prefix`` itself, where it stays below the base of a store. It may be empty, or end anywhere in a segment."""
    *folders, last = prefix.split("/")
    if last == ".." or "\0" in prefix or any(folder in ("", ".", "..") for folder in folders):
        raise ValueError(f"expected a prefix below the base of the store, found {prefix!r}")
    return prefix
