"""``release DAG RUN REGION``: let the data of one attempt go now, after a warning of what could not be had again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from airflow_recovery.attempt.manual_release import ReleaseByHand, check_may_go, look_at_release, release_by_hand
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.connect import add_connect_argument, evaluation_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.pin import add_attempt_argument
from airflow_recovery.console.terminal import answer, output
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.owner import check_results
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.results.release import Deleted
from airflow_recovery.results.table_tags import RunTags
from airflow_recovery.store.lifecycle import kept_after_deletion
from airflow_recovery.story.changed import ReleasedData
from airflow_recovery.story.release_preview import ReleasePreview, preview_release


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which data is meant, and whether it goes although it is needed."""
    add_run_arguments(parser)
    add_connect_argument(parser)
    parser.add_argument("region", metavar="REGION", help="region whose results are let go, as `plan` names it")
    add_attempt_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="delete nothing, and say what it would mean")
    parser.add_argument("--force", action="store_true", help="also a final or still needed result")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.REFUSED` for what is pinned or read, and for what is needed, without --force."""
    deployment, view = run_to_change(args)
    region = view.region(args.region).name
    release = look_at_release(view.journal, view.in_use.plan, view.in_use.state, region, args.attempt)
    current = view.in_use.state.of(region).current
    preview = None
    if current is not None and current.number == release.attempt.number and not current.is_released:
        preview = preview_release(view, evaluation_of(args, deployment, view), region)
    force = args.force or args.dry_run
    check_results(deployment.journal, deployment.results)
    check_may_go(release, force=force)
    identity = view.journal.identity
    if not args.json:
        output(f"DAG {identity.dag_id}, run {identity.run_key}, group {identity.group_id}")
        output("\n".join(_given_up(release, preview)), flush=True)
    with recorded_journal(view.journal) as journal:
        tags = RunTags(deployment.tables, journal, view.in_use.state)
        deleted = release_by_hand(
            journal, deployment.results, release, user_name(), force=force, dry_run=args.dry_run, tags=tags
        )
    kept = kept_after_deletion(deployment.results) if deleted.objects else ""
    document = {
        **asdict(identity),
        **asdict(ReleasedData.of(release, deleted, kept)),
        "dry_run": args.dry_run,
        "still_needed": release.still_needed,
        "warnings": preview.warnings if preview is not None else (),
        "again": preview.again if preview is not None else (),
    }
    answer(args, document, "\n".join(_done(release, deleted, kept, dry_run=args.dry_run)))
    return ExitCode.DONE


def _given_up(hand: ReleaseByHand, preview: ReleasePreview | None) -> Iterator[str]:
    """Said before anything is deleted: the deletion may fail, or be interrupted."""
    if hand.still_needed:
        yield f"{hand.name} is still needed: {hand.still_needed}."
    if hand.attempt.is_released:
        yield f"{hand.name} was released before: this deletes what is left of it."
    elif preview is None:
        yield f"{hand.name} is not the attempt that counts: nothing runs again without it."
    else:
        yield from preview.warnings
        yield f"Without {hand.name}, these run again when its rows are wanted: {', '.join(preview.again)}."


def _done(hand: ReleaseByHand, deleted: Deleted, kept: str, *, dry_run: bool) -> Iterator[str]:
    if deleted.readers:
        yield f"{hand.name} is released; its data are left to gc, since {deleted.readers} reads it."
    elif dry_run:
        yield f"Would delete {deleted.objects:,} objects, {deleted.size:,} bytes."
    else:
        yield f"Released {hand.name}: {deleted.objects:,} objects, {deleted.size:,} bytes."
    for text in filter(None, (deleted.tags_left, kept)):
        yield f"warning: {text}"
