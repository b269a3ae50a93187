"""A stand-in for a model that takes long to load: its weights are two numbers, and the loading is a pause.

Named for what it is: a real one would read gigabytes. What the demo shows is only what such a start costs a restart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class DelayModel:
    """Minutes of delay on arrival, from the delay on departure and the distance."""

    kept_of_departure: float
    made_good_a_mile: float

    def score(self, dep_delay: Column, distance: Column) -> Column:
        """The prediction; null for a flight that did not depart."""
        return dep_delay * self.kept_of_departure - distance * self.made_good_a_mile


def simulated_model_loading(seconds: float) -> DelayModel:
    """Pause for so long, as the loading of a large model would, and return a small one."""
    time.sleep(seconds)
    return DelayModel(kept_of_departure=1.0, made_good_a_mile=0.0025)
