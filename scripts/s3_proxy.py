"""An HTTP proxy before an S3 server: faults and policies as the SDKs meet them, boto3's and Spark's (faults 21 to 28).

`airflow_recovery.testing.faulty_store` misbehaves above the SDK; this one below it, so that retries, time-outs and
error codes of the real clients are part of what is tested.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, MutableSequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import S3Server

if TYPE_CHECKING:
    from typing_extensions import Self

_NOT_FORWARDED = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")


@dataclass(frozen=True)
class S3Request:
    """One request as a client sent it. ``key`` is empty for requests about a bucket; header names are in lower case."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def access_key(self) -> str:
        """Whose credentials signed it; empty where nobody did."""
        match = _CREDENTIAL.search(self.headers.get("authorization", ""))
        return match[1] if match else ""

    @property
    def is_conditional(self) -> bool:
        """Whether the request is a write that must not overwrite."""
        return self.method == "PUT" and self.headers.get("if-none-match") == "*"

    def actions(self) -> tuple[tuple[str, str], ...]:
        """What IAM asks about it: pairs of an action and its resource, as ``bucket`` or ``bucket/key``."""
        if not self.key:
            return tuple((action, resource) for action, resource in self._bucket_actions())
        here = f"{self.bucket}/{self.key}"
        if self.method in ("GET", "HEAD"):
            # S3 says 404 of a missing object only to who may list; to everybody else 403.
            return (("s3:GetObject", here), ("s3:ListBucket", self.bucket))
        if self.method == "DELETE":
            return (("s3:AbortMultipartUpload" if "uploadId" in self.query else "s3:DeleteObject", here),)
        source = self.headers.get("x-amz-copy-source")
        copied = (("s3:GetObject", unquote(source).lstrip("/").partition("?")[0]),) if source else ()
        return (("s3:PutObject", here), *copied)

    def _bucket_actions(self) -> list[tuple[str, str]]:
        if self.method == "POST" and "delete" in self.query:
            names = [
                element.text or ""
                for element in ElementTree.fromstring(self.body).iter()
                if element.tag.endswith("Key")
            ]
            return [("s3:DeleteObject", f"{self.bucket}/{name}") for name in names]
        for parameter, action in (
            ("uploads", "s3:ListBucketMultipartUploads"),
            ("lifecycle", "s3:GetLifecycleConfiguration"),
            ("versioning", "s3:GetBucketVersioning"),
            ("location", "s3:GetBucketLocation"),
        ):
            if parameter in self.query:
                return [(action, self.bucket)]
        if self.method in ("GET", "HEAD"):
            return [("s3:ListBucket" if self.bucket else "s3:ListAllMyBuckets", self.bucket)]
        return [("s3:CreateBucket" if self.method == "PUT" else "s3:DeleteBucket", self.bucket)]


@dataclass(frozen=True)
class Answer:
    """What the proxy answers in place of the server, which never sees the request."""

    status: int
    code: str
    message: str = "injected"


@dataclass(frozen=True)
class LostReply:
    """The request has its effect, and the connection breaks before anybody is told.

    ``then_retried``: as if the SDK below had sent it once more; the client gets the answer to that second one.
    """

    then_retried: bool = False


@dataclass(frozen=True)
class CutReply:
    """The server's answer, whose body breaks off after ``after`` bytes. ``says_length``: of the whole body."""

    after: int
    says_length: bool = True


@dataclass(frozen=True)
class Rewritten:
    """The server's answer with another body, under the same headers but for the length."""

    change: Callable[[bytes], bytes]


@dataclass(frozen=True)
class Delayed:
    """The request reaches the server ``seconds`` late."""

    seconds: float


@dataclass(frozen=True)
class LookThenWrite:
    """A conditional write as of a server that looks whether the key is there, and then writes: two at once both win.

    A second write after the first is refused with 412, as it should. Only before a server that checks no signatures.
    """


