"""Clients that read the files an application consists of, and notice when one is replaced.

    LocalFiles        this machine
    StoredFiles       an object store, as `airflow_recovery.hooks.stores` opens it
    WebFiles          http and https, without credentials
    HadoopFiles       HDFS over WebHDFS, with the connection ``webhdfs_default``; data nodes are those that it names
    GlueJobs          the definitions of Glue's jobs, with the operator's own connection
    DatabricksFiles   DBFS, notebooks and files of the workspace, with the operator's own connection

Each makes one request to read a file, and one for its version. They read only. Whatever they raise means that the file
was not read.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import http.client
import json
import os
import re
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

from airflow_recovery.errors import LocationNotAllowed
from airflow_recovery.job.module_code import canonical
from airflow_recovery.store.allowed import NO_LIMITS, Limits, Reach, Source, decide, is_never, place_of
from airflow_recovery.store.object_store import ObjectStore, ObjectVersion, VersionStore

if TYPE_CHECKING:
    from airflow.sdk import Connection

MAX_READ_BYTES = 16 * 1024**2
"""A file that is not on this machine is not read if it is larger. Its checksum, etag or time stands for its content."""
HDFS_CONNECTION = "webhdfs_default"
_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1024 * 1024
_GLUE_RUNS = ("AllocatedCapacity", "CreatedOn", "LastModifiedOn", "MaxCapacity", "Role", "Timeout")
_DBFS_READ_BYTES = 1024 * 1024
_COMMENTS_ARE_CODE = re.compile(rb"^#\s*(?:///|MAGIC|COMMAND|DBTITLE|Databricks|%%|\+)", re.MULTILINE)
"""Comments of notebooks that are kept as Python, and of PEP 723, which names what a program needs."""
_READS_SOURCE = re.compile(rb"getsource|findsource|getcomments|linecache|tokenize|(?<!%\()lineno|open\(__file__")


class CodeUnseen(Exception):
    """A file of an application can't be read from here. The message is the reason."""


@dataclass(frozen=True)
class CodeFile:
    """One file as it was read. ``content`` is its SHA-256, or what stands for it in a large file.

    ``version`` differs for a file that replaced it, also if the content is equal. It is compared, never interpreted.
    ``syntax``: of Python, what stands for its code without comments and layout; else empty. ``reads_source``: it is
    Python that may read comments, or the numbers of lines, of itself or of another file.
    """

    content: str
    version: tuple[Any, ...]
    syntax: str = ""
    reads_source: bool = False

    @classmethod
    def of(cls, uri: str, body: bytes, version: tuple[Any, ...]) -> CodeFile:
        """Return a file with this content."""
        if not uri.partition("?")[0].endswith(".py") or _COMMENTS_ARE_CODE.search(body):
            return cls(hashed(body), version)
        try:
            syntax = hashed(canonical(ast.parse(body), docstrings=True).encode("utf-8", "surrogatepass"))
        except (SyntaxError, ValueError, RecursionError):  # of another version of Python
            syntax = ""
        return cls(hashed(body), version, syntax, _READS_SOURCE.search(body) is not None)


class CodeSource(Protocol):
    """A place where code lies. Both methods raise if the file can't be read."""

    def read(self, uri: str) -> CodeFile:
        """Read the file at ``uri``."""
        ...

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return the version of the file at ``uri`` as `read` gives it, without reading the file."""
        ...


def hashed(*pieces: bytes) -> str:
    """Return what stands for the content of a file that was read."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


