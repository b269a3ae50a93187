"""Whether journal and results can be used from here, with the rights that this component needs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

from airflow_recovery.doctor.clocks import check_clock
from airflow_recovery.doctor.components import Right
from airflow_recovery.doctor.result import CheckResult, not_checked, ok, warning, wrong
from airflow_recovery.errors import ConfigurationError, ObjectMissing, RecordInvalid, StoreError
from airflow_recovery.journal.layout import xcoms_key
from airflow_recovery.journal.owner import check_owner, check_results
from airflow_recovery.locations import comparable
from airflow_recovery.store.lifecycle import ExpiryRule, kept_after_deletion, rule_text
from airflow_recovery.store.object_store import ObjectStore, Upload, UploadStore
from airflow_recovery.store.probe import probe
from airflow_recovery.store.schemes import scheme_for

FOLDER = "_doctor"
"""Below a store's base: what a check writes, for as long as it runs."""

_NAMES = {
    Right.LIST: "list",
    Right.PUT: "put",
    Right.GET: "get",
    Right.UPLOADS: "list unfinished uploads",
    Right.ABORT: "abort uploads",
    Right.XCOMS: "put and get XComs (_xcoms/)",
    Right.DELETE: "delete",
}
"""The rights' names, in the order in which they are tried."""

_ADVISED = {
    Right.UPLOADS: (
        "unfinished uploads to the",
        "Give this role s3:ListBucketMultipartUploads on the bucket, as the policy worker-results of docs/s3.md does, "
        "and on each bucket with an output at a location of your own. Without this right, recovery may register an "
        "operator's output although its job has ended in the middle of a commit to S3: some of the rows are missing "
        "then (docs/finished-writes.md).",
    ),
    Right.XCOMS: (
        "XComs in the",
        "Give this role s3:PutObject and s3:GetObject on */_xcoms/*, as the policy worker-results of docs/s3.md does. "
        "Without these rights, the task of an operator that leaves XComs fails after its job has succeeded.",
    ),
}
"""For each right that is only advised: how the name of its check begins, and the next step."""

_BUTTONS = {"journal": "restart, pin and release buttons", "results": "release button"}
"""What can't be pressed where the rights that buttons need are missing there."""


def check_places(journal: str, results: str) -> Iterator[CheckResult]:
    """Whether journal and results lie apart: neither URI may be where the runs of the other one lie."""
    check = "journal and results"
    if _is_among(journal, results):
        yield wrong(
            check,
            expected="the results beside the journal, or in a folder of it whose name begins with an underscore",
            found=f"the results {results} among the journals of {journal}",
            next_step="Give [recovery] results a prefix of its own, or leave it empty.",
        )
    elif _is_among(results, journal):
        yield wrong(
            check,
            expected="the journal beside the results",
            found=f"the journal {journal} among the results of {results}, where gc looks for data that nobody reads",
            next_step="Give [recovery] journal a prefix of its own, before the first run.",
        )
    else:
        yield ok(check, f"{journal} and {results}")


def check_reach(journal: str, results: str) -> Iterator[CheckResult]:
    """Warn of a folder, where tasks run on several machines: only a file system that all of them mount will do."""
    for what, uri in (("journal", journal), ("results", results)):
        check = f"{what} from every worker"
        scheme = scheme_for(uri)
        if scheme is None or not scheme.is_folder:
            yield ok(check, f"{uri} is no folder of one machine")
            continue
        yield warning(
            check,
            recommended="an object store, since the executor runs tasks on several machines",
            found=f"the folder {uri}",
            next_step="Keep it only if all workers, the API server and the triggerer mount this very folder: "
            + (
                "else each machine has a journal of its own, and none knows what the others have finished."
                if what == "journal"
                else "else what one worker writes is lost for the next, and made again until the restarts are used up."
            ),
        )


