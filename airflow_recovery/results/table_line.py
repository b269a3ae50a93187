"""The commits of one table: which of them a region has made, the version before those, and what others did since.

A region that reads and writes one table reads the version before its own commits. So a second attempt starts where the
first one did, and the region's own commit is no changed input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.model.keys import RegionKey


@dataclass(frozen=True)
class TableCommit:
    """One commit of a table.

    ``before``: the version that it was made on; empty: it is the table's first; `None`: the table does not tell.
    ``authors``: the tokens that it carries. ``keeps_rows``: it changed files or settings, and no rows.
    """

    version: str
    before: str | None
    authors: tuple[str, ...] = ()
    keeps_rows: bool = False


@dataclass(frozen=True)
class TableLine:
    """The commits that the newest version consists of, the newest first, as far back as the table remembers.

    ``undone``: versions that the table knows, and that do not belong to the newest one any more. ``is_whole``: the
    line goes back to the table's first commit.
    """

    commits: tuple[TableCommit, ...]
    undone: frozenset[str] = frozenset()
    is_whole: bool = False

    def seen_by(self, key: RegionKey) -> OwnCommits:
        """Split the line into the commits of the region ``key``, and all others."""
        own = [at for at, commit in enumerate(self.commits) if attempt_in(commit.authors, key) is not None]
        if not own:
            newest = self.commits[0].version if self.commits else ""
            return OwnCommits(newest, (), (), self)
        since = self.commits[: own[-1] + 1]
        others = tuple(commit.version for at, commit in enumerate(since) if at not in own and not commit.keeps_rows)
        return OwnCommits(self.commits[own[-1]].before, tuple(self.commits[at] for at in own), others, self)

    def others_since(self, base: str, key: RegionKey) -> tuple[str, ...]:
        """The versions after ``base`` whose commits changed rows and are not of the region ``key``, newest first."""
        found: list[str] = []
        for commit in self.commits:
            if commit.version == base:
                break
            if not commit.keeps_rows and attempt_in(commit.authors, key) is None:
                found.append(commit.version)
        return tuple(found)

    def may_have_forgotten(self, version: str) -> bool:
        """Whether that version may be a part of the newest one, though the table does not list it any more."""
        known = any(commit.version == version for commit in self.commits) or version in self.undone
        return not known and not self.is_whole


@dataclass(frozen=True)
class OwnCommits:
    """What one region sees of a table that it reads and writes.

    ``base``: the version before its own commits: the newest one if it has made none; empty: there is none; `None`: the
    table does not tell. ``own``: its commits, newest first. ``others``: the versions on top of the base by others.
    """

    base: str | None
    own: tuple[TableCommit, ...]
    others: tuple[str, ...]
    line: TableLine


def attempt_in(authors: Iterable[str], key: RegionKey) -> int | None:
    """The attempt of the region ``key`` that has made a commit with these tokens; `None`: another region has."""
    of_token = re.escape(key.path) + r"@(\d+)@.*"  # of an application, and of an Iceberg sink
    of_delta_sink = rf"{re.escape(key.region)}@(\d+) of {re.escape(f'{key.dag_id} / {key.run_key}')}"
    for author in authors:
        found = re.fullmatch(of_token, author) or re.fullmatch(of_delta_sink, author)
        if found is not None:
            return int(found[1])
    return None
