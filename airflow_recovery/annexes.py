"""The annexes: packages that add a way to run a region to the core. The core finds them in this one table.

The core knows how a batch region runs, and nothing else. An annex adds a mode (`airflow_recovery.model.mode`): each
room of the core has a class of questions with batch's answers, and an annex overrides what differs. Without the
package of an annex everything else still works: a job that is declared for it, or a record that it has written, is
refused by name.

The table says how to tell that a record or an option belongs to an annex. That must be known without its package.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Annex:
    """One package, and how to tell what belongs to it.

    ``package``: its full name. ``record_keys``: keys of a plan, a claim or an outcome that only this annex writes.
    ``vertex_options``: options of a vertex that are declared for it. ``result_types`` and ``failover_strategies``: the
    values that are.
    """

    package: str
    record_keys: tuple[str, ...]
    vertex_options: tuple[str, ...]
    result_types: tuple[str, ...] = ()
    failover_strategies: tuple[str, ...] = ()


ANNEXES = {
    "streaming": Annex(
        "airflow_recovery.streaming",
        # It writes ``reading`` too, as splits do, and always with ``channels``. The first annex that has a key decides.
        record_keys=("channels_in", "channels_out", "stateful", "replays", "channels", "after"),
        vertex_options=("streaming",),
        result_types=("PIPELINED_APPROXIMATE",),
        failover_strategies=("approximate-sink", "approximate-downstream", "approximate-single"),
    ),
    "split": Annex(
        "airflow_recovery.splits",
        record_keys=("split_source", "pulls_splits", "base", "reading", "parts", "lost_splits"),
        vertex_options=("commit", "assignment", "batch_bytes", "loss_budget"),
    ),
}
"""By the name of the mode that the annex adds."""


def by(field: str) -> dict[str, str]:
    """The mode that each value of ``field`` of an `Annex` belongs to."""
    return {value: mode for mode, annex in ANNEXES.items() for value in getattr(annex, field)}
