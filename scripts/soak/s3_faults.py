"""What the proxy does to requests while S3 is said to be ill; and how many requests it sees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.s3_proxy import Answer, CutReply, Delayed, Fate, LostReply, S3Request

KINDS = ("storm", "lost replies", "latency", "cut replies")


class S3Faults:
    """A rule for `S3Proxy`. ``struck`` counts the requests that something happened to, by the kind of fault.

    ``watch`` begins to count the requests to the records below a prefix, by method; `watched` has them.
    """

    def __init__(self, seed: int) -> None:
        self.struck: Counter[str] = Counter()
        self.watched: Counter[str] = Counter()
        self._random = random.Random(f"S3 {seed}")
        self._kind = ""
        self._prefix = ""

    @contextmanager
    def ill(self, kind: str) -> Iterator[None]:
        """Inside, S3 has the fault ``kind``, one of `KINDS`."""
        self._kind = kind
        try:
            yield
        finally:
            self._kind = ""

    def watch(self, prefix: str) -> None:
        """Count anew, the requests to keys (or listings) that begin with ``prefix``. Empty: none."""
        self._prefix = prefix
        self.watched = Counter()

    def __call__(self, request: S3Request) -> Fate | None:
        """As `S3Proxy` asks."""
        self._count(request)
        fate = self._fate(request) if self._kind else None
        if fate is not None:
            self.struck[self._kind] += 1
        return fate

    def _fate(self, request: S3Request) -> Fate | None:
        drawn = self._random.random()
        if self._kind == "storm" and drawn < 0.3:
            return Answer(503, "SlowDown", "Please reduce your request rate.")
        if self._kind == "lost replies" and request.method in ("PUT", "POST", "DELETE") and drawn < 0.1:
            return LostReply()
        if self._kind == "latency" and drawn < 0.5:
            return Delayed(2 * self._random.random())
        if self._kind == "cut replies" and request.method == "GET" and drawn < 0.1:
            return CutReply(7)
        return None

    def _count(self, request: S3Request) -> None:
        path = request.key or request.query.get("prefix", "")
        if not self._prefix or not path.startswith(self._prefix):
            return
        below = path[len(self._prefix) :]
        kind = "heartbeat" if below.startswith("h/") else request.method
        self.watched["LIST" if kind == "GET" and not request.key else kind] += 1
