"""The journals of this deployment, as the API server reads them for people."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.api_server.budget import BudgetedStore
from airflow_recovery.api_server.reader_process import Question
from airflow_recovery.api_server.readers import readers
from airflow_recovery.api_server.readings import Access, LargeJournal, Tries
from airflow_recovery.api_server.silence import HeededStores, Silence
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, Timeouts, open_stores
from airflow_recovery.journal.owner import check_owner

if TYPE_CHECKING:
    from airflow_recovery.store.scheme import StoreSpec

TIMEOUTS = Timeouts(connect_s=2.0, read_s=5.0, read_attempts=1)
"""People ask again by themselves, and few requests may wait at once (`airflow_recovery.api_server.store_routes`)."""

REQUEST_BYTES = 256 * 1024 * 1024
"""Of a journal, for one request: some hundred times what the largest runs that were tried have."""

READS_LARGE_RUNS_APART = True
CHANGE_S = 600.0
"""For a change of a large run by another process. It may delete many files."""
_MOST_LARGE_RUNS = 1000

Audit = Callable[[Mapping[str, Any]], None]

silence = Silence()
"""The buckets that have timed out in this process."""


@lru_cache(maxsize=1)
def deployment_stores() -> Stores:
    """Once for this process: connections to S3 are kept. Raises `ConfigurationError` where no journal is set."""
    return open_stores(RecoverySettings.load(), TIMEOUTS)


@lru_cache(maxsize=1)
def deployment_name() -> str | None:
    """``[recovery] deployment`` as this API server has it; read once for this process."""
    return RecoverySettings.load().deployment


def deployment_access(audit: Audit = lambda said: None, *, refuses_large: bool = False) -> Access:
    """Return the stores of this deployment for one request.

    The stores read at most `REQUEST_BYTES` from the journal, so that one page can't use up the API server's memory.
    Raises `ConfigurationError` if the journal belongs to another deployment (fault 82): this API server must not show
    or restart the runs of that deployment.
    """
    stores = HeededStores(deployment_stores(), silence)
    check_owner(stores.journal, deployment_name() or "")
    journal = BudgetedStore(stores.journal, REQUEST_BYTES)
    is_refused = refuses_large and READS_LARGE_RUNS_APART
    return Access(journal, stores.results, stores.open_location, stores.may_open, is_refused, audit=audit)


@dataclass(frozen=True)
class Apart:
    """A question that another process answers. The answer uses no listing from before ``asked_at``."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    tries: Tries | None
    audit: Audit
    most_s: float | None = None
    asked_at: float = field(default_factory=time.monotonic)

    def ask(self) -> Any:
        """Return the answer. Raises the error of the function, and `ReadingStopped`."""
        stores = deployment_stores()
        question = Question(
            self.function.__module__,
            self.function.__name__,
            self.arguments,
            self.tries,
            self.asked_at,
            stores.journal_spec,
            stores.results_spec,
            stores.driver_env(),
            TIMEOUTS.waits,
            REQUEST_BYTES,
        )
        return readers.ask(self.arguments["dag_id"], question, partial(_hear, stores, self.audit), self.most_s)


_large: OrderedDict[tuple[Any, ...], None] = OrderedDict()
"""Runs whose journals are large, and questions about DAGs with such a run: the API server does not list them again."""


def read(
    function: Callable[..., Any], tries: Tries | None = None, audit: Audit = lambda said: None, **arguments: Any
) -> Any:
    """Call a function of `airflow_recovery.api_server.readings`. Return `Apart` if it needs a large journal.

    ``tries``: the task instances of the run, for a function that has an argument ``observation``.
    """
    access = deployment_access(audit, refuses_large=True)
    run_key = arguments.get("run_key")
    about = (arguments.get("question", function) if run_key is None else None, arguments["dag_id"], run_key)
    if about not in _large:
        try:
            more = {} if tries is None else {"observation": tries.observation()}
            return function(access, **arguments, **more)
        except LargeJournal:
            _large[about] = None
            while len(_large) > _MOST_LARGE_RUNS:
                _large.popitem(last=False)
    return Apart(function, arguments, tries, audit)


def change(function: Callable[..., Any], audit: Audit, tries: Tries | None = None, **arguments: Any) -> Any:
    """Call a function of `airflow_recovery.api_server.changes`. Wait in this thread if another process works."""
    found = read(function, tries, audit, **arguments)
    return replace(found, most_s=CHANGE_S).ask() if isinstance(found, Apart) else found


def _hear(stores: Stores, audit: Audit, kind: str, about: Any) -> StoreSpec | bool | None:
    """Answer a process: write the audit log, or return whether and how to open a location. Raises if it may not."""
    if kind == "audit":
        audit(about)
        return None
    if kind == "may open":
        return stores.may_open(about)
    stores.open_location(about)  # raises if it may not be opened
    return replace(stores.results_spec, uri=about)
