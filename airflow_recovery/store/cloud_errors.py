"""What an answer of Google Cloud Storage or Azure Blob Storage, or its absence, means for us.

The one place that reads obstore's errors. They are of few kinds; HTTP status and the cloud's own code stand in their
text, and these decide.
"""

from __future__ import annotations

import re

from airflow_recovery.errors import (
    ObjectExists,
    ObjectMissing,
    RecoveryError,
    StoreAccessDenied,
    StoreCredentialsExpired,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreTimeout,
    StoreUnavailable,
    StoreUnsuitable,
)

_STATUS = re.compile(r"non-2xx status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]+)")
_KIND = re.compile(r"\bkind: (Connect|Timeout|Request|Interrupted|Decode|Unknown)\b")
_TOKEN = re.compile(r"token request|credential|Credential")
_BATCH = re.compile(r"Bulk delete request failed for key .*?: (?P<reason>.*?) \(code: \d{3}\)", re.DOTALL)

_EXISTS = {"BlobAlreadyExists", "ConditionNotMet", "PreconditionFailed", "UnmodifiedSinceFailed"}
_MISSING = {"BlobNotFound", "NoSuchKey", "NotFound", "PathNotFound", "ResourceNotFound"}
_NO_BUCKET = {
    "AccountBeingCreated",
    "ContainerBeingDeleted",
    "ContainerDisabled",
    "ContainerNotFound",
    "FilesystemNotFound",
    "InvalidBucketName",
    "InvalidResourceName",
    "NoSuchBucket",
}
_EXPIRED = {"AuthenticationFailed", "ExpiredToken", "InvalidAuthenticationInfo", "InvalidToken"}
"""Azure says this of a signature that is wrong or over, and of a bearer token that is."""
_FULL = {"AccountLimitExceeded", "QuotaExceeded", "StorageQuotaExceeded"}


def _head(error: BaseException) -> str:
    """What obstore says; Rust's own description of the error stands behind it."""
    return str(error).partition("\n\nDebug source:")[0]


def _status(head: str) -> int:
    match = _STATUS.search(head)
    return int(match[1] or match[2]) if match else 0


def _code(head: str) -> str:
    match = _CODE.search(head)
    if match:
        return match[1]
    batch = _BATCH.search(head)
    # Of one object of many Azure gives the message and no code.
    if batch and "container does not exist" in batch["reason"]:
        return "ContainerNotFound"
    return "BlobNotFound" if batch and "blob does not exist" in batch["reason"] else ""


def is_cured_by_new_credentials(error: Exception) -> bool:
    """Whether obstore's ``error`` says that these credentials are none, or none any more."""
    head = _head(error)
    return not isinstance(error, RecoveryError) and (_status(head) == 401 or _code(head) in _EXPIRED)


def translate(error: Exception, *, cloud: str, action: str, uri: str) -> Exception:
    """The error of ours that ``error``, raised by obstore, stands for; ``error`` itself where it is not obstore's."""
    from obstore.exceptions import BaseError

    if isinstance(error, RecoveryError) or not isinstance(error, (BaseError, OSError)):
        return error
    head = _head(error)
    status, before = _status(head), f"Could not {action} {uri}:"
    if "token request" in head or (not status and _TOKEN.search(head)):
        return _without_token(status, before, _first_line(head))
    if status:
        message = _MESSAGE.search(head)
        return from_answer(
            status, _code(head), before=before, text=message[1].rstrip(".") if message else "", cloud=cloud
        )
    kind = _KIND.search(str(error))
    if "object with invalid path" in head:
        return StoreMisconfigured(
            f"{before} {_first_line(head)}. Expected names without an empty part, '.' or '..': the library can't list "
            "others. Rename that object, or delete it, with the cloud's own tools."
        )
    if kind is None:
        return StoreMisconfigured(
            f"{before} the answer is not one of {cloud} ({_first_line(head)}). Point the endpoint at the server "
            "itself, not at a proxy's page."
        )
    if kind[1] == "Connect":
        return StoreTimeout(
            f"{before} no connection ({_first_line(head)}). Check the endpoint and the network; nothing is known of "
            "the object.",
            code="no-connection",
        )
    return StoreTimeout(
        f"{before} no complete answer ({_first_line(head)}). Nothing is known of the object; try again."
    )


def from_answer(status: int, code: str, *, before: str, text: str, cloud: str) -> StoreError:
    """The error for an answer with an HTTP ``status``, the cloud's own ``code`` (empty where it has none) and text.

    ``before`` says what failed, and begins the message.
    """
    answer = f"{before} the server answered {code or 'no code'} (HTTP {status}): {text or 'no text'}."
    # The code goes before the status: a container that is missing comes as 404 like an object.
    if code in _NO_BUCKET:
        return StoreMisconfigured(
            f"{answer} Check that the bucket or container exists, and who may use it.", code="bucket-missing"
        )
    if code in _FULL or status == 507:
        return StoreFull(
            f"{answer} Nothing was written, and what is written is whole. Make room, or raise the quota; the next try "
            "goes on."
        )
    if code in _EXPIRED or status == 401:
        return StoreCredentialsExpired(
            f"{answer} Nothing was written, and what is written is whole. Give the connection, or the machine's "
            "identity, credentials that are valid; the next try uses them."
        )
    if status == 403:
        return StoreAccessDenied(
            f"{answer} Check the credentials and their roles on the bucket; nothing is known of the object.",
            code="credentials-refused",
        )
    if status == 412 or code in _EXISTS:
        return ObjectExists(f"{answer} The key already holds an object.")
    if status == 404 and code in _MISSING:
        return ObjectMissing(f"{answer} The object is not there.")
    if status == 408:
        return StoreTimeout(f"{answer} The outcome is unknown; try again.")
    if status == 501:
        return StoreUnsuitable(f"{answer} The server lacks a part of the API of {cloud} that is needed.")
    if status in (409, 429) or status >= 500:
        return StoreUnavailable(f"{answer} The same request may succeed later.")
    return StoreMisconfigured(
        f"{answer} Expected an answer as {cloud} gives it: check the URI and the endpoint, and who answers there."
    )


def _without_token(status: int, before: str, text: str) -> StoreError:
    """Nobody was asked about the object: there was no token to ask with."""
    if status == 429 or status >= 500:
        return StoreUnavailable(f"{before} no token was given out ({text}). The same request may succeed later.")
    return StoreAccessDenied(
        f"{before} no usable credentials were found ({text}). Set the connection, the cloud's own variables, or an "
        "identity for this machine.",
        code="credentials-missing",
    )


def _first_line(head: str) -> str:
    return head.partition("\n")[0].rstrip(".")
