"""The Spark Connect server that keeps cached results, as the command line names it; and which results are there."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from airflow_recovery.console.deployment import Deployment
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.places import Asker, ResultPlaces
from airflow_recovery.story import what_if
from airflow_recovery.story.run_view import RunView

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


def evaluation_of(args: argparse.Namespace, deployment: Deployment, view: RunView) -> Evaluation:
    """For one plan of ``view``: asks the stores, and the server that is named, now."""
    server = cache_server_of(args)
    base, identity = deployment.results.base_uri, view.journal.identity
    places = ResultPlaces.of(base, identity, Asker.PERSON, view.in_use.recorded, deployment.may_open)
    ask_cached = server.ask if server is not None else None
    if unseen := what_if.not_asked(places, view):
        print(
            f"Not asked, and taken to be there: {', '.join(unseen)}. A location that a record names is opened only if "
            "it is in [recovery] allowed_locations (AIRFLOW__RECOVERY__ALLOWED_LOCATIONS).",
            file=sys.stderr,
        )
    return what_if.evaluate_run(view, places, deployment.open_location, ask_cached, deployment.tables.why_lost)
