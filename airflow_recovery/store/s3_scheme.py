"""S3, and every server that speaks its API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_recovery.store.encryption import Encryption
from airflow_recovery.store.scheme import (
    OWN_CREDENTIALS,
    ClientLibrary,
    Lent,
    StoreAccess,
    StoreScheme,
    StoreSpec,
)

if TYPE_CHECKING:
    from airflow_recovery.store.s3 import S3Store
    from airflow_recovery.store.s3_clients import AnySession

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The names of the variables, in the order in which a session takes them."""

_FOR_DELTA = (*CREDENTIALS, "AWS_DEFAULT_REGION")
_FOR_PYICEBERG = dict(
    zip(_FOR_DELTA, ("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.region"), strict=True)
)

_PROVIDERS = ",".join(
    (
        # The driver's own environment. Spark takes the same variables into its Hadoop configuration, which is how
        # executors get them (the next two): over the wire, and neither in a setting nor on a command line.
        # By its name in the first AWS SDK, the only one that the Hadoop of Spark 3.5 knows; later ones translate it.
        "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
    )
)

_BOUNDS = {"retry.throttle.limit": "8"}
"""A server that only says "slow down" is asked 54 times within about a minute; then the attempt fails, and recovery's
own pauses follow. s3a's default doubles its pause twenty times: it would wait for a day, and look alive."""

_SDK_JARS = {1: r"aws-java-sdk-(?:s3|bundle)-(1\..+)\.jar", 2: r"(?:s3|bundle)-(2\..+)\.jar"}
"""By the SDK's major version. Hadoop took the second with 3.4: Spark 3.5 has one from before."""


@dataclass(frozen=True)
class S3Access(StoreAccess):
    """How S3 is reached. ``session`` renews a role's credentials by itself; `None` stands for the SDK's own chain."""

    session: AnySession | None = None
    region_name: str | None = None
    encryption: Encryption | None = None

    def variables(self) -> dict[str, str]:
        """Its credentials, frozen, as environment variables; empty where it has none."""
        credentials = None if self.session is None else self.session.get_credentials()
        if credentials is None:
            return {}
        frozen = credentials.get_frozen_credentials()
        named = zip(CREDENTIALS, (frozen.access_key, frozen.secret_key, frozen.token), strict=True)
        return {name: value for name, value in named if value}


def _is_left_out(name: str) -> bool:
    """Of botocore's descriptions of 400 services, a driver gets those of a few."""
    from airflow_recovery.store.s3_clients import SERVICES

    folders = name.split("/")
    return folders[:2] == ["botocore", "data"] and len(folders) > 3 and folders[2] not in SERVICES


BOTOCORE = ClientLibrary(
    "s3",
    "botocore.session",
    ("botocore", "urllib3", "jmespath", "dateutil", "six"),
    oldest=(1, 40),  # versions before 1.35 know no conditional write
    leaves_out=_is_left_out,
)


