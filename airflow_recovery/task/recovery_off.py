"""``execution.batch.job-recovery.enabled: false``: plain Airflow, for a job as for a drop-in operator.

Every region runs whenever its task does, under Airflow's own retries. A task goes the same way as with recovery, with a
journal that records and finds nothing (`airflow_recovery.journal.null_journal`), and nobody is asked whether data is
there, or told what to clear. Nothing is kept, fenced, cleared, published or counted, and nobody but the user deletes
what was written. It lies beside the results:

    <results>/_plain/<dag id>/<run id>/<group id>/<region>.json       what the region's last successful try has made
                                                 /<task instance id>/ what one try wrote
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import NullTaskInstances
from airflow_recovery.hooks.clear_clients import OwnTaskInstance
from airflow_recovery.hooks.masking import mask_secrets
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.journal.null_journal import NullJournal, unrecorded
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.results.prober import NullProber
from airflow_recovery.task.run_context import task_identity

FOLDER = "_plain"
WHY = "recovery is off"


class RunWithoutRecovery:
    """One DAG run whose job does not recover, as one try of one of its tasks sees it."""

    def __init__(
        self,
        context: Mapping[str, Any],
        group_id: str,
        settings: RecoverySettings,
        written: Callable[[], Collection[str]] = tuple,
    ) -> None:
        run, instance = context["dag_run"], context["ti"]
        self.identity: RunIdentity = unrecorded(run.dag_id, str(run.run_id), group_id)
        path = "/".join(encode(name) for name in (run.dag_id, str(run.run_id), group_id))
        base = f"{settings.results}/{FOLDER}/{path}"
        folder = f"{base}/{encode(str(instance.id))}"
        self.stores = Stores(replace(settings, journal=f"{folder}/_driver", results=folder), written=written)
        """Of this try alone. Its "journal" is where a driver leaves its outcome for the task that waits."""
        self._made = open_stores(settings).open_external(base)
        self._context = context
        self._try_number = max(int(instance.try_number), 1)

    def journal(self, plan: PlanRecord | None = None, committing: Collection[str] = ()) -> NullJournal:
        """Its journal, for ``plan``; without one, to read by."""
        return NullJournal(
            self.stores.journal,
            self.identity,
            writer=uuid.uuid4().hex,
            made=self._made,
            plan=plan,
            committing=committing,
            try_number=self._try_number,
            mask=mask_secrets,
        )

    def open(
        self, plan: PlanRecord, task_keys: Mapping[str, str], fingerprints: Mapping[str, str], log: logging.Logger
    ) -> Run:
        """The run for one try. Results that runs share are made here for this run alone."""
        log.info("Everything of this task runs: %s, so nothing is kept and nothing is recorded.", WHY)
        committing = [region.name for region in plan.regions if region.commit is not None]
        alone = tuple(replace(region, persistent=False, commit=None) for region in plan.regions)
        plan = replace(plan, regions=alone)
        return Run(
            plan=plan,
            journal=self.journal(plan, committing),
            task_instances=NullTaskInstances(lambda keys: OwnTaskInstance(self._context).states(keys)),
            available=NullProber(),
            task_keys=task_keys,
            task=task_identity(self._context),
            now=lambda: datetime.now(timezone.utc).isoformat(),
            log=log,
            fingerprints=fingerprints,
        )