def check_store(
    what: str,
    store: ObjectStore,
    needed: Right,
    policy: str,
    *,
    buttons: Right = Right.NONE,
    advised: Right = Right.NONE,
    token: str | None = None,
) -> Iterator[CheckResult]:
    """Try each right of ``needed``; where it may write, also whether the store keeps its promises, and its clock.

    ``what``: journal or results. ``policy``: names the documents of ``docs/s3.md``. ``buttons`` and ``advised``: tried
    too; one that is missing is a warning. What is written lies below `FOLDER`, and is removed again.
    """
    token = token or uuid.uuid4().hex
    key = f"{FOLDER}/{token}"
    tried = _Tried(store, key)
    wanted = needed | buttons | advised
    failed = {}
    try:
        for right in _NAMES:
            if right in wanted and (error := tried.error(right)) is not None:
                failed[right] = error
        told, found = _told(store, needed, failed)
        if found:
            yield wrong(
                f"rights on the {what}",
                expected=f"to {told}",
                found=found,
                next_step=f"Give this role the policies {policy} of docs/s3.md, or correct the connection.",
            )
        else:
            yield ok(f"rights on the {what}", told)
        told, found = _told(store, buttons, failed)
        if found:
            yield warning(
                f"{_BUTTONS[what]} of the Recovery tab",
                recommended=f"to {told}",
                found=found,
                next_step=f"Give this role the policy worker-{what} of docs/s3.md too. Without it, whoever presses "
                "one gets HTTP 502, store_denied: leave it so only if the tab is there to be looked at.",
            )
        elif buttons:
            yield ok(f"{_BUTTONS[what]} of the Recovery tab", told)
        for right in _ADVISED:
            if right in advised and (right is not Right.UPLOADS or isinstance(store, UploadStore)):
                yield _check_advised(what, right, *_told(store, right, failed))
        if tried.written_s is not None:
            began_s, ended_s, told_s = tried.written_s
            yield check_clock(f"clock of the {what}", "the store", began_s, ended_s, told_s, unit_s=1.0)
        if Right.PUT in wanted and Right.PUT not in failed:
            yield from _check_promises(what, store, token)
    finally:
        with suppress(StoreError):
            store.delete([key, tried.xcoms])
    if wanted & (Right.PUT | Right.XCOMS) and not failed:
        yield from _check_removed(what, store, token, may_delete=Right.DELETE in wanted)


def _check_advised(what: str, right: Right, told: str, found: str) -> CheckResult:
    name, next_step = _ADVISED[right]
    check = f"{name} {what}"
    if not found:
        return ok(check, told)
    return warning(check, recommended=f"to {told}", found=found, next_step=next_step)


def check_expiry(journal: ObjectStore) -> Iterator[CheckResult]:
    """Whether a rule of the bucket deletes or archives records of the journal by age.

    No result where it may not be asked for.
    """
    rules = getattr(journal, "expiry_rules", None)
    if rules is None:
        return
    check = "lifecycle rules of the journal"
    try:
        expiring: tuple[ExpiryRule, ...] = rules()
    except StoreError:  # no policy of ours asks for that right
        return
    if not expiring:
        yield ok(check, "none deletes or archives its objects")
        return
    yield wrong(
        check,
        expected="none that deletes or archives its objects by age: a run whose records are gone runs anew, and one "
        "whose records are archived can't be read",
        found="; ".join(map(rule_text, expiring)),
        next_step="Limit the rule to other prefixes; `airflow recovery gc --purge` removes runs that have ended.",
    )


def check_deletion(store: ObjectStore) -> Iterator[CheckResult]:
    """Whether the objects that `gc` and `release` delete in the results stay readable."""
    check = "what is deleted in the results"
    kept = kept_after_deletion(store)
    if not kept:
        yield ok(check, "is gone")
    elif "unknown" in kept:
        yield not_checked(check, kept)
    else:
        yield warning(
            check,
            recommended="a store that frees the space of deleted objects, and lets nobody read them",
            found=kept,
            next_step="Add a lifecycle rule that deletes noncurrent versions, unless you keep them on purpose.",
        )


