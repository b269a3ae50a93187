"""Which digest the output of a user's own application gets: of its files, which costs nothing, or of its rows.

    ordered1-...  its rows in their order, and in their files; all of them are read
    rows3-...     its rows, whatever their order and files; all of them are read (`airflow_recovery.results.row_digest`)
    files1-...    its files, byte for byte, by the checksums that the store has listed; nothing is read

Digests of two kinds are never equal: where one attempt has the first and another the second, nothing is known, and who
read the one runs again. A digest is no more than a saving, so nothing that goes wrong here fails a task.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_recovery.model.manifest import FILES_DIGEST
from airflow_recovery.results.availability import probe_manifest
from airflow_recovery.results.stored_files import NotComparable
from airflow_recovery.results.stored_rows import ReadLimits, StoredRows, stable_name

if TYPE_CHECKING:
    import logging

    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.store.object_store import ObjectStore

_CONTENT_HASH = re.compile(r"[0-9a-f]{32}(-[0-9]+)?", re.IGNORECASE)
"""An MD5, or one of the MD5s of an upload's parts; below a folder, our own hash. Other etags may say something else."""
_MOST_CHARACTERS = 300


def import_readers() -> None:
    """Import what rows are read with, which takes 0.2 s of one core: while the application runs nobody waits for it."""
    with suppress(ImportError):  # said by who reads
        for module in ("numpy", "pyarrow.compute", "pyarrow.parquet"):
            import_module(module)


def files_digest(manifest: PartitionManifest) -> str | None:
    """Equal where the files are byte for byte the same, by their order and folders. `None`: no checksums tell that."""
    if not all(_CONTENT_HASH.fullmatch(file.etag) for file in manifest.objects):
        return None
    lines = sorted(f"{stable_name(file.path)}\0{file.size}\0{file.etag}" for file in manifest.objects)
    return f"{FILES_DIGEST}-{len(lines):x}-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:32]}"


def digest_output(
    manifest: PartitionManifest,
    store: ObjectStore,
    *,
    limits: ReadLimits | None,
    earlier: Iterable[PartitionManifest],
    delta_options: Callable[[], dict[str, str]],
    log: logging.Logger,
) -> PartitionManifest:
    """``manifest`` with its digest, if it can have one. Raises nothing: one line of ``log`` says why not.

    ``limits``: read its rows, so much of them and for so long; `None`: compare its files alone. ``earlier``: the same
    output of earlier attempts, the newest first: of equal files, their digest is this one's, and nothing is read.
    """
    name, of_files = manifest.result, files_digest(manifest)
    for other in earlier:
        if of_files is not None and other.digest is not None and files_digest(other) == of_files:
            log.info("Output %s: its files are those of an earlier attempt, so its rows are, too.", name)
            return replace(manifest, digest=other.digest)
    why_not = None
    if limits is not None:
        started = time.monotonic()
        try:
            rows = StoredRows(manifest, store, limits, delta_options)
            digest = rows.digest()
            if not manifest.managed and _is_altered(store, manifest):
                raise NotComparable(f"{manifest.location} was altered meanwhile")
        except Exception as error:  # a file that is damaged, a store that gives no answer, memory that ended
            why_not = str(error) if isinstance(error, NotComparable) else f"{type(error).__name__}: {error}"
        else:
            seconds = time.monotonic() - started
            log.info("Output %s: digest of %d rows, %d bytes in %.1f s.", name, digest.rows, rows.size, seconds)
            return replace(manifest, digest=digest.text)
    if of_files is None:
        why_not = f"{why_not}; " if why_not else ""
        why_not += f"the store at {store.base_uri} has no checksums of contents"
    if why_not is not None:
        until = "other files" if of_files is not None else "it again (as with deterministic='always')"
        log.info(
            "Output %s: rows not compared (%s); its readers run again if it makes %s.", name, _line(why_not), until
        )
    return replace(manifest, digest=of_files)


def _is_altered(store: ObjectStore, manifest: PartitionManifest) -> bool:
    now = probe_manifest(store, manifest)
    return not now.is_available or bool(now.added)


def _line(text: str) -> str:
    return " ".join(text.split())[:_MOST_CHARACTERS]
