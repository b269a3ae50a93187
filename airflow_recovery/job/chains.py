"""Chains: parallel regions that are read subtask by subtask, and so can be restarted subtask by subtask.

Where there are more subtasks than Airflow maps, a task instance runs a batch of them: neighbours in the recorded order,
and all batches but the last are of one size. All regions of a chain have the same subtasks and so the same batches:
index i of a consumer waits for index i of its producer alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.declared_job import DeclaredJob
from airflow_recovery.job.parallelism import Parallelism, PerFile, RunTimeSubtasks, TemplatedKeys


@dataclass(frozen=True)
class Chain:
    """Regions with the same subtasks that are joined by pointwise edges, in topological order.

    Subtask i of the chain reads nothing of another subtask of the chain; all other inputs are read as a whole.
    """

    regions: tuple[str, ...]
    parallelism: Parallelism

    @property
    def name(self) -> str:
        """The first region's name: no other chain has it."""
        return self.regions[0]


def chains(job: DeclaredJob) -> tuple[Chain, ...]:
    """The chains of a job, in topological order. Raises as `Job.validate`."""
    graph = job.regions()
    members: dict[str, list[str]] = {}
    for region in graph.regions:
        parallelism = job.region_parallelism(region.name)
        if parallelism is None:
            continue
        chain = [region.name]
        for producer in region.upstream:
            if job.region_parallelism(producer) is parallelism and members[producer] is not chain:
                chain = members[producer] + chain
                for linked in chain:
                    members[linked] = chain
        members[region.name] = chain
    order = {name: at for at, name in enumerate(graph.names)}
    linked_regions = {id(member): tuple(sorted(member, key=order.__getitem__)) for member in members.values()}
    return tuple(
        Chain(regions, parallelism)
        for regions in sorted(linked_regions.values(), key=lambda names: order[names[0]])
        if (parallelism := job.region_parallelism(regions[0])) is not None
    )


def initializers(job: DeclaredJob) -> dict[str, RunTimeSubtasks]:
    """The subtasks that are decided when the run starts, by the name under which the journal has them.

    There is one for all regions with the same subtasks, ``<region>.subtasks`` after the first of them. Raises
    `JobDefinitionError` where a region has that name.
    """
    by_name: dict[str, RunTimeSubtasks] = {}
    for name in job.regions().names:
        parallelism = job.region_parallelism(name)
        if isinstance(parallelism, (TemplatedKeys, PerFile)) and parallelism not in by_name.values():
            by_name[initializer_name(name)] = parallelism
    for name in by_name:
        if name in job.regions().names:
            raise JobDefinitionError(
                f"job {job.name!r}: a region is named {name!r}, under which the subtasks are recorded: rename a vertex"
            )
    return by_name


def initializer_name(region: str) -> str:
    """The name under which the journal records the subtasks of ``region``, the first that has these subtasks."""
    return f"{region}.subtasks"


def batch_size(count: int, *, limit: int, declared: int | None = None) -> int:
    """How many of ``count`` subtasks are one batch: as declared, else as few as fit into ``limit`` batches."""
    if declared is not None:
        return declared
    return max(1, -(-count // max(1, limit)))


def number_of_batches(count: int, size: int) -> int:
    """How many batches of ``size`` hold ``count`` subtasks."""
    return -(-count // size)


def batches(keys: Sequence[str], size: int) -> list[Sequence[str]]:
    """The keys of each batch, by map index."""
    return [keys[at : at + size] for at in range(0, len(keys), size)]


def batch_label(keys: Sequence[str]) -> str:
    """A batch's name in Airflow's UI: ``2013-01..2013-06 (6)``, or the key itself where it is the only one."""
    return keys[0] if len(keys) == 1 else f"{keys[0]}..{keys[-1]} ({len(keys)})"


def check_length(count: int, size: int, limit: int, where: str) -> None:
    """Raises `JobDefinitionError` for more batches of subtasks than Airflow maps."""
    number = number_of_batches(count, size)
    if number > limit:
        raise JobDefinitionError(
            f"{where}: expected at most {limit} task instances ([core] max_map_length), found {number}, for {count} "
            f"subtasks and subtasks_per_task={size}. Leave subtasks_per_task out, or say "
            f"{batch_size(count, limit=limit)} or more; or raise max_map_length in every component.",
            code="too-many-task-instances",
            expected=limit,
            found=number,
        )
