"""What an operator's try leaves in Airflow besides its state: XComs, its return value, what its asset events carry.

Airflow deletes a task's XComs when its next try starts. So an attempt stores them beside its results before it
finishes, and a try that keeps the attempt leaves them again. They are stored as Airflow serialises values, before an
XCom backend of your own sees them: what such a backend has stored is deleted with the XCom.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.hooks.masking import holds_secret
from airflow_recovery.journal.layout import xcoms_key
from airflow_recovery.model.records import StoredXComs

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.store.object_store import ObjectStore

MOST_BYTES = 1024**2
"""What is larger is not stored."""
SUMMARY_KEY = "recovery"
"""The XCom with what recovery did, of an operator that returns a value of its own."""
_PUSHED = "pushed"


@dataclass
class LeftInAirflow:
    """``pushed``: the XComs by key; ``returned``: the return value, each as Airflow serialises it.

    ``events``: what the operator has set for its asset events. ``unfit``: why some of it can't be serialised.
    """

    pushed: dict[str, Any] = field(default_factory=dict)
    returned: Any = None
    events: list[dict[str, Any]] = field(default_factory=list)
    unfit: str = ""

    def __bool__(self) -> bool:
        return bool(self.pushed or self.events or self.unfit) or self.returned is not None

    def push(self, key: str, value: Any) -> None:
        """The XCom ``key`` has this value now."""
        self.pushed[key] = self._serialised(f"XCom {key!r}", value)

    def return_value(self, value: Any) -> None:
        """The operator has returned ``value``."""
        self.returned = self._serialised("the return value", value)

    def set_events(self, events: list[dict[str, Any]]) -> None:
        """The operator has set ``events`` for its asset events."""
        self.events = self._serialised("the extra of an asset event", events) or []

    def _serialised(self, name: str, value: Any) -> Any:
        from airflow_recovery.airflow_compat import serialize

        try:
            serialised = serialize(value)
            json.dumps(serialised)
        except Exception as error:
            self.unfit = f"Airflow can't serialise {name}: {type(error).__name__}"
            return None
        return serialised

    def values(self) -> tuple[dict[str, Any], Any]:
        """The XComs and the return value, as they were. Raises what Airflow raises for a class that it may not load."""
        from airflow_recovery.airflow_compat import deserialize

        return {key: deserialize(value) for key, value in self.pushed.items()}, deserialize(self.returned)

    def to_json(self) -> bytes:
        """The object's bytes; two alike are equal."""
        document = {
            "xcoms": self.pushed,
            "return_value": self.returned,
            "asset_events": self.events,
            "unfit": self.unfit,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes) -> LeftInAirflow:
        """Inverse of `to_json`. Raises `ValueError`, `KeyError` or `TypeError` for other bytes."""
        document = json.loads(body)
        return cls(dict(document["xcoms"]), document["return_value"], list(document["asset_events"]), document["unfit"])


@contextmanager
def recording(
    context: Context, left: LeftInAirflow, before_push: Callable[[], None] = lambda: None
) -> Iterator[LeftInAirflow]:
    """Record in ``left`` what this task pushes meanwhile, and at the end what it has set for its asset events.

    ``before_push`` is called when a value is recorded, before Airflow is sent it.
    """
    from airflow_recovery.airflow_compat import hearing_xcoms

    def heard(key: str, value: Any) -> None:
        left.push(key, value)
        before_push()

    before = _outlets_of(context)
    with hearing_xcoms(context["ti"], heard):
        yield left
    added = [outlet for outlet in _outlets_of(context) if outlet not in before]
    left.set_events([*events_set(context), *({"outlet": [outlet.name, outlet.uri]} for outlet in added)])


def _outlets_of(context: Mapping[str, Any]) -> list[Any]:
    """The assets among the outlets of the task, to which a function adds one by returning it."""
    return [outlet for outlet in getattr(context.get("task"), "outlets", ()) if hasattr(outlet, "uri")]


