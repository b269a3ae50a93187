"""`airflow_recovery.task.lineage` in OpenLineage's classes. Imported where its Airflow provider asks for it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow_recovery.task.lineage import Lineage, LineageDataset

SCHEMA = "https://airflow-recovery.invalid/openlineage"
"""OpenLineage wants a schema's address in every facet; ours are documented in the guide, and lie nowhere."""


def operator_lineage(lineage: Lineage) -> Any:
    """An ``OperatorLineage``. Raises `ImportError` where OpenLineage's provider is not installed."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(
        inputs=[_input(dataset) for dataset in lineage.inputs],
        outputs=[_output(output) for output in lineage.outputs],
        run_facets={"recovery": _run_facet([asdict(run) for run in lineage.runs])} if lineage.runs else {},
    )


def _input(dataset: LineageDataset) -> Any:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(namespace=dataset.namespace, name=dataset.name, facets=_facets(dataset))


def _output(dataset: LineageDataset) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=dataset.rows, size=dataset.bytes, fileCount=dataset.files
    )
    return OutputDataset(
        namespace=dataset.namespace,
        name=dataset.name,
        facets=_facets(dataset),
        outputFacets={"outputStatistics": statistics},
    )


def _facets(dataset: LineageDataset) -> dict[str, Any]:
    from attrs import define
    from openlineage.client.facet_v2 import DatasetFacet

    @define(kw_only=True)
    class RecoveryDatasetFacet(DatasetFacet):  # type: ignore[misc]
        """Which attempt of the dataset it was."""

        attempt: int | None
        digest: str | None
        location: str | None

        @staticmethod
        def _get_schema() -> str:
            return f"{SCHEMA}/dataset"

    if dataset.attempt is None:
        return {}
    facet = RecoveryDatasetFacet(attempt=dataset.attempt, digest=dataset.digest, location=dataset.location)
    return {"recovery": facet}


def _run_facet(runs: list[dict[str, Any]]) -> Any:
    from attrs import define
    from openlineage.client.facet_v2 import RunFacet

    @define(kw_only=True)
    class RecoveryRunFacet(RunFacet):  # type: ignore[misc]
        """What the task decided, region by region."""

        regions: list[dict[str, Any]]

        @staticmethod
        def _get_schema() -> str:
            return f"{SCHEMA}/run"

    return RecoveryRunFacet(regions=runs)
