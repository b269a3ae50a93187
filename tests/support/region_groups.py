"""Groups of regions for tests, and the same regions written out one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import (
    DistributionPattern,
    GroupEdge,
    RegionGroup,
    region_fingerprint,
    subtask_region,
)
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan

POINTWISE, ALL_TO_ALL = DistributionPattern.POINTWISE, DistributionPattern.ALL_TO_ALL


def group(
    name: str,
    *inputs: tuple[str, DistributionPattern],
    keys: Sequence[str] | None = None,
    batch_size: int = 1,
    own: Sequence[str] | None = None,
) -> RegionGroup:
    """A group with two vertices, of which the second one's fingerprint may be each subtask's own."""
    vertices = [(f"{name}_first", "f1"), *([] if own else [(name, "f2")])]
    template = RegionPlan(
        name=name,
        vertices=(f"{name}_first", name),
        results=(name,),
        inputs=(),
        final=not name.startswith("a"),
        fingerprint=None if keys is not None else region_fingerprint(vertices, (name,)),
        vertex_fingerprints=tuple(vertices),
        reads=tuple(producer for producer, _ in inputs),
        determinism=((name, Determinism.VERIFY),),
    )
    edges = tuple(GroupEdge(*edge) for edge in inputs)
    fingerprints = ((name, tuple(own)),) if own else ()
    return RegionGroup(template, edges, None if keys is None else tuple(keys), batch_size, fingerprints)


def written_out(groups: Sequence[RegionGroup]) -> tuple[RegionPlan, ...]:
    """The regions of ``groups`` as they were recorded before there were groups, by code of its own."""
    regions: list[RegionPlan] = []
    keys = {each.name: each.keys for each in groups}
    for each in groups:
        for index, key in enumerate([None] if each.keys is None else each.keys):
            inputs: list[str] = []
            for edge in each.inputs:
                whole = [subtask_region(edge.group, other) for other in keys[edge.group] or [None]]
                inputs += whole if edge.pattern is ALL_TO_ALL else [subtask_region(edge.group, key)]
            own = {vertex: fingerprints[index] for vertex, fingerprints in each.own_fingerprints}
            known = {**dict(each.template.vertex_fingerprints), **own}
            vertices = tuple((vertex, known[vertex]) for vertex in each.template.vertices)
            batch = None if each.batch_size == 1 else index // each.batch_size
            regions.append(
                RegionPlan(
                    name=subtask_region(each.name, key),
                    vertices=each.template.vertices,
                    results=each.template.results,
                    inputs=tuple(inputs),
                    final=each.template.final,
                    fingerprint=region_fingerprint(vertices, each.template.results, key),
                    vertex_fingerprints=vertices,
                    reads=each.template.reads,
                    determinism=each.template.determinism,
                    subtask=None if key is None else SubtaskPlan(each.name, index, key, batch),
                )
            )
    return tuple(regions)


def random_groups(seed: int, widest: int = 5) -> list[RegionGroup]:
    """Groups with random keys and edges: some pointwise, some of a single region, some of both."""
    draw = random.Random(seed)
    shared = [tuple(str(key) for key in range(draw.randint(1, widest))) for _ in range(2)]
    groups: list[RegionGroup] = []
    for number in range(draw.randint(1, 7)):
        keys = draw.choice([None, *shared])
        edges = []
        for producer in draw.sample(groups, draw.randint(0, min(3, len(groups)))):
            can_match = keys is not None and producer.keys == keys
            edges.append((producer.name, POINTWISE if can_match and draw.random() < 0.6 else ALL_TO_ALL))
        own = [f"own {key}" for key in keys] if keys is not None and draw.random() < 0.4 else None
        groups.append(group(f"{draw.choice('abz')}{number}", *edges, keys=keys, batch_size=draw.randint(1, 3), own=own))
    return groups
