"""The sweeper: goes through the journals of a deployment and deletes the data that nobody will ever read.

What it may delete is below the prefix of an attempt that a journal knows. Data of a run that has no journal here is
never touched: it may be another deployment's. It rests on the same two looks as every release
(`airflow_recovery.results.release`), so it may run at any time, and twice at once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

from airflow_recovery.errors import StoreError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import folder_of, shared_identity
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.mode import all_answers
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import AttemptState, Claim, PlanRecord, RunIdentity
from airflow_recovery.model.retention import duration_text
from airflow_recovery.results.batches_in_use import finishes_made_of, is_decided, newest_claims
from airflow_recovery.results.cached import CachedViews, views_of_run
from airflow_recovery.results.mode import ResultsMode
from airflow_recovery.results.readers import Readers, ended, look_for_readers
from airflow_recovery.results.release import Candidate, Deleted, Releaser
from airflow_recovery.results.release_rule import ReleaseRule, Verdict
from airflow_recovery.results.sweep_found import (
    CLOCK_MARGIN_S,
    Ages,
    AttemptData,
    RunData,
    data_of_run,
    find_runs,
    find_shared,
    modified_s,
    store_now_s,
)
from airflow_recovery.results.sweep_probes import sweep_probes
from airflow_recovery.results.sweep_purge import Purge
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.results.sweep_uploads import listed_uploads, prefixes_of, sweep_uploads
from airflow_recovery.results.swept_run import DAY_S, SweepOptions, SweptRun
from airflow_recovery.results.table_tags import RunTags
from airflow_recovery.results.tables import Tables
from airflow_recovery.store.lifecycle import kept_after_deletion, rule_text, rules_over
from airflow_recovery.store.object_store import ObjectStore

log = logging.getLogger(__name__)

WHO = "gc"
_NO_CLAIM = "written by a claim that the journal does not have"


class Sweeper:
    """One sweep over ``journal`` and ``results``, the stores of one deployment.

    ``cached`` is the Spark Connect server that keeps this deployment's cached results, where one is named; ``tables``
    have tags of ours.
    ``is_live_run(dag_id, run_id)``: whether Airflow has that DAG run, and has not ended it; `None`: nobody can say.
    ``live_run(dag_id, run_key)``: the id of a DAG run of that key that Airflow has not ended, if any is known.
    """

    def __init__(
        self,
        journal: ObjectStore,
        results: ObjectStore,
        options: SweepOptions,
        cached: CachedViews | None = None,
        *,
        tables: Tables | None = None,
        is_live_run: Callable[[str, str], bool | None] = lambda dag_id, run_id: None,
        live_run: Callable[[str, str], str | None] = lambda dag_id, run_key: None,
    ) -> None:
        self._store = journal
        self._results = results
        self._options = options
        self._cached = cached
        self._tables = tables
        self._tags_seen: dict[str, frozenset[str] | str] = {}
        self._is_live_run, self._live_run = is_live_run, live_run
        self._views: frozenset[str] = frozenset()
        self._report = SweepReport(options.dry_run)
        self._writer = uuid.uuid4().hex
        self._uploaded_to: frozenset[str] = frozenset()
        self._runs: list[SweptRun] = []
        """Those that unfinished uploads are compared with. There are many runs, and each is much."""

    def sweep(self) -> SweepReport:
        """Sweep every run once. A run that can't be read is left as it is, and named in the report.

        Raises the store's errors where not even the runs can be listed.
        """
        self._now_s = store_now_s(self._store)
        self._results_now_s = store_now_s(self._results)
        kept_s = self._options.retention.grace_s
        for rule in rules_over(self._results, f"{self._results.base_uri}/"):
            if rule.days * DAY_S < kept_s:
                warning = f"{rule_text(rule)}, and results are to be kept for {duration_text(kept_s)}"
                self._report.warnings.append(warning)
        # Before the journals, as data is: whose claim is not listed then was never a run's of this deployment.
        self._views = self._listed_views()
        uploads = listed_uploads(self._results, self._report, self._options)
        self._uploaded_to = frozenset(prefix for upload in uploads for prefix in prefixes_of(upload))
        runs, unread = find_runs(self._store, self._options.dag_id)
        self._report.unread += unread
        for identity in runs:
            self._guarded(identity)
        if self._options.dag_id is None:
            # After the runs: what they have let go of is nobody's any more.
            for key in find_shared(self._store):
                self._guarded(shared_identity(key))
            for store, now_s in ((self._store, self._now_s), (self._results, self._results_now_s)):
                sweep_probes(store, self._report, now_s, dry_run=self._options.dry_run)
        sweep_uploads(self._results, uploads, self._runs, self._report, self._results_now_s, self._options)
        if self._report.of(Action.DELETED):
            stores = [self._results, self._store] if self._options.purge_older_than_s is not None else [self._results]
            self._report.kept_after_deletion = list(dict.fromkeys(filter(None, map(kept_after_deletion, stores))))
        return self._report

    def _guarded(self, identity: RunIdentity) -> None:
        # Shared results belong to no run, and have no history of their own.
        is_shared = identity == shared_identity(identity.run_key)
        try:
            journal = Journal(self._store, identity, writer=self._writer)
            with nullcontext(journal) if is_shared else recorded_journal(journal) as recorded:
                self._sweep_run(recorded)
        except Exception as error:  # whatever is wrong with one run, the others are swept
            why = f"{type(error).__name__}: {error}"
            self._report.unread.append(f"{identity.dag_id} / {identity.run_key} was left as it is: {why}")
            log.debug("%s", why, exc_info=True)

    def _sweep_run(self, journal: Journal) -> None:
        identity = journal.identity
        run = self._read(journal)
        if journal.layout.data in self._uploaded_to:
            self._runs.append(replace(run, ages=Ages(self._now_s, {}), data=RunData(), listed=None))
        if identity == shared_identity(identity.run_key) and self._end_dead_readers(run):
            run = replace(run, was_read_until_now=True)
        releaser = Releaser(
            run.journal,
            self._results,
            who=WHO,
            dry_run=self._options.dry_run,
            drop_cached=lambda region, number: self._drop_cached(run, region, number),
            tags=run.tags,
        )
        purge = Purge(
            run,
            releaser,
            self._results,
            self._report,
            self._options,
            who=WHO,
            is_live_run=self._is_live_run,
            live_run=self._live_run,
        )
        if purge.execute():
            return
        for mode in all_answers("results", ResultsMode):
            mode.sweep(run, self._results, self._report, self._options, now_s=self._results_now_s)
        rule = self._rule(run)
        rule.look_at_all()
        attempts = self._attempts(run)
        verdicts = {
            (name, number): self._verdict(run, rule, run.names[name], number)
            for name, number in attempts
            if name in run.names
        }
        released = self._release(run, rule, releaser, verdicts)
        readers = cache(lambda: look_for_readers(run.journal))
        for name, number in attempts:
            region = run.names.get(name)
            data = run.data.attempts.get((name, number))
            cached = f" ({len(data.views)} cached)" if data is not None and data.views else ""
            tagged = f" ({data.tags} tagged)" if data is not None and data.tags else ""
            kept = f" ({data.kept} with a keeper)" if data is not None and data.kept else ""
            what = f"{run.where} / {region or name}@{number}{cached}{tagged}{kept}"
            objects, size = (data.objects, data.size) if data is not None else (0, 0)
            if region is None:
                self._report.add(what, Action.KEPT, "no plan of this run has such a region", objects, size)
                continue
            verdict = verdicts[name, number]
            if not verdict.may_go:
                surplus = {
                    "in no batch that is used": self._delete_surplus(run, rule, releaser, region, number, readers),
                    _NO_CLAIM: self._delete_folders_of_lost_claims(run, releaser, region, number),
                }
                self._report_kept(what, verdict, Deleted(objects, size), surplus)
                continue
            deleted = released.get((region, number)) or releaser.delete_data(region, number)
            if deleted.tags_left:
                self._report.unread.append(f"{what}: {deleted.tags_left}")
            if deleted.readers:
                self._report.add(what, Action.KEPT, f"{verdict.why}, but {deleted.readers} reads it", objects, size)
            else:
                self._report.add(what, Action.DELETED, verdict.why, deleted.objects, deleted.size)
        for info in run.data.strangers:
            self._report.add(f"{run.where}: {info.key}", Action.KEPT, "it is no attempt's", 1, info.size)

    def _report_kept(self, what: str, verdict: Verdict, listed: Deleted, surplus: dict[str, Deleted]) -> None:
        """An attempt stays. ``listed``: what it had; ``surplus``: what was deleted of it, by why."""
        objects = listed.objects - sum(deleted.objects for deleted in surplus.values())
        size = listed.size - sum(deleted.size for deleted in surplus.values())
        self._report.add(what, Action.KEPT, verdict.why, objects, size)
        for why, deleted in surplus.items():
            if deleted.objects:
                self._report.add(what, Action.DELETED, why, deleted.objects, deleted.size)

    def _release(
        self, run: SweptRun, rule: ReleaseRule, releaser: Releaser, verdicts: dict[tuple[str, int], Verdict]
    ) -> dict[tuple[str, int], Deleted]:
        """Let all attempts go that may, by one look for their readers."""
        candidates = []
        for (name, number), verdict in verdicts.items():
            region = run.names[name]
            attempt = run.state.of(region).attempts.get(number)
            if attempt is not None and verdict.may_go:
                data = run.data.attempts.get((name, number))
                also = rule.released_with(region, number)
                listed = Deleted(data.objects, data.size) if data is not None else Deleted()
                candidates.append(Candidate(region, attempt, also, listed))
        if not candidates:
            return {}
        keys = [(candidate.region, candidate.attempt.number) for candidate in candidates]
        return dict(zip(keys, releaser.release_all(candidates, run.listed), strict=True))

    def _read(self, journal: Journal) -> SweptRun:
        # The data before the journal: a claim comes before its data, so what is seen of an attempt has a claim in the
        # listing that follows, or never had one.
        data = data_of_run(self._results, journal.layout)
        layout = journal.layout
        listed = list(self._store.list(layout.prefix))
        ages = Ages.of(listed, self._now_s)
        heartbeats, attempts = layout.heartbeats, layout.attempts
        # A heartbeat says when it was written, and no more. There is one of every attempt.
        listed = [info for info in listed if not info.key.startswith(heartbeats)]
        few = [info.key for info in listed if not info.key.startswith(attempts)]
        hashes = [hash_ for key in few if (hash_ := layout.parse_plan(key)) is not None]
        plans = {plan_hash: journal.read_plan(plan_hash) for plan_hash in hashes}
        tombstones = [closed for key in few if (closed := layout.parse_closed(key)) is not None]
        names = {name for plan in plans.values() for name in plan.by_name}
        names |= {ref.region for ref in journal.read_closed(max(tombstones)).highest} if tombstones else set()
        state = journal.load(journal.list(names, listed))
        if self._views:
            named = {view: of for plan in plans.values() for view, of in views_of_run(journal, plan, state).items()}
            for view in self._views & named.keys():
                region, number = named[view]
                data.attempts.setdefault((encode(region), number), AttemptData()).views.append(view)
        tags = RunTags(self._tables, journal, state, self._tags_seen) if self._tables is not None else None
        if tags is not None:
            held, unasked = tags.held()
            for (region, number), count in held.items():
                data.attempts.setdefault((encode(region), number), AttemptData()).tags = count
            data.unasked += unasked
            self._report.unread += [
                f"{journal.identity.dag_id} / {journal.identity.run_key}: {text}" for text in unasked
            ]
        return SweptRun(
            journal=journal,
            state=state,
            plan=plans[self._newest_plan(journal, state, ages, plans)] if plans else PlanRecord("", ()),
            names={encode(name): name for name in names},
            ages=ages,
            data=data,
            tags=tags,
            listed=listed if self._options.dry_run else None,
        )

    def _listed_views(self) -> frozenset[str]:
        try:
            return self._cached.names() if self._cached is not None else frozenset()
        except StoreError as error:
            self._report.unread.append(f"cached results were left as they are: {error}")
            return frozenset()

    def _drop_cached(self, run: SweptRun, region: str, number: int) -> None:
        data = run.data.attempts.get((encode(region), number))
        if self._cached is not None and data is not None:
            self._cached.drop(data.views)

    def _newest_plan(self, journal: Journal, state: RunState, ages: Ages, plans: dict[str, PlanRecord]) -> str:
        """The plan of the newest claim: code that was rolled back has an old plan object and new claims."""
        claims = []
        for region, of_region in state.regions.items() if len(plans) > 1 else ():
            number = of_region.latest_attempt
            if number in of_region.attempts and of_region.attempts[number].is_claimed:
                key = journal.layout.attempt(region, number, "claim")
                claims.append((ages.stored_s.get(key, 0.0), region, number))
        for _, region, number in sorted(claims, reverse=True):
            claimed = journal.read_claim(region, number).plan_hash
            if claimed in plans:
                return claimed
        return max(plans, key=lambda plan: ages.stored_s.get(journal.layout.plan(plan), 0.0))

    def _rule(self, run: SweptRun) -> ReleaseRule:
        publish = run.journal.read_publish(run.state.newest_publish) if run.state.newest_publish else None
        return ReleaseRule(
            run.plan,
            run.state,
            publish,
            journal=run.journal,
            retention=self._options.retention,
            orphan_grace_s=self._options.grace_s,
            age_s=run.ages.since_newest_s,
            silent_s=run.silent_s,
            claims=newest_claims(run.journal, run.state),
        )

    def _delete_surplus(
        self,
        run: SweptRun,
        rule: ReleaseRule,
        releaser: Releaser,
        region: str,
        number: int,
        readers: Callable[[], Readers],
    ) -> Deleted:
        """Of an attempt with batches that stays: what is in no batch that is used, and is old enough.

        ``readers`` looks once for all attempts of the run.
        """
        state = run.state.of(region)
        used = rule.used_batches(region).get(number)
        if not used or not is_decided(state, number):
            return Deleted()
        if readers().of(region, number, *finishes_made_of(state, [number])):
            return Deleted()  # of a finish that counts no more
        batches = run.journal.read_committed_batches(region, [(number, batch) for batch in sorted(used)])
        latest_s = self._results_now_s - CLOCK_MARGIN_S - self._options.grace_s
        outputs = [output for batch in batches for output in batch.outputs]
        return releaser.delete_surplus(region, number, outputs, lambda info: modified_s(info) <= latest_s)

    def _delete_folders_of_lost_claims(self, run: SweptRun, releaser: Releaser, region: str, number: int) -> Deleted:
        """Of an attempt that stays: the folders of other claims of its number, which a backup of the journal lacked."""
        data = run.data.attempts.get((encode(region), number))
        attempt = run.state.of(region).attempts.get(number)
        if data is None or len(data.folders) < 2 or attempt is None or not attempt.is_claimed or attempt.batches:
            return Deleted()
        known = {folder_of(run.journal.read_claim(region, number))}
        outputs = attempt.outcome.outputs if attempt.outcome is not None else ()
        others = {name for name in data.folders - known if not any(f"/{name}/" in each.location for each in outputs)}
        latest_s = self._results_now_s - CLOCK_MARGIN_S - self._options.grace_s
        return releaser.delete_folders(region, sorted(others), lambda info: modified_s(info) <= latest_s)

    def _attempts(self, run: SweptRun) -> list[tuple[str, int]]:
        """Every attempt with data, and every one that holds what others wrote and has not let go of it.

        Which is a shared result, or batches of earlier attempts. By the region's name as a path segment.
        """
        attempts = set(run.data.attempts)
        for region, state in run.state.regions.items():
            for number, attempt in state.attempts.items():
                outcome = attempt.outcome
                if outcome is not None and (outcome.shared or outcome.mode.attempts) and not attempt.is_released:
                    attempts.add((encode(region), number))
        return sorted(attempts)

    def _verdict(self, run: SweptRun, rule: ReleaseRule, region: str, number: int) -> Verdict:
        state = run.state.of(region)
        attempt = state.attempts.get(number)
        if attempt is not None and attempt.is_claimed and not attempt.is_released:
            return rule.verdict(region, number)
        data = run.data.attempts.get((encode(region), number), AttemptData())
        if attempt is not None and attempt.is_claimed:
            if data.tags and not attempt.is_pinned:
                return Verdict(True, "released, and its table gave no answer then")
            return rule.verdict(region, number)
        why = "its run was purged" if number <= state.closed_at else "it was never claimed"
        if data.objects:
            age_s = max(0.0, self._results_now_s - data.newest_s - CLOCK_MARGIN_S)
            why = f"{why}, written {duration_text(age_s)} ago"
        else:  # a tag, or a view, has no time of its own
            age_s = run.ages.since_newest_s(run.tombstones)
            why = f"{why} {duration_text(age_s)} ago" if run.tombstones else f"{why}, nobody knows when it was made"
        if age_s >= self._options.grace_s:
            return Verdict(True, why)
        return Verdict(False, f"{why}, grace time {duration_text(self._options.grace_s)}")

    # shared results

    def _end_dead_readers(self, run: SweptRun) -> bool:
        """End the claims of readers that don't count any more: fenced, released, or of a purged run. True: of any."""
        has_ended_any = False
        for claim in run.journal.open_claims():
            if claim.owner is None or not claim.inputs or self._holds(claim):
                continue
            has_ended_any = True
            owner = claim.owner
            what = f"{run.where}: reader {owner.dag_id} / {owner.run_key} / {owner.region}@{owner.attempt}"
            if not self._options.dry_run:
                why = f"its owner holds nothing any more, says {WHO}"
                run.journal.fence(ended(run.journal, claim.region, claim.attempt, why, cause=None))
            self._report.add(what, Action.DELETED, "its owner holds nothing any more")
        return has_ended_any

    def _holds(self, claim: Claim) -> bool:
        owner = claim.owner
        assert owner is not None
        journal = Journal(self._store, RunIdentity(owner.dag_id, owner.run_key, owner.group_id), writer=self._writer)
        state = journal.list([owner.region]).state.of(owner.region)
        attempt = state.attempts.get(owner.attempt)
        if attempt is None or owner.attempt <= state.closed_at or attempt.is_released:
            return False
        if not attempt.has_outcome:
            return attempt.is_claimed
        outcome = journal.read_outcome(owner.region, owner.attempt)
        return outcome is not None and outcome.state is AttemptState.FINISHED
