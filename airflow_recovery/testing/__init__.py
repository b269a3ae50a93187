"""For tests, demo and benchmarks: real S3 servers and a proxy before them, stores with faults, a store that counts.

Nothing of the product imports this room. It needs the ``dev`` extra (moto), and versitygw's binary for its server.
"""

from airflow_recovery.testing.faulty_store import CountingStore, Fault, FaultKind, FaultyStore, SeededFaults, Verb
from airflow_recovery.testing.s3_proxy import (
    Answer,
    CutReply,
    Delayed,
    Fate,
    LookThenWrite,
    LostReply,
    Rewritten,
    S3Proxy,
    S3Request,
)
from airflow_recovery.testing.s3_server import SERVERS, MotoServer, S3Server, VersityServer, find_versitygw

__all__ = [
    "SERVERS",
    "Answer",
    "CountingStore",
    "CutReply",
    "Delayed",
    "Fate",
    "Fault",
    "FaultKind",
    "FaultyStore",
    "LookThenWrite",
    "LostReply",
    "MotoServer",
    "Rewritten",
    "S3Proxy",
    "S3Request",
    "S3Server",
    "SeededFaults",
    "Verb",
    "VersityServer",
    "find_versitygw",
]
