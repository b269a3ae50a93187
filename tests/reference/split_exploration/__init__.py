"""Splits whose code, listing and number of subtasks change between attempts: is one ever lost, doubled, or stuck?

What is explored are the functions that jobs run (the fold of the log and its decisions, what is adopted, the evaluation
whether a finish is valid, the owners in a static assignment), in a world of processes that die, freeze and go on, of
write-once objects, and of users who deploy and clear. At every publish each split that is listed is in exactly one
subtask's result, once. `controls` switches one rule off at a time: what the rule is for must then be found.
``PYTHONPATH=tests:. python -m reference.split_exploration --help``.
"""

from reference.split_exploration.case import Case, Change, Fault
from reference.split_exploration.controls import CONTROLS, Control
from reference.split_exploration.explore import Exploration, explore, walk

__all__ = ["CONTROLS", "Case", "Change", "Control", "Exploration", "Fault", "explore", "walk"]
