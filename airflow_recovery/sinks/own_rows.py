"""Follow the rows of one commit through the later commits of a lake table, by the files that hold them.

A lake table's log says which files each commit has added and removed, with their numbers of rows. A file that is
removed takes its rows along, unless the same commit has copied them to new files (a compaction, or the rest of a file
after a DELETE or an UPDATE).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from airflow_recovery.errors import SinkUnavailable
from airflow_recovery.sinks.committer import CommitToken, FoundRows, Rows


class OwnRows:
    """The files that hold rows of the commit which has added ``files``, given as {path: number of rows}."""

    def __init__(self, files: Mapping[str, int]) -> None:
        self.expected = sum(files.values())
        self.is_certain = True
        """False: a commit has removed rows from files that hold rows of others too, and does not say whose."""
        self._files = dict(files)
        self._ever = dict(files)
        self._mixed: set[str] = set()
        self._may_be_elsewhere = False

    @property
    def count(self) -> int:
        """How many of the rows are there; at most that many where it is not certain."""
        return sum(self._files.values())

    @property
    def paths(self) -> Set[str]:
        """The files that hold them, alone or with rows of others."""
        return self._files.keys()

    def follow(
        self, removed: Collection[str], added: Mapping[str, int], deleted: int | None, *, is_known: bool = False
    ) -> None:
        """Take the next commit into account.

        ``deleted``: how many rows it has left out when it copied those of ``removed`` to ``added``. `None`: the files
        that it has added are no such copies. ``is_known``: then they certainly hold none of the rows; else somebody
        may have read the rows, removed them, and written them anew.
        """
        gone = {path: self._files.pop(path) for path in removed if path in self._files}
        # A restore adds a file again that was there before; a deletion vector replaces a file by itself.
        back = {path: self._ever[path] for path in added if path in self._ever and path not in gone}
        new = {path: rows for path, rows in added.items() if path not in back}
        self._files |= back
        was_mixed = bool(self._mixed & gone.keys())
        if was_mixed and deleted != 0:
            self.is_certain = False
        if deleted is None and not is_known and any(new.values()) and self.count < self.expected:
            self._may_be_elsewhere = True
        if not gone or deleted is None or not new:
            return
        if not was_mixed and len(gone) == len(removed):
            copies = new
        else:
            # How the rows lie in several files is not known: only that they are in these.
            self.is_certain = self.is_certain and not deleted
            copies = dict.fromkeys(new, 0) | {next(iter(new)): sum(gone.values())}
            self._mixed |= new.keys()
        self._files |= copies
        self._ever |= copies

    def found(self, *, others: bool, is_replaced: bool) -> FoundRows | None:
        """The answer of `ChecksRows.rows`; `None` if the log does not tell.

        ``others``: the table holds rows that others have written since. ``is_replaced``: the sink's mode is replace.
        """
        if not self._files and self.expected:
            text = f"it holds none of its {self.expected} rows" + (", but rows of somebody else" if others else "")
            if is_replaced:
                return FoundRows(Rows.OVERWRITTEN if others else Rows.REMOVED, text)
            return FoundRows(Rows.PARTLY if self._may_be_elsewhere else Rows.REMOVED, text)
        if not self.is_certain:
            return None
        if self.count >= self.expected:
            return FoundRows(Rows.THERE)
        text = f"it holds {self.count} of its {self.expected} rows"
        return FoundRows(Rows.OVERWRITTEN if others and is_replaced else Rows.PARTLY, text)


def rows_of_key(token: CommitToken, count: int, expected: int | None, *, is_held: bool, is_replaced: bool) -> FoundRows:
    """What `ChecksRows.rows` answers if the table has a run column, and ``count`` rows with the token's key in it.

    ``expected``: how many the attempt has prepared. ``is_held``: the table holds the token. Rows with other keys are
    those of other owners, and count neither as removed nor as overwritten. Raises `SinkUnavailable`.
    """
    if is_held and expected == 0:
        return FoundRows(Rows.THERE)
    if count == 0:
        return FoundRows(Rows.REMOVED, f"it has no rows with the key {token.lineage}")
    if not is_held:
        text = f"it has {count} rows with the key {token.lineage}, and does not hold the token"
        return FoundRows(Rows.OVERWRITTEN if is_replaced else Rows.PARTLY, text)
    if expected is None:
        raise SinkUnavailable(f"{token.text}: how many rows were committed is not recorded.")
    if count >= expected:
        return FoundRows(Rows.THERE)
    return FoundRows(Rows.PARTLY, f"it has {count} of the {expected} rows with the key {token.lineage}")
