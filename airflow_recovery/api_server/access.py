"""Who may do what. Airflow decides; this only asks.

These modules of Airflow are no public API: this file, `app` and `dag_runs` are all that touches them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Depends, HTTPException, Request

from airflow_recovery.airflow_compat import (
    DagAccessEntity,
    DagDetails,
    DagModel,
    get_auth_manager,
    requires_access_dag,
)

if TYPE_CHECKING:
    from airflow_recovery.airflow_compat import BaseUser

_FOREIGN_SITES = ("cross-site", "same-site")


def same_origin(request: Request) -> None:
    """Refuse what another site's page has a browser send with the user's cookie. Programs send no such headers.

    A form of another page can't send JSON, and a browser says where a request comes from.
    """
    if request.headers.get("sec-fetch-site") in _FOREIGN_SITES:
        raise HTTPException(403, "Expected a request of a page of this Airflow, found one of another site.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Expected the content type application/json.")


# Who may open a run's page sees its tab. Why a region has failed is part of how a run is.
MAY_READ = [Depends(requires_access_dag("GET", DagAccessEntity.RUN))]
MAY_ASK = [*MAY_READ, Depends(same_origin)]
MAY_CLEAR = [Depends(requires_access_dag("PUT", DagAccessEntity.TASK_INSTANCE)), Depends(same_origin)]
"""What tasks and commands ask for with an account of their own, which need not see any page."""
MAY_ACT = [Depends(requires_access_dag("PUT", DagAccessEntity.TASK_INSTANCE)), *MAY_READ, Depends(same_origin)]


def of_every_dag(request: Request) -> None:
    """Refuse a DAG in the query of a route that has none in its path: Airflow would authorise the user for that DAG."""
    if "dag_id" in request.query_params:
        raise HTTPException(422, "Expected no dag_id: the answer is about all DAGs.")


def may_act(user: BaseUser, dag_id: str) -> bool:
    """Whether the user may press the buttons. Says what to show; `MAY_ACT` is what protects."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(
        get_auth_manager().is_authorized_dag(
            method="PUT", access_entity=DagAccessEntity.TASK_INSTANCE, details=details, user=user
        )
    )
