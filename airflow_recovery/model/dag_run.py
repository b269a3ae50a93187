"""The DAG run that an attempt was made for, as its claim and its finish have it.

Names of conf, params and fields are readable. Their values are not: each is a digest with the key of the journal
(`airflow_recovery.journal.owner.digest_key`). So a record in a bundle or a log gives no way to try out short values. A
reader of the whole journal has the key as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_recovery.model.codec import later

Digests = tuple[tuple[str, str], ...]
"""(name, digest of the value), by name."""

RECOVERY = "recovery"
"""The key of conf that is ours: no input of a task."""
_MAX_NAMES = 64
_MAX_NAME_CHARACTERS = 100
_TIMES = ("logical_date", "data_interval_start", "data_interval_end", "run_after")
_TEXTS = ("run_type", "partition_key")
_BY_TIMETABLE = ("scheduled__", "backfill__")


@dataclass(frozen=True)
class DagRunRecord:
    """A DAG run, without the values of its conf and params. Times are ISO 8601 in UTC.

    ``fields``: what an operator's task has rendered. At most 64 names each; the others share one digest.
    """

    run_id: str
    run_type: str
    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None
    run_after: str | None
    partition_key: str | None = later(None)
    conf: Digests = later(())
    params: Digests = later(())
    fields: Digests = later(())

    @property
    def interval(self) -> tuple[str, str] | None:
        """The start and the end of the data interval; `None` if the run has none."""
        if self.data_interval_start is None or self.data_interval_end is None:
            return None
        return self.data_interval_start, self.data_interval_end

    def changes_since(self, before: DagRunRecord) -> Iterator[str]:
        """Each field and key that has another value than in ``before``, in words. Readable ones with both values."""
        sections = [("conf.", before.conf, self.conf), ("params.", before.params, self.params)]
        if before.fields and self.fields:  # only the region's own task has rendered its fields
            sections.append(("", before.fields, self.fields))
        for prefix, then, now in sections:
            known, today = dict(then), dict(now)
            yield from (f"{prefix}{name}" for name in sorted({*known, *today}) if known.get(name) != today.get(name))
        for name in (*_TIMES, *_TEXTS):
            was, is_now = getattr(before, name), getattr(self, name)
            if was != is_now:
                yield f"{name} (then {was}, now {is_now})"

    def differs_by_interval_alone(self, before: DagRunRecord) -> bool:
        """Whether both runs are of one date with one conf and one set of params, and have different intervals."""
        if None in (self.interval, before.interval) or self.interval == before.interval:
            return False
        same = ("logical_date", "partition_key", "conf", "params")
        return all(getattr(self, name) == getattr(before, name) for name in same)


@dataclass(frozen=True)
class DagRunFacts:
    """A DAG run as its task sees it, with all values. They never leave the task's process.

    ``fields``: what is rendered for a region, by name, for the regions whose own task this is.
    """

    run_id: str
    run_type: str
    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None
    run_after: str | None
    partition_key: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def record(self, region: str, key: Callable[[], str]) -> DagRunRecord:
        """The record for an attempt of ``region``. ``key`` is called only if there is a value to digest."""
        own = {name: value for name, value in self.conf.items() if name != RECOVERY}

        def digests(section: str, values: Mapping[str, Any]) -> Digests:
            return _digests(key(), section, values) if values else ()

        return DagRunRecord(
            run_id=self.run_id,
            run_type=self.run_type,
            logical_date=self.logical_date,
            data_interval_start=self.data_interval_start,
            data_interval_end=self.data_interval_end,
            run_after=self.run_after,
            partition_key=self.partition_key,
            conf=digests("conf", own),
            params=digests("params", self.params),
            fields=digests("fields", self.fields.get(region, {})),
        )


def is_by_timetable(run_id: str) -> bool:
    """Whether the timetable has chosen the run's interval: a scheduled run, or one that a backfill has created.

    The run type does not show it: a backfill that clears a triggered run changes its type, and keeps its interval.
    Airflow refuses run ids that begin like these for all other runs.
    """
    return run_id.startswith(_BY_TIMETABLE)


def _digests(key: str, section: str, values: Mapping[str, Any]) -> Digests:
    def digest(name: str, value: Any) -> str:
        text = json.dumps([section, name, value], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), key=key.encode()[:64], digest_size=8).hexdigest()

    names = sorted(values)
    first, others = names[:_MAX_NAMES], names[_MAX_NAMES:]
    found = [(_short(name), digest(name, values[name])) for name in first]
    if others:
        found.append((f"({len(others)} others)", digest("", [[name, values[name]] for name in others])))
    return tuple(found)


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}..."
