"""The coordinator's process is killed around a snapshot: what it has written lies in a real store, the rest is gone.

A process lives through one order of the exploration's steps, and puts what a store would have; it kills itself before
or after a snapshot is written. Another process restores from that store alone (SPLITS.md section 12, 7). This file is
also their program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from typing import Any

import pytest

from airflow_recovery.source.reconcile import Fate, Plan, Support, reconcile
from airflow_recovery.source.split_events import Snapshot
from airflow_recovery.source.split_log import CoordinatorState
from airflow_recovery.storage import ObjectStore
from airflow_recovery.storage.local import LocalStore
from airflow_recovery.storage.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.split_exploration import Case, Rules
from airflow_recovery.testing.split_exploration.case import EVERY_FAULT
from airflow_recovery.testing.split_exploration.steps import Steps, Violation
from airflow_recovery.testing.split_exploration.world import World

SPLITS = 5
MOMENTS = ("before-0", "after-0", "before-1")
"""Before or after which snapshot: each finish has one of its own."""


def case(support: Support, rules: Rules | None = None) -> Case:
    # One fault of any kind may have happened: the kill. Units are cut anew in each life.
    return Case(SPLITS, 1, EVERY_FAULT, support, rules or Rules())


def keeps_all(*given: Any) -> Plan:
    """The control: every finish is kept, whatever the snapshot knows."""
    plan = reconcile(*given)
    kept = tuple(replace(each, fate=Fate.KEEP) if each.fate is Fate.RESET else each for each in plan.decisions)
    return replace(plan, decisions=kept)


# the processes


def live(store: ObjectStore, support: Support, moment: str, rules: Rules) -> None:
    """From what the store has to the end, or to ``moment``."""
    steps = Steps(case(support, rules))
    world = stored(store)
    world = steps.first() if not world.claims else world
    when, _, snapshot = moment.partition("-")
    written, turn = 0, 0
    while possible := steps.possible(world):
        # What is to be written comes first, so that each finish has a snapshot of its own.
        step = next((each for each in possible if each[0] in ("act", "hear", "ack")), possible[turn % len(possible)])
        is_snapshot = step[0] == "act" and isinstance(world.todo[step[1]], Snapshot)
        if is_snapshot and (when, snapshot) == ("before", str(written)):
            os.kill(os.getpid(), signal.SIGKILL)
        steps.take(world, step, is_fault=False)
        put(store, world)
        if is_snapshot and (when, snapshot) == ("after", str(written)):
            os.kill(os.getpid(), signal.SIGKILL)
        written += is_snapshot
        turn += 1


def put(store: ObjectStore, world: World) -> None:
    """What the world has written for good."""
    snapshot = vars(world.snapshot) if world.snapshot is not None else None
    store.put("claims", _json([[*key, base] for key, base in world.claims.items()]))
    store.put("parts", _json([[*key, parts] for key, parts in world.parts.items()]))
    store.put("outcomes", _json([[*key, outcome] for key, outcome in world.outcomes.items()]))
    store.put("resets", _json([[*each] for each in world.resets.items()]))
    store.put("snapshot", _json(snapshot))
    store.put("lives", _json(world.lives))


def stored(store: ObjectStore) -> World:
    """A world in which nobody lives."""
    found = {each.key: json.loads(store.get(each.key).body) for each in store.list()}
    if not found:
        return World()
    snapshot = found["snapshot"]
    if snapshot is not None:
        counted = tuple((subtask, attempt) for subtask, attempt in snapshot.pop("counted"))
        snapshot = CoordinatorState(counted=counted, **snapshot)
    return World(
        claims={(i, n): tuple(tuple(part) for part in base) for i, n, base in found["claims"]},
        parts={(i, n): [tuple(part) for part in parts] for i, n, parts in found["parts"]},
        outcomes={(i, n): None if end is None else tuple(end) for i, n, end in found["outcomes"]},
        resets=dict(found["resets"]),
        snapshot=snapshot,
        lives=found["lives"],
    )


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def opened(uri: str, endpoint_url: str) -> ObjectStore:
    return S3Store(uri, endpoint_url=endpoint_url) if endpoint_url else LocalStore(uri)


# the tests


def run(uri: str, endpoint_url: str, support: Support, moment: str, rules: str = "shipped") -> int:
    command = [sys.executable, __file__, uri, endpoint_url, support.name, moment, rules]
    return subprocess.run(command, timeout=120, check=False).returncode


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("support", [Support.BATCH_SNAPSHOT, Support.NONE], ids=lambda each: each.name.lower())
def test_fault_2_killed_around_a_snapshot_another_process_goes_on_and_everything_is_read_once(
    local_store: LocalStore, support: Support, moment: str
):
    assert run(local_store.base_uri, "", support, moment) == -signal.SIGKILL
    killed = stored(local_store)
    assert (killed.snapshot is not None) == (moment != "before-0")
    assert run(local_store.base_uri, "", support, "never") == 0
    Steps(case(support)).check_end(stored(local_store))


def test_fault_2_control_a_newer_finish_kept_where_splits_are_cut_anew_is_counted_twice(local_store: LocalStore):
    assert run(local_store.base_uri, "", Support.BATCH_SNAPSHOT, "before-0", "keeps-all") == -signal.SIGKILL
    run(local_store.base_uri, "", Support.BATCH_SNAPSHOT, "never", "keeps-all")
    with pytest.raises(Violation, match="doubled"):
        Steps(case(Support.BATCH_SNAPSHOT)).check_end(stored(local_store))


@pytest.mark.parametrize("support", [Support.BATCH_SNAPSHOT, Support.NONE], ids=lambda each: each.name.lower())
def test_fault_2_the_same_over_s3_with_and_without_support_for_snapshots(s3_server: S3Server, support: Support):
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    assert run(uri, s3_server.endpoint_url, support, "before-1") == -signal.SIGKILL
    assert run(uri, s3_server.endpoint_url, support, "never") == 0
    Steps(case(support)).check_end(stored(opened(uri, s3_server.endpoint_url)))


if __name__ == "__main__":
    given_uri, given_endpoint, given_support, given_moment, given_rules = sys.argv[1:]
    chosen = Rules(reconcile=keeps_all) if given_rules == "keeps-all" else Rules()
    live(opened(given_uri, given_endpoint), Support[given_support], given_moment, chosen)
