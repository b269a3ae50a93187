"""What the provider's operator asks a Kubernetes API server about pods, answered over HTTP without one.

`tests/task/test_kubernetes_node.py` holds its answers to those of a real API server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class FakePods:
    """``pods``: by namespace and name, as the API has them. ``logs``: what each has printed."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.logs: dict[tuple[str, str], str] = {}
        self.deleted: list[str] = []
        me = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, _, _, namespace, _, name, *rest = urlsplit(self.path).path.split("/")
                pod = me.pods.get((namespace, name))
                if pod is None:
                    self._answer(404, _not_found(name))
                elif rest == ["log"]:
                    self._answer(200, me.logs.get((namespace, name), ""))
                else:
                    self._answer(200, pod)

            def do_DELETE(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                _, _, _, _, namespace, _, name = urlsplit(self.path).path.split("/")
                pod = me.pods.pop((namespace, name), None)
                me.deleted.append(name)
                self._answer(*((404, _not_found(name)) if pod is None else (200, pod)))

            def _answer(self, status: int, body: dict[str, Any] | str) -> None:
                is_text = isinstance(body, str)
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if is_text else "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def put(self, namespace: str, name: str, phase: str, **status: Any) -> None:
        """Let there be a pod of that phase; its status has ``status`` besides, and its container's ``terminated``."""
        terminated = status.pop("terminated", None)
        if terminated is not None:
            container = {"name": "c", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
            status["containerStatuses"] = [{**container, "state": {"terminated": terminated}}]
        about = {"name": name, "namespace": namespace}
        status = {"phase": phase, **status}
        self.pods[namespace, name] = {"kind": "Pod", "apiVersion": "v1", "metadata": about, "status": status}

    def kubeconfig(self, file: Path) -> Path:
        """A file with which clients find it."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "somebody", "user": {"token": "t"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "somebody"}}],
            "current-context": "fake",
        }
        file.write_text(json.dumps(document))
        return file


@contextmanager
def fake_pods() -> Iterator[FakePods]:
    """An API server with no pods."""
    fake = FakePods()
    threading.Thread(target=fake.server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        fake.server.server_close()


def _not_found(name: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'pods "{name}" not found',
        "reason": "NotFound",
        "details": {"name": name, "kind": "pods"},
        "code": 404,
    }
