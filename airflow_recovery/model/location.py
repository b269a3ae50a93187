"""Comparing and relating the URIs of results and stores."""

from __future__ import annotations

import re

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import comparable

LOG_FOLDERS = ("_delta_log", "metadata", ".hoodie")
"""Where tables keep their logs: Delta, Iceberg, Hudi."""
_TABLE_LOG = re.compile(
    r"(?P<root>(?:.*/)?)(?:_delta_log/[0-9]{20}\.json|metadata/[^/]+\.metadata\.json|\.hoodie/(?:timeline/)?[0-9_]+\.[a-z]+)"
)


def key_below(base_uri: str, uri: str) -> str:
    """The key of ``uri`` in the store that was opened at ``base_uri``; ``""`` for the base itself.

    Raises `ConfigurationError` where it is not below it.
    """
    base, text = comparable(base_uri), comparable(uri)
    if text == base:
        return ""
    if not text.startswith(base + "/"):
        raise ConfigurationError(
            f"expected a location below the store {base_uri}, found {uri}: open the store that holds it",
            code="location-of-other-store",
        )
    return text[len(base) + 1 :]


def listing_prefix(base_uri: str, location: str) -> str:
    """What to list in that store to see everything below ``location`` and nothing beside it. Raises as `key_below`."""
    key = key_below(base_uri, location)
    return f"{key}/" if key else ""


def is_hidden_from_spark(name: str) -> bool:
    """True for a file or a folder that Spark leaves out when it reads a folder; ``_day=1`` is a column."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_read_by_spark(path: str) -> bool:
    """True for what decides the rows of a folder: a file that Spark lists in it, or a commit in a table's log.

    False for folders, markers and unfinished work of committers, and for other names that Spark hides.
    """
    if table_of_log(path) is not None:
        return True
    return not path.endswith("/") and not any(map(is_hidden_from_spark, path.split("/")))


def table_of_log(path: str) -> str | None:
    """The folder of the table (Delta, Iceberg, Hudi) of which ``path`` is a commit in its log; `None`: it is none.

    The folder ends with a slash; it is empty if the paths are below the table itself.
    """
    match = _TABLE_LOG.fullmatch(path)
    return match["root"] if match is not None else None


def is_hidden(path: str) -> bool:
    """True for what Spark and Hadoop keep beside data: a segment that begins with ``_`` or ``.``, or a folder."""
    return path.endswith("/") or any(name.startswith(("_", ".")) for name in path.split("/"))
