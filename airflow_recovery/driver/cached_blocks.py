"""How much of a cached result a server still holds: Spark says so in the REST interface of its UI, and nowhere else.

Best effort, by nature: the UI may be off, behind a proxy, or on an address that this machine does not reach. Then
nothing is known, and what is evicted is computed again (`airflow_recovery.driver.cached`). The same if the UI's port
belongs to a user of this machine who is neither this one nor the server's: anybody can be there before Spark is.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_recovery.model.cached_location import CachedLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 2.0
SECOND_LOOK_S = 2.0
PORTS_TRIED = 3
"""Spark takes the next port where the UI's own is taken."""
CONNECT_PORT = 15002
"""Where a Connect server listens by default."""


def evicted(spark: SparkSession, location: CachedLocation) -> str | None:
    """What is not held any more of a result that has rows; `None` where all of it is, or where nobody can be asked.

    What Spark shows lags behind what it does, so a loss is said only where a second look shows it too.
    """
    if _evicted(spark, location) is None:
        return None
    time.sleep(SECOND_LOOK_S)
    return _evicted(spark, location)


def _evicted(spark: SparkSession, location: CachedLocation) -> str | None:
    host = spark.conf.get("spark.driver.host", None)
    for port in _ports(spark):
        server = urlsplit(f"//{location.server}").port or CONNECT_PORT
        document = _json(str(host), port, f"/api/v1/applications/{location.application_id}/storage/rdd", server)
        if not isinstance(document, list):
            continue  # no UI, or that of another application, which does not know this one
        for table in document:
            # "In-memory table global_temp.<view>"
            if isinstance(table, dict) and location.view in str(table.get("name", "")):
                held, partitions = int(table["numCachedPartitions"]), int(table["numPartitions"])
                return f"{partitions - held} of its {partitions} partitions were evicted" if held < partitions else None
        return "all of its partitions were evicted"  # what holds nothing is not listed
    return None


def _ports(spark: SparkSession) -> range:
    if spark.conf.get("spark.ui.enabled", "true") != "true":
        return range(0)
    port = int(spark.conf.get("spark.ui.port", "4040") or 0)
    return range(port, port + PORTS_TRIED) if port else range(0)


def _json(host: str, port: int, path: str, server: int) -> Any:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        is_here = connection.sock.getsockname()[0] == connection.sock.getpeername()[0]
        if is_here and not users_of_port(port) <= {os.geteuid(), *users_of_port(server)}:
            return None
        connection.request("GET", path)
        answer = connection.getresponse()
        return json.load(answer) if answer.status == http.client.OK else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


_LISTENS = "0A"
"""The state of a socket in the kernel's table."""


def users_of_port(port: int) -> set[int]:
    """The ids of the users whose processes listen on this TCP port of this machine, whatever the address."""
    users = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                users.add(int(fields[7]))
    return users
