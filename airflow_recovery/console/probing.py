"""Which results of a run are there, as the commands ask: those that are asked for in any case, all at once."""

from __future__ import annotations

import argparse

from airflow_recovery.attempt.rebuild import asked_for
from airflow_recovery.console.connect import cache_server_of
from airflow_recovery.console.deployment import Deployment
from airflow_recovery.planning.evaluation import Judgement
from airflow_recovery.results.places import Asker, ResultPlaces
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.story.run_view import RunView


def prober_of(args: argparse.Namespace, deployment: Deployment, view: RunView) -> ResultProber:
    """For one judgement of ``view``, which asks the stores now."""
    server = cache_server_of(args)
    places = ResultPlaces.of(deployment.results.base_uri, view.journal.identity, Asker.PERSON, view.in_use.recorded)
    prober = ResultProber(
        deployment.open_location, ask_cached=server.ask if server is not None else None, places=places
    )
    prober.look_ahead(asked_for(Judgement(view.in_use.plan, view.in_use.state, available=prober)))
    return prober
