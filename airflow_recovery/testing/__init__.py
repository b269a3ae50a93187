"""For tests of your own jobs: S3 servers on this machine, stores with faults, a store that counts its requests.

A simulation of a job, the crash kit, a local Airflow and local Sparks are modules of their own (docs/testing.md).

Nothing of the product imports this room. It needs the ``dev`` extra (moto), and versitygw's binary for its server.
"""

from airflow_recovery.testing.faulty_store import CountingStore, Fault, FaultKind, FaultyStore, SeededFaults, Verb
from airflow_recovery.testing.s3_server import SERVERS, MotoServer, S3Server, VersityServer, find_versitygw

__all__ = [
    "SERVERS",
    "CountingStore",
    "Fault",
    "FaultKind",
    "FaultyStore",
    "MotoServer",
    "S3Server",
    "SeededFaults",
    "Verb",
    "VersityServer",
    "find_versitygw",
]
