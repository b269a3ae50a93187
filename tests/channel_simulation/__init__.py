"""A deterministic simulation of channels: the real records, fold and log protocol over a fake Spark, Airflow and store.

Streaming regions are programs that stop at every request to the store. A seed decides who goes on; at chosen steps a
process dies, freezes and wakes later as a zombie, a write's reply is lost, or a write lands late. A checker that shares
no code with the product reads every slot and every segment itself: after each record, and in the end, every published
record was delivered once, or is in the ledger, or was lost at an origin that says that it does not know::

    from channel_simulation import Fault, Settings, simulate

    report = simulate(7, Settings())
    for step in range(report.steps):
        simulate(7, Settings(faults={step: Fault.KILL}))

A failure names its seed and its faults, and these replay it exactly.
"""

from channel_simulation.drill import (
    Tally,
    every_pair,
    every_pair_of_records,
    every_single,
)
from channel_simulation.schedule import Report, simulate
from channel_simulation.settings import Fault, Settings, Violation

__all__ = [
    "Fault",
    "Report",
    "Settings",
    "Tally",
    "Violation",
    "every_pair",
    "every_pair_of_records",
    "every_single",
    "simulate",
]
