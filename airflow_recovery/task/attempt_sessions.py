"""Which Spark Connect server an attempt runs on, and its session there: each attempt has one, and others can end it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_recovery.model.records import Claim

if TYPE_CHECKING:
    from airflow_recovery.driver.region_spec import RegionSpec

INTERRUPT_DEADLINE_S = 30.0


class ServerChoice:
    """Which server a region runs on. This one: always the one at ``url``, which somebody else looks after."""

    max_retries: int | None = None
    """How often Spark's client repeats a request without an answer; `None`: as Spark does, for ten minutes."""

    def __init__(self, url: str) -> None:
        self._url = url

    def to_run(self) -> str:
        """The URL for a new attempt. May start a server; raises where that fails."""
        return self._url

    def to_interrupt(self) -> str | None:
        """The URL at which an earlier attempt may have left something running; `None` where nothing can be."""
        return self._url

    def why_lost(self) -> str | None:
        """After a failure: why that server is gone for good; `None` where it is not, or nobody can say."""
        return None


class AttemptSessions:
    """The sessions of a run's attempts. ``user_id`` must be the same for all of them, or a later one finds none."""

    def __init__(self, user_id: str, log: logging.Logger) -> None:
        self.user_id = user_id
        self._log = log

    def interrupt(self, url: str, claim: Claim | RegionSpec) -> threading.Thread:
        """Have a thread interrupt what runs in the attempt's session, and close it.

        A thread: a signal handler runs inside the very call that waits for the server, and Spark's client asks one that
        is gone for ten minutes.
        """
        thread = threading.Thread(target=self._interrupt, args=(url, claim), name="interrupt", daemon=True)
        thread.start()
        return thread

    def stop_previous(self, server: ServerChoice, claim: Claim) -> None:
        """An operation survives the death of its client: interrupt what is left, for `INTERRUPT_DEADLINE_S` at most."""
        url = server.to_interrupt()
        if url is None:
            return
        interrupting = self.interrupt(url, claim)
        interrupting.join(INTERRUPT_DEADLINE_S)
        if interrupting.is_alive():
            self._log.warning("Attempt %d of %s: the server does not answer; going on.", claim.attempt, claim.region)

    def _interrupt(self, url: str, claim: Claim | RegionSpec) -> None:
        from airflow_recovery.driver.connect_session import interrupt_attempt, session_id_of

        region, attempt = claim.region, claim.attempt
        try:
            stopped = interrupt_attempt(url, session_id=session_id_of(claim.tag), user_id=self.user_id)
        except Exception as error:
            # Fencing is what makes an orphan harmless; interrupting it only saves the server's time.
            self._log.warning("Attempt %d of %s could not be interrupted on the server: %s", attempt, region, error)
        else:
            if stopped:
                self._log.info("Attempt %d of %s: %d operations interrupted.", attempt, region, len(stopped))
