"""Servers of Azure's and Google's APIs as child processes on 127.0.0.1, and gateways before them.

What they do with preconditions was tried out (docs/stores.md). Azurite decides ``If-None-Match`` in one step. Of
Google's two APIs obstore speaks the XML one, and fake-gcs-server writes by the JSON one alone: `GoogleGateway` hands
each XML request on as the JSON request of the same meaning. The generation is compared in fake-gcs-server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.azure import AzureStore
from airflow_recovery.store.cloud import CloudStore
from airflow_recovery.store.google import GoogleStore
from airflow_recovery.store.scheme import StoreAccess
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.server_process import ServerProcess

ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, the same everywhere."""
_VERSION = "2021-08-06"


class AzuriteServer(ServerProcess):
    """Microsoft's own emulator of Azure Blob Storage, from npm. Everything is in memory."""

    name = "azurite"

    def _command(self) -> list[str]:
        program = shutil.which("azurite-blob")
        if program is None:
            raise ConfigurationError("azurite-blob was not found on the PATH: run scripts/setup.sh --all")
        address = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        # obstore's version of the API may be younger than the server.
        return [program, *address, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]

    def access(self, endpoint_url: str | None = None) -> StoreAccess:
        """With the account's key; ``endpoint_url``: of a gateway."""
        return StoreAccess({"account_key": ACCOUNT_KEY}, f"{endpoint_url or self.endpoint_url}/{ACCOUNT}")

    def sas_access(self, endpoint_url: str | None = None, *, expires: str = "2099-01-01T00:00:00Z") -> StoreAccess:
        """With a shared access signature, which signs no headers."""
        fields = {"sp": "rwdlacx", "ss": "b", "srt": "sco", "se": expires, "spr": "https,http", "sv": "2020-08-04"}
        text = "\n".join(
            [ACCOUNT, *(fields.get(name, "") for name in ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv"))]
        )
        signature = urlencode({**fields, "sig": _signed(text + "\n")})
        return StoreAccess({"sas_key": signature}, f"{endpoint_url or self.endpoint_url}/{ACCOUNT}")

    def create_bucket(self, name: str) -> str:
        """Create a container; returns its URI."""
        date = formatdate(usegmt=True)
        path = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signed = _signed("PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n{path}")
        headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signed}"}
        headers["Content-Length"] = "0"
        _send("PUT", f"{self.endpoint_url}/{ACCOUNT}/{name}?restype=container", b"", headers)
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"

    def gateway(self, rule: Rule) -> Gateway:
        """A gateway of its own that disturbs requests."""
        return Gateway(self.endpoint_url, rule)

    def open(self, uri: str, **options: Any) -> CloudStore:
        """A store of this server."""
        return AzureStore(uri, self.access(), **options)

    def open_through(self, gateway: Gateway, uri: str, **options: Any) -> CloudStore:
        """A store behind ``gateway``, which may change requests: nothing but their URI is signed."""
        return AzureStore(uri, self.sas_access(gateway.url), **options)


def _signed(text: str) -> str:
    return base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()).decode()


