"""A channel between two applications that run at the same time: what its control log says, and what may be said next.

``PIPELINED_APPROXIMATE`` results (FLIP-135): a failed side restarts alone, the loss is bounded, counted record by
record, and checked before anything is committed. Pure: this room does no I/O, reads no clock and draws no random
number; it knows the journal's identity and codec, and nothing of Airflow or Spark.

Read `records`, then `folding`, `producing` and `consuming`; `ledger` holds the invariant.
"""

from airflow_recovery.channel.appending import ChannelLog
from airflow_recovery.channel.consuming import commit_batch, create_view, make_plan, next_end, published_of, release
from airflow_recovery.channel.folding import apply, fold
from airflow_recovery.channel.ledger import BudgetVerdict, LossReport, check_ledger, loss_report
from airflow_recovery.channel.producing import Part, finish, give_up, open_producer, publish
from airflow_recovery.channel.records import ChannelIdentity, ChannelRecord, Consumed, LossCause, Segment
from airflow_recovery.channel.retention import Room, make_room, orphans
from airflow_recovery.channel.state import ChannelState, LedgerEntry, UnknownLoss
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect

__all__ = [
    "BudgetVerdict",
    "ChannelIdentity",
    "ChannelLog",
    "ChannelRecord",
    "ChannelState",
    "Consumed",
    "LedgerEntry",
    "LossBudget",
    "LossCause",
    "LossReport",
    "Overflow",
    "Part",
    "Reconnect",
    "Room",
    "Segment",
    "UnknownLoss",
    "apply",
    "check_ledger",
    "commit_batch",
    "create_view",
    "finish",
    "fold",
    "give_up",
    "loss_report",
    "make_plan",
    "make_room",
    "next_end",
    "open_producer",
    "orphans",
    "publish",
    "published_of",
    "release",
]
