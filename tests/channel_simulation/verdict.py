"""What must hold when every streaming region has ended. Raises `Violation`."""

from __future__ import annotations

from collections import Counter

from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.streaming.ledger import loss_report
from channel_simulation.settings import Settings, Violation
from channel_simulation.world import World


def check_end(world: World, settings: Settings) -> None:
    """Every channel is drained, and every record of the source has passed all of them or is in one ledger."""
    for edge, channel in zip(world.edges, world.newest(), strict=True):
        channel.truth.check(world.identity(edge), channel.state)
        if not channel.state.is_drained:
            raise Violation(f"{edge}: everybody has ended, and the channel is not drained")
    _check_origin(world)
    _check_every_record(world, settings)


def _check_origin(world: World) -> None:
    """What a source without replay has read, and nobody will ever see."""
    first = world.newest()[0]
    missing = set(range(world.arrived)) - set(first.truth.published.values())
    if missing and loss_report("source", first.state).total_lost is not None:
        raise Violation(f"{sorted(missing)} were lost at the origin, and the loss is reported as known")


def _check_every_record(world: World, settings: Settings) -> None:
    channels = world.newest()
    sent = Counter(channels[0].truth.published.values())
    wanted = range(settings.batches * settings.batch_records)
    if settings.replays and sent != Counter(wanted):
        raise Violation(f"published {sorted(sent.elements())}, expected each of {wanted} once")
    for channel in channels:
        lost = Counter(
            channel.truth.published[entry.sub, number]
            for entry in channel.state.ledger
            for number in range(entry.start, entry.stop)
        )
        passed = Counter(channel.truth.delivered.values())
        if sent != lost + passed:
            raise Violation(f"of {sorted(sent)}: lost {sorted(lost)}, passed {sorted(passed)}")
        sent = passed
    is_lossless = settings.reconnect is Reconnect.REWIND and settings.overflow is Overflow.BLOCK
    if is_lossless and any(channel.state.ledger for channel in channels):
        raise Violation("rewind and block, and something is lost")