class FakeGcsServer(ServerProcess):
    """fake-gcs-server (Go) behind a `GoogleGateway`. Everything is in memory."""

    name = "fake-gcs-server"

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__(folder)
        self._own_gateway: GoogleGateway | None = None

    def _command(self) -> list[str]:
        program = find_fake_gcs()
        if program is None:
            raise ConfigurationError("fake-gcs-server was not found on the PATH: run scripts/setup.sh --all")
        address = [
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(self.port),
            "-public-host",
            f"127.0.0.1:{self.port}",
        ]
        return [program, *address, "-backend", "memory", "-log-level", "error"]

    def start(self) -> FakeGcsServer:
        """Start the server, and the gateway."""
        super().start()
        self._own_gateway = GoogleGateway(self.endpoint_url)
        return self

    def stop(self) -> None:
        """Stop both."""
        if self._own_gateway is not None:
            self._own_gateway.stop()
        super().stop()

    def access(self, endpoint_url: str | None = None) -> StoreAccess:
        """Through the gateway, with a key by which no token is asked for."""
        assert self._own_gateway is not None
        key = {
            "type": "service_account",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return StoreAccess({"service_account_key": json.dumps(key)}, endpoint_url or self._own_gateway.url)

    def create_bucket(self, name: str) -> str:
        """Create a bucket; returns its URI."""
        body = json.dumps({"name": name}).encode()
        _send("POST", f"{self.endpoint_url}/storage/v1/b", body, {"Content-Type": "application/json"})
        return f"gs://{name}"

    def gateway(self, rule: Rule) -> Gateway:
        """A gateway of its own that disturbs requests."""
        return GoogleGateway(self.endpoint_url, rule)

    def open(self, uri: str, **options: Any) -> CloudStore:
        """A store of this server."""
        return GoogleStore(uri, self.access(), **options)

    def open_through(self, gateway: Gateway, uri: str, **options: Any) -> CloudStore:
        """A store behind ``gateway``."""
        return GoogleStore(uri, self.access(gateway.url), **options)


CloudServer = AzuriteServer | FakeGcsServer
CLOUD_SERVERS: dict[str, type[AzuriteServer] | type[FakeGcsServer]] = {
    server.name: server for server in (AzuriteServer, FakeGcsServer)
}


def find_fake_gcs() -> str | None:
    """The binary on the PATH; `None` where it is not installed."""
    return shutil.which(FakeGcsServer.name)


def installed_cloud_servers() -> list[str]:
    """Names of those whose programs are there."""
    there = {AzuriteServer.name: shutil.which("azurite-blob"), FakeGcsServer.name: find_fake_gcs()}
    return [name for name, program in there.items() if program is not None]


@dataclass(frozen=True)
class Asked:
    """One request as it came in; ``path`` is as it was sent, with the query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answered:
    """One answer; ``cut`` bytes of its body are left out, and the connection ends. A ``stream`` is the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: int = 0
    stream: HTTPResponse | None = None


Rule = Callable[[Asked], "Answered | Asked | None"]
"""Answers a request in the server's place, exchanges it, or lets it pass. "No answer at all" has the status 0."""


class Gateway:
    """An HTTP server that hands requests on to ``target``; ``rule`` may disturb them. Stop it with `stop`."""

    def __init__(self, target: str, rule: Rule = lambda _: None) -> None:
        self.rule = rule
        self.requests: list[Asked] = []
        self._target = urlsplit(target).netloc
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.gateway = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        """Answer nobody any more."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def answer(self, asked: Asked) -> Answered:
        """What the client gets."""
        self.requests.append(asked)
        done = self.rule(asked)
        if isinstance(done, Answered):
            return done
        return self.handed_on(done or asked)

    def handed_on(self, asked: Asked) -> Answered:
        """What the server answers."""
        return self.send(asked.method, asked.path, asked.body, asked.headers)

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answered:
        """Ask the server."""
        connection = HTTPConnection(self._target, timeout=HANG_S)
        try:
            kept = {name: text for name, text in (headers or {}).items() if name.lower() not in _OF_ONE_CONNECTION}
            connection.request(method, path, body or None, kept)
            answer = connection.getresponse()
            return Answered(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def streamed(self, method: str, path: str, headers: Mapping[str, str]) -> Answered:
        """Ask the server for an object, whose body is handed on piece by piece."""
        connection = HTTPConnection(self._target, timeout=HANG_S)
        kept = {name: text for name, text in headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        connection.request(method, path, headers={**kept, "Connection": "close"})
        answer = connection.getresponse()
        return Answered(answer.status, dict(answer.getheaders()), b"", stream=answer)


_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "content-length"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, self.path, dict(self.headers), body)
        answered: Answered = self.server.gateway.answer(asked)  # type: ignore[attr-defined]
        if not answered.status:
            self.close_connection = True
            return
        self.send_response_only(answered.status)
        for name, text in answered.headers.items():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, text)
        stream = answered.stream or BytesIO(answered.body)
        length = int(answered.headers["Content-Length"]) if answered.stream else len(answered.body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        left = length - answered.cut
        while self.command != "HEAD" and left and (piece := stream.read(min(left, 65_536))):
            self.wfile.write(piece)
            left -= len(piece)
        stream.close()
        self.close_connection = self.close_connection or bool(answered.cut)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class GoogleGateway(Gateway):
    """The requests of Google's XML API that obstore makes, as requests of its JSON API."""

    def handed_on(self, asked: Asked) -> Answered:
        """As `Gateway.handed_on`."""
        url = urlsplit(asked.path)
        bucket, _, name = url.path.lstrip("/").partition("/")
        query = {field: values[0] for field, values in parse_qs(url.query).items()}
        if not name:
            return self._list(bucket, query)
        if asked.method == "PUT":
            return self._put(bucket, unquote(name), asked)
        path = f"/storage/v1/b/{bucket}/o/{quote(unquote(name), safe='')}"
        if asked.method == "DELETE":
            return self._or_missing(bucket, self.send("DELETE", path))
        return self._or_missing(bucket, self.streamed(asked.method, f"{path}?alt=media", asked.headers))

    def _put(self, bucket: str, name: str, asked: Asked) -> Answered:
        query = {"uploadType": "media", "name": name}
        headers = {field.lower(): text for field, text in asked.headers.items()}
        if "x-goog-if-generation-match" in headers:
            query["ifGenerationMatch"] = headers["x-goog-if-generation-match"]
        done = self.send("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", asked.body, _BINARY)
        if done.status == 412:
            return _refused(412, "PreconditionFailed")
        if done.status != 200:
            return self._or_missing(bucket, done)
        stored = json.loads(done.body)
        return Answered(200, {"ETag": f'"{stored["etag"]}"', "x-goog-generation": stored["generation"]}, b"")

    def _list(self, bucket: str, query: dict[str, str]) -> Answered:
        names = {
            "prefix": "prefix",
            "start-after": "startOffset",
            "continuation-token": "pageToken",
            "max-keys": "maxResults",
        }
        asked = {theirs: query[ours] for ours, theirs in names.items() if ours in query}
        done = self.send("GET", f"/storage/v1/b/{bucket}/o?{urlencode({'maxResults': '1000', **asked})}")
        if done.status != 200:
            return self._or_missing(bucket, done)
        page = json.loads(done.body)
        listed = "".join(map(_listed, page.get("items", ())))
        token = page.get("nextPageToken")
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        return Answered(200, _XML, f"<ListBucketResult>{listed}{more}</ListBucketResult>".encode())

    def _or_missing(self, bucket: str, done: Answered) -> Answered:
        if done.status != 404:
            return done
        has_bucket = self.send("GET", f"/storage/v1/b/{bucket}").status == 200
        return _refused(404, "NoSuchKey" if has_bucket else "NoSuchBucket")


_BINARY = {"Content-Type": "application/octet-stream"}
_XML = {"Content-Type": "application/xml"}


def _listed(stored: dict[str, Any]) -> str:
    fields = {"Key": "name", "Size": "size", "LastModified": "updated", "ETag": "etag", "Generation": "generation"}
    texts = (f"<{field}>{escape(str(stored[name]))}</{field}>" for field, name in fields.items())
    return f"<Contents>{''.join(texts)}</Contents>"


def _refused(status: int, code: str) -> Answered:
    return Answered(status, _XML, f"<Error><Code>{code}</Code><Message>{code} it is.</Message></Error>".encode())


def _send(method: str, url: str, body: bytes, headers: dict[str, str]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    sent = urllib.request.Request(url, body or None, headers, method=method)
    try:
        opener.open(sent, timeout=HANG_S).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there already
            raise
