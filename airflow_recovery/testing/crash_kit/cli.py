"""The command line of the crash kit: `python -m airflow_recovery.testing.crash_kit`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from airflow_recovery.errors import RecoveryError
from airflow_recovery.testing.crash_kit.job_setup import Engine, Scenario
from airflow_recovery.testing.crash_kit.kit import EXAMPLE, crash_test, temporary_setup
from airflow_recovery.testing.crash_kit.loop import COMMAND, CrashLoop
from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm
from airflow_recovery.testing.s3_server import SERVERS
from airflow_recovery.testing.simulation.settings import Violation

BUCKET = "crashes"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, 1 for a violation, 2 for a job that can't be tested."""
    args = _parser().parse_args(argv)
    # Airflow's settings let it tell where each client found its credentials.
    logging.getLogger("botocore").setLevel(logging.WARNING)
    try:
        with _root(args) as root:
            if args.list or args.crash:
                _one_run(args, root)
            else:
                _all_runs(args, root)
    except RecoveryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Violation as violation:
        print(f"VIOLATION, {violation}", file=sys.stderr)
        return 1
    return 0


def _all_runs(args: argparse.Namespace, root: str | None) -> None:
    tally = crash_test(
        args.job,
        engine=_engine(args),
        root=root,
        params=args.params,
        scenarios=None if args.scenario is None else (args.scenario,),
        singles=args.singles,
        frozen=args.frozen,
        pairs=args.pairs,
        seed=args.seed,
        pairs_s=args.minutes * 60 if args.minutes else None,
        tell=lambda line: print(line, flush=True),
    )
    print(tally.text())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    add = parser.add_argument
    add("job", nargs="?", default=EXAMPLE, metavar="MODULE:NAME", help="default: a small diamond")
    add("--spark", action="store_true", help="call the job's functions, with a Spark of its own for each region")
    add("--params", type=json.loads, default={}, metavar="JSON", help="the run's params")
    add("--root", metavar="URI", help="where journals and results go (default: a temporary folder)")
    add("--s3", choices=list(SERVERS), help="... or on such a server, which is started for it")
    add("--scenario", type=_scenario, metavar="run|loss", help="default: each of them")
    add("--singles", type=_number, default=None, metavar="N", help="single crashes (default: all)")
    add("--frozen", type=_number, default=None, metavar="N", help="single freezes (default: all)")
    add("--pairs", type=_number, default=20, metavar="N", help="pairs of crashes (default: 20)")
    add("--seed", type=int, default=0, help="draws those of which not all are wanted")
    add("--minutes", type=float, default=None, help="of pairs in each scenario, at most")
    add("--list", action="store_true", help="name the points of one undisturbed run, and do no harm")
    add("--crash", action="append", type=_point, metavar="POINT", help="one run with this crash; repeatable")
    add("--freeze", action="store_true", help="with --crash: freeze there instead")
    return parser


@contextmanager
def _root(args: argparse.Namespace) -> Iterator[str | None]:
    """Where runs go; on an S3 server of its own, if that is asked for."""
    if args.s3 is None:
        yield args.root
        return
    with SERVERS[args.s3]() as server:
        server.create_bucket(BUCKET)
        with patch.dict(os.environ, {**server.environment(), "AWS_ENDPOINT_URL_S3": server.endpoint_url}):
            yield f"s3://{BUCKET}/runs"


def _one_run(args: argparse.Namespace, root: str | None) -> None:
    scenario = args.scenario or Scenario.RUN
    with temporary_setup(args.job, _engine(args), root, args.params) as setup:
        loop = CrashLoop(setup.for_scenario(scenario))
        if args.list:
            lines = [point.point.text for point in loop.points()]
        else:
            lines = list(loop.crash(*args.crash, harm=Harm.FREEZE if args.freeze else Harm.KILL).events)
    print("\n".join([f"{scenario.value}:", *(f"  {line}" for line in lines)]))


def _engine(args: argparse.Namespace) -> Engine:
    return Engine.SPARK if args.spark else Engine.PLAIN


def _scenario(text: str) -> Scenario:
    try:
        return Scenario[text.upper()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"expected run or loss, found {text!r}") from None


def _number(text: str) -> int | None:
    return None if text == "all" else int(text)


def _point(text: str) -> CrashPoint:
    try:
        return CrashPoint.parse(text)
    except RecoveryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
