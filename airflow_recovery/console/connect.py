"""The Spark Connect server that keeps a deployment's cached results, as the command line names it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from airflow_recovery.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_recovery.driver.cached import CacheServer

CONNECT_VARIABLE = "SPARK_REMOTE"
"""Of Spark's own client. A token in it is seen by nobody else on the machine, unlike one in an argument."""


def add_connect_argument(parser: argparse.ArgumentParser) -> None:
    """``--connect``: where neither it nor the variable is given, nothing is asked of any server."""
    parser.add_argument(
        "--connect",
        metavar="URL",
        help=f"sc://host:port, the Spark Connect server that keeps CACHED results; default: {CONNECT_VARIABLE}",
    )


def cache_server_of(args: argparse.Namespace) -> CacheServer | None:
    """The server that was named, or `None`. Asks it nothing yet. Raises `ConfigurationError` for another URL."""
    url = args.connect or os.environ.get(CONNECT_VARIABLE)
    if not url:
        return None
    if not url.startswith("sc://"):
        raise ConfigurationError(
            f"expected --connect (or {CONNECT_VARIABLE}) as sc://host:port, found another scheme, which keeps nothing"
        )
    from airflow_recovery.driver.cached import CacheServer

    return CacheServer(url)
