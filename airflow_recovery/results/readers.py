"""Who reads the data of an attempt: the open claims that rest on it, and people who have pinned it."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.errors import AttemptLost, ObjectMissing
from airflow_recovery.journal.journal import DataInUse, Journal
from airflow_recovery.journal.layout import shared_identity
from airflow_recovery.model.groups import RegionGroup
from airflow_recovery.model.inputs import InputGroupRef, Inputs
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome, RunAttempt, SharedRef

PINNED = "a person, who has pinned it,"
"""In place of a reader's name."""


def readers_of(journal: Journal, region: str, *numbers: int) -> list[str]:
    """The open claims that read, or have adopted batches of, one of these attempts of ``region``, as text.

    A claim of which nobody can tell what it reads may read any. `PINNED` is among them where a person has pinned one of
    the attempts.
    """
    return look_for_readers(journal).of(region, *numbers)


def look_for_readers(journal: Journal) -> Readers:
    """Who reads whatever attempts of the run now, by one listing and the open claims."""
    return Readers(journal.data_in_use())


class Readers:
    """The open claims that rest on attempts, and the pinned attempts, as one look has found them.

    A claim of which nobody can tell what it reads may read any attempt.
    """

    def __init__(self, in_use: DataInUse) -> None:
        self._pinned = in_use.pinned
        self._reading: dict[tuple[str, int], list[str]] = {}
        self._reading_groups: dict[InputGroupRef, tuple[RegionGroup, list[str]]] = {}
        self._reading_any: list[str] = []
        for claim in in_use.claims:
            name, inputs = f"{claim.region}@{claim.attempt}", Inputs.of(claim.inputs)
            for read in _read_singly(claim):
                self._reading.setdefault(read, []).append(name)
            if not inputs.is_known:
                self._reading_any.append(name)
                continue
            for ref in inputs.groups.values():
                self._reading_groups.setdefault(ref, (inputs.group(ref), []))[1].append(name)

    def of(self, region: str, *numbers: int) -> list[str]:
        """As `readers_of`."""
        readers = [reader for number in numbers for reader in self._reading.get((region, number), ())]
        for ref, (group, names) in self._reading_groups.items():
            if region in group.index_of and ref.attempts[group.index_of[region]] in numbers:
                readers += names
        is_pinned = any((encode(region), number) in self._pinned for number in numbers)
        return [*dict.fromkeys([*readers, *self._reading_any]), *([PINNED] if is_pinned else [])]


def read_by(claims: Iterable[Claim]) -> set[tuple[str, int]]:
    """(region, attempt) of everything that these open claims rest on. Raises `InputsUnknown`."""
    groups: set[InputGroupRef] = set()
    used: set[tuple[str, int]] = set()
    for claim in claims:
        used |= _read_singly(claim)
        used |= {(ref.region, ref.attempt) for ref in Inputs.of(claim.inputs).unseen(groups)}
    return used


def _read_singly(claim: Claim) -> set[tuple[str, int]]:
    """What it reads or has adopted, but for the groups among its inputs."""
    inputs = {(ref.region, ref.attempt) for ref in Inputs.of(claim.inputs).singles.values()}
    return inputs | {(claim.region, attempt) for attempt in claim.mode.attempts}


def reader_name(owner: RunAttempt) -> str:
    """The name of a reading region in the journal of shared results. Region names have no slash, so none is like it."""
    return RegionKey(owner.dag_id, owner.run_key, owner.group_id, owner.region).path


def ended(
    journal: Journal, region: str, attempt: int, why: str, cause: FenceCause | None = FenceCause.SUPERSEDED
) -> Outcome:
    """The outcome that ends an attempt whose run, or whose reader, is over. It names no time. Writes nothing."""
    return Outcome(region, attempt, AttemptState.FENCED, journal.writer, ended_at="", cause=cause, detail=why)


def end_reading(journal: Journal, shared: SharedRef, owner: RunAttempt, who: str) -> None:
    """``owner`` does not read the shared result any more. Ending it twice is once."""
    shared_journal = Journal(journal.store, shared_identity(shared.key), writer=journal.writer)
    reader = reader_name(owner)
    try:
        shared_journal.read_claim(reader, owner.attempt)
        shared_journal.fence(ended(journal, reader, owner.attempt, f"let go by {who}"))
    except ObjectMissing:
        return  # it had ended, and the shared result was purged since
    except AttemptLost:
        return  # somebody else ended it
