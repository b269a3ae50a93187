"""For readers outside a run: a published result that nobody is about to replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from airflow_recovery.errors import NotPublished
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Claim


class NamesPublish(Protocol):
    """A result that a publish names."""

    @property
    def publish(self) -> int:
        """The number of that publish."""
        ...


P = TypeVar("P", bound=NamesPublish)


def settled_result(
    journal: Journal,
    what: str,
    find: Callable[[], P],
    check_run: Callable[[P, Sequence[Claim]], None],
    may_finish: Callable[[Claim], bool],
) -> P:
    """The result ``what``, if no run and no driver is about to replace it.

    ``find`` gives the result that the newest publish names. ``check_run`` is given it and the open claims of newer
    attempts, and raises if the DAG run may publish something else. ``may_finish`` says whether such an attempt is at
    work. Each of them may raise `NotPublished` with the reason to wait, and so does this function.
    """
    find()
    claims = journal.open_claims()
    # Once more: an attempt that has finished just before that listing is no open claim, and this sees its finish.
    result = find()
    named = {region.region: region.attempt for region in journal.read_publish(result.publish).regions}
    newer = [claim for claim in claims if claim.attempt > named.get(claim.region, 0)]
    check_run(result, newer)
    for claim in newer:
        if may_finish(claim):
            raise NotPublished(
                f"{what}: publish {result.publish} names it, and the driver of {claim.region}@{claim.attempt} is at "
                "work on a newer attempt: expected it to end."
            )
    return result
