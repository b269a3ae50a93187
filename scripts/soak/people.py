"""What people do to the soak's runs: clears, commands, backfills, deploys. Each says what was done."""

from __future__ import annotations

import random
import subprocess
from datetime import date, timedelta

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.verify.history import History
from airflow_recovery.verify.reading import RunName as JournalName
from airflow_recovery.verify.reading import read_history
from airflow_recovery.verify.records import Manifest
from airflow_recovery.verify.registered import is_in_a_store
from scripts.soak.ground import Ground
from scripts.soak.runs import NothingToDisturb, RunName, Runs
from scripts.soak.truth import FACTORS

REFUSALS = frozenset(
    {
        ExitCode.NOT_FOUND,
        ExitCode.OUTDATED,
        ExitCode.NO_ANSWER,
        ExitCode.CLEAR_BY_HAND,
        ExitCode.REFUSED,
    }
)
"""What a command may end with besides 0 while everything is disturbed: it has said why, and changed nothing wrong."""
CODE = "soak_jobs/chain.py"


class CommandFailed(Exception):
    """A command has ended as none should: with a traceback, or a code that its page does not have for that."""


def history_of(ground: Ground, name: RunName) -> History:
    """The run's journal as the independent checker reads it."""
    return read_history(ground.journal, JournalName(name.dag_id, name.run_key, name.group_id))


def is_purged(history: History) -> bool:
    """Whether nothing of a run counts any more: it was purged, and nobody has run it since."""
    regions = history.regions.values()
    return any(region.purged for region in regions) and not any(region.attempts for region in regions)