class LocalFiles:
    """Files and folders of this machine. A file is read whole, whatever its size."""

    def read(self, uri: str) -> CodeFile:
        """Read a file, or all files of a folder."""
        path = local_path(uri)
        version = self.version(uri)  # before the content: a file that is replaced meanwhile is noticed
        if not path.is_dir():
            is_python = path.suffix == ".py"
            return CodeFile.of(uri, path.read_bytes(), version) if is_python else CodeFile(_content_of(path), version)
        pieces = [f"{one.relative_to(path)}\0{_content_of(one)}\n".encode() for one in _files_in(path)]
        return CodeFile(hashed(*pieces), version)

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return inode, size, mtime and ctime of the file, or of all files of the folder."""
        path = local_path(uri)
        files = _files_in(path) if path.is_dir() else [path]
        return tuple(
            (str(one), about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
            for one in files
            for about in [one.stat()]
        )


def local_path(uri: str) -> Path:
    """Return the path of ``/x``, ``x``, ``file:/x`` or ``file:///x``. A URI may be percent-encoded."""
    if not uri.startswith("file:"):
        return Path(uri)
    path = uri.removeprefix("file:")
    path = path[2:] if path.startswith("//") else path
    return Path(unquote(path)) if os.path.exists(unquote(path)) else Path(path)


def _files_in(folder: Path) -> list[Path]:
    """Raises `OSError` for a folder that this process may not list."""

    def refuse(error: OSError) -> None:
        raise error

    found = [Path(above, name) for above, _, names in os.walk(folder, onerror=refuse) for name in names]
    return sorted(one for one in found if one.is_file() and "__pycache__" not in one.parts)


def _content_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class StoredFiles:
    """Objects of a store. ``open_at`` opens the store of a folder."""

    def __init__(self, open_at: Callable[[str], ObjectStore]) -> None:
        self._open_at = open_at

    def read(self, uri: str) -> CodeFile:
        """Read an object. A large one is not read: its checksum or etag stands for it."""
        store, key = self._opened(uri)
        version, body = store.read_version(key, MAX_READ_BYTES)
        if body is None:
            return CodeFile(version.content, _identity(version))
        return CodeFile.of(uri, body, _identity(version))

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return size, etag, time and version id."""
        store, key = self._opened(uri)
        return _identity(store.version(key))

    def _opened(self, uri: str) -> tuple[VersionStore, str]:
        folder, _, key = uri.rpartition("/")
        store = self._open_at(folder)
        if not isinstance(store, VersionStore):
            raise CodeUnseen(f"{folder} has no versions")
        return store, key


def _identity(version: ObjectVersion) -> tuple[Any, ...]:
    info = version.info
    return (info.size, info.etag, int(info.modified_s or 0), version.generation)


class WebFiles:
    """Files of a web server. A server that gives neither an etag nor a time is read again for the version.

    A redirect is followed on the same server, and to an address of which ``may_open`` returns True.
    """

    def __init__(self, may_open: Callable[[str], bool] = lambda url: False) -> None:
        self._may_open = may_open

    def read(self, uri: str) -> CodeFile:
        """Read a file. For a large one, its etag or its time and size stand for its content."""
        with self._open(urllib.request.Request(uri)) as answer:
            version = _web_version(answer.headers)
            body = answer.read(MAX_READ_BYTES + 1)
        if len(body) <= MAX_READ_BYTES:
            return CodeFile.of(uri, body, version or (hashed(body),))
        if not version:
            raise CodeUnseen("the file is large, and the server gives neither an etag nor a time")
        return CodeFile(f"etag:{version[0]}" if version[0] else f"time:{version[1]} size:{version[2]}", version)

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return etag, time and size as the server reports them."""
        try:
            with self._open(urllib.request.Request(uri, method="HEAD")) as answer:
                version = _web_version(answer.headers)
        except OSError:  # a server that knows no HEAD
            version = ()
        return version or self.read(uri).version

    def _open(self, request: urllib.request.Request) -> Any:
        asked = request.full_url
        own = Limits((asked, asked.replace("http://", "https://", 1)))

        def check(url: str) -> None:
            if not self._may_open(url):
                decide(url, Source.REDIRECT, own)

        return _open(request, check)


