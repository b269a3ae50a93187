"""The shape of a job: its graph, and the recovery regions that are its units of restart (FLIP-1).

Pure: nothing here does I/O, reads a clock or draws a random number. It imports the standard library's pure parts,
`airflow_recovery.errors` and `airflow_recovery.model`, nothing else.
"""

from airflow_recovery.model.determinism import Determinism
from airflow_recovery.topology.distribution import DistributionPattern
from airflow_recovery.topology.execution_graph import (
    ExecutionGraph,
    ExecutionVertexId,
    PartitionGroup,
    ResultPartitionId,
)
from airflow_recovery.topology.execution_topology import ExecutionTopology
from airflow_recovery.topology.graph import JobGraph, JobVertex
from airflow_recovery.topology.logical import LogicalEdge, LogicalResult, LogicalTopology, LogicalVertex
from airflow_recovery.topology.regions import Region, RegionGraph, RegionInput, region_graph
from airflow_recovery.topology.result_type import BLOCKING, PIPELINED, ResultType

__all__ = [
    "BLOCKING",
    "PIPELINED",
    "Determinism",
    "DistributionPattern",
    "ExecutionGraph",
    "ExecutionTopology",
    "ExecutionVertexId",
    "JobGraph",
    "JobVertex",
    "LogicalEdge",
    "LogicalResult",
    "LogicalTopology",
    "LogicalVertex",
    "PartitionGroup",
    "Region",
    "RegionGraph",
    "RegionInput",
    "ResultPartitionId",
    "ResultType",
    "region_graph",
]
