"""``adopt OLD NEW``: a task or a DAG that was renamed owns what it has committed to targets under its old name."""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress

from airflow_recovery.attempt.commit import token_of
from airflow_recovery.console.arguments import name
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.errors import ConfigurationError, NothingRecorded
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.keys import OPERATORS_GROUP, RegionKey
from airflow_recovery.sinks.committer import CommitToken, KnowsOwners, RemembersAttempts
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.run_lookup import all_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the old and the new name."""
    how = "DAG, DAG/TASK of an operator, or DAG/GROUP/REGION of a task group"
    parser.add_argument("old", metavar="OLD", type=name, help=f"the old name: {how}")
    parser.add_argument("new", metavar="NEW", type=name, help="the new name, of the same form")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and show what would change")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Raises `NothingRecorded` if no target holds anything under the old name."""
    deployment = deployment_of(args)
    old, new = args.old.split("/"), args.new.split("/")
    if len(old) != len(new) or len(old) > 3 or old == new or not all([*old, *new]):
        raise ConfigurationError(
            f"Expected two names as DAG, DAG/TASK or DAG/GROUP/REGION, of the same form, found {args.old} and "
            f"{args.new}: name what was renamed, and its name today."
        )
    adopted = []
    commits = dict.fromkeys(_commits(deployment.journal, old))
    with suppress(NothingRecorded):
        # A task that was refused before its first claim has recorded no plan. The one with the new name tells its sink.
        of_new = _commits(deployment.journal, new)
        commits |= dict.fromkeys([(spec, _renamed(token, new, old)) for spec, token in of_new])
    for spec, before in commits:
        committer = deployment.open_committer(spec)
        if not isinstance(committer, KnowsOwners) or not isinstance(committer, RemembersAttempts):
            continue
        held = committer.held(before)
        if held is None:
            continue
        after = _renamed(before, old, new)
        if not args.dry_run:
            committer.adopt(before, after)
        target = {"sink": spec.sink, **json.loads(spec.config)}
        adopted.append({"old": before.lineage, "new": after.lineage, "attempt": held.attempt, "target": target})
    if not adopted:
        raise NothingRecorded(
            f"Expected a target that holds rows of {args.old}, found none in the sinks that the journal has for it."
        )
    does = "Would adopt" if args.dry_run else "Adopted"
    lines = [
        f"{does} {each['old']}: attempt {each['attempt']} in {json.dumps(each['target'])} is {each['new']}'s."
        for each in adopted
    ]
    lines.append(
        "Now clear the task. If its sink appends, and its code or inputs have changed since, the task fails: then "
        "remove the rows and the token from the target first."
    )
    answer(args, {"dry_run": args.dry_run, "adopted": adopted}, "\n".join(lines))
    return ExitCode.DONE


def _commits(store: ObjectStore, old: list[str]) -> Iterator[tuple[CommitSpec, CommitToken]]:
    """Each sink of each region of the old name in the journal, and the token of the region in each run; each once."""
    group_id = None if len(old) == 1 else OPERATORS_GROUP if len(old) == 2 else old[1]
    seen: set[tuple[str, str, RegionKey]] = set()
    for identity in all_runs(store, old[0], group_id):
        journal = Journal(store, identity, writer=uuid.uuid4().hex)
        for plan in sorted(journal.list([]).state.plans):
            for region in journal.read_plan(plan).regions:
                spec, token = region.commit, token_of(identity, region.name, 0)
                is_meant = len(old) == 1 or region.name.partition("[")[0] == old[-1]
                if spec is not None and is_meant and (spec.sink, spec.config, token.key) not in seen:
                    seen.add((spec.sink, spec.config, token.key))
                    yield spec, token


def _renamed(token: CommitToken, old: list[str], new: list[str]) -> CommitToken:
    key = token.key._replace(dag_id=new[0])
    if len(new) > 1:
        key = key._replace(region=new[-1] + key.region.removeprefix(old[-1]))
    if len(new) == 3:
        key = key._replace(group_id=new[1])
    return CommitToken(*key, token.attempt)
