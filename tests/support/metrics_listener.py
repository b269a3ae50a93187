"""In place of a StatsD server: a socket that counts what Airflow's processes send to it."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter

LINE = re.compile(r"airflow\.(recovery\.[\w.]+):([\d.]+)\|(c|ms)")
"""Of StatsD's plain protocol: a counter or a timer of ours, behind Airflow's own prefix."""


class MetricsListener:
    """``counters`` are sums, ``timers`` how often each was sent. Both grow while Airflow runs."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.timers: Counter[str] = Counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen, name="metrics", daemon=True)
        self._thread.start()

    def environment(self) -> dict[str, str]:
        """What makes Airflow send to it."""
        host, port = self._socket.getsockname()
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": host,
            "AIRFLOW__METRICS__STATSD_PORT": str(port),
            # Airflow's own would be thousands.
            "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "recovery",
        }

    def close(self) -> None:
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while packet := self._socket.recv(65536):
            for name, value, kind in LINE.findall(packet.decode()):
                if kind == "c":
                    self.counters[name] += int(value)
                else:
                    self.timers[name] += 1
