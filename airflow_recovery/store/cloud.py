"""Objects of Google Cloud Storage or Azure Blob Storage, over the library obstore (docs/decisions.md, 30).

What the two share is here; `google.py` and `azure.py` say how each is reached, and `cloud_errors.py` reads the answers.
"""

from __future__ import annotations

import copy
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from airflow_recovery.errors import ConfigurationError, ObjectMissing, StoreUnsuitable
from airflow_recovery.locations import split_uri
from airflow_recovery.store.cloud_errors import is_cured_by_new_credentials, translate
from airflow_recovery.store.object_store import (
    MAX_OBJECT_BYTES,
    PAGE_KEYS,
    ObjectInfo,
    ObjectVersion,
    StoredObject,
    check_size,
    checked_key,
    checked_prefix,
)
from airflow_recovery.store.scheme import ClientLibrary, StoreAccess

if TYPE_CHECKING:
    from obstore.store import AzureStore as Azure
    from obstore.store import GCSStore as Google

    Client = Azure | Google

T = TypeVar("T")

OBSTORE = ClientLibrary("cloud", "obstore.store", ("obstore",), oldest=(0, 11), is_compiled=True)
NO_CONNECTOR = (
    "Spark has no connector for the store of the results: give the driver and the executors, or the Spark Connect "
    "server, the jars that docs/stores.md names."
)
"""What to do if Spark can't reach the store."""

_ONCE = 1
_NOBODY = "http://127.0.0.1:0"
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_DELETED_AT_ONCE = 256
"""So many objects go with one request to delete, as Azure takes them."""
_DELETERS = 16
_WHOLE_ANSWER = 10
"""A request may take so many times as long as its reader waits for the next piece of the answer."""


