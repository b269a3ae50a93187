"""The tags with which attempts keep snapshots from being expired, for whoever lets attempts go."""

from __future__ import annotations

from airflow_recovery.errors import RecoveryError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.locations import TableLocation, is_table
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.results.tables import Tables, tag_of


class RunTags:
    """Those of one run's attempts, at the Iceberg tables that its regions have made, as far as ``state`` knows them.

    A tag is looked for by its whole name, which an attempt of this very run alone has. ``seen``: what tables were found
    to hold, or why they gave no answer, by location; whoever goes through many runs asks each table once.
    """

    def __init__(
        self, tables: Tables, journal: Journal, state: RunState, seen: dict[str, frozenset[str] | str] | None = None
    ) -> None:
        self._tables = tables
        self._journal = journal
        self._state = state
        self._seen = {} if seen is None else seen
        self._locations: dict[str, set[str]] = {}
        for name, region in state.regions.items():
            for attempt in region.attempts.values():
                for output in attempt.outcome.outputs if attempt.outcome is not None else ():
                    if is_table(output.location) and TableLocation.parse(output.location).is_iceberg:
                        self._locations.setdefault(name, set()).add(output.location)

    def held(self) -> tuple[dict[tuple[str, int], int], list[str]]:
        """How many tags there are of which attempts, and what is said of tables that gave no answer. Changes nothing.

        An attempt that has died with its tag set is found where another one of its region has finished.
        """
        counts: dict[tuple[str, int], int] = {}
        unasked: list[str] = []
        for name, locations in self._locations.items():
            for location in sorted(locations):
                tags = self._at(location)
                if isinstance(tags, str):
                    unasked.append(f"tags of {name} at {location} were left as they are: {tags}")
                    continue
                for number in range(1, self._state.of(name).latest_attempt + 1):
                    if self._tag(name, number) in tags:
                        counts[name, number] = counts.get((name, number), 0) + 1
        return counts, unasked

    def let_go(self, region: str, number: int) -> str:
        """Take an attempt's tags away, and nothing else. Returns which is left and why, or nothing."""
        tag = self._tag(region, number)
        locations = sorted(self._locations.get(region, ()))
        return "; ".join(filter(None, (self._take(location, tag) for location in locations)))

    def _take(self, location: str, tag: str) -> str:
        try:
            self._tables.let_go(location, tag)
        except RecoveryError as error:
            return f"tag {tag} at {location} is left to the next gc: {error}"
        return ""

    def _tag(self, region: str, number: int) -> str:
        return tag_of(self._journal.store.base_uri, RegionKey.of(self._journal.identity, region), number)

    def _at(self, location: str) -> frozenset[str] | str:
        if location not in self._seen:
            try:
                self._seen[location] = self._tables.our_tags(location)
            except RecoveryError as error:
                self._seen[location] = str(error)
        return self._seen[location]
