"""What an answer of S3, or its absence, means for us. The one place that reads error codes."""

from __future__ import annotations

from airflow_recovery.errors import (
    ObjectExists,
    ObjectMissing,
    StoreAccessDenied,
    StoreCredentialsExpired,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreTimeout,
    StoreUnavailable,
    StoreUnsuitable,
)

_DENIED = {
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthFailure",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "Unauthorized",
    "XAdminUserNotFound",  # versitygw to an unknown access key, with HTTP 404
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_REPLACED = {"InvalidAccessKeyId", "InvalidToken"}
"""Of keys that were rotated: the connection has new ones by now, or it is wrong."""
_FULL = {
    "InsufficientStorage",  # versitygw, with HTTP 507
    "QuotaExceeded",  # Ceph and versitygw, with HTTP 403
    "XMinioAdminBucketQuotaExceeded",  # MinIO, with HTTP 400
    "XMinioStorageFull",  # MinIO, with HTTP 507
}
_NO_SPACE = "no space left on device"
"""In the text of an InternalError: MinIO's, where its drives are full before its own threshold is reached."""
_MISCONFIGURED = {
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "InvalidBucketName",
    "NoSuchBucket",
    "PermanentRedirect",
    "TemporaryRedirect",
}
_LATER = {
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_TIMED_OUT = {"RequestTimeout", "RequestTimeoutException"}


def answered(error: Exception) -> tuple[str, str]:
    """The code and the message of the server's answer; both empty where there was none."""
    # Of a connection that broke, botocore's error has a response as well: `None`.
    answer = (getattr(error, "response", None) or {}).get("Error", {})
    return str(answer.get("Code", "")), str(answer.get("Message", ""))


def is_cured_by_new_credentials(error: Exception) -> bool:
    """Whether botocore's ``error`` says that these credentials are no longer, or may not use the bucket's KMS key."""
    code, text = answered(error)
    return code in _EXPIRED | _REPLACED or _is_refused_by_kms(code, text)


def _is_refused_by_kms(code: str, text: str) -> bool:
    return code.startswith("KMS.") or (code == "AccessDenied" and "kms:" in text)


def translate(error: Exception, *, action: str, uri: str) -> StoreError:
    """The error of ours that ``error``, raised by botocore, stands for.

    A 404 becomes `ObjectMissing` here; whoever asked for an object must not believe it before a listing has confirmed
    it (a 404 may also be how a server answers an unknown access key).
    """
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    before = f"Could not {action} {uri}:"
    if isinstance(error, exceptions.ClientError):
        code, text = answered(error)
        status = int((error.response or {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return from_code(code, status, before=before, text=text)
    no_credentials = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
    )
    if isinstance(error, no_credentials):
        return StoreAccessDenied(
            f"{before} no usable credentials were found ({type(error).__name__}). "
            "Set the AWS connection, the AWS_* environment variables, or a role for this worker.",
            code="credentials-missing",
        )
    if isinstance(error, (exceptions.NoRegionError, exceptions.InvalidRegionError, exceptions.ParamValidationError)):
        return StoreMisconfigured(f"{before} {error}. Correct the URI or the region.")
    if isinstance(error, ResponseParserError):
        return StoreMisconfigured(
            f"{before} the answer is not one of an S3 API. Point the endpoint at the S3 API of the server, not at its "
            "console or a proxy's page."
        )
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)):
        return StoreTimeout(
            f"{before} no connection ({error}). Check the endpoint and the network; nothing is known of the object.",
            code="no-connection",
        )
    # Every other failure of the connection, a broken body included: the request may have had its effect.
    return StoreTimeout(
        f"{before} no complete answer ({type(error).__name__}: {error}). Nothing is known of the object; try again."
    )


def from_code(code: str, status: int, *, before: str, text: str) -> StoreError:
    """The error for an answer with an S3 error ``code``, an HTTP ``status`` (0 where there is none) and its ``text``.

    ``before`` says what failed, and begins the message.
    """
    answer = f"{before} the server answered {code or 'nothing'} (HTTP {status}): {text or 'no text'}."
    # The code goes before the status: ExpiredToken comes as 400, and NoSuchBucket as 404 like a missing key.
    if code in _MISCONFIGURED:
        return StoreMisconfigured(
            f"{answer} Check that the bucket exists and that region and endpoint are its own.", code="bucket-missing"
        )
    if code in _EXPIRED or _is_refused_by_kms(code, text):
        # Ours were fetched anew by now, and refused again (`airflow_recovery.store.s3_clients`).
        return StoreCredentialsExpired(
            f"{answer} Nothing was written, and what is written is whole. Give the connection, or the role, "
            "credentials that are valid, and that may use the bucket's KMS key; the next try uses them."
        )
    if code in _FULL or status == 507 or _NO_SPACE in text.lower():
        return StoreFull(
            f"{answer} Nothing was written, and what is written is whole. Make room in the bucket, or raise its quota; "
            "the next try goes on."
        )
    if code == "RequestTimeTooSkewed":
        return StoreAccessDenied(
            f"{answer} The clock of this machine is wrong by more than the server allows (15 minutes): set it (NTP); "
            "nothing is known of the object."
        )
    if code == "InvalidObjectState":
        return StoreAccessDenied(
            f"{answer} The object is archived (storage class GLACIER or DEEP_ARCHIVE, or an archive tier of "
            "INTELLIGENT_TIERING): restore it (aws s3api restore-object), or have the task that made it run again."
        )
    if code in _DENIED or status in (401, 403):
        return StoreAccessDenied(
            f"{answer} Check the credentials and the policy of bucket and key; nothing is known of the object.",
            code="credentials-refused",
        )
    if status == 412 or code == "PreconditionFailed":
        return ObjectExists(f"{answer} The key already holds an object.")
    if code in _TIMED_OUT or status == 408:
        return StoreTimeout(f"{answer} The outcome is unknown; try again.")
    if status == 501 or code == "NotImplemented":
        return StoreUnsuitable(
            f"{answer} The server lacks a part of the S3 API that is needed. Use one with conditional writes."
        )
    if code in _LATER or status in (409, 429) or status >= 500:
        return StoreUnavailable(f"{answer} The same request may succeed later.")
    if code in ("NoSuchKey", "NotFound", "404") or (status == 404 and not code):
        return ObjectMissing(f"{answer} The object is not there.")
    return StoreMisconfigured(f"{answer} The request was refused as it is: check the URI, the region and the endpoint.")
