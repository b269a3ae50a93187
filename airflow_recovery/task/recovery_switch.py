"""Does a job recover? What is declared and configured, and whether its partitions could be found again at all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_recovery.hooks.settings import configured_job_recovery
from airflow_recovery.topology.job_recovery import DeclaredJobRecovery, JobRecovery

if TYPE_CHECKING:
    from airflow_recovery.shuffle.master import ShuffleMaster

log = logging.getLogger(__name__)


def job_recovery_in_effect(declared: DeclaredJobRecovery, where: str) -> JobRecovery:
    """The options in effect. Raises `ConfigurationError` for a wrong one in the configuration."""
    from airflow_recovery.shuffle.master import recovery_in_effect

    options = declared.over(configured_job_recovery()).in_effect()
    return recovery_in_effect(options, shuffle_master(), where, log)


def shuffle_master() -> type[ShuffleMaster]:
    """The service that keeps this deployment's partitions: files, registered in the journal."""
    from airflow_recovery.shuffle.journal_master import JournalShuffleMaster

    return JournalShuffleMaster
