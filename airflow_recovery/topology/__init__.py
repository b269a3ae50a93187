"""The shape of a job: its graph, and the recovery regions that are its units of restart (FLIP-1).

Pure: nothing here does I/O, reads a clock or draws a random number. It imports the standard library's pure parts and
`airflow_recovery.errors`, nothing else.
"""

from airflow_recovery.topology.graph import JobGraph, JobVertex
from airflow_recovery.topology.pipelined_regions import pipelined_regions
from airflow_recovery.topology.regions import Region, RegionGraph, RegionInput, region_graph
from airflow_recovery.topology.result_type import BLOCKING, PIPELINED, ResultType

__all__ = [
    "BLOCKING",
    "PIPELINED",
    "JobGraph",
    "JobVertex",
    "Region",
    "RegionGraph",
    "RegionInput",
    "ResultType",
    "pipelined_regions",
    "region_graph",
]