def _open(request: urllib.request.Request, check_redirect: Callable[[str], object]) -> Any:
    """Send ``request``, and follow redirects to where ``check_redirect`` raises no `LocationNotAllowed`."""
    if urlsplit(request.full_url).scheme not in ("http", "https"):
        raise CodeUnseen("it is no http or https address")
    try:
        place_of(request.full_url)
    except ValueError as error:
        raise CodeUnseen(str(error)) from None
    opener = urllib.request.build_opener(_ToPeers, _ToSecurePeers, _Redirects(check_redirect))
    return opener.open(request, timeout=_TIMEOUT_S)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, check: Callable[[str], object]) -> None:
        self._check = check

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """As the base's. Raises `CodeUnseen` for an address that is not followed."""
        try:
            self._check(newurl)
        except LocationNotAllowed as error:
            raise CodeUnseen(f"the server redirects: {error}") from None
        if not newurl.startswith(("http://", "https://")):
            raise CodeUnseen("the server redirects to an address that is not http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _ToPeers(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        """As the base's, over `_Connection`."""
        return self.do_open(_Connection, req)


class _ToSecurePeers(urllib.request.HTTPSHandler):
    def https_open(self, req: Any) -> Any:
        """As the base's, over `_SecureConnection`."""
        return self.do_open(_SecureConnection, req)


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        """Connect. A name may stand for an address that is never used."""
        super().connect()
        _check_peer(self.sock)


class _SecureConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        """As `_Connection.connect`."""
        super().connect()
        _check_peer(self.sock)


def _check_peer(sock: Any) -> None:
    address = str(sock.getpeername()[0])
    if is_never(address):
        sock.close()
        raise CodeUnseen(f"its host stands for {address}, which is never used")


def _web_version(headers: Any) -> tuple[Any, ...]:
    etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    return (etag, modified, headers.get("Content-Length", "")) if etag or modified else ()


class HadoopFiles:
    """Files of HDFS, over the REST API of its name node (WebHDFS) and the connection ``webhdfs_default``.

    The URI must name no host, or a host of the connection: another cluster may have another file at the same path.
    A name node redirects to a data node. It is followed to a host of the connection, and to those in ``data_nodes`` of
    its extra, separated by commas; ``.hadoop.example`` names all hosts that end so. Kerberos is not supported.
    """

    @cached_property
    def _connection(self) -> Connection:
        from airflow.sdk import BaseHook

        return BaseHook.get_connection(HDFS_CONNECTION)

    def read(self, uri: str) -> CodeFile:
        """Read a file. For a large one, HDFS' own checksum stands for its content."""
        version = self.version(uri)  # before the content: a file that is replaced meanwhile is noticed
        if version[1] <= MAX_READ_BYTES:
            with self._open(uri, "OPEN") as answer:
                return CodeFile.of(uri, answer.read(), version)
        with self._open(uri, "GETFILECHECKSUM") as answer:
            checksum = json.load(answer)["FileChecksum"]
        return CodeFile(f"{checksum['algorithm']}:{checksum['bytes']}", version)

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return id, length and time of the file."""
        with self._open(uri, "GETFILESTATUS") as answer:
            about = json.load(answer)["FileStatus"]
        if about["type"] != "FILE":
            raise CodeUnseen("it is a folder")
        return (about.get("fileId", 0), int(about["length"]), about["modificationTime"])

    def _open(self, uri: str, operation: str) -> Any:
        named = str(self._connection.extra_dejson.get("data_nodes") or "")
        hosts = [*(self._connection.host or "").split(","), *(name.strip() for name in named.split(","))]
        reach = Reach(hosts=tuple(name for name in hosts if name))
        return _open(self._request(uri, operation), lambda url: decide(url, Source.REDIRECT, NO_LIMITS, reach))

    def _request(self, uri: str, operation: str) -> urllib.request.Request:
        connection, parts = self._connection, urlsplit(uri)
        hosts = (connection.host or "").split(",")
        if parts.hostname and parts.hostname not in hosts:
            raise CodeUnseen(f"{parts.hostname} is no host of connection {HDFS_CONNECTION!r}")
        scheme = "https" if connection.extra_dejson.get("use_ssl") else "http"
        query = {"op": operation, **({"user.name": connection.login} if connection.login else {})}
        place = f"{scheme}://{parts.hostname or hosts[0]}:{connection.port}/webhdfs/v1{quote(parts.path)}"
        return urllib.request.Request(f"{place}?{urlencode(query)}")


class GlueJobs:
    """The definitions of Glue's jobs, each at ``glue:<name>``. Not tried on the real service.

    Uses the connection ``conn_id`` as Amazon's own operators do.
    """

    def __init__(self, conn_id: str | None, region_name: str | None) -> None:
        self._conn_id, self._region_name = conn_id, region_name

        self.definitions: dict[str, dict[str, Any]] = {}
        """Each job's definition as it was read, by its URI."""

    def read(self, uri: str) -> CodeFile:
        """Read a job's definition. What changes no rows is left out of its content: capacity, role and times."""
        self.definitions[uri] = found = self._definition(uri)
        text = {name: value for name, value in found.items() if name not in _GLUE_RUNS}
        content = hashed(json.dumps(text, sort_keys=True, default=str).encode())
        return CodeFile(content, (str(found.get("LastModifiedOn")),))

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return the time at which the definition was changed."""
        return (str(self._definition(uri).get("LastModifiedOn")),)

    def _definition(self, uri: str) -> dict[str, Any]:
        return dict(self._client.get_job(JobName=uri.removeprefix("glue:"))["Job"])

    @cached_property
    def _client(self) -> Any:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

        hook: Any = AwsGenericHook(aws_conn_id=self._conn_id, client_type="glue", region_name=self._region_name)
        return hook.get_conn()


class DatabricksFiles:
    """Files of Databricks by its REST API: ``dbfs:/x``, and notebooks and files of the workspace. Not those of volumes.

    Uses the connection ``conn_id`` as Databricks' own operators do. Not tried on the real service.
    """

    def __init__(self, conn_id: str) -> None:
        self._conn_id = conn_id

    @cached_property
    def _hook(self) -> Any:
        from airflow.providers.databricks.hooks.databricks import DatabricksHook

        return DatabricksHook(databricks_conn_id=self._conn_id, retry_limit=1)

    def read(self, uri: str) -> CodeFile:
        """Read a file or a notebook's source. For a large file of DBFS, size and time stand for its content."""
        version, path = self.version(uri), _path_on_databricks(uri)  # as `HadoopFiles.read`
        if not uri.startswith("dbfs:"):
            answer = self._ask("2.0/workspace/export", {"path": path, "format": "SOURCE"})
            return CodeFile(hashed(base64.b64decode(answer["content"])), version)
        size = version[1]
        if size > MAX_READ_BYTES:
            return CodeFile(f"time:{version[2]} size:{size}", version)
        parts = [
            self._ask("2.0/dbfs/read", {"path": path, "offset": at, "length": _DBFS_READ_BYTES})["data"]
            for at in range(0, size, _DBFS_READ_BYTES)
        ]
        return CodeFile(hashed(*map(base64.b64decode, parts)), version)

    def version(self, uri: str) -> tuple[Any, ...]:
        """Return id, size and time of the file."""
        path = _path_on_databricks(uri)
        if uri.startswith("dbfs:"):
            about = self._ask("2.0/dbfs/get-status", {"path": path})
            if about.get("is_dir"):
                raise CodeUnseen("it is a folder")
            return ("", int(about["file_size"]), about.get("modification_time", 0))
        about = self._ask("2.0/workspace/get-status", {"path": path})
        if about.get("object_type") not in ("NOTEBOOK", "FILE"):
            raise CodeUnseen(f"it is a {about.get('object_type')} of the workspace")
        return (about.get("object_id", ""), about.get("size", 0), about.get("modified_at", 0))

    def _ask(self, endpoint: str, parameters: Mapping[str, Any]) -> Any:
        return self._hook._do_api_call(("GET", endpoint), dict(parameters))


def _path_on_databricks(uri: str) -> str:
    path = uri.removeprefix("dbfs:")
    if path.startswith("/Volumes/"):
        raise CodeUnseen("files of volumes are not read")
    # A workspace file is mounted below /Workspace where a job runs; the API names it without.
    return path.removeprefix("/Workspace")
