"""An S3 bucket, or a part of one, as an object store. Any server with conditional writes will do."""

from __future__ import annotations

import copy
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import (
    ConfigurationError,
    ObjectMissing,
    RecoveryError,
    StoreAccessDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    StoreUnsuitable,
)
from airflow_recovery.store.encryption import Encryption
from airflow_recovery.store.lifecycle import ExpiryRule
from airflow_recovery.store.object_store import (
    MAX_OBJECT_BYTES,
    PAGE_KEYS,
    ObjectInfo,
    ObjectVersion,
    StoredObject,
    Upload,
    check_size,
    checked_key,
    checked_prefix,
)
from airflow_recovery.store.s3_clients import S3Clients
from airflow_recovery.store.s3_errors import answered, from_code, translate
from airflow_recovery.store.s3_listing import ARCHIVED, listed_objects
from airflow_recovery.store.write_once import DEFAULT_BACKOFF

if TYPE_CHECKING:
    from airflow_recovery.store.s3_clients import AnySession

_URI = re.compile(r"s3a?://(?P<bucket>[^/]+)(?:/(?P<prefix>.*))?", re.DOTALL)
_ONCE = 1
_LISTING = "a listing"
_CHECKSUMS = ("SHA256", "SHA1", "CRC64NVME", "CRC32C", "CRC32")
_NO_RULES = ("NoSuchLifecycleConfiguration", "NotImplemented")
_NO_VERSIONS = ("NotImplemented", "MethodNotAllowed")


