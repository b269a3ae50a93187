"""Aborting what dead attempts have left of multipart uploads (faults 31 and 32).

An upload is ours exactly where its key is below the prefix of an attempt that one of the journals has swept; and it is
a leftover where that attempt has ended. Every other writer's, and that of an attempt which runs, stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.errors import StoreError
from airflow_recovery.journal.layout import parse_folder
from airflow_recovery.model.names import encode
from airflow_recovery.model.retention import duration_text
from airflow_recovery.results.sweep_found import CLOCK_MARGIN_S
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.results.swept_run import SweepOptions, SweptRun
from airflow_recovery.store.object_store import ObjectStore, Upload, UploadStore


def listed_uploads(results: ObjectStore, report: SweepReport, options: SweepOptions) -> list[Upload]:
    """All unfinished uploads; none, and a word in the report, where the store does not say."""
    if not isinstance(results, UploadStore):
        return []
    try:
        return list(results.uploads(f"{encode(options.dag_id)}/" if options.dag_id else ""))
    except StoreError as error:
        report.unread.append(f"unfinished uploads were left as they are: {type(error).__name__}: {error}")
        return []


def prefixes_of(upload: Upload) -> list[str]:
    """What the prefix of its run may be: a run's has three names, that of shared results two."""
    parts = upload.key.split("/")
    return ["/".join([*parts[:depth], ""]) for depth in (3, 2)]


def sweep_uploads(
    results: ObjectStore,
    uploads: Iterable[Upload],
    runs: Iterable[SweptRun],
    report: SweepReport,
    now_s: float,
    options: SweepOptions,
) -> None:
    """Abort own leftovers that are older than the grace time. ``now_s`` is the results store's present time.

    ``uploads`` were listed before ``runs`` were read: a claim comes before its uploads.
    """
    if not isinstance(results, UploadStore):
        return
    by_prefix = {run.journal.layout.data: run for run in runs}
    try:
        for upload in uploads:
            kept = _why_kept(upload, by_prefix, now_s, options.grace_s)
            if kept is None and not options.dry_run:
                results.abort_upload(upload)
            action = Action.KEPT if kept else Action.DELETED
            report.add(f"upload to {upload.key}", action, kept or "left by an attempt that has ended")
    except StoreError as error:
        report.unread.append(f"unfinished uploads were left as they are: {type(error).__name__}: {error}")


def _why_kept(upload: Upload, by_prefix: dict[str, SweptRun], now_s: float, grace_s: float) -> str | None:
    run = next((by_prefix[prefix] for prefix in prefixes_of(upload) if prefix in by_prefix), None)
    if run is None:
        return "it is another writer's: no journal has such a run"
    # Below it: <region>/<attempt>/...
    name, *below = upload.key[len(run.journal.layout.data) :].split("/", 2)
    region = run.names.get(name) if len(below) == 2 else None
    number = parse_folder(below[0]) if region is not None else None
    if region is None or number is None:
        return "it is another writer's: it belongs to no attempt"
    state = run.state.of(region)
    attempt = state.attempts.get(number)
    if attempt is not None and attempt.is_open:
        return "its attempt is open"
    if number > state.latest_attempt:
        return "its attempt was never claimed"
    age_s = max(0.0, now_s - upload.initiated_s - CLOCK_MARGIN_S)
    if age_s < grace_s:
        return f"begun {duration_text(age_s)} ago, grace time {duration_text(grace_s)}"
    return None
