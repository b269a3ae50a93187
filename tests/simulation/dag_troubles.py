"""What can happen to a run of a job in its DAG, besides all that can happen to any run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from airflow_recovery.journal.codec import resealed
from airflow_recovery.journal.record_cache import snapshot_of
from airflow_recovery.testing.simulation.troubles import MOST_NEIGHBOURS, Act, Troubles
from simulation import readers
from simulation.dag_job import FAILS, SKIPS
from simulation.dag_settings import DagTrouble
from simulation.dag_simulated_run import DagSimulatedRun
from simulation.dag_world import DagWorld


class DagTroubles(Troubles):
    """Draws one that is possible now, and lets it happen."""

    _run: DagSimulatedRun
    _world: DagWorld

    def __init__(self, run: DagSimulatedRun, left: Mapping[Any, int]) -> None:
        super().__init__(run, left)
        self._possible |= {
            DagTrouble.BREAK: self._break,
            DagTrouble.SKIP: self._skip,
            DagTrouble.BRANCH: self._branch,
            DagTrouble.HAND: self._hand,
            DagTrouble.ALONE: self._alone,
            DagTrouble.PARAM: self._param,
            DagTrouble.AGAIN: self._again,
            DagTrouble.READER: self._reader,
            DagTrouble.WITHDRAW: self._withdraw,
            DagTrouble.OTHER_DAG: self._other_dag,
            DagTrouble.RENAME: self._rename,
            DagTrouble.BACKUP: self._backup,
            DagTrouble.FORGE: self._forge,
        }

    def _alone(self) -> Iterator[Act]:
        pairs = [(name, task) for name in self._names for task in sorted(self._airflow.below({name}))]
        for name, task in pairs:
            act = partial(self._run.deploy_alone, name, task)
            yield f"USER deploys other code of {name} and clears {task} alone", act
            if name in self._world.main.job.operators:
                act = partial(self._run.deploy_alone, name, task, is_text=True)
                yield f"USER writes {name} otherwise and clears {task} alone", act
            if self._run.has_other_code(name):
                act = partial(self._run.deploy_alone, name, task, is_rollback=True)
                yield f"USER deploys the first code of {name} again and clears {task} alone", act

    def _break(self) -> Iterator[Act]:
        for name in self._names:
            act = partial(self._run.deploy, name, end=FAILS)
            yield f"USER deploys code of {name} that always fails, and clears all", act
            if self._run.has_other_code(name):
                act = partial(self._run.deploy, name, is_rollback=True)
                yield f"USER deploys the first code of {name} again and clears all", act

    def _skip(self) -> Iterator[Act]:
        for name in self._names:
            if name in self._world.main.job.skipping and self._world.main.job.listing_of(name):
                yield f"INPUT of {name} becomes empty; USER clears all", partial(self._run.relist, name, ())
            elif self._rng.random() < 0.5:
                act = partial(self._run.deploy, name, end=SKIPS)
                yield f"USER deploys code of {name} that skips its task, and clears all", act

    def _branch(self) -> Iterator[Act]:
        for branch, below in self._world.main.job.branches.items():
            others = [frozenset({name}) for name in below if self._run.followed[branch] != {name}]
            for followed in (*others, frozenset(below), frozenset[str]()):
                clears_all = self._rng.random() < 0.5
                act = partial(self._run.decide, branch, followed, clears_all=clears_all)
                what = f"{branch} follows {', '.join(sorted(followed)) or 'none'}"
                yield f"{what}; USER clears {'all' if clears_all else 'it and below'}", act

    def _hand(self) -> Iterator[Act]:
        states = ("success", "failed", "skipped") if self._run.settings.publishes else ("failed", "skipped")
        for name in self._names:
            for state in states:
                # What a branch or a failure above it holds up is nobody's to call a success.
                if state != "success" or self._airflow.state(name) in {"failed", "running", "up_for_retry"}:
                    yield f"USER marks {name} {state}", partial(self._run.mark, name, state)

    def mark_some(self) -> dict[str, str]:
        """Mark some tasks before they start, if that may happen. Returns their states."""
        may_mark = DagTrouble.HAND in self._run.settings.troubles and self._rng.random() < 0.5
        chosen = [name for name in self._names if self._rng.random() < 0.2] if may_mark else []
        marked = {name: self._rng.choice(["failed", "skipped"]) for name in chosen}
        for name, state in marked.items():
            self._run.note(f"USER marks {name} {state}")
            self._run.mark(name, state)
        return marked

    def _param(self) -> Iterator[Act]:
        for value in range(3):
            if value != self._world.main.in_run.param:
                for task in (None, self._rng.choice(self._names)):
                    act = partial(self._run.set_param, value, task)
                    yield f"USER sets the param to {value} and clears {task or 'all'}", act

    def _again(self) -> Iterator[Act]:
        yield "USER deletes the run, and has it made again by a backfill", partial(self._run.again, by_timetable=True)
        yield "USER deletes the run, and triggers one for its date", partial(self._run.again, by_timetable=False)

    def _reader(self) -> Iterator[Act]:
        for name in self._world.main.job.finals if self._run.settings.publishes else ():
            body = partial(readers.waits_for, self._run, self._world.main.job.regions[name].results[0])
            yield f"READER waits for {name}", partial(self._run.begins, "READER", body)

    def _withdraw(self) -> Iterator[Act]:
        for name in self._world.main.job.finals if self._world.ledger.publishes else ():
            for gives_back in (False, True):
                body = partial(readers.withdraws, self._run, name, gives_back=gives_back)
                what = "gives back" if gives_back else "withdraws"
                yield f"USER {what} {name}", partial(self._run.begins, "USER", body)

    def _other_dag(self) -> Iterator[Act]:
        others = [run for run in self._world.others if run.identity.dag_id != self._world.main.identity.dag_id]
        if len(others) < MOST_NEIGHBOURS:
            yield "a run of another DAG begins", lambda: self._begins(self._world.another_dag())
        for other in others:
            dag_id = other.identity.dag_id
            if dag_id in self._world.dags and not any(process.name == other.name for process in self._run.alive()):
                yield f"AIRFLOW loses {dag_id}", partial(self._run.lose_dag, dag_id)

    def _rename(self) -> Iterator[Act]:
        for name, new in self._run.settings.job.renamed.items():
            names = (new, name) if name in self._run.absent else (name, new)
            yield f"USER renames {names[0]} to {names[1]} and clears all", partial(self._run.rename, name)

    def _backup(self) -> Iterator[Act]:
        if self._run.has_backup:
            yield "JOURNAL comes back from its backup; USER clears all", self._run.restore_backup
        else:
            yield "JOURNAL is backed up", self._run.back_up

    def _forge(self) -> Iterator[Act]:
        yield "OUTSIDER overwrites the cache of outcomes", partial(forge_cache, self._world)


def forge_cache(world: DagWorld) -> None:
    """Write a cache of outcomes in which each was made by today's code, with the etags of the outcomes themselves."""
    entries = {}
    for info in world.journal_store.list(world.layout.attempts):
        if info.key.endswith(".outcome"):
            document = json.loads(world.journal_store.get(info.key).body)
            region = world.job.regions.get(document["body"]["region"])
            if region is not None:
                document["body"]["fingerprint"] = region.fingerprint
            entries[info.key] = info.etag, resealed(document)
    world.journal_store.put(world.layout.snapshot, snapshot_of(entries))
