"""``RecoveredNotifier``: "recovered by itself: 3 of 14 regions, 2 h 10 min saved", by whatever notifier there is."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_recovery.checks import check_arguments
from airflow_recovery.escaping import for_message

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.attempt.recovery_report import Recovered

log = logging.getLogger(__name__)


class RecoveredNotifier(BaseNotifier):
    """Calls another notifier where a run has recovered, and says nothing where nothing had to.

    ::

        with DAG(..., on_success_callback=RecoveredNotifier(
            SmtpNotifier(to="team@example.com", subject="{{ dag.dag_id }}", html_content="{{ recovery }}")
        )):

    The other one's templates know ``recovery``: the line above, one for each group of the DAG. It is escaped for HTML
    and for Slack. It works as a callback
    of the DAG or of its last task, on success as on failure. It never fails its callback: a journal that can't be read
    is told in the log.

    :param notifier: any notifier of Airflow's, or a function of the context.
    :param always: call it also where nothing had to recover.
    """

    def __init__(self, notifier: Callable[[Context], Any], *, always: bool = False) -> None:
        check_arguments(RecoveredNotifier.__init__, locals(), "RecoveredNotifier")
        super().__init__()
        self.notifier = notifier
        self.always = always

    def notify(self, context: Context) -> None:
        """Look into the journal of the run of ``context``."""
        try:
            reports = _groups(context)
        except Exception:
            log.exception("What this run has recovered could not be read from its journal; nobody is told.")
            return
        texts = {group: report.text() for group, report in reports.items() if self.always or report.again}
        if not texts:
            return
        lines = texts.values() if len(texts) == 1 else (f"{group}: {line}" for group, line in texts.items())
        text = for_message("; ".join(lines))
        log.info("%s", text)
        self.notifier({**context, "recovery": text})  # type: ignore[typeddict-unknown-key]


def _groups(context: Context) -> dict[str, Recovered]:
    """Every group that has a journal in this run, whatever class its operators are of."""
    from airflow_recovery.attempt.recovery_report import recovered
    from airflow_recovery.errors import NothingRecorded
    from airflow_recovery.hooks.settings import RecoverySettings
    from airflow_recovery.hooks.stores import open_stores
    from airflow_recovery.journal.in_use import read_run
    from airflow_recovery.journal.journal import Journal
    from airflow_recovery.story.run_events import events_of
    from airflow_recovery.story.run_lookup import groups_of
    from airflow_recovery.task.run_context import run_identity

    store = open_stores(RecoverySettings.load()).journal
    run = run_identity(context, "")
    reports = {}
    for group in groups_of(store, run.dag_id, run.run_key):
        journal = Journal(store, replace(run, group_id=group), writer=uuid.uuid4().hex)
        try:
            in_use = read_run(journal)
        except NothingRecorded:  # it was purged
            continue
        reports[group] = recovered(in_use.plan, in_use.state, events_of(journal).newest_kept())
    return reports
