"""A consumer leaves a generation of its channel for a newer one: what it carries was altered, and it keeps its work.

What it has committed there counts. What its producer has published there, and it has not read, no code of now can read:
where the channel was declared to lose nothing, the regions start over; else it is lost, and counted there.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import ChannelInconsistent
from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.streaming.channel_records import ViewCreated
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.consuming import commit_batch, create_view, make_plan, published_of


@dataclass(frozen=True)
class Draining:
    """One generation, in which no older attempt can commit any more. ``completed``: its last completed batch."""

    client: ChannelClient
    attempt: int
    completed: int

    @property
    def rest(self) -> int:
        """Records that were published there, and are not behind its checkpoint."""
        state = self.client.state
        return sum(state.ends) - sum(state.done)

    def discard_remaining(self, batch: int) -> None:
        """Commit that they are lost, as ``batch``. Raises `LossBudgetExceeded` where that is too much."""
        state = self.client.refresh()
        if state.done == state.ends:
            return
        self.client.append(lambda state: make_plan(state, self.attempt, state.done, state.ends))
        self.client.append(lambda state: commit_batch(state, self.attempt, batch, (0,) * len(state.subs)))


def begin_draining(
    client: ChannelClient,
    attempt: int,
    *,
    reconnect: Reconnect,
    overflow: Overflow,
    output: ChannelState | None,
) -> Draining:
    """Take the view of an older generation, whose producer is fenced. ``output``: the region's own channel, opened.

    Raises `ChannelInconsistent` where records would be lost of a channel that loses none.
    """
    state = client.refresh()
    if state.view < attempt and state.producer and (state.done != state.ends or state.plan is not None):
        published = None if output is None else published_of(output, client.identity)

        def view(state: ChannelState) -> ViewCreated:
            adopting = create_view(state, attempt, reconnect, published=published)
            return ViewCreated(attempt, Reconnect.LATEST, state.ends, state.epoch, adopting.adopt)

        client.append(view)
    draining = Draining(client, attempt, client.state.checkpoint)
    if draining.rest and reconnect is Reconnect.REWIND and overflow is Overflow.BLOCK:
        raise ChannelInconsistent(
            f"channel {client.identity.edge!r}: expected everything to be read that was published in generation "
            f"{client.identity.generation} before it was altered, found {draining.rest} records that were not: a "
            "channel that loses nothing starts over",
            code="altered-channel-not-drained",
        )
    return draining
