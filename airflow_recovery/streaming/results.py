"""What streaming regions leave in the store of results: segments, outputs of batches, Spark's checkpoints.

    a generation that nobody works with any more       its segments and outputs go
    its consumer has finished                          they go as well: the result was written once more, beside them
    it has ended, and its consumer has not finished    what no record names goes
    it is open                                         nothing goes
    checkpoints of a region                            go when the region has finished, or started over behind them
    a purged run                                       everything goes

But for the last case control logs stay: some kilobytes that say what was lost. Nothing goes before the grace time.

The journal is read before the listing, and what is asked of it can't become untrue: what was abandoned stays so.
Whoever resets a region that had finished may find the channel's data gone; it then starts over with all that is
connected to it, as a region always does at a channel that has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_recovery.errors import ChannelInconsistent, RecordInvalid
from airflow_recovery.journal.in_use import RunInUse
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.names import encode
from airflow_recovery.model.retention import duration_text
from airflow_recovery.results.mode import CommittedBatches, ResultsMode
from airflow_recovery.results.sweep_found import CLOCK_MARGIN_S, modified_s
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.results.swept_run import SweepOptions, SweptRun
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.streaming.channel_retention import orphans
from airflow_recovery.streaming.committed import committed_batches
from airflow_recovery.streaming.folder import CHECKPOINTS
from airflow_recovery.streaming.mode import ChannelRef, StreamingOutcome, StreamingPlan
from airflow_recovery.streaming.reading import read_channel
from airflow_recovery.streaming.run_channels import RunChannel, run_channels

_IN_CHANNEL = re.compile(r"(?P<edge>[^/]+)/(?P<generation>[1-9][0-9]*)/(?P<key>(?P<kind>log|seg|out)/.+)")
_OF_CHECKPOINT = re.compile(
    rf"{CHECKPOINTS}/(?P<region>[^/]+)/(?P<attempt>[1-9][0-9]*|[0-9]{{8}}(?=-))(?:-[0-9a-f]{{8}})?/.+"
)


class StreamingResults(ResultsMode):
    """What of a run's segments, outputs and checkpoints may be deleted, and what the last region has committed."""

    def sweep(
        self, run: SweptRun, results: ObjectStore, report: SweepReport, options: SweepOptions, *, now_s: float
    ) -> None:
        """Delete what the table of this module says, once it is older than the grace time."""
        if not any(isinstance(group.template.mode, StreamingPlan) for group in run.plan.groups):
            return
        sweep = _ChannelSweep(run, results, report, options, now_s)
        prefix = run.journal.layout.channels
        channels: dict[tuple[str, int], list[ObjectInfo]] = {}
        checkpoints: dict[tuple[str, int], list[ObjectInfo]] = {}
        for info in results.list(prefix):
            path = info.key[len(prefix) :]
            if (of_checkpoint := _OF_CHECKPOINT.fullmatch(path)) is not None:
                checkpoints.setdefault((of_checkpoint["region"], int(of_checkpoint["attempt"])), []).append(info)
            elif (match := _IN_CHANNEL.fullmatch(path)) is not None:
                if match["kind"] != "log":
                    channels.setdefault((match["edge"], int(match["generation"])), []).append(info)
            else:
                report.add(f"{run.where}: {info.key}", Action.KEPT, "it is no channel's", 1, info.size)
        for (edge, generation), listed in channels.items():
            sweep.channel(edge, generation, listed)
        for (region, attempt), listed in checkpoints.items():
            sweep.checkpoints(region, attempt, listed)

    def purged(self, run: SweptRun, results: ObjectStore, *, has_come_back: bool) -> list[ObjectInfo]:
        """Everything of its channels; where it has come back, what was made before that."""
        prefix = run.journal.layout.channels
        listed = list(results.list(prefix))
        if not has_come_back:
            return listed
        producers = {
            encode(plan.result): region.name
            for region in run.plan.regions
            for plan in StreamingPlan.of(region).channels_out
        }
        infos = []
        for info in listed:
            path = info.key[len(prefix) :]
            of_checkpoint, in_channel = _OF_CHECKPOINT.fullmatch(path), _IN_CHANNEL.fullmatch(path)
            if of_checkpoint is not None:
                region, number = run.names.get(of_checkpoint["region"]), int(of_checkpoint["attempt"])
            elif in_channel is not None:
                # A generation is numbered above every attempt of its producer that was closed.
                region, number = producers.get(in_channel["edge"]), int(in_channel["generation"])
            else:
                continue
            if region is not None and number <= run.state.of(region).closed_at:
                infos.append(info)
        return infos

    def committed(
        self, results: ObjectStore, journal: Journal, run: RunInUse, result: str, *, newest_batch: bool
    ) -> CommittedBatches:
        """What the region that makes ``result`` has committed so far. Raises as `committed_batches`."""
        return committed_batches(results, journal.identity, run.plan, run.state, result, newest_batch=newest_batch)