def events_set(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the task has set for its asset events so far, one entry an asset or alias; one without extra is left out."""
    events = []
    for target, accessor in (context.get("outlet_events") or {}).items():
        added = [
            {"name": event.dest_asset_key.name, "uri": event.dest_asset_key.uri, "extra": event.extra}
            for event in accessor.asset_alias_events
        ]
        if accessor.extra or accessor.partition_keys or added:
            events.append(
                {
                    "name": target.name,
                    "uri": getattr(target, "uri", None),
                    "extra": accessor.extra,
                    "partition_keys": sorted(accessor.partition_keys),
                    "added": added,
                }
            )
    return events


def set_events(context: Mapping[str, Any], events: list[dict[str, Any]]) -> None:
    """Set for the task's asset events what `recording` has found in an earlier try."""
    from airflow.sdk import Asset, AssetAlias

    for event in events:
        if "outlet" in event:
            context["task"].outlets.append(Asset(*event["outlet"]))
            continue
        target = AssetAlias(event["name"]) if event["uri"] is None else Asset(event["name"], event["uri"])
        accessor = context["outlet_events"][target]
        accessor.extra = dict(event["extra"])
        if event["partition_keys"]:
            accessor.add_partitions(event["partition_keys"])
        for added in event["added"]:
            accessor.add(Asset(added["name"], added["uri"]), extra=added["extra"])


def store_left(store: ObjectStore, folder: str, left: LeftInAirflow) -> StoredXComs | None:
    """Store it below the attempt's ``folder``; `None`: there is nothing. Raises the store's errors."""
    if not left:
        return None
    body = left.to_json()
    unfit = _why_unfit(left, body)
    if unfit:
        return StoredXComs("", len(body), unfit)
    digest = hashlib.sha256(body).hexdigest()
    store.put(xcoms_key(folder, digest), body)
    return StoredXComs(digest, len(body))


def read_left(store: ObjectStore, folder: str, stored: StoredXComs) -> LeftInAirflow | str:
    """What an attempt has stored, or why it can't be left again. Raises the store's errors."""
    if not stored.digest:
        return f"they were not stored ({stored.why})"
    key = xcoms_key(folder, stored.digest)
    try:
        body = store.get(key).body
    except ObjectMissing:
        return f"{store.base_uri}/{key} is missing"
    if hashlib.sha256(body).hexdigest() != stored.digest:
        return f"{store.base_uri}/{key} was altered"
    left = LeftInAirflow.from_json(body)
    try:
        left.values()
    except Exception as error:
        return f"Airflow can't read one of them: {type(error).__name__}: {error}"
    return left


def store_pushed(store: ObjectStore, folder: str, left: LeftInAirflow) -> str:
    """Store what was pushed so far for the task's next try, since the job may outlive this one.

    Returns the digest of what was stored, for the journal: who may write results must not choose XComs. Raises the
    store's errors.
    """
    body = left.to_json()
    unfit = _why_unfit(left, body)
    stored = LeftInAirflow(unfit=unfit).to_json() if unfit else body
    store.put(xcoms_key(folder, _PUSHED), stored)
    return hashlib.sha256(stored).hexdigest()


def read_pushed(store: ObjectStore, folder: str, digest: str) -> LeftInAirflow:
    """What an earlier try had pushed when it was lost, if it has this ``digest``. Raises the store's errors.

    An empty digest means that nothing was pushed.
    """
    try:
        body = store.get(xcoms_key(folder, _PUSHED)).body
    except ObjectMissing:
        body = b""
    if hashlib.sha256(body).hexdigest() == digest:
        return LeftInAirflow.from_json(body)
    if not body and not digest:
        return LeftInAirflow()
    return LeftInAirflow(unfit="what an earlier try has pushed is not what the journal has the digest of")


def _why_unfit(left: LeftInAirflow, body: bytes) -> str:
    if left.unfit:
        return left.unfit
    if len(body) > MOST_BYTES:
        return f"{len(body)} bytes, and at most {MOST_BYTES} are stored"
    return "Airflow's secrets masker finds a secret in them" if holds_secret(json.loads(body)) else ""
