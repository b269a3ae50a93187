"""I9 and I15: what the control logs of a run's channels say, and whether journal and results agree with it."""

from __future__ import annotations

from functools import cached_property

from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.verify.channel_log import ChannelAccount, folder_of, read_account
from airflow_recovery.verify.closure import plan_in_use
from airflow_recovery.verify.finding import Answer, Finding, answer, not_applicable
from airflow_recovery.verify.history import Attempt, History
from airflow_recovery.verify.reading import RunName
from airflow_recovery.verify.records import Channel
from airflow_recovery.verify.rows import rows_in

_NEW_GENERATION = (
    "Do not publish this run. Clear the whole group, so that the streaming regions start over on new channels."
)
_BUDGET = "Do not publish this run: clear the whole group, or raise the budget and clear it."


class Channels:
    """The accounts of all channels that an attempt of the run has claimed. Reads nothing where there are none."""

    def __init__(self, history: History, run: RunName, results: ObjectStore | None) -> None:
        self.results = results
        self._run = run
        plan = plan_in_use(history)
        regions = plan.regions if plan is not None else ()
        self.producers = {channel: region.name for region in regions for channel in region.channels_out}
        self.consumers = {channel: region.name for region in regions for channel in region.channels_in}
        pins = (
            channel for attempt in history.attempts() if attempt.claim is not None for channel in attempt.claim.channels
        )
        self.claimed = sorted({pin for pin in pins if pin.result in self.producers})

    @cached_property
    def accounts(self) -> dict[Channel, ChannelAccount]:
        """The accounts by channel, without channels that nobody has opened."""
        if self.results is None:
            return {}
        accounts = {channel: read_account(self.results, self._run, channel) for channel in self.claimed}
        return {channel: account for channel, account in accounts.items() if account.slots or account.wrong}

    def folder(self, channel: Channel) -> str:
        """The prefix of a channel in the store of results, with a slash at the end."""
        return folder_of(self._run, channel)


def within_budget(channels: Channels, history: History) -> Answer:
    """I9, at every commit of every channel. An unknown loss can't be held to a budget: the answer names it."""
    splits = sum(outcome.lost_splits for _, outcome in history.finished())
    losses = [f"{splits} splits were given up"] if splits else []
    if not channels.accounts:
        why = "no ledger of lost records: " + ("there are no channels" if not channels.claimed else _unread(channels))
        return not_applicable(9, "; ".join([*losses, why]))
    findings = []
    for channel, account in channels.accounts.items():
        unknown = f" and an unknown number at {len(account.unknown)} restarts" if account.unknown else ""
        losses.append(f"{channel.result}#{channel.generation} lost {account.lost}{unknown}")
        findings += [Finding((key,), expected, text, _BUDGET) for key, expected, text in account.over_budget]
    return answer(9, ", ".join(losses), findings)


def every_record_once(channels: Channels, history: History, *, ended: bool, deep: bool) -> Answer:
    """I15. ``ended``: every channel that counts was read to its end. ``deep``: the result has the rows that the last
    region's commits name."""
    if not channels.accounts:
        return not_applicable(15, "there are no channels" if not channels.claimed else _unread(channels))
    findings: list[Finding] = []
    for channel, account in channels.accounts.items():
        findings += [Finding((key,), expected, text, _NEW_GENERATION) for key, expected, text in account.wrong]
        findings += _of_owners(channels, history, channel, account)
    for consumer in sorted(set(channels.consumers.values())):
        finish = _finish_of(history, consumer)
        if finish is not None:
            findings += _of_finish(channels, history, finish)
            if deep:
                findings += _of_rows(channels, history, finish)
        elif ended:
            expected, text = f"a finish of {consumer} that counts: its run has ended", "none"
            findings.append(Finding((), expected, text, f"Its success is not true. Clear the task of {consumer}."))
    records = sum(account.committed + account.lost for account in channels.accounts.values())
    slots = sum(account.slots for account in channels.accounts.values())
    void = sum(account.void for account in channels.accounts.values())
    outdated = f", {void} of them by attempts that had lost their end" if void else ""
    return answer(
        15, f"{records} records in {len(channels.accounts)} channels, {slots} entries of logs{outdated}", findings
    )


def _unread(channels: Channels) -> str:
    if channels.results is None:
        return f"the store of {len(channels.claimed)} channels was not given"
    return f"none of {len(channels.claimed)} channels has a log"


