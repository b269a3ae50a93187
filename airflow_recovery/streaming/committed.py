"""What the last streaming region of a chain has committed so far: fresh results, for readers that can't wait."""

from __future__ import annotations

from airflow_recovery.errors import NotPublished
from airflow_recovery.journal.published import CLEAR_WHAT_WAS_PURGED
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.results.mode import CommittedBatches
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.folder import ChannelFolder
from airflow_recovery.streaming.ledger import loss_report
from airflow_recovery.streaming.mode import StreamingPlan
from airflow_recovery.streaming.ranges import size
from airflow_recovery.streaming.reading import newest_of, read_channel


def committed_batches(
    results: ObjectStore,
    run: RunIdentity,
    plan: PlanRecord,
    state: RunState,
    result: str,
    *,
    newest_batch: bool = False,
) -> CommittedBatches:
    """Of every generation that counts. ``newest_batch``: of a running table (``output="complete"``) alone.

    Raises `NotPublished` where ``result`` is not made by a last streaming region, or its run was purged, and as
    `read_channel`.
    """
    last = next(
        (region for region in plan.regions if result in region.results and StreamingPlan.of(region).channels_in), None
    )
    if last is None:
        made = sorted(
            name for region in plan.regions if StreamingPlan.of(region).channels_in for name in region.results
        )
        raise NotPublished(
            f"{run.dag_id} / {run.run_key} / {run.group_id}: expected a result that is made from a channel, batch by "
            f"batch, found {result!r}. There is {', '.join(made) or 'none in this job: read what is published'}.",
            code="not-made-from-channel",
            found=result,
        )
    if state.is_purged:
        raise NotPublished(
            f"{run.dag_id} / {run.run_key} / {run.group_id}: this run was purged, and what it has committed of "
            f"{result!r} with it. {CLEAR_WHAT_WAS_PURGED}",
            code="channel-run-purged",
        )
    (channel,) = StreamingPlan.of(last).channels_in
    files: list[str] = []
    batch, records, lost, is_known = -1, 0, 0, True
    for generation in state.of(channel.producer).generations:
        identity = ChannelIdentity(run, channel.result, generation)
        log, folder = read_channel(results, identity), ChannelFolder(identity)
        outputs = newest_of(log.outputs) if newest_batch else tuple(log.outputs)
        if newest_batch and outputs:
            files.clear()
        files += (f"{results.base_uri}/{folder.object(output)}" for output in outputs)
        report = loss_report(channel.result, log)
        batch, is_known = max(batch, log.checkpoint), is_known and report.total_lost is not None
        records, lost = records + sum(size(sub.committed) for sub in log.subs), lost + report.lost
    return CommittedBatches(last.name, tuple(files), batch, records, lost if is_known else None)
