"""What can happen to a run from outside: crashes, people, outsiders, the sweeper, the loss of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.journal.layout import SHARED_FOLDER
from airflow_recovery.model.committing import CommitKind, CommitMode
from airflow_recovery.model.retention import Retention
from airflow_recovery.planning.scenario import RestartFrom, RestartRegion
from airflow_recovery.testing.simulation import neighbours, visitors
from airflow_recovery.testing.simulation.dag_run import DagRun
from airflow_recovery.testing.simulation.ledger import OUTSIDER
from airflow_recovery.testing.simulation.settings import Trouble
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun

Act = tuple[str, Callable[[], object]]
"""What happens, and how."""

MOST_NEIGHBOURS = 3
JUMPS_S = [sign * seconds for sign in (-1, 1) for seconds in (visitors.HOUR_S, visitors.DAY_S, 30 * visitors.DAY_S)]
PAUSED = 0.01
"""The weight of a process that is frozen: it goes on when hardly anybody else does."""


class Troubles:
    """Draws one that is possible now, and lets it happen."""

    def __init__(self, run: SimulatedRun, left: Mapping[Any, int]) -> None:
        self._run = run
        self._world = run.world
        self._airflow = run.world.airflow
        self._rng = run.rng
        self._left = {kind: count for kind, count in left.items() if count}
        self._names = list(run.world.job.regions)
        self._possible: dict[Any, Callable[[], Iterator[Act]]] = {
            Trouble.KILL: self._kill,
            Trouble.KILL_TASK: self._kill_task,
            Trouble.SIGTERM: self._sigterm,
            Trouble.HEARTBEAT: self._heartbeat,
            Trouble.PAUSE: self._pause,
            Trouble.CLEAR: self._clear,
            Trouble.CLEAR_ALL: self._clear_all,
            Trouble.RESTART: self._restart,
            Trouble.MARK: self._mark,
            Trouble.DELETE: self._delete,
            Trouble.ALTER: self._alter,
            Trouble.SWEEP: self._sweep,
            Trouble.PURGE: self._purge,
            Trouble.DATABASE: self._database,
            Trouble.DEPLOY: self._deploy,
            Trouble.RECOMPUTE: self._recompute,
            Trouble.LISTING: self._listing,
            Trouble.JUMP: self._jump,
            Trouble.STORE_JUMP: self._store_jump,
            Trouble.RETURN: self._return,
            Trouble.RESIZE: self._resize,
            Trouble.REFUSE: self._refuse,
            Trouble.NEIGHBOUR: self._neighbour,
            Trouble.TWIN: self._twin,
            Trouble.EXPIRE: self._expire,
            Trouble.TABLE: self._table,
            Trouble.VERSION: self._version,
            Trouble.EMPTY: self._empty,
            Trouble.DEPLOYMENT: self._deployment,
        }

    @property
    def is_any_left(self) -> bool:
        """Something may still happen."""
        return bool(self._left)

    def stop(self) -> None:
        """Nothing more happens."""
        self._left.clear()

    def happen(self) -> str | None:
        """One of the kinds that are left. `None` where it is not possible now."""
        kind = self._rng.choice(list(self._left))
        possible = list(self._possible[kind]())
        if not possible:
            return None
        label, act = self._rng.choice(possible)
        self._use_up(kind)
        self._run.is_disturbed(kind)
        act()
        return label

    def gives_up_on(self, own: TaskTry) -> bool:
        """Airflow loses patience with a frozen process for which everybody waits, where that may happen."""
        if Trouble.HEARTBEAT not in self._left or self._rng.random() < 0.3 or not self._airflow.is_mine(own):
            return False
        self._use_up(Trouble.HEARTBEAT)
        self._run.note(f"AIRFLOW gives up on {own.task_id}, which is frozen")
        self._airflow.lose_heartbeat(own.task_id)
        return True

    def _use_up(self, kind: object) -> None:
        self._left[kind] -= 1
        if not self._left[kind]:
            del self._left[kind]

    # processes

    def _kill(self) -> Iterator[Act]:
        for process in self._run.alive():
            yield f"KILL -9 {process.name}", partial(setattr, process, "is_dead", True)

    def _kill_task(self) -> Iterator[Act]:
        for process in self._run.alive():
            if process in self._run.tries:
                yield f"KILL -9 {process.name}", partial(setattr, process, "is_dead", True)

    def _sigterm(self) -> Iterator[Act]:
        for process in self._run.alive():
            if process in self._run.tries:
                yield f"SIGTERM {process.name}", partial(setattr, process, "is_told_to_end", True)

    def _pause(self) -> Iterator[Act]:
        for process in self._run.alive():
            yield f"PAUSE {process.name}", partial(setattr, process, "weight", PAUSED)

    def _heartbeat(self) -> Iterator[Act]:
        for name in self._airflow.upstream:
            if self._airflow.state(name) == "running":
                yield f"AIRFLOW gives up on {name}", partial(self._airflow.lose_heartbeat, name)

    # people

    def _clear(self) -> Iterator[Act]:
        for name in self._airflow.upstream:
            if self._airflow.now(name).try_number:
                below = self._rng.random() < 0.3
                act = partial(self._airflow.clear, name, downstream=below)
                yield f"USER clears {name}{' and below' if below else ''}", act

    def _clear_all(self) -> Iterator[Act]:
        yield "USER clears all", self._airflow.clear_all

    def _restart(self) -> Iterator[Act]:
        for name in self._names:
            if self._world.ledger.regions[name].latest_attempt:
                request = RestartRegion(name, "user") if self._rng.random() < 0.7 else RestartFrom(name, "user")
                body = partial(visitors.restart, self._run, request)
                yield f"USER asks: {request.text()}", partial(self._run.begins, "USER", body)

    def _mark(self) -> Iterator[Act]:
        # Without a publish nobody looks at what a person has called a success.
        states = ("success", "failed") if self._run.settings.publishes else ("failed",)
        for name in self._names:
            for state in states if name in self._world.airflow.upstream else ():  # else it is removed now
                yield f"USER marks {name} {state}", partial(self._run.mark, name, state)

    # the stores

    def _delete(self) -> Iterator[Act]:
        for what, keys in self._data():
            gone = keys if self._rng.random() < 0.5 else [self._rng.choice(keys)]
            act = partial(self._as_outsider, partial(self._world.results.delete, gone))
            yield f"OUTSIDER deletes {len(gone)} of {what}", act

    def _alter(self) -> Iterator[Act]:
        for what, keys in self._data():
            act = partial(self._as_outsider, partial(self._world.results.put, self._rng.choice(keys), b"other"))
            yield f"OUTSIDER overwrites one of {what}", act

    def _data(self) -> Iterator[tuple[str, list[str]]]:
        """Attempts that have data, and its keys."""
        layout = self._world.layout
        for name in self._names:
            for n in range(1, self._world.ledger.regions[name].latest_attempt + 1):
                keys = [info.key for info in self._world.results.list(layout.data_of_number(name, n))]
                if keys:
                    yield f"{name}@{n}", keys
        shared = [info.key for info in self._world.results.list(f"{SHARED_FOLDER}/")]
        for folder in sorted({key.rpartition("/")[0] for key in shared}):
            yield folder, [key for key in shared if key.startswith(f"{folder}/")]

    def _as_outsider(self, act: Callable[[], object]) -> None:
        self._run.hand = OUTSIDER
        act()
        self._run.hand = None

    def _sweep(self) -> Iterator[Act]:
        retention = self._rng.choice([Retention.keep("0s"), Retention.on_run_success(), Retention.as_consumed()])
        body = partial(visitors.sweep, self._run, retention)
        yield f"SWEEPER begins, {retention.text()}", partial(self._run.begins, "gc", body)

    # the run

    def _purge(self) -> Iterator[Act]:
        body = partial(visitors.purge, self._run)
        yield "SWEEPER begins to purge the run", partial(self._run.begins, "gc", body)

    def _return(self) -> Iterator[Act]:
        body = partial(visitors.purge_and_return, self._run)
        yield "SWEEPER begins to purge a run that comes back", partial(self._run.begins, "gc", body)

    def _jump(self) -> Iterator[Act]:
        by_s = self._rng.choice(JUMPS_S)
        yield f"CLOCKS of all machines jump by {by_s:g} s", partial(self._run.jump, by_s)

    def _store_jump(self) -> Iterator[Act]:
        by_s = self._rng.choice(JUMPS_S)
        for store in (self._world.journal_store, self._world.results):
            act = partial(setattr, store, "ahead_s", store.ahead_s + by_s)
            yield f"CLOCK of {store.base_uri} jumps by {by_s:g} s", act

    def _database(self) -> Iterator[Act]:
        yield "AIRFLOW's database is lost", self._world.lose_database

    def _deploy(self) -> Iterator[Act]:
        for name in self._names:
            yield f"USER deploys other code of {name} and clears all", partial(self._run.deploy, name)
            if self._run.has_other_code(name):
                act = partial(self._run.deploy, name, is_rollback=True)
                yield f"USER deploys the first code of {name} again and clears all", act

    def _resize(self) -> Iterator[Act]:
        for name in self._run.removable:
            gone = self._run.absent ^ {name}
            verb = "removes" if name in gone else "adds"
            yield f"USER {verb} {name} and clears all", partial(self._run.resize, gone)

    def _refuse(self) -> Iterator[Act]:
        for name in self._world.ledger.sinks.modes:
            if name in self._world.job.regions:
                yield f"SINK of {name} refuses what its code makes", partial(self._run.refuse, name)

    def _empty(self) -> Iterator[Act]:
        for name in self._world.ledger.sinks.modes:
            commit = self._world.job.regions[name].commit if name in self._world.job.regions else None
            if commit is None or not self._world.target.visible(name, commit.mode):
                continue
            yield f"SOMEBODY empties the target of {name}; USER clears all", partial(self._run.empty, name)
            if commit.kind is CommitKind.TOKEN:  # two functions of a user's don't tell
                act = partial(self._run.empty, name, overwrites=True)
                yield f"SOMEBODY overwrites the target of {name}; USER clears all", act
                ways = ["thins out", "drops"]
                if commit.mode is CommitMode.REPLACE and len(self._world.ledger.sinks.applied[name]) > 1:
                    ways.append("restores")
                for how in ways:
                    act = partial(self._run.meddle, name, how)
                    yield f"SOMEBODY {how} the target of {name}; USER clears all", act

    def _recompute(self) -> Iterator[Act]:
        yield "USER clears all, to be recomputed", self._run.recompute

    def _listing(self) -> Iterator[Act]:
        for name in filter(self._world.job.has_listing, self._names):
            listed = self._world.job.listing_of(name)
            new = f"new {self._rng.getrandbits(16)}"
            changes = {"one came": (*listed, new), "one went": listed[1:], "one changed": (new, *listed[1:])}
            what = self._rng.choice([change for change in changes if changes[change]])
            yield f"INPUT of {name}: {what}; USER clears all", partial(self._run.relist, name, changes[what])

    def _version(self) -> Iterator[Act]:
        world = self._world
        what = "rolls this package back" if world.is_upgraded else "deploys a version of this package to come"
        yield f"ADMINISTRATOR {what}", partial(setattr, world, "is_upgraded", not world.is_upgraded)

    # tables

    def _expire(self) -> Iterator[Act]:
        if self._world.tables is not None:
            for lake, table in self._world.tables.named():
                yield f"MAINTENANCE has snapshots of {table} expire", partial(lake.expire, table)

    def _table(self) -> Iterator[Act]:
        if self._world.tables is not None:
            yield from self._world.tables.acts()

    # other runs

    def _neighbour(self) -> Iterator[Act]:
        dated = [other for other in self._world.others if other.ledger is not self._world.ledger]
        if len(dated) < MOST_NEIGHBOURS:
            yield "a run of another date begins", lambda: self._begins(self._world.another_run(len(dated) + 1))
        for other in dated:
            if not any(process.name == other.name for process in self._run.alive()):
                act = neighbours.begins if not other.airflow.is_green else neighbours.comes_back
                yield f"the {other.name} is cleared, or goes on", partial(act, self._run, other)

    def _twin(self) -> Iterator[Act]:
        yield "another run of the same key begins", lambda: self._begins(self._world.twin())

    def _deployment(self) -> Iterator[Act]:
        yield "a run of another deployment begins", lambda: self._begins(self._world.other_deployment())

    def _begins(self, other: DagRun) -> None:
        neighbours.begins(self._run, other)
