"""Where journal and results are, and how Airflow is reached: the one thing in which the two command lines differ."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from airflow_recovery.attempt.rebuild import RebuildRequest, Rebuilt
from airflow_recovery.errors import ConfigurationError, LocationNotAllowed
from airflow_recovery.journal.owner import check_owner
from airflow_recovery.locations import scheme_of, split_uri
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.retention import DEFAULT_GRACE_S, DEFAULT_RETENTION, Retention, parse_duration_s
from airflow_recovery.results.tables import Tables
from airflow_recovery.sinks.committer import Committer
from airflow_recovery.store.allowed import Limits, Reach, Source, decide, read_allowed
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store

JOURNAL_VARIABLE = "AIRFLOW__RECOVERY__JOURNAL"
RESULTS_VARIABLE = "AIRFLOW__RECOVERY__RESULTS"
RETENTION_VARIABLE = "AIRFLOW__RECOVERY__RETENTION"
GRACE_VARIABLE = "AIRFLOW__RECOVERY__GRACE"
ALLOWED_VARIABLE = "AIRFLOW__RECOVERY__ALLOWED_LOCATIONS"
DEPLOYMENT_VARIABLE = "AIRFLOW__RECOVERY__DEPLOYMENT"
RESULTS_BELOW_JOURNAL = "_results"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Deployment(Protocol):
    """The stores of one deployment, and the way to clear tasks in its Airflow."""

    @property
    def name(self) -> str | None:
        """``[recovery] deployment``, where the journal's prefix belongs to it alone."""
        ...

    @property
    def journal(self) -> ObjectStore:
        """The store that holds all journals."""
        ...

    @property
    def results(self) -> ObjectStore:
        """The store that holds the results of all runs."""
        ...

    @property
    def retention(self) -> Retention:
        """When intermediate results of jobs that declare nothing may go."""
        ...

    @property
    def grace_s(self) -> float:
        """For how long what nobody counts on is kept all the same."""
        ...

    def open_location(self, location: str) -> ObjectStore:
        """The store with ``location`` in it, where a result lies. Raises `LocationNotAllowed`."""
        ...

    def may_open(self, location: str) -> bool:
        """Whether credentials may be used at ``location``, which a record names."""
        ...

    @property
    def tables(self) -> Tables:
        """The tables of Iceberg and Delta. Asking them raises `ConfigurationError` where there is no way to."""
        ...

    def open_committer(self, spec: CommitSpec) -> Committer:
        """The way to the target of a sink. Raises `ConfigurationError` where there is none from here."""
        ...

    def clear(
        self, dag_id: str, run_id: str, task_keys: Sequence[str], *, unless_running: Sequence[str] = ()
    ) -> tuple[str, ...] | None:
        """Clear these tasks of a run, whatever they do now. Returns those that were; `None`: there is no way to.

        Those of ``unless_running`` are cleared as well, but only where they have ended.
        """
        ...

    def is_live_run(self, dag_id: str, run_id: str) -> bool | None:
        """Whether Airflow has this DAG run, and has not ended it. `None`: it can't be asked, or knows no such run."""
        ...

    def live_run(self, dag_id: str, run_key: str) -> str | None:
        """Return the id of a DAG run with this key that Airflow has, and has not ended.

        `None`: Airflow has none, or can't be asked.
        """
        ...

    def rebuild(self, dag_id: str, request: RebuildRequest) -> Rebuilt | None:
        """Set the finished tasks of a re-created run to success. `None`: there is no way into Airflow."""
        ...


