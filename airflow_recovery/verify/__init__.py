"""The independent checker of the invariants I1 to I15: what a run's journal and its results say by themselves.

It must not believe the product. So it has its own reader of the journal's JSON objects, its own fold over them and its
own rules, and imports nothing of ours but the stores and the errors (a test holds that). It writes nothing, asks
Airflow nothing, and needs no code of the job.

    reading      one run's objects from a store           records    their JSON, as documented
    history      the values in between                    registered   what the results' stores say of manifests
    attempts     I1 I2 I10      inputs   I3      data     I4 I8      causes   I5
    topologies   I6             closure  I7      replay   I11 I12    output   I13
    splits       I14            channels I9 I15  (of the accounts that channel_log reads)
"""

from airflow_recovery.verify.checker import verify_run
from airflow_recovery.verify.report import Report

__all__ = ["Report", "verify_run"]
