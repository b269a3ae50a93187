"""A stand-in for S3 that is fast to fill: the objects of one pickled mapping, over HTTP, each answer after a delay.

Real servers take minutes for forty thousand objects. What asks is the real SDK, so a request costs the asker what it
does elsewhere. ``python -m benchmarks.s3_stand_in FILE DELAY_MS`` prints its port, and ends with its standard input.
"""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import threading
import time
import urllib.request
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PAGE_KEYS = 1_000
REQUESTS = "/requests-so-far"
_OLD_S = 1_700_000_000


class _Objects:
    """The objects of all buckets by path, and their paths in key order."""

    def __init__(self, bodies: Mapping[str, bytes], delay_s: float) -> None:
        self.bodies = dict(bodies)
        self.keys = sorted(self.bodies)
        self.stored_s = dict.fromkeys(self.keys, float(_OLD_S))
        self.etags = {key: hashlib.md5(body, usedforsecurity=False).hexdigest() for key, body in self.bodies.items()}
        self.delay_s = delay_s
        self.requests = 0
        self.lock = threading.Lock()

    def put(self, key: str, body: bytes) -> str:
        if key not in self.bodies:
            insort(self.keys, key)
        self.bodies[key], self.stored_s[key] = body, time.time()
        self.etags[key] = hashlib.md5(body, usedforsecurity=False).hexdigest()
        return self.etags[key]

    def delete(self, key: str) -> None:
        if self.bodies.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def page(self, bucket: str, prefix: str, after: str) -> str:
        first = bisect_left(self.keys, f"{bucket}/{prefix}")
        if after:
            first = max(first, bisect_right(self.keys, f"{bucket}/{after}"))
        found = []
        for key in self.keys[first : first + PAGE_KEYS + 1]:
            if not key.startswith(f"{bucket}/{prefix}"):
                break
            found.append(key)
        is_cut, found = len(found) > PAGE_KEYS, found[:PAGE_KEYS]
        entries = "".join(map(self._entry, found))
        following = escape(found[-1].partition("/")[2]) if is_cut else ""
        token = f"<NextContinuationToken>{following}</NextContinuationToken>" if is_cut else ""
        return (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><KeyCount>{len(found)}</KeyCount><MaxKeys>{PAGE_KEYS}</MaxKeys>"
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{token}{entries}</ListBucketResult>"
        )

    def _entry(self, key: str) -> str:
        stored = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.stored_s[key]))
        return (
            f"<Contents><Key>{escape(key.partition('/')[2])}</Key><LastModified>{stored}</LastModified>"
            f"<ETag>&quot;{self.etags[key]}&quot;</ETag><Size>{len(self.bodies[key])}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: _Objects

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == REQUESTS:
            return self._answer(200, str(self.objects.requests).encode())
        self._begin()
        path, query = unquote(url.path).lstrip("/"), parse_qs(url.query, keep_blank_values=True)
        if "list-type" in query:
            after = (query.get("continuation-token") or query.get("start-after") or [""])[0]
            page = self.objects.page(path.rstrip("/"), query.get("prefix", [""])[0], after)
            return self._answer(200, page.encode())
        if "uploads" in query:
            return self._answer(200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>")
        if "lifecycle" in query:
            return self._answer(404, b"<Error><Code>NoSuchLifecycleConfiguration</Code></Error>")
        body = self.objects.bodies.get(path)
        if body is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self._answer(200, body, path)

    def do_PUT(self) -> None:
        self._begin()
        path, body = unquote(urlsplit(self.path).path).lstrip("/"), self._body()
        with self.objects.lock:
            if self.headers.get("If-None-Match") == "*" and path in self.objects.bodies:
                return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            self.objects.put(path, body)
        return self._answer(200, b"", path)

    def do_POST(self) -> None:
        self._begin()
        bucket = unquote(urlsplit(self.path).path).strip("/")
        with self.objects.lock:
            for element in ElementTree.fromstring(self._body()).iter():
                if element.tag.rpartition("}")[2] == "Key":
                    self.objects.delete(f"{bucket}/{element.text}")
        self._answer(200, b"<DeleteResult></DeleteResult>")

    def _begin(self) -> None:
        with self.objects.lock:
            self.objects.requests += 1
        time.sleep(self.objects.delay_s)

    def _body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            pass  # the base class has answered that already
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: bytes, of: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if of is not None:
            self.send_header("ETag", f'"{self.objects.etags[of]}"')
            self.send_header("Last-Modified", formatdate(self.objects.stored_s[of], usegmt=True))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    """As many connections may wait: otherwise the kernel drops some, and their clients try again after a second."""


class StandIn:
    """A running server, as the process that asks sees it."""

    def __init__(self, port: int) -> None:
        self.endpoint_url = f"http://127.0.0.1:{port}"

    def requests(self) -> int:
        """How many requests it has answered."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.endpoint_url + REQUESTS) as answer:
            return int(answer.read())


@contextmanager
def serving(objects: Path, delay_ms: float = 0.0) -> Iterator[StandIn]:
    """The pickled ``objects`` (bucket/key -> body) in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, str(objects), str(delay_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield StandIn(int(process.stdout.readline()))
        finally:
            process.stdin.close()


def main() -> None:
    """Serve until standard input ends."""
    _Handler.objects = _Objects(pickle.loads(Path(sys.argv[1]).read_bytes()), float(sys.argv[2]) / 1000)
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