class StandaloneDeployment:
    """Without Airflow: a journal by its URI, and the libraries' own credentials (environment, profile, role)."""

    def __init__(
        self,
        journal: str,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        *,
        results: str | None = None,
        retention: Retention = DEFAULT_RETENTION,
        grace_s: float = DEFAULT_GRACE_S,
        name: str | None = None,
        allowed: tuple[str, ...] = (),
    ) -> None:
        self._endpoint_url = endpoint_url
        self._region_name = region_name
        self._by_root: dict[str, ObjectStore] = {}
        results = results or f"{journal.rstrip('/')}/{RESULTS_BELOW_JOURNAL}"
        self._limits = Limits((journal, results), allowed)
        self.journal, self.results = (
            open_store(uri, source=Source.COMMAND, endpoint_url=endpoint_url, region_name=region_name)
            for uri in (journal, results)
        )
        self.tables = Tables(_no_catalog, _no_catalog, self.open_location)
        self.retention = retention
        self.grace_s = grace_s
        self.name = name

    def open_location(self, location: str) -> ObjectStore:
        """One store for each bucket, so that many results share its connections."""
        decide(location, Source.RECORD, self._limits, Reach(self._endpoint_url))
        root = location if scheme_of(location) is None else split_uri(location)[0]
        if root not in self._by_root:
            limits = Limits((root,))  # ``location`` in it is allowed
            self._by_root[root] = open_store(
                root,
                source=Source.RECORD,
                limits=limits,
                endpoint_url=self._endpoint_url,
                region_name=self._region_name,
            )
        return self._by_root[root]

    def may_open(self, location: str) -> bool:
        """Whether `open_location` raises no `LocationNotAllowed`."""
        try:
            decide(location, Source.RECORD, self._limits, Reach(self._endpoint_url))
        except LocationNotAllowed:
            return False
        return True

    def open_committer(self, spec: CommitSpec) -> Committer:
        """Raises `ConfigurationError`: without Airflow, its connections are not known."""
        raise ConfigurationError(
            f"Expected a way to ask the target of {spec.result}, found none: without Airflow its connections are not "
            "known. Give the command on a machine with this deployment's Airflow; or `abandon`, if you know that the "
            "target has not taken it, with --not-applied."
        )

    def clear(self, dag_id: str, run_id: str, task_keys: Sequence[str], *, unless_running: Sequence[str] = ()) -> None:
        """Returns `None`: there is no way into Airflow from here."""

    def is_live_run(self, dag_id: str, run_id: str) -> None:
        """Returns `None`: there is no way into Airflow from here."""

    def live_run(self, dag_id: str, run_key: str) -> None:
        """Returns `None`: there is no way into Airflow from here."""

    def rebuild(self, dag_id: str, request: RebuildRequest) -> None:
        """Returns `None`: there is no way into Airflow from here."""


def _no_catalog(name: str) -> NoReturn:
    """Without Airflow, its catalogs are not known."""
    raise ConfigurationError(
        f"Expected a way to ask for tables of {name!r}, found none: without Airflow that connection is not known. Give "
        "the command on a machine with this deployment's Airflow."
    )


def add_standalone_arguments(parser: argparse.ArgumentParser) -> None:
    """The options by which ``python -m airflow_recovery`` is told what Airflow's configuration says elsewhere."""
    group = parser.add_argument_group("deployment")
    group.add_argument(
        "--journal",
        metavar="URI",
        help=f"s3://bucket/prefix, another store or a folder; default: the variable {JOURNAL_VARIABLE}",
    )
    group.add_argument("--results", metavar="URI", help=f"default: {RESULTS_VARIABLE}, else below the journal")
    group.add_argument("--endpoint-url", metavar="URL", help="of a server that is not the cloud's own")
    group.add_argument("--s3-region", metavar="NAME", help="region of the buckets")
    parser.set_defaults(open_deployment=open_standalone)


def open_standalone(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Deployment:
    """The deployment that the options name. Raises `ConfigurationError` where no journal is named."""
    journal = args.journal or environment.get(JOURNAL_VARIABLE, "")
    if not journal.strip("/"):
        raise ConfigurationError(
            "Expected the journal's URI, found none. Give --journal s3://bucket/prefix, or set "
            f"{JOURNAL_VARIABLE} as Airflow's components have it."
        )
    if args.endpoint_url and not args.endpoint_url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"Expected --endpoint-url as http://<host> or https://<host>, found {args.endpoint_url!r}. Write the "
            "scheme too."
        )
    if not _SCHEME.match(journal):
        journal = os.path.abspath(journal)
    return StandaloneDeployment(
        journal,
        args.endpoint_url,
        args.s3_region,
        results=args.results or environment.get(RESULTS_VARIABLE),
        retention=Retention.parse(environment.get(RETENTION_VARIABLE) or DEFAULT_RETENTION.text()),
        grace_s=parse_duration_s(environment.get(GRACE_VARIABLE) or f"{DEFAULT_GRACE_S}s"),
        name=environment.get(DEPLOYMENT_VARIABLE, "").strip() or None,
        allowed=read_allowed(environment.get(ALLOWED_VARIABLE, ""), ALLOWED_VARIABLE),
    )


def deployment_of(args: argparse.Namespace) -> Deployment:
    """The deployment that a subcommand works on. Raises `ConfigurationError` where the journal is another one's."""
    deployment: Deployment = args.open_deployment(args)
    check_owner(deployment.journal, deployment.name or "")
    return deployment