class S3Store:
    """Objects below ``s3://bucket/prefix``, over boto3's SDK (imported at the first request).

    Reads are repeated a few times: by the SDK until an answer begins, and here where its body breaks off. Writes are
    not: whether an unknown outcome may be repeated is the writer's decision
    (`airflow_recovery.store.write_once`). Credentials come from ``session`` (boto3's or
    botocore's), else from the SDK's own chain (environment, profile, role), which also renews them. Where the server
    says that they have expired, they are fetched anew once, by ``renew`` where a session was given; then
    `StoreCredentialsExpired` is raised. One instance may be used by many threads.

    Does not create buckets. ``max_connections`` bounds the connections of one instance.
    """

    def __init__(  # noqa: PLR0913 - options of the client, each with its default
        self,
        base_uri: str,
        *,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        session: AnySession | None = None,
        renew: Callable[[], AnySession] | None = None,
        encryption: Encryption | None = None,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 30.0,
        max_read_attempts: int = 4,
        max_connections: int = 64,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bucket, self._prefix = _bucket_and_prefix(base_uri)
        self._sleep = sleep
        self._max_read_attempts = max_read_attempts
        self._put_arguments: dict[str, Any] = {} if encryption is None else encryption.put_arguments()
        self._clients = S3Clients(
            session,
            renew=renew,
            endpoint_url=endpoint_url,
            region_name=region_name,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
            max_connections=max_connections,
        )

    def sibling(self, base_uri: str) -> S3Store:
        """The store at another URI with the same endpoint and credentials: it shares this one's clients."""
        other = copy.copy(self)
        other._bucket, other._prefix = _bucket_and_prefix(base_uri)
        return other

    @property
    def base_uri(self) -> str:
        """``s3://bucket/prefix``, without a slash at the end."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def prepare(self) -> None:
        """Import the SDK and make the clients now instead of at the first request. Asks nobody anything."""
        self._clients.sending(self._max_read_attempts)
        self._clients.sending(_ONCE)

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create ``key``. Raises `ObjectExists` where it is there already, whoever wrote it."""
        return self._write(key, body, {"IfNoneMatch": "*"})

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite ``key``, in one request that is not repeated."""
        return self._write(key, body, {})

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectMissing` where a listing confirms that it is not there.

        Raises `ObjectTooLarge`, and reads nothing, where the answer is longer than ``max_bytes``.
        """
        try:
            return self._get(key, max_bytes)
        except ObjectMissing:
            if not self._is_listed(key):
                raise
        # Written between the two requests, or a server that answers 404 for something else. Once more, then say so.
        try:
            return self._get(key, max_bytes)
        except ObjectMissing as error:
            raise StoreUnavailable(
                f"{self._uri(key)}: the listing shows the object, but reading it says it is not there ({error}) "
                "Nothing is concluded from that; try again.",
                code="listed-and-not-there",
            ) from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes of ``key`` from ``start`` on; fewer at its end. Raises `ObjectMissing`, unconfirmed."""
        return self._get(key, length, Range=f"bytes={start}-{start + length - 1}").body

    def peek(self, key: str) -> StoredObject:
        """As `get`, but `ObjectMissing` is not confirmed by a listing.

        Only for callers to whom "not there" means "not yet", and for whom a wrong answer changes nothing.
        """
        return self._get(key, MAX_OBJECT_BYTES)

    def version(self, key: str) -> ObjectVersion:
        """Return the version of ``key``, without its content. Raises `ObjectMissing`, unconfirmed by a listing."""
        name = self._prefix + checked_key(key)
        try:
            answer = self._ask("head_object", {"Bucket": self._bucket, "Key": name, "ChecksumMode": "ENABLED"})
        except Exception as error:
            raise self._translated(error, "read", self._uri(key)) from error
        return self._version(key, answer)

    def read_version(self, key: str, max_bytes: int) -> tuple[ObjectVersion, bytes | None]:
        """Return the version of ``key`` and its content; `None` instead of more than ``max_bytes``. As `version`."""
        answer = self._begin_to_read(key, None, ChecksumMode="ENABLED")
        version = self._version(key, answer)
        if version.info.size > max_bytes:
            answer["Body"].close()
            return version, None
        try:
            return version, answer["Body"].read()
        except Exception as error:
            raise self._translated(error, "read", self._uri(key)) from error

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key begins with ``prefix``, in key order, a request for each 1000 of them.

        Folder markers (keys that end with a slash; the store's own, whose key below it is empty) are left out.
        """
        where = self._prefix + checked_prefix(prefix)
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": where}
        if start_after:
            arguments["StartAfter"] = self._prefix + start_after
        try:
            while arguments:
                page = self._ask("list_objects_v2", arguments)
                infos = [info for info in self._listed(page) if info.key and not info.key.endswith("/")]
                yield from self._with_restored(infos, arguments) if any(info.archived for info in infos) else infos
                following = {"ContinuationToken": page.get("NextContinuationToken")}
                arguments = {**arguments, **following} if page.get("IsTruncated") else {}
        except Exception as error:
            raise self._translated(error, "list", f"s3://{self._bucket}/{where}") from error

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, 1000 a request; a key that is not there is not an error."""
        remaining = iter(keys)
        while batch := list(islice(remaining, PAGE_KEYS)):
            names = [{"Key": self._prefix + checked_key(key, listed=True)} for key in batch]
            try:
                deleted = {"Bucket": self._bucket, "Delete": {"Objects": names, "Quiet": True}}
                answer = self._ask("delete_objects", deleted)
            except Exception as error:
                raise self._translated(error, "delete from", self.base_uri) from error
            for refusal in answer.get("Errors", ()):
                if refusal.get("Code") != "NoSuchKey":
                    before = f"Could not delete s3://{self._bucket}/{refusal.get('Key')}:"
                    raise from_code(refusal.get("Code", ""), 0, before=before, text=refusal.get("Message", ""))

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        """Unfinished multipart uploads to keys that begin with ``prefix``, whoever began them."""
        where = self._prefix + checked_prefix(prefix)
        try:
            arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": where}
            while arguments:
                page = self._ask("list_multipart_uploads", arguments)
                for upload in page.get("Uploads", ()):
                    key = upload["Key"][len(self._prefix) :]
                    yield Upload(key, upload["UploadId"], upload["Initiated"].timestamp())
                following = {"KeyMarker": page.get("NextKeyMarker"), "UploadIdMarker": page.get("NextUploadIdMarker")}
                arguments = {**arguments, **following} if page.get("IsTruncated") else {}
        except Exception as error:
            raise self._translated(error, "list the uploads to", f"s3://{self._bucket}/{where}") from error

    def abort_upload(self, upload: Upload) -> None:
        """Delete what was uploaded. One that is completed or aborted already is not an error."""
        name = self._prefix + checked_key(upload.key, listed=True)
        try:
            self._ask("abort_multipart_upload", {"Bucket": self._bucket, "Key": name, "UploadId": upload.upload_id})
        except Exception as error:
            if answered(error)[0] == "NoSuchUpload":
                return
            raise self._translated(error, "abort the upload to", self._uri(upload.key)) from error

    def expiry_rules(self) -> tuple[ExpiryRule, ...]:
        """The bucket's lifecycle rules that delete or archive objects of this store by age; () where it has none."""
        try:
            answer = self._ask("get_bucket_lifecycle_configuration", {"Bucket": self._bucket})
        except Exception as error:
            if answered(error)[0] in _NO_RULES:
                return ()
            raise self._translated(error, "read the lifecycle rules of", f"s3://{self._bucket}") from error
        rules = []
        for rule in answer.get("Rules", ()):
            wanted = rule.get("Filter", {})
            prefix = wanted.get("Prefix") or wanted.get("And", {}).get("Prefix") or rule.get("Prefix") or ""
            ends = [(rule.get("Expiration", {}).get("Days"), "")]
            ends += [(move.get("Days"), move.get("StorageClass")) for move in rule.get("Transitions", ())]
            concerns = prefix.startswith(self._prefix) or self._prefix.startswith(prefix)
            if rule.get("Status") == "Enabled" and concerns:
                rules += [
                    ExpiryRule(rule.get("ID", "unnamed"), prefix, days, archive)
                    for days, archive in ends
                    if days is not None and archive in ("", *ARCHIVED)
                ]
        return tuple(rules)

    def keeps_deleted(self) -> str:
        """As `airflow_recovery.store.lifecycle.kept_after_deletion`, by the bucket's versioning. One request."""
        bucket = f"s3://{self._bucket}"
        try:
            status = self._ask("get_bucket_versioning", {"Bucket": self._bucket}).get("Status")
        except Exception as error:
            if answered(error)[0] in _NO_VERSIONS:
                return ""
            meant = self._translated(error, "read the versioning of", bucket)
            if not isinstance(meant, StoreError):
                raise
            why = "this role lacks s3:GetBucketVersioning." if isinstance(meant, StoreAccessDenied) else str(meant)
            return f"Whether deleted objects of {bucket} stay readable as older versions is unknown: {why}"
        if status == "Enabled":
            return (
                f"{bucket} has versioning, so deleted objects stay readable as older versions and take up space, until "
                "a lifecycle rule deletes noncurrent versions. An object lock or a legal hold keeps them longer."
            )
        if status == "Suspended":
            return (
                f"The versioning of {bucket} is suspended. Of objects that were written before that, older versions "
                "stay readable after a deletion, until a lifecycle rule deletes noncurrent versions."
            )
        return ""

    def _get(self, key: str, max_bytes: int | None, **part: str) -> StoredObject:
        failures = 0
        while True:
            answer = self._begin_to_read(key, max_bytes, **part)
            try:
                body = answer["Body"].read()
            except Exception as error:
                failures += 1
                meant = self._translated(error, "read", self._uri(key))
                if meant is error or failures >= self._max_read_attempts:
                    raise meant from error
            else:
                return StoredObject(self._info(key, len(body), answer, "reading an object"), body)
            self._sleep(DEFAULT_BACKOFF.pause_s(failures, random.Random()))

    def _begin_to_read(self, key: str, max_bytes: int | None, **part: str) -> dict[str, Any]:
        """The answer whose body is still to come, and is not longer than ``max_bytes``.

        The SDK compares the body with the length, and with the checksum where the server keeps one.
        """
        name = self._prefix + checked_key(key)
        try:
            answer = self._ask("get_object", {"Bucket": self._bucket, "Key": name, **part})
        except Exception as error:
            raise self._translated(error, "read", self._uri(key)) from error
        try:
            check_size(self._uri(key), self._field(answer, "ContentLength", "reading an object"), max_bytes)
        except RecoveryError:
            answer["Body"].close()
            raise
        return answer

    def _is_listed(self, key: str) -> bool:
        """Whether a listing shows exactly ``key``. It comes first among the keys that it is a prefix of."""
        try:
            listed = {"Bucket": self._bucket, "Prefix": self._prefix + key, "MaxKeys": 1}
            answer = self._ask("list_objects_v2", listed)
        except Exception as error:
            raise self._translated(error, "list", self._uri(key)) from error
        return any(info.key == key for info in self._listed(answer))

    def _write(self, key: str, body: bytes, condition: dict[str, Any]) -> ObjectInfo:
        name = self._prefix + checked_key(key)
        arguments = {"Bucket": self._bucket, "Key": name, "Body": body, **self._put_arguments, **condition}
        try:
            answer = self._clients.ask(_ONCE, lambda client: client.put_object(**arguments))
        except Exception as error:
            raise self._translated(error, "write", self._uri(key)) from error
        return ObjectInfo(key, len(body), self._field(answer, "ETag", "writing an object").strip('"'))

    def _translated(self, error: Exception, action: str, uri: str) -> Exception:
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        # botocore lets urllib3's errors through where a body breaks off within TLS.
        if not isinstance(error, (BotoCoreError, ClientError, HTTPError, OSError)):
            return error
        meant = translate(error, action=action, uri=uri)
        if isinstance(meant, ObjectMissing) and action != "read":
            # No object can be missing there: the bucket is, or whatever answered is no S3 API.
            return StoreMisconfigured(
                f"{meant} Check that bucket s3://{self._bucket} exists at this endpoint.", code="bucket-missing"
            )
        return meant

    def _listed(self, page: Mapping[str, Any]) -> Iterable[ObjectInfo]:
        """The objects of a page, and folder markers."""
        return listed_objects(page, self._prefix) or (
            self._info(entry["Key"][len(self._prefix) :], self._field(entry, "Size", _LISTING), entry, _LISTING)
            for entry in page.get("Contents", ())
        )

    def _with_restored(self, infos: Iterable[ObjectInfo], arguments: dict[str, Any]) -> Iterator[ObjectInfo]:
        """The objects of a page that has archived ones. Those that are restored for a time can be read meanwhile.

        Asked by the same page once more: only for a page with archived objects, and not every server knows the option.
        """
        page = self._ask("list_objects_v2", {**arguments, "OptionalObjectAttributes": ["RestoreStatus"]})
        states = {entry["Key"][len(self._prefix) :]: entry.get("RestoreStatus") for entry in page.get("Contents", ())}
        for info in infos:
            state = states.get(info.key)
            is_restored = state is not None and not state.get("IsRestoreInProgress") and state.get("RestoreExpiryDate")
            yield info._replace(archived="") if info.archived and is_restored else info

    def _info(self, key: str, size: int, answer: Mapping[str, Any], to: str) -> ObjectInfo:
        stored, name = self._field(answer, "LastModified", to), answer.get("StorageClass")
        archived = name if name in ARCHIVED and to == _LISTING else ""
        return ObjectInfo(key, size, self._field(answer, "ETag", to).strip('"'), stored.timestamp(), archived)

    def _version(self, key: str, answer: Mapping[str, Any]) -> ObjectVersion:
        size = self._field(answer, "ContentLength", "reading an object")
        sums = (f"{kind.lower()}:{answer[f'Checksum{kind}']}" for kind in _CHECKSUMS if answer.get(f"Checksum{kind}"))
        generation = str(answer.get("VersionId") or "")
        return ObjectVersion(self._info(key, size, answer, "reading an object"), next(sums, ""), generation)

    def _field(self, answer: Mapping[str, Any], name: str, to: str) -> Any:
        """The field ``name`` of the server's answer. Raises `StoreUnsuitable` where the answer lacks it."""
        if answer.get(name) is None:
            raise StoreUnsuitable(
                f"{self.base_uri}: expected {name} in the answer to {to}, as S3 sends it, found none. Without it an "
                "object that was cut short or exchanged looks whole. Use a server that sends it, or take away the "
                "proxy that drops it."
            )
        return answer[name]

    def _uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    def _ask(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that may be repeated, under the client's own name of it."""
        answer: dict[str, Any] = self._clients.ask(
            self._max_read_attempts, lambda client: getattr(client, operation)(**arguments)
        )
        return answer


def _bucket_and_prefix(base_uri: str) -> tuple[str, str]:
    """The prefix ends with a slash, or is empty."""
    match = _URI.fullmatch(base_uri)
    prefix = (match["prefix"] or "").removesuffix("/") if match else ""
    try:
        if match is None or (prefix and not checked_key(prefix)):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"Expected s3://<bucket>/<prefix>, found {base_uri!r}. Name a bucket, and no empty part, '.' or "
            "'..' in it.",
            code="s3-uri-unfit",
        ) from None
    return match["bucket"], f"{prefix}/" if prefix else ""
