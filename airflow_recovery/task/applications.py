"""The two ways to run a region's application: spark-submit, and a warm Spark Connect server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from airflow_recovery.attempt.drivers import BOUND, Drivers
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.records import Claim, RunIdentity
from airflow_recovery.store.object_store import ObjectStore

ORPHAN_DEADLINE_S = 30.0


class SubmittedApplication:
    """One spark-submit of our region runner, with everything that the operator was given passed through."""

    def __init__(
        self,
        submit: Callable[[RegionSpec, Path], None],
        kill: Callable[[], None],
        *,
        drivers: Drivers = BOUND,
        kill_orphan: Callable[[Claim], None] = lambda claim: None,
    ) -> None:
        self._submit = submit
        self._kill = kill
        self._kill_orphan = kill_orphan
        self.drivers = drivers

    def run(self, spec: RegionSpec, folder: Path) -> None:
        """Submit and wait. Raises Airflow's exception where spark-submit says that it failed."""
        path = folder / f"{spec.tag}.json"
        path.write_text(spec.to_json(), encoding="utf-8")
        self._submit(spec, path)

    def stop(self) -> None:
        """Kill spark-submit's process, or the driver in cluster mode."""
        self._kill()

    def stop_orphan(self, identity: RunIdentity, claim: Claim) -> None:
        """A driver on this machine died with its task; one on a cluster is killed where its id is known."""
        self._kill_orphan(claim)


class ConnectApplication:
    """One session on a Spark Connect server; the vertices are called in this process.

    ``url`` may hold a token and is never logged. ``user_id`` must be the same for all attempts of a run: it is how a
    later one finds the session of an orphan. ``conf`` is set in the session as far as the server lets it be set.
    ``journal`` and ``results`` are the stores that this process has open, and ``mask`` knows its secrets.
    """

    def __init__(
        self,
        url: str,
        *,
        user_id: str,
        packages: Iterable[str],
        conf: Mapping[str, str],
        journal: ObjectStore,
        results: ObjectStore | None = None,
        log: logging.Logger,
        mask: Mask = scrubbed,
    ) -> None:
        self._url = url
        self._user_id = user_id
        self._packages = tuple(packages)
        self._conf = dict(conf)
        self._journal = journal
        self._results = results
        self._log = log
        self._mask = mask
        self._running: RegionSpec | None = None
        self.drivers = BOUND

    def prepare(self) -> None:
        """Import Spark's client in a thread, while the claim waits for Airflow and for the journal.

        Nothing that a claim which is lost would have to undo: the server is not asked.
        """
        threading.Thread(target=_import_client, name="import pyspark", daemon=True).start()

    def run(self, spec: RegionSpec, folder: Path) -> None:
        """Run in a session of its own. Raises what the vertices or the server raise."""
        from airflow_recovery.driver.connect import run_over_connect

        archive = build_archive(spec.job, self._packages)
        self._running = spec
        try:
            run_over_connect(
                self._url,
                spec,
                archive=archive,
                log=self._log,
                user_id=self._user_id,
                conf=self._conf,
                journal=self._journal,
                results=self._results,
                mask=self._mask,
            )
        finally:
            self._running = None

    def stop(self) -> None:
        """Interrupt the operations of the running attempt.

        In a thread: a signal handler runs inside the very call that waits for the server.
        """
        spec = self._running
        if spec is not None:
            arguments = (spec.identity, spec.region, spec.attempt, spec.tag)
            threading.Thread(target=self._interrupt, args=arguments, name="interrupt", daemon=True).start()

    def stop_orphan(self, identity: RunIdentity, claim: Claim) -> None:
        """An operation survives the death of its client: open the old session and interrupt its tag.

        Not waited for longer than `ORPHAN_DEADLINE_S`: Spark's client asks a server that is gone for ten minutes.
        """
        arguments = (identity, claim.region, claim.attempt, claim.tag)
        interrupting = threading.Thread(target=self._interrupt, args=arguments, name="interrupt", daemon=True)
        interrupting.start()
        interrupting.join(ORPHAN_DEADLINE_S)
        if interrupting.is_alive():
            self._log.warning("Attempt %d of %s: the server does not answer; going on.", claim.attempt, claim.region)

    def _interrupt(self, identity: RunIdentity, region: str, attempt: int, tag: str) -> None:
        from airflow_recovery.driver.connect_session import interrupt_attempt, session_id_of

        session_id = session_id_of(identity, region, attempt)
        try:
            stopped = interrupt_attempt(self._url, session_id=session_id, tag=tag, user_id=self._user_id)
        except Exception as error:
            # Fencing is what makes an orphan harmless; interrupting it only saves the server's time.
            self._log.warning("Attempt %d of %s could not be interrupted on the server: %s", attempt, region, error)
        else:
            if stopped:
                self._log.info("Attempt %d of %s: %d operations interrupted.", attempt, region, len(stopped))


def _import_client() -> None:
    from airflow_recovery.driver.connect_session import import_client

    with suppress(Exception):  # it is told where the session is opened
        import_client()
