"""Where a cached result is (``CACHED``, ``CACHED_MEMORY_ONLY``): a global temporary view of one Spark Connect server.

Its manifest names no objects. The location names the server, its incarnation (a server that has restarted holds nothing
of what it held before) and the view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.model.result_type import SPARK_CONNECT as SCHEME

_LOCATION = re.compile(rf"{SCHEME}://(?P<server>[^/]+)/(?P<application>[^/]+)/(?P<view>[a-z0-9_]+)")


@dataclass(frozen=True)
class CachedLocation:
    """``server`` is ``host:port``, for people: ``application_id`` is what decides whether it is the same server."""

    server: str
    application_id: str
    view: str

    @property
    def uri(self) -> str:
        """The location in a manifest. Holds no user and no token."""
        return f"{SCHEME}://{self.server}/{self.application_id}/{self.view}"

    @classmethod
    def parse(cls, uri: str) -> CachedLocation:
        """Inverse of `uri`. Raises `RecordInvalid` on anything else."""
        match = _LOCATION.fullmatch(uri)
        if match is None:
            raise RecordInvalid(
                f"expected {SCHEME}://<server>/<application>/<view>, found {uri!r}", code="cached-location-unfit"
            )
        return cls(match["server"], match["application"], match["view"])