class CloudStore(ABC):
    """Objects below a prefix of one bucket (Azure: container). obstore is imported at the first request.

    Reads are repeated a few times, also where a body breaks off; writes are not: whether an unknown outcome may be
    repeated is the writer's decision (`airflow_recovery.store.write_once`). Where the server refuses the credentials,
    ``renew`` is asked for others once. One instance may be used by many threads, but not on both sides of a fork.

    A listing leaves folder markers out: empty objects that other listed ones lie below. It raises `StoreUnsuitable`
    where it is not in key order, as of an Azure account with a hierarchical namespace. Does not create buckets.
    """

    cloud: ClassVar[str]
    """Its name in messages."""
    identity_hosts: ClassVar[tuple[str, ...]]
    """Where the library gets a token of the machine or of an application; also all hosts below one of them."""
    identity_variables: ClassVar[tuple[str, ...]]
    """Variables by which the library is told of others."""
    extra: ClassVar[str]
    """The extra of this package that brings the library."""
    deletion: ClassVar[str]
    """What may keep a deleted object readable, and how a user sees whether it does. The library can't ask."""

    def __init__(
        self,
        base_uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 30.0,
        max_read_attempts: int = 4,
    ) -> None:
        self._root, self._prefix = self._root_and_prefix(base_uri)
        self._access = access or StoreAccess({})
        self._renew = renew
        self._timeouts_s = (connect_timeout_s, read_timeout_s)
        self._max_read_attempts = max_read_attempts
        self._lock = threading.Lock()
        self._by_attempts: dict[int, Client] = {}

    def sibling(self, base_uri: str) -> CloudStore:
        """The store at another URI of the same bucket: it shares this one's clients, and so its connections."""
        other = copy.copy(self)
        other._root, other._prefix = self._root_and_prefix(base_uri)
        if other._root != self._root:
            raise ConfigurationError(f"expected a URI below {self._root}, found {base_uri!r}: open a store for it")
        return other

    @property
    def root_uri(self) -> str:
        """The bucket's URI, without a slash at the end."""
        return self._root

    @property
    def base_uri(self) -> str:
        """The URI that the store was opened with, without a slash at the end."""
        return f"{self._root}/{self._prefix}".rstrip("/")

    def prepare(self) -> None:
        """Import the library and make the clients now instead of at the first request. Asks nobody anything."""
        self._client(self._max_read_attempts)
        self._client(_ONCE)

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create ``key``. Raises `ObjectExists` where it is there already, whoever wrote it."""
        return self._write(key, body, "create")

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite ``key``, in one request that is not repeated."""
        return self._write(key, body, "overwrite")

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectMissing` where the server says that this object is not there.

        Raises `ObjectTooLarge`, and reads nothing, where the object is larger than ``max_bytes``.
        """
        name = self._prefix + checked_key(key)

        def read(client: Client) -> StoredObject:
            answer = client.get(name)
            info = self._info(answer.meta)
            check_size(self._uri(key), info.size, max_bytes)
            return StoredObject(info, bytes(answer.bytes()))

        return self._ask(read, "read", self._uri(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes of ``key`` from ``start`` on; fewer at its end. Raises `ObjectMissing`."""
        name = self._prefix + checked_key(key)
        return self._ask(
            lambda client: bytes(client.get_range(name, start=start, length=length)), "read", self._uri(key)
        )

    def version(self, key: str) -> ObjectVersion:
        """Return the version of ``key``, without its content. Raises `ObjectMissing`."""
        name = self._prefix + checked_key(key)
        # A HEAD that fails has no body, and so no code that says why. The answer's body is not fetched.
        return self._ask(lambda client: self._version(client.get(name).meta), "read", self._uri(key))

    def read_version(self, key: str, max_bytes: int) -> tuple[ObjectVersion, bytes | None]:
        """Return the version of ``key`` and its content; `None` instead of more than ``max_bytes``. As `version`."""
        name = self._prefix + checked_key(key)

        def read(client: Client) -> tuple[ObjectVersion, bytes | None]:
            answer = client.get(name)
            version = self._version(answer.meta)
            return version, bytes(answer.bytes()) if version.info.size <= max_bytes else None

        return self._ask(read, "read", self._uri(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with ``prefix``, in key order, a request for each page."""
        where = self._prefix + checked_prefix(prefix)
        after = max(self._prefix + start_after if start_after else "", where[:-1])
        return _without_markers(self._listed(where, self._prefix + start_after if start_after else "", after))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a key that is not there is not an error."""
        remaining = iter(keys)
        while batch := [self._prefix + checked_key(key) for key in islice(remaining, _DELETED_AT_ONCE)]:
            try:
                self._delete(batch)
            except ObjectMissing:  # noqa: PERF203
                # Of the first key that was missing. What became of those behind it, the answer does not say.
                with ThreadPoolExecutor(_DELETERS, thread_name_prefix="recovery-delete") as pool:
                    list(pool.map(self._delete_one, batch))

    def keeps_deleted(self) -> str:
        """As `airflow_recovery.store.lifecycle.kept_after_deletion`. Asks nobody."""
        return f"Whether deleted objects of {self._root} stay readable is unknown here. {self.deletion}"

    @abstractmethod
    def _new_client(self, bucket: str, access: StoreAccess, options: dict[str, Any]) -> Client:
        """A client of the library for one bucket; ``options`` are those of its requests."""

    @classmethod
    def _root_and_prefix(cls, base_uri: str) -> tuple[str, str]:
        """The prefix ends with a slash, or is empty. Raises `ConfigurationError`."""
        root, path = split_uri(base_uri)
        prefix = path.removesuffix("/")
        try:
            cls._check_root(root)
            if prefix:
                checked_key(prefix)
        except ValueError:
            raise ConfigurationError(
                f"Expected {cls._form()}, found {base_uri!r}. Name all of it, and no empty part, '.' or '..' in it."
            ) from None
        return root, f"{prefix}/" if prefix else ""

    @staticmethod
    @abstractmethod
    def _form() -> str:
        """How a URI of such a store is written."""

    @staticmethod
    @abstractmethod
    def _check_root(root: str) -> None:
        """Raises `ValueError` where ``root`` is not of that form."""

    def _listed(self, where: str, start_after: str, after: str) -> Iterator[ObjectInfo]:
        folder = where.rpartition("/")[0]
        uri = f"{self._root}/{where}"

        def begin(client: Client) -> tuple[Iterator[Any], Any]:
            # It lists whole folders, and begins behind ``after`` where the server can.
            pages = iter(client.list(folder or None, offset=after or None, chunk_size=PAGE_KEYS))
            return pages, next(pages, None)

        pages, page = self._ask(begin, "list", uri)
        last = ""
        while page is not None:
            for meta in page:
                name, size = meta["path"], meta["size"]
                if size and name < last:
                    raise StoreUnsuitable(
                        f"{self._root} lists {name!r} behind {last!r}: expected the order of the names, as a run's "
                        "records are folded in it. Use a bucket, or an Azure account without a hierarchical namespace.",
                        code="listing-unordered",
                    )
                if not name.startswith(where):
                    if size and name > where:
                        return
                    continue
                last = name if size else last
                if name > start_after:
                    yield self._info(meta)
            page = self._ask(lambda _: next(pages, None), "list", uri)

    def _write(self, key: str, body: bytes, mode: Any) -> ObjectInfo:
        name = self._prefix + checked_key(key)
        answer = self._ask(
            lambda client: client.put(name, body, mode=mode, use_multipart=False),
            "write",
            self._uri(key),
            attempts=_ONCE,
        )
        return ObjectInfo(key, len(body), self._etag(answer["e_tag"], "writing an object"))

    def _delete(self, names: Sequence[str]) -> None:
        self._ask(lambda client: client.delete([*names]), "delete from", self.base_uri)

    def _delete_one(self, name: str) -> None:
        try:
            self._delete([name])
        except ObjectMissing:
            return

    def _info(self, meta: Any) -> ObjectInfo:
        stored_s = meta["last_modified"].timestamp()
        key = meta["path"][len(self._prefix) :]
        return ObjectInfo(key, meta["size"], self._etag(meta["e_tag"], "reading or listing an object"), stored_s)

    def _version(self, meta: Any) -> ObjectVersion:
        return ObjectVersion(self._info(meta), generation=str(meta.get("version") or ""))

    def _etag(self, etag: str | None, to: str) -> str:
        if not etag:
            raise StoreUnsuitable(
                f"{self.base_uri}: expected an ETag in the answer to {to}, found none. Without it an object that was "
                "exchanged looks whole. Use a server that sends it, or take away the proxy that drops it."
            )
        return etag.strip('"')

    def _uri(self, key: str) -> str:
        return f"{self._root}/{self._prefix}{key}"

    def _ask(self, request: Callable[[Client], T], action: str, uri: str, *, attempts: int | None = None) -> T:
        """What ``request`` returns. Where the credentials were refused, once more with new ones: it had no effect."""
        attempts = attempts or self._max_read_attempts
        client = self._client(attempts)
        try:
            return request(client)
        except Exception as error:
            meant = translate(error, cloud=self.cloud, action=action, uri=uri)
            if self._renew is None or not is_cured_by_new_credentials(error):
                if meant is error:
                    raise
                raise meant from error
        try:
            return request(self._renewed(attempts, client, self._renew))
        except Exception as error:
            raise translate(error, cloud=self.cloud, action=action, uri=uri) from error

    def _renewed(self, attempts: int, refused: Client, renew: Callable[[], StoreAccess]) -> Client:
        """A client with new credentials: of many threads whose requests were refused, the first fetches them."""
        with self._lock:
            if self._by_attempts.get(attempts) is refused:
                self._access = renew()
                self._by_attempts.clear()
        return self._client(attempts)

    def _client(self, attempts: int) -> Client:
        with self._lock:
            if attempts not in self._by_attempts:
                self._by_attempts[attempts] = self._opened(attempts)
            return self._by_attempts[attempts]

    def _no_other_host(self) -> dict[str, Any]:
        """Options with which obstore connects to the store and to the cloud's identity services, and nowhere else.

        obstore follows a redirect to any host, and sends it the address of the request, in which the token of a SAS
        stands. It has no option against that. So every host but these gets a proxy at a port that does not exist. If
        the environment names a proxy, that proxy decides instead.
        """
        if any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES):
            return {}
        named = (os.environ.get(name, "") for name in self.identity_variables)
        urls = (self._access.endpoint_url or self._own_url(), *named)
        hosts = (urlsplit(url if "://" in url else f"//{url}").hostname for url in urls if url)
        return {"proxy_url": _NOBODY, "proxy_excludes": ",".join([*self.identity_hosts, *filter(None, hosts)])}

    @abstractmethod
    def _own_url(self) -> str:
        """The cloud's own address of the store."""

    def _opened(self, attempts: int) -> Client:
        connect_s, read_s = self._timeouts_s
        is_plain = (self._access.endpoint_url or "").startswith("http://")
        options: dict[str, Any] = {
            "client_options": {
                "connect_timeout": timedelta(seconds=connect_s),
                "read_timeout": timedelta(seconds=read_s),
                "timeout": timedelta(seconds=_WHOLE_ANSWER * read_s),
                **({"allow_http": True} if is_plain else {}),
                **self._no_other_host(),
            },
            "retry_config": {"max_retries": attempts - 1, "retry_timeout": timedelta(seconds=attempts * read_s)},
        }
        bucket = self._root.partition("://")[2]
        try:
            return self._new_client(bucket, self._access, options)
        except ImportError as error:
            raise ConfigurationError(
                f"Expected the library obstore for {self._root}, found none here ({error}). Install "
                f"airflow-recovery[{self.extra}] in every component, and in the image of drivers that are elsewhere."
            ) from error
        except Exception as error:
            raise ConfigurationError(
                f"Expected options with which {self.cloud} can be reached at {self._root}, found others: "
                f"{str(error).partition(chr(10))[0]} Correct the connection or the environment.",
                code="cloud-options-unfit",
            ) from error


def _without_markers(listed: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """``listed`` without empty objects that others lie below: Spark's connectors make them for folders.

    obstore takes the slash off a marker's name. One that nothing lies below can't be told from an empty object.
    """
    held: deque[ObjectInfo] = deque()
    """An empty object, and what was listed since: whether something lies below it is not known yet."""
    for info in listed:
        while held and info.key >= (below := f"{held[0].key}/"):
            empty = held.popleft()
            if not info.key.startswith(below):
                yield empty
            while held and held[0].size:
                yield held.popleft()
        if held or not info.size:
            held.append(info)
        else:
            yield info
    yield from held
