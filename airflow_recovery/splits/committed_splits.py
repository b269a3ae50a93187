"""Which splits a region has read and committed, whatever has become of the listing since (``vanished="keep"``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from airflow_recovery.errors import UserCodeError
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import names
from airflow_recovery.splits.committed_batches import adoptable, numbers_of
from airflow_recovery.splits.mode import SplitClaim

if TYPE_CHECKING:
    from airflow_recovery.journal.journal import Journal


def committed_splits(journal: Journal, region: str, vertex: str) -> frozenset[str]:
    """Content keys of the splits of ``vertex`` in the finish that counts, and in what its next attempt may take over.

    One listing and a read for each attempt and batch. Raises the store's errors, and `PagesDisagree`.
    """
    state = journal.load(journal.list([region])).of(region)
    committed: set[str] = set()
    if state.current is not None and state.current.outcome is not None:
        committed |= {
            Split.of_external(external).key for external in state.current.outcome.externals if external.vertex == vertex
        }
    claims = {
        claim.attempt: claim
        for claim in journal.read_claims(
            (region, number)
            for number, attempt in state.attempts.items()
            if attempt.is_claimed and number > state.invalid_up_to
        )
    }
    reading = SplitClaim.of(claims[max(claims)]).reading if claims else None
    if reading is not None:
        batches = journal.read_committed_batches(region, numbers_of(adoptable(state, claims, reading)))
        committed |= {key for batch in batches for key in batch.splits}
    return frozenset(committed)


def check_kept(region: str, lost: Collection[Split]) -> None:
    """Raise `UserCodeError` where ``lost`` has a split: one that has vanished, and whose rows can't be adopted."""
    if lost:
        raise UserCodeError(
            f"{region}: expected what was read of {len(lost)} splits that are not listed any more, and are kept "
            f'(vanished="keep"), found nothing that can be taken over: {names(lost)}. They were read by other code, or '
            "with other side inputs, or what was made of them is gone. Restore them; or restart the region, which then "
            "reads what is listed",
            code="kept-splits-lost",
        )
