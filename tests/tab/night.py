"""A run in which a region has failed for good.

         +--> by_route ----+
raw -----+                 +--> busiest
         +--> by_carrier --+
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rest_world import RestWorld

from airflow_recovery.errors import Failure, RegionFailed

MakeRest = Callable[..., RestWorld]


def failing(message: str = "no such column: delay") -> Callable[[], None]:
    def fail() -> None:
        raise RegionFailed(message, Failure("AnalysisException", message))

    return fail


def bad_night(rest: RestWorld) -> RestWorld:
    """`by_route` has failed for good, and has blocked `busiest`."""
    rest.world.go_all(["raw", "by_carrier"])
    with pytest.raises(RegionFailed):
        rest.world.go("by_route", on_start=failing())
    rest.world.airflow.ready()
    rest.world.keep_events()
    return rest
