"""A declared job's region in a session on a Spark Connect server: one that is there, or the run's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.exit_report import forget_failure
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import DriverLost, RecoveryError
from airflow_recovery.hooks.masking import mask_secrets
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Claim, ExternalObject, Outcome
from airflow_recovery.task.attempt_sessions import AttemptSessions, ServerChoice
from airflow_recovery.task.region_program import RegionProgram


class RegionSession(SparkApplication):
    """One session an attempt; the vertices are called in this process.

    Its URL may hold a token and is never logged. ``user_id`` must be the same for all attempts of a run: it is how a
    later one finds the session of an earlier one. ``conf`` is set in the session as far as the server lets it be set.
    ``on_claim`` is called before the session is opened. ``mask`` knows this process's secrets.
    """

    def __init__(
        self,
        program: RegionProgram,
        server: ServerChoice,
        *,
        user_id: str,
        conf: Mapping[str, str],
        log: logging.Logger,
        on_claim: Callable[[ClaimedAttempt], None] = lambda attempt: None,
        mask: Mask = mask_secrets,
    ) -> None:
        self._program = program
        self._server = server
        self._sessions = AttemptSessions(user_id, log)
        self._conf = dict(conf)
        self._log = log
        self._on_claim = on_claim
        self._mask = mask
        self._running: tuple[RegionSpec, str] | None = None

    def externals(self) -> tuple[ExternalObject, ...]:
        """The splits that the region's sources would read now."""
        return self._program.externals()

    def before_claim(self, state: RunState) -> None:
        """Import Spark's client in a thread, while the claim waits for Airflow and for the journal.

        Nothing that a claim which is lost would have to undo: the server is not asked. Raises as
        `RegionProgram.check_tables`.
        """
        threading.Thread(target=_import_client, name="import pyspark", daemon=True).start()
        self._program.check_tables(state, driver_is_here=True)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Run the region's program for ``attempt``; returns and raises as `RegionProgram.run`."""
        self._on_claim(attempt)
        return self._program.run(attempt, self._launch)

    def _launch(self, spec: RegionSpec, folder: Path) -> None:
        """Raises what the vertices or the server raise."""
        from airflow_recovery.driver.connect import run_over_connect
        from airflow_recovery.driver.connect_session import host_of

        del folder
        archive = build_archive(spec.job, self._program.job.packages)
        url = self._server.to_run()
        self._running = spec, url
        try:
            run_over_connect(
                url,
                spec,
                archive=archive,
                log=self._log,
                user_id=self._sessions.user_id,
                conf=self._conf,
                journal=self._program.stores.journal,
                results=self._program.stores.results,
                mask=self._mask,
                max_retries=self._server.max_retries,
            )
        except RecoveryError:
            raise
        except Exception as error:
            why = self._server.why_lost()
            if why is None:
                raise
            # What Spark's client says of it is only that nobody answers.
            forget_failure(spec, self._log)
            raise DriverLost(f"{host_of(url)} is gone: {why}") from error
        finally:
            self._running = None

    def stop(self) -> None:
        """Interrupt the operations of the running attempt."""
        if self._running is not None:
            spec, url = self._running
            self._sessions.interrupt(url, spec)

    def stop_previous(self, claim: Claim) -> None:
        """As `AttemptSessions.stop_previous`."""
        self._sessions.stop_previous(self._server, claim)


def _import_client() -> None:
    from airflow_recovery.driver.connect_session import import_client

    with suppress(Exception):  # it is told where the session is opened
        import_client()
