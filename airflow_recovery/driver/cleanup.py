"""Deleting what an attempt wrote: its scratch when it has finished, everything when it was fenced.

Scratch is what an attempt writes only to read it back itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.model.location import listing_prefix

SCRATCH = "_scratch"


def scratch_location(spec: RegionSpec, vertex: str) -> str:
    """The folder into which the attempt writes ``vertex`` for its own readers alone: it is in no manifest."""
    return f"{spec.location}/{SCRATCH}/{vertex}"


def delete_scratch(spec: RegionSpec, log: logging.Logger) -> None:
    """Delete the scratch of ``spec``'s attempt, whose outcome must be in the journal. No request where it has none.

    Best effort: what stays is logged, and goes with the attempt's other data. That of an attempt that failed stays too.
    """
    vertices = [vertex.name for vertex in spec.vertices if vertex.is_scratch]
    # Spark may make evicted parts of a cached result again, and read scratch for that.
    if not vertices or any(vertex.kept_as for vertex in spec.vertices):
        return
    _delete(spec, [scratch_location(spec, vertex) for vertex in vertices], "scratch data", log)


def delete_results(spec: RegionSpec, log: logging.Logger) -> None:
    """Delete all that ``spec``'s attempt wrote, which was fenced. Best effort: what stays, the sweeper finds.

    Nothing, where a later attempt may have adopted some of it (`ModeSpec.is_adoptable`).
    """
    if spec.mode.is_adoptable:
        return
    _delete(spec, [spec.location], "data", log)


def _delete(spec: RegionSpec, locations: Sequence[str], what: str, log: logging.Logger) -> None:
    try:
        store = open_spec_store(spec.results)
        for location in locations:
            prefix = listing_prefix(store.base_uri, location)
            store.delete([info.key for info in store.list(prefix)])
    except Exception as error:  # the attempt has ended: a failure to clean up must not change how
        log.warning("The %s of %s attempt %d is left behind: %s", what, spec.region, spec.attempt, error)
