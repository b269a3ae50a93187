"""The name of a task instance and the name of a region. Each is built, printed and parsed here alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from airflow_recovery.model.names import decode, encode

if TYPE_CHECKING:
    from airflow_recovery.model.groups import RegionGroup
    from airflow_recovery.model.records import RunIdentity
    from airflow_recovery.model.region_plan import RegionPlan

OPERATORS_GROUP = "(operators)"
"""The group id of the operators of a DAG that are in no group: there, a region is named as its task."""

MAX_MAP_INDEX = 2**31 - 1
"""The largest number that Airflow's database holds."""


@dataclass(frozen=True)
class TaskKey:
    """One task instance of a DAG run, as plans, requests and messages name it: ``task_id``, or ``task_id|map_index``.

    ``map_index`` is -1, as in Airflow, where the task is not mapped. No id of a task in Airflow has a ``|``.
    """

    task_id: str
    map_index: int = -1

    def __str__(self) -> str:
        return self.task_id if self.map_index < 0 else f"{self.task_id}|{self.map_index}"

    @classmethod
    def parse(cls, text: str) -> TaskKey:
        """The inverse of `str`. Raises `ValueError` for what no task instance can be: a database would refuse it."""
        task_id, is_mapped, index = text.partition("|")
        if not is_mapped:
            return cls(task_id)
        digits = index if index.isascii() and index.isdecimal() and len(index) <= len(str(MAX_MAP_INDEX)) else "-1"
        if not 0 <= int(digits) <= MAX_MAP_INDEX:
            raise ValueError(f"expected a map index from 0 to {MAX_MAP_INDEX} after the task id, found {text[:200]!r}")
        return cls(task_id, int(digits))

    @classmethod
    def of_region(cls, region: RegionPlan, group_id: str) -> TaskKey:
        """The task that runs ``region``: ``<group>.<region>``, mapped for a subtask. A batch of subtasks has one."""
        if region.subtask is None:
            return cls(_task_id(region.name, group_id))
        return cls(_task_id(region.subtask.of, group_id), region.subtask.map_index)

    @classmethod
    def of_place(cls, group: RegionGroup, index: int, group_id: str) -> TaskKey:
        """As `of_region`, of the region at ``index`` of a group of regions, which need not be made for that."""
        subtask = group.subtask(index)
        return cls(_task_id(group.name if subtask is None else subtask[0], group_id), group.map_index(index))


def _task_id(region: str, group_id: str) -> str:
    return region if group_id == OPERATORS_GROUP else f"{group_id}.{region}"


class RegionKey(NamedTuple):
    """One region of one DAG run, whatever the attempt: what stays the same when it is made again."""

    dag_id: str
    run_key: str
    group_id: str
    region: str

    @classmethod
    def of(cls, run: RunIdentity, region: str) -> RegionKey:
        """The key of the region with that name in ``run``."""
        return cls(run.dag_id, run.run_key, run.group_id, region)

    @property
    def path(self) -> str:
        """All four names, encoded, with slashes between them: no two regions have the same."""
        return "/".join(encode(name) for name in self)

    @classmethod
    def of_path(cls, path: str) -> RegionKey:
        """The inverse of `path`. A shortened name stays as it is there. Raises `ValueError` for another text."""
        dag_id, run_key, group_id, region = (
            segment if "~~" in segment else decode(segment) for segment in path.split("/")
        )
        return cls(dag_id, run_key, group_id, region)

    @property
    def task_id(self) -> str:
        """The id in Airflow of the task that runs the region; a subtask has the task of its vertex."""
        return _task_id(self.region.partition("[")[0], self.group_id)

    @property
    def name(self) -> str:
        """DAG, group and region as ``airflow recovery adopt`` takes them: ``DAG/REGION`` of an operator."""
        group = () if self.group_id == OPERATORS_GROUP else (self.group_id,)
        return "/".join((self.dag_id, *group, self.region))

    @property
    def text(self) -> str:
        """For people: the task, its DAG and its run."""
        return f"{self.task_id} of {self.dag_id} / {self.run_key}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that name the region to a command of ``airflow recovery``."""
        return (self.dag_id, self.run_key, self.region, "--group", self.group_id)