def check_owners(journal: ObjectStore, results: ObjectStore, deployment: str | None) -> Iterator[CheckResult]:
    """Whether another deployment has the journal, or another journal the results. Takes neither."""
    for what, look in (
        ("journal", partial(check_owner, journal, deployment or "")),
        ("results", partial(check_results, journal, results)),
    ):
        check = f"owner of the {what}"
        try:
            look()
        except (ConfigurationError, RecordInvalid) as error:
            yield wrong(
                check,
                expected="nobody, or this deployment and its journal",
                found=error,
                next_step="Settle it before the first run: tasks refuse to work there.",
            )
        else:
            yield ok(check, "nobody else")


def _told(store: ObjectStore, rights: Right, failed: Mapping[Right, StoreError]) -> tuple[str, str]:
    """These rights as text, and what the store has said against some of them; empty where nothing."""
    names = {right: name for right, name in _NAMES.items() if right in rights}
    against = "; ".join(f"{name}: {failed[right]}" for right, name in names.items() if right in failed)
    return f"{', '.join(names.values())} below {store.base_uri}", against


class _Tried:
    """Requests of one kind each, on one object of ours."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self.xcoms = xcoms_key(FOLDER, key.rpartition("/")[2])
        self._written_s: tuple[float, float] | None = None
        self._stored_s: float | None = None

    @property
    def written_s(self) -> tuple[float, float, float] | None:
        """When the object was written: from and to by this machine's clock, and by the store's. `None`: not known."""
        if self._written_s is None or self._stored_s is None:
            return None
        return (*self._written_s, self._stored_s)

    def error(self, right: Right) -> StoreError | None:
        """What the store says against it; `None` where it does it."""
        try:
            self._try(right)
        except StoreError as error:
            return error
        return None

    def _try(self, right: Right) -> None:
        if right is Right.LIST:
            list(self._store.list(f"{self._key}/"))
        elif right is Right.PUT:
            began_s = time.time()
            self._store.put_if_absent(self._key, b"airflow recovery doctor")
            self._written_s = (began_s, time.time())
        elif right is Right.GET:
            # What is not there is told from what is denied to who may list.
            with suppress(ObjectMissing):
                self._stored_s = self._store.get(self._key).info.modified_s
        elif right is Right.XCOMS:
            self._store.put(self.xcoms, b"airflow recovery doctor")
            self._store.get(self.xcoms)
        elif right is Right.DELETE:
            self._store.delete([self._key])
        elif right is Right.UPLOADS and isinstance(self._store, UploadStore):
            list(self._store.uploads(f"{self._key}/"))
        elif right is Right.ABORT and isinstance(self._store, UploadStore):
            # One that nobody has begun: "no such upload" is said to who may abort.
            self._store.abort_upload(Upload(self._key, "airflow-recovery-doctor", 0.0))


def _check_promises(what: str, store: ObjectStore, token: str) -> Iterator[CheckResult]:
    check = f"conditional writes and listings of the {what}"
    try:
        probe(store, token=token, always_race=True)
    except StoreError as error:
        yield wrong(
            check,
            expected="a second write of an object to be refused, and a listing to show what was just written",
            found=error,
            next_step="Take another store, or switch it on in the server or the proxy before it (docs/s3.md).",
        )
    else:
        yield ok(check, "as they must be")


def _check_removed(what: str, store: ObjectStore, token: str, *, may_delete: bool) -> Iterator[CheckResult]:
    """The role of a journal may not delete, and that is right: then a few bytes stay."""
    check = f"what this has written to the {what}"
    left = [info.key for folder in (FOLDER, "_probe") for info in store.list(f"{folder}/") if token in info.key]
    if not left:
        yield ok(check, "is removed again")
    elif not may_delete:
        yield ok(check, f"a few bytes stay ({', '.join(left)}): who may not delete from a journal is right")
    else:
        yield wrong(
            check,
            expected="it to be gone when it was deleted",
            found=f"{', '.join(left)} in the listing",
            next_step="Look for versioning, a lock or a cache before the store; what is released must go.",
        )


def _is_among(base: str, other: str) -> bool:
    """Whether ``other`` lies where runs lie below ``base``: no name of a DAG begins with an underscore."""
    base, other = (comparable(name).rstrip("/") for name in (base, other))
    return other == base or (other.startswith(f"{base}/") and not other[len(base) + 1 :].startswith("_"))
