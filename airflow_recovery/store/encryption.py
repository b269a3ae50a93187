"""How a bucket is told to encrypt what is written: the same choice for what we put and for what Spark writes by s3a."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_recovery.errors import ConfigurationError

ALGORITHM = "ServerSideEncryption"
KEY_ID = "SSEKMSKeyId"
"""S3's own names of both, as in ``extra_args`` of Airflow's S3 hook."""

_S3A_NAMES = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}


@dataclass(frozen=True)
class Encryption:
    """Server-side encryption by ``algorithm`` (S3's name of it), with the KMS key ``key_id`` or the account's own.

    No secrets: a key id names a key that only KMS knows. Keys that the client holds (SSE-C) are not supported.
    """

    algorithm: str
    key_id: str | None = None

    def __post_init__(self) -> None:
        if self.algorithm not in _S3A_NAMES or (self.key_id and self.algorithm == "AES256"):
            raise ConfigurationError(
                f"Expected {ALGORITHM} to be one of {', '.join(_S3A_NAMES)}, and {KEY_ID} only with a kms one, found "
                f"{self.algorithm!r} with key {self.key_id!r}."
            )

    @classmethod
    def parse(cls, arguments: Mapping[str, object]) -> Encryption | None:
        """From S3's names; `None` where nothing is given. Raises `ConfigurationError` for anything else."""
        unknown = sorted(arguments.keys() - {ALGORITHM, KEY_ID})
        if unknown or (arguments and ALGORITHM not in arguments):
            raise ConfigurationError(
                f"Expected {ALGORITHM} and, with a kms one, {KEY_ID}; found {', '.join(sorted(arguments))}. Other "
                "arguments of a request are not passed on."
            )
        key_id = arguments.get(KEY_ID)
        return cls(str(arguments[ALGORITHM]), str(key_id) if key_id else None) if arguments else None

    def put_arguments(self) -> dict[str, str]:
        """The arguments with which S3's ``put_object`` encrypts so, by S3's names."""
        return {ALGORITHM: self.algorithm} | ({KEY_ID: self.key_id} if self.key_id else {})

    def s3a_settings(self) -> dict[str, str]:
        """The same for Hadoop's s3a, whose settings begin with ``fs.s3a.``; here they are without that prefix."""
        key = {"encryption.key": self.key_id} if self.key_id else {}
        return {"encryption.algorithm": _S3A_NAMES[self.algorithm]} | key