class S3Scheme(StoreScheme):
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

    conn_option = "aws_conn_id"
    results_conn_option = "results_aws_conn_id"
    conn_type = "aws"
    operator_conn = "aws_conn_id"
    connection_reader = "airflow_recovery.hooks.s3_connection"
    is_shared = True

    libraries = (BOTOCORE,)
    is_for_sources = True

    connector = "hadoop-aws"
    jars_for = "S3"
    jars_advice = "Take the jars of docs/s3.md into the image, and name their folder in SPARK_DIST_CLASSPATH."

    spark_failures = (
        (
            r"ClassNotFoundException: (?:Class )?(?:org\.apache\.hadoop\.fs\.s3a|software\.amazon)\.|"
            r"NoClassDefFoundError: (?:org/apache/hadoop/fs/s3a|software/amazon)/|No FileSystem for scheme \"?s3a",
            "Spark has no hadoop-aws on its class path, or not all of it: give the driver and the executors, or the "
            "Spark Connect server, the jars that docs/s3.md names.",
        ),
        (
            r"NoAuthWithAWSException|NoAwsCredentialsException|Unable to load credentials from",
            "Spark has no credentials for S3: name a connection in [recovery] aws_conn_id. A driver in cluster mode "
            "and a Spark Connect server need a role, or a configuration of their own (docs/s3.md).",
        ),
    )

    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> S3Store:
        """As `StoreScheme.store_at`."""
        from airflow_recovery.store.s3 import S3Store

        found = S3Access() if access is None else _of_s3(access)
        return S3Store(
            uri,
            endpoint_url=found.endpoint_url,
            region_name=found.region_name,
            session=found.session,
            renew=None if renew is None else lambda: _session(renew()),
            encryption=found.encryption,
            **(waits or {}),
        )

    def access_at(self, endpoint_url: str | None, region_name: str | None) -> S3Access:
        """As `StoreScheme.access_at`."""
        return S3Access(endpoint_url=endpoint_url, region_name=region_name)

    def preload(self) -> None:
        """As `StoreScheme.preload`: the SDK, and its description of S3."""
        from airflow_recovery.store.s3_clients import read_service

        read_service()

    def spec(self, uri: str, access: StoreAccess | None, *, is_apart: bool = False) -> StoreSpec:
        """As `StoreScheme.spec`. Spark takes credentials of S3 from the environment, so only others are apart."""
        if access is None:
            return StoreSpec(uri)
        found = _of_s3(access)
        algorithm, key_id = (found.encryption.algorithm, found.encryption.key_id) if found.encryption else (None, None)
        return StoreSpec(uri, found.endpoint_url, found.region_name, algorithm, key_id, is_apart)

    def driver_variables(self, journal: Lent | None, results: Lent | None) -> dict[str, str]:
        """As `StoreScheme.driver_variables`: frozen credentials and the region, in the SDK's own variables.

        Those of the journal have names of their own if a second connection reaches the results: Spark hands the
        ``AWS_*`` variables to its executors, which must not see the journal's.
        """
        if results is None:
            return {}
        access = _of_s3(results.access)
        variables = access.variables()
        if variables:
            reached = {"AWS_DEFAULT_REGION": access.region_name, "AWS_ENDPOINT_URL_S3": access.endpoint_url}
            variables |= {name: value for name, value in reached.items() if value}
        if journal is not None and journal.access is not results.access:
            own = _of_s3(journal.access)
            variables |= {OWN_CREDENTIALS + name: value for name, value in own.variables().items()}
            if own.endpoint_url != access.endpoint_url:
                # It holds for all that a process opens; Spark is told the results' endpoint in its settings.
                variables.pop("AWS_ENDPOINT_URL_S3", None)
        return variables

    def access_in_driver(self, spec: StoreSpec, environment: Mapping[str, str]) -> S3Access:
        """As `StoreScheme.access_in_driver`."""
        from airflow_recovery.store.s3_clients import new_session

        own = [environment.get(OWN_CREDENTIALS + name) for name in CREDENTIALS] if spec.has_own_credentials else None
        return S3Access(
            endpoint_url=spec.endpoint_url,
            session=None if own is None else new_session(*own),
            region_name=spec.region_name,
            encryption=_encryption(spec),
        )

    def spark_uri(self, uri: str) -> str:
        """Hadoop names it ``s3a://``."""
        return f"s3a://{uri.partition('://')[2]}"

    def spark_conf(self, spec: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """The ``spark.hadoop.fs.s3a.*`` settings. The hadoop-aws jars must be on the class path already.

        If ``environment`` holds credentials: that they are found there, never the credentials themselves, since
        settings are visible in ``ps``, in the Spark UI and in logs. If it holds none, Hadoop's own configuration
        decides (the machine's role, if that says nothing).
        """
        conf = dict(_BOUNDS)
        if environment.get("AWS_ACCESS_KEY_ID"):
            conf["aws.credentials.provider"] = _PROVIDERS
        endpoint = spec.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        region = spec.region_name or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        if endpoint:
            conf["endpoint"] = endpoint
            conf["path.style.access"] = "true"
            conf["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
        if region:
            conf["endpoint.region"] = region
        encryption = _encryption(spec)
        if encryption is not None:
            conf |= encryption.s3a_settings()
        return {f"spark.hadoop.fs.s3a.{key}": value for key, value in conf.items()}

    def jars_expected(self, hadoop: str | None) -> str:
        """hadoop-aws of its own Hadoop's version, and Amazon's SDK."""
        return f"hadoop-aws {hadoop or 'of the version of its Hadoop'} with the AWS SDK {_sdk_of(hadoop)}"

    def jars_missing(self, jars: Iterable[str], hadoop: str | None) -> str | None:
        """As `StoreScheme.jars_missing`."""
        names = list(jars)
        version = _version_in(names, r"hadoop-aws-(.+)\.jar")
        if version is None or (hadoop is not None and version != hadoop):
            return version or "none"
        return None if _version_in(names, _SDK_JARS[_sdk_of(version)]) else "no S3 client of the AWS SDK"

    def delta_rs_options(self, results: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """delta-rs' names of what a Spark driver gets in its environment."""
        options = {name: environment[name] for name in _FOR_DELTA if name in environment}
        endpoint = results.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3")
        if endpoint:
            options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}
        return options

    def pyiceberg_properties(self, results: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """pyiceberg's names of what a Spark driver gets in its environment."""
        properties = {ours: environment[theirs] for theirs, ours in _FOR_PYICEBERG.items() if theirs in environment}
        endpoint = results.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3")
        return properties | ({"s3.endpoint": endpoint} if endpoint else {})


def _of_s3(access: StoreAccess) -> S3Access:
    assert isinstance(access, S3Access)
    return access


def _session(access: StoreAccess) -> AnySession:
    session = _of_s3(access).session
    assert session is not None
    return session


def _encryption(spec: StoreSpec) -> Encryption | None:
    return None if spec.encryption is None else Encryption(spec.encryption, spec.kms_key_id)


def _sdk_of(hadoop: str | None) -> int:
    numbers = re.findall(r"\d+", hadoop or "")[:2]
    return 1 if numbers and tuple(map(int, numbers)) < (3, 4) else 2


def _version_in(names: Iterable[str], pattern: str) -> str | None:
    return next((match[1] for name in names if (match := re.fullmatch(pattern, name))), None)


SCHEME = S3Scheme()
