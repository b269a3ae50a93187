"""How a sink takes over what an attempt has prepared: the kinds of docs/protocol.md#commits, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_recovery.model.codec import later


class CommitKind(str, Enum):
    """What a commit may be repeated on. A sink without a commit is a manifest sink: its finish is its commit."""

    TOKEN = "token"
    """The target applies a token at most once, so any process may commit an attempt, at any time, again."""

    PROBE_ONLY = "probe-only"
    """The target can only be asked whether it was done. One process commits, and nobody else while that may live."""


class CommitMode(str, Enum):
    """What a second attempt of a region that has committed does to the target."""

    APPEND = "append"
    """It would add its rows to those of the first, so it never commits: the region stops with a named reason."""

    REPLACE = "replace"
    """It commits over the first, and the target refuses lower attempts from then on."""


class Replaces(str, Enum):
    """Which rows of a target a commit deletes before it adds its own."""

    NOTHING = "nothing"
    """It only adds rows."""

    RUN = "run"
    """The rows that have the key of this run and task in the sink's ``run_column``."""

    LATEST = "latest"
    """All rows, unless a later date of the same task has committed: then it commits nothing."""

    ALL = "all"
    """All rows of the target."""


@dataclass(frozen=True)
class CommitSpec:
    """Where and how the result ``result`` of a region is committed, as plans and outcomes hold it.

    ``sink`` is the declaration's class as ``module:name``, ``config`` its fields as canonical JSON, without secrets.
    """

    result: str
    kind: CommitKind
    mode: CommitMode
    sink: str
    config: str
    number: int | None = later(None)
    """Of a finish: as which attempt the target counts it. `None`: the plan's, and of a finish of the version before,
    whose target counts it as what it is, and does not know its writer."""

    def has_same_target(self, other: CommitSpec) -> bool:
        """Both commit into the same place, in the same way."""
        return (self.sink, self.config) == (other.sink, other.config)

    def has_same_place(self, other: CommitSpec) -> bool:
        """Both commit into the same place; which rows a commit replaces there may differ."""
        return (self.sink, _place(self.config)) == (other.sink, _place(other.config))


def _place(config: str) -> Any:
    """The fields without those that say what a commit does to the rows of others."""
    document = json.loads(config)
    if isinstance(document, dict):
        return {name: value for name, value in document.items() if name not in ("mode", "run_column", "keeps")}
    return document