class _ChannelSweep:
    def __init__(
        self, run: SweptRun, results: ObjectStore, report: SweepReport, options: SweepOptions, now_s: float
    ) -> None:
        self._run = run
        self._results = results
        self._report = report
        self._latest_s = now_s - CLOCK_MARGIN_S - options.grace_s
        self._grace_s = options.grace_s
        self._dry_run = options.dry_run
        self._known = {
            (encode(channel.edge), channel.generation): channel for channel in run_channels(run.plan, run.state)
        }

    def channel(self, edge: str, generation: int, listed: list[ObjectInfo]) -> None:
        channel = self._known.get((edge, generation))
        what = f"channel {edge if channel is None else channel.edge}, generation {generation}"
        if channel is None:
            self._kept(what, listed, "the plan in use has no such channel")
            return
        why, infos = self._why_all(channel), listed
        if why is None:
            try:
                state = read_channel(self._results, channel.identity(self._run.journal.identity))
            except (ChannelInconsistent, RecordInvalid) as error:
                self._report.unread.append(f"{self._run.where} / {what} was left as it is: {error}")
                return
            if not state.is_finished:
                self._kept(what, listed, "it is open")
                return
            skip = len(f"{self._run.journal.layout.channels}{edge}/{generation}/")
            gone = set(orphans(state, (info.key[skip:] for info in listed)))
            infos = [info for info in listed if info.key[skip:] in gone]
            why = "no record names it"
            if len(infos) < len(listed):
                rest = [info for info in listed if info.key[skip:] not in gone]
                self._kept(what, rest, "its records name them, and its consumer has not finished")
        self._delete(what, infos, why)

    def checkpoints(self, name: str, attempt: int, listed: list[ObjectInfo]) -> None:
        region = self._run.names.get(name)
        what = f"checkpoints of {region or name}@{attempt}"
        state = self._run.state.of(region or "")
        if region is None or attempt > state.latest_attempt:
            self._kept(what, listed, "it was never claimed")
        elif attempt <= state.restarted_up_to:
            self._delete(what, listed, "the region has started over since")
        elif state.current is not None and state.current.number >= attempt:
            self._delete(what, listed, f"{region}@{state.current.number} has finished")
        else:
            self._kept(what, listed, "the next attempt goes on from them")

    def _why_all(self, channel: RunChannel) -> str | None:
        """Why nobody will ever read any of it; `None` where somebody may."""
        if not channel.counts:
            return "both sides have started over since"
        state = self._run.state.of(channel.consumer or "")
        outcome = state.current.outcome if state.current is not None else None
        newest = max(known.generation for known in self._known.values() if known.edge == channel.edge)
        if outcome is not None and ChannelRef(channel.edge, newest) in StreamingOutcome.of(outcome).channels:
            return f"its consumer {channel.consumer}@{outcome.attempt} has finished"
        return None

    def _delete(self, what: str, listed: Iterable[ObjectInfo], why: str) -> None:
        """What is old enough."""
        old = [info for info in listed if modified_s(info) <= self._latest_s]
        new = [info for info in listed if modified_s(info) > self._latest_s]
        if old:
            if not self._dry_run:
                self._results.delete([info.key for info in old])
            self._report.add(
                f"{self._run.where} / {what}", Action.DELETED, why, len(old), sum(info.size for info in old)
            )
        if new:
            self._kept(what, new, f"{why}, within the grace time of {duration_text(self._grace_s)}")

    def _kept(self, what: str, listed: list[ObjectInfo], why: str) -> None:
        size = sum(info.size for info in listed)
        self._report.add(f"{self._run.where} / {what}", Action.KEPT, why, len(listed), size)


MODE = StreamingResults()
