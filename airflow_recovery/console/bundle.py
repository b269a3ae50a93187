"""A run in one file, for a bug report: its journal and history, the plan, versions; no data of results, no secrets.

    bundle.json       format, identity, versions, and the listing as the store gave it
    plan.json         as `plan --json` says it, where one could be made
    doctor.json       what `doctor` said where the bundle was made, without writing anything
    journal/<key>     the objects, with what looks like a secret replaced (`airflow_recovery.journal.scrub`); beside the
                      journal's the control logs of channels, whose keys are others

`BundleStore` reads it as the store that it was made from, so every command that only reads a journal reads a bundle.
"""

from __future__ import annotations

import json
import sys
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from airflow_recovery.errors import ConfigurationError, ObjectMissing, RecordInvalid, StoreAccessDenied, StoreError
from airflow_recovery.journal.codec import MAX_RECORD_BYTES, parse_json, resealed
from airflow_recovery.journal.frames import rewritten
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.scrub import scrubbed, scrubbed_json
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, StoredObject, check_size, get_many
from airflow_recovery.story.mode import story_modes

BUNDLE_FORMAT = 1
ROOM_BYTES, ROOM_FACTOR = 16 * 1024 * 1024, 8
"""A bundle is unpacked to at most so much, and so many times its own size: one of a large run comes to five times."""

_INDEX, _PLAN, _DOCTOR, _OBJECTS = "bundle.json", "plan.json", "doctor.json", "journal/"
_DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError, EOFError)
_NO_LOGS = "an earlier version has made this bundle, without their logs"
_PACKAGES = (
    "airflow-recovery",
    "apache-airflow",
    "apache-airflow-providers-amazon",
    "apache-airflow-providers-apache-spark",
    "boto3",
    "deltalake",
    "pyspark",
    "pyspark-client",
)


@dataclass(frozen=True)
class Written:
    """What went into a bundle. ``altered``: keys of the objects in which something was replaced."""

    objects: int
    altered: tuple[str, ...]
    missing: tuple[str, ...]


def write_bundle(
    path: Path,
    store: ObjectStore,
    results: ObjectStore,
    identity: RunIdentity,
    plan: dict[str, Any] | str,
    *,
    doctor: list[dict[str, str]] | None = None,
) -> Written:
    """Write the run's bundle to ``path``. ``plan`` is the plan's document, or why there is none.

    ``doctor``: the results of its checks, as JSON values.

    Raises `ConfigurationError` where the file is there already or can't be written, and the store's errors.
    """
    layout = JournalLayout(identity)
    # The cache of outcomes says nothing that they don't say themselves.
    records = [info for prefix in (layout.prefix, layout.splits, layout.streams) for info in store.list(prefix)]
    records = [record for record in records if record.key != layout.snapshot and record.size <= MAX_RECORD_BYTES]
    bodies = get_many(store, [record.key for record in records])
    try:
        listed = [info for mode in story_modes() for info in mode.logs(results, identity)]
        logs = [info for info in listed if info.size <= MAX_RECORD_BYTES]
        bodies |= get_many(results, [log.key for log in logs])
        no_channels = None
    except StoreError as error:  # who may read the journal alone can still ask for help
        logs, no_channels = [], f"when the bundle was made: {type(error).__name__}: {scrubbed(str(error))}"
    listed = [*records, *logs]
    altered = []
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as file:
            for info in listed:
                if info.key not in bodies:
                    continue
                body = bodies[info.key].body
                clean = _clean(info.key, body, is_stream=info.key.startswith(layout.streams))
                if clean != body:
                    altered.append(info.key)
                file.writestr(f"{_OBJECTS}{info.key}", clean)
            if isinstance(plan, dict):
                file.writestr(_PLAN, json.dumps(scrubbed_json(plan), indent=1))
            if doctor is not None:
                file.writestr(_DOCTOR, json.dumps(scrubbed_json(doctor), indent=1))
            file.writestr(
                _INDEX, json.dumps(_index(store, identity, listed, bodies, altered, plan, no_channels), indent=1)
            )
    except FileExistsError as error:
        raise ConfigurationError(f"{path} is there already: name another file with --out.") from error
    except OSError as error:
        raise ConfigurationError(f"{path} can't be written: {error.strerror or error}.") from error
    return Written(len(bodies), tuple(altered), tuple(info.key for info in listed if info.key not in bodies))


def _index(
    store: ObjectStore,
    identity: RunIdentity,
    listed: Iterable[ObjectInfo],
    bodies: dict[str, StoredObject],
    altered: list[str],
    plan: dict[str, Any] | str,
    no_channels: str | None,
) -> dict[str, Any]:
    return {
        "format": BUNDLE_FORMAT,
        **asdict(identity),
        "journal": scrubbed(store.base_uri),
        "made_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "no_channels": no_channels,
        "no_plan": plan if isinstance(plan, str) else None,
        "altered": altered,
        "objects": [[info.key, info.size, info.etag, info.modified_s] for info in listed if info.key in bodies],
    }


