"""Every order of events of a small dynamic assignment, with faults: is a split ever lost, doubled, or stuck?

What is explored are the classes that are shipped (`airflow_recovery.source.split_coordinator`, ``subtask_gateway``,
``reconcile``), in a world of processes, messages and write-once objects. `controls` switches one rule off at a time:
the exploration must find what the rule is for. ``python -m airflow_recovery.testing.split_exploration --help``.
"""

from airflow_recovery.testing.split_exploration.case import Case, Fault, Rules
from airflow_recovery.testing.split_exploration.controls import CONTROLS, Control
from airflow_recovery.testing.split_exploration.explore import Exploration, explore

__all__ = ["CONTROLS", "Case", "Control", "Exploration", "Fault", "Rules", "explore"]