def clear_a_failed_run(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """What has failed of it, and what waits for that."""
    runs.look()
    failed = runs.ended("failed")
    if not failed:
        raise NothingToDisturb("no run has failed")
    name = drawn.choice(failed)
    cleared = runs.clear(name, only_failed=True)
    return f"{name.dag_id} {name.day}: {len(cleared)} tasks"


def clear_some_tasks(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """A task and what is behind it, or the whole run; also of one that is at work. Of a purged run the whole."""
    runs.look()
    if not runs.states:
        raise NothingToDisturb("no run")
    name = drawn.choice(sorted(runs.states))
    tasks = sorted({str(task["task_id"]) for task in ground.airflow.task_instances(name.dag_id, _id(runs, name))})
    whole = drawn.random() < 0.3 or not tasks or is_purged(history_of(ground, name))
    chosen = None if whole else [drawn.choice(tasks)]
    runs.clear(name, tasks=chosen)
    return f"{name.dag_id} {name.day}: {chosen[0] if chosen else 'all of it'}"


def lose_a_result(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """Somebody deletes an object of a final result, and perhaps one that it is made of, or rolls a table back.

    Then the run is cleared. An intermediate result alone is not missed before somebody wants it.
    """
    runs.look()
    ended = runs.ended("success")
    if not ended:
        raise NothingToDisturb("no run has ended")
    name = drawn.choice(ended)
    if name.dag_id == "delta":
        version = ground.delta("arrived").version()
        if version < 1:
            raise NothingToDisturb("the table has one version")
        runs.to_clear.add(name)
        ground.delta("arrived").restore(version - 1)
        runs.clear(name)
        return f"{name.dag_id} {name.day}: the table arrived is restored to version {version - 1}"
    if name.dag_id == "tables":
        table = ground.catalog().load_table("db.arrived")
        parents = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        if len(parents) < 2:
            raise NothingToDisturb("the table has one snapshot")
        current = table.current_snapshot()
        parent = None if current is None else current.parent_snapshot_id
        if parent is None or parent not in parents:
            raise NothingToDisturb("the table's snapshot has no parent")
        runs.to_clear.add(name)
        table.manage_snapshots().rollback_to_snapshot(parent).commit()
        runs.clear(name)
        return f"{name.dag_id} {name.day}: the table arrived is rolled back"
    history = history_of(ground, name)
    finals = sorted(region for region in final_regions(history) if objects_of(history, region))
    chosen = [drawn.choice(finals)] if finals else []
    for region in chosen[:1]:
        inputs = _inputs(history, region)
        chosen += [drawn.choice(inputs)] if inputs and drawn.random() < 0.5 else []
    deleted = []
    runs.to_clear.add(name)
    for region in chosen:
        for manifest in objects_of(history, region)[:1]:
            path = drawn.choice(sorted(manifest.objects))
            ground.open_data(manifest.location).delete([path])
            deleted.append(f"{region}/{path.rpartition('/')[2]}")
    if not deleted:
        raise NothingToDisturb(f"{name.dag_id} {name.day} has no object")
    runs.clear(name)
    return f"{name.dag_id} {name.day}: {', '.join(deleted)}"


def final_regions(history: History) -> set[str]:
    """The regions whose results count, and which no other one reads."""
    current = [region.current for region in history.regions.values()]
    outcomes = [attempt.outcome for attempt in current if attempt is not None and attempt.outcome is not None]
    read = {given.of.region for outcome in outcomes for given in outcome.inputs}
    return {attempt.of.region for attempt in current if attempt is not None and attempt.outcome is not None} - read


def objects_of(history: History, region: str) -> list[Manifest]:
    """The manifests of the attempt of a region that counts, of those that have objects in a store."""
    attempt = history.regions[region].current
    if attempt is None or attempt.outcome is None or attempt.has("released") or attempt.committed is not None:
        return []  # what a sink has committed, readers have from its target
    return [output for output in attempt.outcome.outputs if output.objects and is_in_a_store(output.location)]


def look_on(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """Commands that change nothing."""
    name = _some_run(runs, drawn)
    command = drawn.choice(["show", "plan", "events"])
    return _command(ground, command, name.dag_id, name.day, "--group", name.group_id)


def restart_by_plan(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """A region of a run, or everything."""
    name = _some_run(runs, drawn)
    regions = sorted(history_of(ground, name).regions)
    if not regions:
        raise NothingToDisturb(f"{name.dag_id} {name.day} has not begun")
    what = ["--everything"] if drawn.random() < 0.2 else [drawn.choice(regions)]
    said = _command(ground, "restart", name.dag_id, name.day, *what, "--group", name.group_id)
    if not said.endswith((f": {ExitCode.DONE:d}", f": {ExitCode.REFUSED:d}", f": {ExitCode.OUTDATED:d}")):
        runs.to_clear.add(name)  # it may be recorded, with tasks that are left to be cleared by hand
    return said


def pin_or_release(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """A pin of a region's attempt, the end of one, or a release, which counts as a loss if it is forced."""
    name = _some_run(runs, drawn)
    regions = sorted(history_of(ground, name).regions)
    if not regions:
        raise NothingToDisturb(f"{name.dag_id} {name.day} has not begun")
    region, kind = drawn.choice(regions), drawn.choice(["pin", "off", "release"])
    words = {"pin": ["pin"], "off": ["pin", "--off"], "release": ["release"]}[kind]
    return _command(ground, words[0], name.dag_id, name.day, region, *words[1:], "--group", name.group_id)


def collect_garbage(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """With the retention that is configured, or with one that lets intermediate results go."""
    retention = drawn.choice([[], [], ["--retention", "on-run-success"]])
    return _command(ground, "gc", "--grace", "1m", *retention)


def purge(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """Whole runs go, of a DAG that has none at work: this closes them, and the next `gc` deletes them."""
    runs.look()
    at_work = {name.dag_id for name in runs.active()}
    dags = sorted({name.dag_id for name in runs.ended("success")} - at_work)
    if not dags:
        raise NothingToDisturb("no DAG whose runs have all ended")
    return _command(
        ground, "gc", "--purge", "--older-than", "2m", "--force", "--grace", "1m", "--dag", drawn.choice(dags)
    )


def backfill(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """Of dates in the past; some of them have run before, where nothing is to be done."""
    mode = drawn.choice(["none", "failed", "completed"])
    last = date.fromisoformat(runs.fresh_day())
    days = [(last - timedelta(days=before)).isoformat() for before in (1, 0)]
    response = ground.airflow.request(
        "POST",
        "/api/v2/backfills",
        {
            "dag_id": "chain",
            "from_date": f"{days[0]}T00:00:00Z",
            "to_date": f"{days[1]}T00:00:00Z",
            "reprocess_behavior": mode,
            "max_active_runs": 2,
            "run_backwards": False,
        },
    )
    return f"chain {days[0]} to {days[1]}, {mode}: {response.status_code}"


def deploy(ground: Ground, runs: Runs, drawn: random.Random) -> str:
    """The constant goes to its other value, in all copies of the DAGs."""
    one, other = FACTORS
    text = "id * {} AS value"
    now, then = (one, other) if text.format(one) in (ground.dags / CODE).read_text() else (other, one)
    ground.deploy(CODE, text.format(now), text.format(then))
    return f"{now} becomes {then}"


def _some_run(runs: Runs, drawn: random.Random) -> RunName:
    if not runs.states:
        raise NothingToDisturb("no run")
    return drawn.choice(sorted(runs.states))


def _id(runs: Runs, name: RunName) -> str:
    return runs.states[name].run_id


def _command(ground: Ground, *words: str) -> str:
    try:
        done = ground.recovery(*words)
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"airflow recovery {' '.join(words)} has not ended in {error.timeout:.0f} s") from None
    said = f"airflow recovery {' '.join(words)}: {done.returncode}"
    if done.returncode not in {ExitCode.DONE, *REFUSALS} or "Traceback" in done.stderr:
        raise CommandFailed(f"{said}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return said


def _inputs(history: History, region: str) -> list[str]:
    attempt = history.regions[region].current
    return [] if attempt is None or attempt.outcome is None else sorted(one.of.region for one in attempt.outcome.inputs)