def versions() -> dict[str, str]:
    """Of Python, the platform and the packages that matter; what is not installed is left out."""
    installed = {"python": sys.version.split()[0], "platform": sys.platform}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203
            continue
    return installed


def _clean(key: str, body: bytes, *, is_stream: bool) -> bytes:
    """The object without what looks like a secret; as it is where there is none, so damage stays as it was found."""
    try:
        if is_stream:
            return rewritten(body, scrubbed_json, where=key)
        document = parse_json(body, where=key)
        clean = scrubbed_json(document)
        return body if clean == document else resealed(clean)
    except RecordInvalid:
        return scrubbed(body.decode("latin-1")).encode("latin-1")


class BundleStore:
    """The objects of a bundle, listed as the store listed them. Nothing can be written.

    It comes from a stranger: what it says of sizes is not believed, and it can't fill the memory. Raises
    `ConfigurationError` for a file that can't be read, and `RecordInvalid` for one that is no bundle.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._unpacked: dict[str, int] = {}
        try:
            self._room = self._left = ROOM_BYTES + ROOM_FACTOR * Path(path).stat().st_size
            self._file = zipfile.ZipFile(path)
            index = parse_json(self._unpack(_INDEX), where=path)
            if index["format"] != BUNDLE_FORMAT:
                raise ValueError(f"expected format {BUNDLE_FORMAT}, found {index['format']!r}")
            self.identity = RunIdentity(str(index["dag_id"]), str(index["run_key"]), str(index["group_id"]))
            self.made_at, self.versions = str(index["made_at"]), dict(index["versions"])
            self.no_channels: str | None = index.get("no_channels", _NO_LOGS)
            self._listed = {str(key): _info(str(key), size, etag, at) for key, size, etag, at in index["objects"]}
        except OSError as error:
            raise ConfigurationError(f"{path} can't be read: {error.strerror or error}.") from error
        except (*_DAMAGED, TypeError, ValueError, OverflowError) as error:
            raise RecordInvalid(f"{path}: expected a bundle that `export` has written, found: {error!r}.") from error

    @property
    def base_uri(self) -> str:
        """The URI of the bundle's file."""
        return f"file:{self._path}"

    def text(self) -> str:
        """One line for people: which bundle, when it was made, and with which versions."""
        installed = ", ".join(f"{name} {number}" for name, number in sorted(self.versions.items()))
        return f"Bundle {self._path}, made at {self.made_at} with {installed}."

    def get(self, key: str, max_bytes: int | None = MAX_RECORD_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectMissing`, and `RecordInvalid` where it is too large or the file is damaged."""
        if key not in self._listed:
            raise ObjectMissing(f"{self._path} holds no {key}.")
        try:
            body = self._unpack(f"{_OBJECTS}{key}")
        except (*_DAMAGED, OSError) as error:
            raise RecordInvalid(f"{self._path}: {key} can't be read: {error!r}. Ask for the bundle again.") from error
        check_size(f"{self._path}: {key}", len(body), max_bytes)
        return StoredObject(self._listed[key], body)

    def _unpack(self, name: str) -> bytes:
        """Never more than there is room for: a file that says that it is small may unpack to any size."""
        entry = self._file.getinfo(name)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RecordInvalid(f"{self._path}: expected {name} stored or deflated, found another compression.")
        with self._lock:  # one at a time: each is unpacked before it is known how much it is
            room = self._left + self._unpacked.get(name, 0)
            with self._file.open(entry) as packed:
                body = packed.read(min(room, MAX_RECORD_BYTES) + 1)
            if len(body) > min(room, MAX_RECORD_BYTES):
                raise RecordInvalid(
                    f"{self._path}: expected a bundle that unpacks to at most {self._room} bytes, {MAX_RECORD_BYTES} a "
                    f"record, found more in {name}: `export` writes none like that. Ask for the bundle again."
                )
            self._left, self._unpacked[name] = room - len(body), len(body)
        return body

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As the store listed them when the bundle was made."""
        yield from (self._listed[key] for key in sorted(self._listed) if key.startswith(prefix) and key > start_after)

    def put_if_absent(self, key: str, body: bytes) -> NoReturn:
        """Raises `StoreAccessDenied`: a bundle is only read."""
        self._refuse(key)

    def put(self, key: str, body: bytes) -> NoReturn:
        """Raises `StoreAccessDenied`: a bundle is only read."""
        self._refuse(key)

    def delete(self, keys: Iterable[str]) -> NoReturn:
        """Raises `StoreAccessDenied`: a bundle is only read."""
        self._refuse(", ".join(keys))

    def _refuse(self, what: str) -> NoReturn:
        raise StoreAccessDenied(
            f"{self._path} is a bundle, which can only be read: {what} was not written.", code="bundle-read-only"
        )


def journal_in(store: BundleStore) -> Journal:
    """The one run that a bundle holds."""
    return Journal(store, store.identity, writer="bundle")


def _info(key: str, size: Any, etag: Any, at: Any) -> ObjectInfo:
    return ObjectInfo(key, int(size), str(etag), None if at is None else float(at))