def _of_owners(channels: Channels, history: History, channel: Channel, account: ChannelAccount) -> list[Finding]:
    """Whoever has owned an end is an attempt that had claimed this channel in this generation.

    A consumer may have claimed a later one: it leaves this one, and loses or completes what was begun here.
    """
    findings = []
    ends = ((channels.producers, account.opened, False), (channels.consumers, account.viewed, True))
    for regions, owners, may_leave in ends:
        region = history.regions.get(regions.get(channel.result, ""))
        for number, key in owners.items() if region is not None else ():
            assert region is not None
            attempt = region.attempts.get(number)
            claimed = attempt.claim.channels if attempt is not None and attempt.claim is not None else ()
            same = [ref.generation for ref in claimed if ref.result == channel.result]
            is_owner = channel.generation in same or (
                may_leave and any(generation > channel.generation for generation in same)
            )
            if number > region.purged and not is_owner:
                where = f"{channel.result}, generation {channel.generation}"
                findings.append(
                    Finding((key,), f"a claim of {region.name}@{number} that names {where}", "none", _NEW_GENERATION)
                )
    return findings


def _finish_of(history: History, region: str) -> Attempt | None:
    known = history.regions.get(region)
    return known.current if known is not None else None


def _of_finish(channels: Channels, history: History, finish: Attempt) -> list[Finding]:
    """What a consumer has finished on was read to its end, and is what the producer has finished."""
    findings = []
    key = finish.entries["outcome"].key
    for channel in finish.outcome.channels if finish.outcome is not None else ():
        if channels.consumers.get(channel.result) != finish.of.region:
            continue
        account = channels.accounts.get(channel)
        where = f"{channel.result}, generation {channel.generation}"
        if account is None or not account.is_drained:
            behind = (
                "no log"
                if account is None
                else f"{account.published} published, {account.committed + account.lost} done"
            )
            findings.append(Finding((key,), f"{where} read to its end by {finish.of.text}", behind, _NEW_GENERATION))
        made = _finish_of(history, channels.producers[channel.result])
        pins = made.outcome.channels if made is not None and made.outcome is not None else ()
        other = [pin for pin in pins if pin.result == channel.result and pin != channel]
        if other:
            findings.append(
                Finding(
                    (key,),
                    f"{finish.of.text} on generation {other[0].generation} of {channel.result}, which counts now",
                    f"it has read generation {channel.generation}",
                    f"Its success is not true any more. Clear the task of {finish.of.region}.",
                )
            )
    return findings


def _of_rows(channels: Channels, history: History, finish: Attempt) -> list[Finding]:
    """The rows of the last region's result are those of its committed batches: of all of them, or, where each batch is
    the whole table, of the newest. What a sweep has taken is not compared."""
    outcome, results = finish.outcome, channels.results
    if outcome is None or results is None or not outcome.outputs or outcome.outputs[0].rows is None:
        return []
    counted: dict[tuple[int, int], int] = {}
    for channel in _counting(channels, history, finish):
        account = channels.accounts.get(channel)
        for (batch, _), keys in account.outputs.items() if account is not None else ():
            row_counts = [
                rows for key in keys if (rows := _rows_at(results, channels.folder(channel) + key)) is not None
            ]
            if len(row_counts) < len(keys):
                return []
            counted[channel.generation, batch] = sum(row_counts)
    registered = outcome.outputs[0].rows
    if not counted or registered in (sum(counted.values()), counted[max(counted)]):
        return []
    expected = f"{sum(counted.values())} rows as committed, or {counted[max(counted)]} of the newest batch"
    found_rows = f"{registered} rows in {outcome.outputs[0].result} of {finish.of.text}"
    return [Finding((finish.entries["outcome"].key,), expected, found_rows, _NEW_GENERATION)]


def _counting(channels: Channels, history: History, finish: Attempt) -> list[Channel]:
    """The generations whose commits are in the result: back to the last time that the producer started over."""
    generations = []
    for channel in finish.outcome.channels if finish.outcome is not None else ():
        region = history.regions.get(channels.producers.get(channel.result, ""))
        if region is None or channels.consumers.get(channel.result) != finish.of.region:
            continue
        started_again = (n for n, made in region.attempts.items() if made.reset is not None and not made.reset.altered)
        first = max(region.purged, *started_again, 0) + 1
        same = [ref for ref in channels.claimed if ref.result == channel.result]
        generations += [ref for ref in same if first <= ref.generation <= channel.generation]
    return generations


def _rows_at(results: ObjectStore, key: str) -> int | None:
    """Of an output, be it a Parquet file or a folder of them; `None` where there is none."""
    files = [info.key for info in results.list(key) if info.key.endswith(".parquet")]
    return sum(rows_in(results.get(file, max_bytes=None).body, file) for file in files) if files else None