Fate = Answer | LostReply | CutReply | Rewritten | Delayed | LookThenWrite
Rule = Callable[[S3Request], "Fate | None"]
"""What happens to a request; `None` where nothing does. Called from several threads, one at a time."""


class S3Proxy:
    """Forwards to ``server``; the first of ``rules`` that says something about a request decides what happens to it.

    ``requests`` remembers all, in the order in which they came; where that are too many, put a bounded `deque` in its
    place. Started by ``with``, on a free port of 127.0.0.1.
    """

    def __init__(self, server: S3Server, *rules: Rule) -> None:
        self.rules = list(rules)
        self.requests: MutableSequence[S3Request] = []
        self._upstream = server.port
        self._lock = threading.Lock()
        self._http = _Listener(("127.0.0.1", 0), _Handler)
        self._http.proxy = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="s3-proxy", daemon=True)

    @property
    def endpoint_url(self) -> str:
        """The address of the proxy: ``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def evaluate(self, request: S3Request) -> Fate | None:
        """What happens to ``request``, which is remembered."""
        with self._lock:
            self.requests.append(request)
            for rule in self.rules:
                answer = rule(request)
                if answer is not None:
                    return answer
        return None

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> http.client.HTTPResponse:
        """The server's answer to a request that is sent as it came: its signature covers host, path and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=HANG_S)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if name.lower() not in _NOT_FORWARDED:
                connection.putheader(name, value)
        if body or method in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Connection", "close")
        connection.endheaders(body or None)
        return connection.getresponse()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: S3Proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client was killed, or has given up waiting
            super().handle()

    def handle_expect_100(self) -> bool:
        """At once: botocore waits a second for the answer to ``Expect: 100-continue`` before it sends a body."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it so
        """Say nothing: a request is in `S3Proxy.requests`."""

    def _serve(self) -> None:  # noqa: C901 - one way an answer, and some have two
        assert isinstance(self.server, _Listener)
        proxy = self.server.proxy
        body = self._body()
        fate = proxy.evaluate(self._request(body))
        if isinstance(fate, Answer):
            self._refuse(fate)
            return
        if isinstance(fate, Delayed):
            time.sleep(fate.seconds)
        headers = dict(self.headers.items())
        if isinstance(fate, LookThenWrite):
            asking = {name: headers[name] for name in ("Host", "Authorization")}
            if proxy.forward("HEAD", self.path, asking, b"").status == http.HTTPStatus.OK:
                self._refuse(Answer(http.HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed"))
                return
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        answer = proxy.forward(self.command, self.path, headers, body)
        content = answer.read()
        if isinstance(fate, LostReply):
            if not fate.then_retried:
                self.close_connection = True
                return
            answer = proxy.forward(self.command, self.path, headers, body)
            content = answer.read()
        if isinstance(fate, Rewritten):
            content = fate.change(content)
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            # Of a HEAD the length is that of the object, which does not come.
            if name.lower() not in _NOT_FORWARDED or (self.command == "HEAD" and name.lower() == "content-length"):
                self.send_header(name, value)
        if isinstance(fate, CutReply):
            self.close_connection = True
        is_told = not isinstance(fate, CutReply) or fate.says_length
        if is_told and self.command != "HEAD" and answer.status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if isinstance(fate, CutReply):
            content = content[: fate.after]
        self.wfile.write(content)
        self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _body(self) -> bytes:
        """The request's, also where it came in chunks (as pyarrow's SDK sends it); their trailers are left out."""
        if "chunked" not in (self.headers.get("Transfer-Encoding") or "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _request(self, body: bytes) -> S3Request:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return S3Request(
            self.command, bucket, key, query, {name.lower(): value for name, value in self.headers.items()}, body
        )

    def _refuse(self, answer: Answer) -> None:
        text = f"<Error><Code>{answer.code}</Code><Message>{answer.message}</Message></Error>"
        content = b"" if self.command == "HEAD" else text.encode()
        self.send_response_only(answer.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()
