"""Object stores: bytes under keys, with put-if-absent. S3, Google's and Azure's clouds, and a folder.

    object_store   what is asked of a store; many reads at once
    scheme         one kind of store as one object: its URIs, client, connection, driver, Spark
    schemes        the kinds that this process knows
    s3, local      two kinds of stores; `s3_scheme`, `s3_clients`, `s3_errors` and `s3_listing` belong to the first
    google, azure  two more, which differ little: `cloud` is what they share, `cloud_errors` reads their answers
    write_once     one object that is written once, whatever answers are lost, and the slots of a log
    log            a log of such objects, without I/O: append at the end, fold what others wrote
    probe          the start-up probe
    allowed        whether the credentials may be used at a location, without I/O
    opening        from a URI to a store
    encryption     what a bucket is told to encrypt with
    iceberg_catalog  a catalog of Iceberg tables, whose files are opened as the catalog says
    lifecycle      the bucket's own rules that delete objects
    timed          a store whose requests are timed

The room knows nothing of what is stored. It says precisely what a store answered: missing, denied, timed out and
unavailable are different errors.
"""

from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, StoredObject, get_many
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.probe import probe
from airflow_recovery.store.scheme import ConnectionFields, StoreAccess, StoreScheme
from airflow_recovery.store.schemes import register

__all__ = [
    "ConnectionFields",
    "ObjectInfo",
    "ObjectStore",
    "StoreAccess",
    "StoreScheme",
    "StoredObject",
    "get_many",
    "open_store",
    "probe",
    "register",
]
