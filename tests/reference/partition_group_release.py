"""Which results nobody needs any more: Flink's release rule, by group of partitions (FLIP-1).

A group goes when every region that reads it is finished, if we are the ones to let it go and it is not persistent. So
an all-to-all input goes as a whole, and only when the last of its readers is done.

`airflow_recovery.results.release_rule.ReadersLeft` says the same of the regions of a run's plan; `reference.unread`
puts the question of the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reference.execution_topology import ExecutionTopology


class PartitionGroupRelease:
    """Follows what is finished and what was reset, and names the groups that can go.

    The topology may grow underneath: what was told before still counts. Telling the same thing twice changes nothing.
    Unknown vertices raise `UnknownVertex`.
    """

    def __init__(self, topology: ExecutionTopology) -> None:
        self._topology = topology
        self._finished = bytearray()  # a mark for every finished execution vertex
        self._in_finished_region = bytearray()  # a mark for every execution vertex whose whole region is finished
        self._unfinished: dict[int, int] = {}  # of every region that was told of, how many of its vertices

    def vertex_finished(self, vertex: int) -> list[int]:
        """Return the groups that can go now, if this was the last unfinished vertex of its region."""
        region = self._enter(vertex)
        if not self._finished[vertex]:
            self._finished[vertex] = True
            self._unfinished[region] -= 1
        if self._unfinished[region]:
            return []
        self._mark(region, b"\1")
        return [group for group in self._read_by(region) if self._has_no_reader_left(group)]

    def vertex_unfinished(self, vertex: int) -> None:
        """It was reset: its region is unfinished again, and so every group that the region reads is needed."""
        region = self._enter(vertex)
        if self._finished[vertex]:
            self._finished[vertex] = False
            self._unfinished[region] += 1
            self._mark(region, b"\0")

    def releasable_partitions(self, groups: Iterable[int]) -> list[int]:
        """Return those of the groups' partitions that nobody needs, ascending.

        A result can be read along several edges: a partition goes when all of its groups can, and not while some
        reader is not even initialised.
        """
        self._grow()
        graph, logical = self._topology.graph, self._topology.logical
        asked: set[int] = set()  # each once, though it is in a group of every edge along which it is read
        for group in map(graph.group, groups):
            readers = [logical.consumer_of[edge] for edge in logical.readers_of[group.result]]
            if all(map(graph.is_initialised, readers)):
                asked.update(group.partitions)
        return sorted(filter(self._is_unread, asked))

    def _is_unread(self, partition: int) -> bool:
        graph = self._topology.graph
        producer = graph.producer_of(partition)
        result = graph.result_of(partition)
        return all(
            self._has_no_reader_left(group)
            for edge, groups in graph.groups_fed_by(range(producer, producer + 1))
            if self._topology.logical.result_of[edge] == result
            for group in groups
        )

    def _enter(self, vertex: int) -> int:
        """The vertex's region, which is followed from now on."""
        region = self._topology.region_of_vertex(vertex)
        self._grow()
        if region not in self._unfinished:
            self._unfinished[region] = sum(map(len, self._topology.ranges_of(region)))
        return region

    def _grow(self) -> None:
        """What the topology has gained is unfinished."""
        new = self._topology.graph.vertex_count - len(self._finished)
        self._finished.extend(bytes(new))
        self._in_finished_region.extend(bytes(new))

    def _mark(self, region: int, mark: bytes) -> None:
        for range_ in self._topology.ranges_of(region):
            self._in_finished_region[range_.start : range_.stop] = mark * len(range_)

    def _read_by(self, region: int) -> Iterator[int]:
        graph, logical = self._topology.graph, self._topology.logical
        for vertices in self._topology.ranges_of(region):
            for edge, groups in graph.groups_read_by(vertices):
                if logical.released_by_us[logical.result_of[edge]]:
                    yield from groups

    def _has_no_reader_left(self, group: int) -> bool:
        consumers = self._topology.graph.group(group).consumers
        return self._in_finished_region.find(0, consumers.start, consumers.stop) < 0
