"""Whether the registered objects of an attempt are there: asked of the stores, once per attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from airflow_recovery.errors import OutputAltered
from airflow_recovery.failover.reason import Evidence, Reason, Why
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.shuffle.availability import AvailabilityState, probe_manifest
from airflow_recovery.shuffle.lifecycle import rule_text, rules_over
from airflow_recovery.shuffle.manifest import PartitionManifest
from airflow_recovery.storage.object_store import ObjectStore

MAX_EVIDENCE = 10
"""Objects of one result that a reason names one by one."""


class OnAltered(str, Enum):
    """What happens when objects at a user's own output location are not those that were registered there."""

    STOP = "stop"
    """Stop and say so: newer data is never overwritten by itself."""

    RECOMPUTE = "recompute"
    """Treat it as lost: the producer runs again and overwrites what is there."""


class ResultProber:
    """Answers `Available` for one judgement after another; each judgement asks once, and nothing is kept between two.

    ``open_location`` opens the store that holds a location. ``on_altered`` holds the policy of the regions that write
    to a user's own location; below our own prefixes, altered is lost. At a user's own location it is lost too where a
    later attempt was claimed: what lies there may be its unfinished work, and nothing newer.

    Raises the store's errors: "denied" and "timed out" are no answers. Raises `OutputAltered` by policy.
    """

    def __init__(
        self,
        open_location: Callable[[str], ObjectStore],
        on_altered: Mapping[str, OnAltered] | None = None,
    ) -> None:
        self._open = open_location
        self._on_altered = on_altered or {}

    def __call__(self, region: str, attempt: Attempt) -> Reason | None:
        """`None` where every registered object of ``attempt`` is there as registered, else why not."""
        outputs = attempt.outcome.outputs if attempt.outcome is not None else ()
        for manifest in outputs:
            store = self._open(manifest.location)
            found = probe_manifest(store, manifest)
            if found.is_available and not found.added:
                continue
            evidence = found.evidence[0] + (f" and {len(found.evidence) - 1} more" if len(found.evidence) > 1 else "")
            detail = f"attempt {attempt.number}: {evidence}"
            if not manifest.managed and not attempt.is_followed and (found.altered or found.added):
                self._judge_altered(region, manifest, detail)
            is_missing = found.state is AvailabilityState.MISSING
            said = tuple(Evidence(f"a listing of {manifest.location}", each) for each in found.evidence[:MAX_EVIDENCE])
            rules = rules_over(store, manifest.location)[:1] if is_missing else ()
            for rule in map(rule_text, rules):
                detail += f"; {rule}"
                said += (Evidence("the bucket's lifecycle rules", rule),)
            return Reason(region, Why.OUTPUT_MISSING if is_missing else Why.OUTPUT_ALTERED, detail, evidence=said)
        return None

    def _judge_altered(self, region: str, manifest: PartitionManifest, detail: str) -> None:
        if self._on_altered.get(region, OnAltered.STOP) is OnAltered.STOP:
            raise OutputAltered(
                f"{region}: {manifest.location} is not as it was registered ({detail}). It may hold newer data, so it "
                "is neither read nor overwritten. Restore it, or clear this task after moving the data away; or "
                "declare on_altered='recompute' to have it made again whenever it was altered."
            )
