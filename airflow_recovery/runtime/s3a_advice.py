"""What to do where Spark itself can't reach S3: its messages name a class of Hadoop's, and nothing that anybody set."""

from __future__ import annotations

import re

from airflow_recovery.journal.records import Failure

_ADVICE = (
    (
        re.compile(
            r"ClassNotFoundException: (?:Class )?(?:org\.apache\.hadoop\.fs\.s3a|software\.amazon)\.|"
            r"NoClassDefFoundError: (?:org/apache/hadoop/fs/s3a|software/amazon)/|No FileSystem for scheme \"?s3a"
        ),
        "Spark has no hadoop-aws on its class path, or not all of it: give the driver and the executors, or the Spark "
        "Connect server, the jars that docs/s3.md names.",
    ),
    (
        re.compile(r"NoAuthWithAWSException|NoAwsCredentialsException|Unable to load credentials from"),
        "Spark has no credentials for S3: name a connection in [recovery] aws_conn_id. A driver in cluster mode and a "
        "Spark Connect server need a role, or a configuration of their own (docs/s3.md).",
    ),
)


def s3a_advice(failure: Failure) -> str | None:
    """What is to be set up before ``failure`` can be cured; `None` where it is of another kind."""
    told = "\n".join((failure.type, failure.message, *failure.chain))
    return next((advice for pattern, advice in _ADVICE if pattern.search(told)), None)
