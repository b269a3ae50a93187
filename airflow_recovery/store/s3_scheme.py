"""S3, and every server that speaks its API: how its URIs are written."""

from __future__ import annotations

import re

from airflow_recovery.locations import UriScheme


class S3Scheme(UriScheme):
    """``s3://bucket/prefix``, or ``s3a://`` as Hadoop writes it."""

    name = "s3"
    aliases = ("s3a",)
    form = "s3://<bucket>/<prefix>"
    bucket = re.compile(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
        r"|arn:aws[a-z-]*:s3(?:-outposts|-object-lambda)?:[a-z0-9-]*:[0-9]{12}:[A-Za-z0-9:._-]{1,255}"
    )
    """A bucket, or the ARN of an access point, whose host botocore makes from parts that are checked here."""
    spark_settings = ("spark.hadoop.fs.s3a.",)


SCHEME = S3Scheme()
