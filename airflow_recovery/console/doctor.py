"""``doctor``: whether what is installed and configured here can recover tonight; one line for each thing looked at."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.doctor.checking import TIMEOUT_S, Check, run_checks
from airflow_recovery.doctor.components import DRIVING, READING, Component, Right
from airflow_recovery.doctor.result import CheckResult, Status, is_wrong, not_checked, summary
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.scrub import scrubbed, scrubbed_json

_SIGNS = {Status.OK: "ok    ", Status.WARNING: "warn  ", Status.NOT_CHECKED: "?     ", Status.WRONG: "WRONG "}
_BUNDLE_TIMEOUT_S = 10.0
_MAX_RESULTS = 100
_MAX_CHARACTERS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what this machine is, and how much is looked at."""
    parser.add_argument(
        "--component",
        choices=[component.value for component in Component],
        default=Component.WORKER.value,
        help="what runs here, and needs its settings and rights; default: worker",
    )
    parser.add_argument(
        "--conn", metavar="ID", default="spark_default", help="the connection that DAGs give to regions"
    )
    parser.add_argument("--spark", action="store_true", help="also run one small region with that connection")
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=TIMEOUT_S, help="for each check, in seconds; default: 20"
    )
    parser.add_argument(
        "--spark-timeout", metavar="S", type=_seconds, default=300.0, help="for the region, in seconds; default: 300"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.UNFIT` where anything is wrong."""
    results: list[CheckResult] = []
    for check in run_checks(_checks_of(args), args.timeout):
        results.append(check)
        if not args.json:
            output(f"{_SIGNS[check.status]}{scrubbed(check.text())}", flush=True)
    if args.json:
        output(json.dumps(_document(results), indent=1))
    else:
        output(summary(results))
    return ExitCode.UNFIT if is_wrong(results) else ExitCode.DONE


def results_for_bundle(args: argparse.Namespace) -> list[dict[str, str]]:
    """What a bundle holds of it: nothing is written, cleared or run for that, and nothing is waited for for long."""
    asked = argparse.Namespace(**vars(args))
    asked.component, asked.conn, asked.spark = Component.WORKER.value, "spark_default", False
    results: list[CheckResult] = []
    try:
        checks = (replace(check, timeout_s=None) for check in _checks_of(asked, is_for_bundle=True))
        for check in run_checks(checks, _BUNDLE_TIMEOUT_S):
            results.append(check)
            if len(results) == _MAX_RESULTS:
                break
    except Exception as error:  # who asks for help gets the rest of the bundle all the same
        results.append(not_checked("doctor", f"{type(error).__name__}: {error}"))
    documents = _document(results)["results"]
    return [{name: text[:_MAX_CHARACTERS] for name, text in document.items()} for document in documents]


def standalone_checks(args: argparse.Namespace, *, is_for_bundle: bool) -> Iterator[Check]:
    """What can be looked at without Airflow: versions, the options' stores, and the spark-submit of this shell."""
    from airflow_recovery.doctor.spark import check_submission
    from airflow_recovery.doctor.stores import check_deletion, check_expiry, check_owners, check_places, check_store
    from airflow_recovery.doctor.versions import check_archive, check_versions

    if args.spark:
        raise ConfigurationError(
            "Expected `airflow recovery doctor --spark`, found `python -m airflow_recovery doctor --spark`: a region "
            "runs with a connection of Airflow's. Leave --spark out, or call it through Airflow."
        )
    needs = Component(args.component).needs
    stores: tuple[str, ...] = ()
    yield Check("versions", partial(check_versions, in_airflow=False))
    try:
        deployment = args.open_deployment(args)
    except ConfigurationError as error:
        yield Check("journal", partial(_raise, error))
    else:
        journal, results = deployment.journal, deployment.results
        stores = (journal.base_uri, results.base_uri)
        yield Check("journal and results", partial(check_places, journal.base_uri, results.base_uri))
        on_results = needs.results | (DRIVING if needs.spark else Right.NONE)
        places = (("journal", journal, needs.journal), ("results", results, on_results))
        tried = READING if is_for_bundle else ~Right.NONE
        for (what, store, right), policy, buttons in zip(places, needs.policies, needs.buttons, strict=True):
            if right:
                look = partial(check_store, what, store, right & tried, policy, buttons=buttons & tried)
                yield Check(f"the {what}", look)
        if Right.DELETE in needs.results | needs.buttons[1]:
            yield Check("what is deleted in the results", partial(check_deletion, results))
        if needs.journal:
            yield Check("lifecycle rules of the journal", partial(check_expiry, journal))
            yield Check("owners", partial(check_owners, journal, results, deployment.name))
    if needs.spark:
        environment = dict(os.environ)
        yield Check("the driver's archive", partial(check_archive, environment, stores), timeout_s=60.0)
        submission = partial(check_submission, "spark-submit", environment, stores)
        yield Check("Spark", submission, timeout_s=60.0)


def _checks_of(args: argparse.Namespace, *, is_for_bundle: bool = False) -> Iterable[Check]:
    """Those of Airflow, where its command line has put them into ``args``."""
    make = getattr(args, "doctor_checks", standalone_checks)
    checks: Iterable[Check] = make(args, is_for_bundle=is_for_bundle)
    return checks


def _document(results: list[CheckResult]) -> dict[str, Any]:
    document: dict[str, Any] = scrubbed_json(
        {"ok": not is_wrong(results), "results": [result.to_json() for result in results]}
    )
    return document


def _raise(error: Exception) -> Iterator[CheckResult]:
    raise error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text!r}")
    return seconds
