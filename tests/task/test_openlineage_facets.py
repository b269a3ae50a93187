"""Our lineage in OpenLineage's classes, with stand-ins for those: its provider is not among the tests' packages.

What it was tried with for real stands in docs/observe.md.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from airflow_recovery.task.lineage import Lineage, LineageDataset, LineageRun
from airflow_recovery.task.openlineage import operator_lineage


class Facet:
    """OpenLineage's facets are classes of attrs."""


def stand_in(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


@pytest.fixture
def openlineage(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = SimpleNamespace(OutputStatisticsOutputDatasetFacet=SimpleNamespace)
    modules = [
        stand_in("airflow.providers.openlineage"),
        stand_in("airflow.providers.openlineage.extractors", OperatorLineage=SimpleNamespace),
        stand_in("openlineage"),
        stand_in("openlineage.client"),
        stand_in("openlineage.client.event_v2", InputDataset=SimpleNamespace, OutputDataset=SimpleNamespace),
        stand_in(
            "openlineage.client.facet_v2",
            DatasetFacet=Facet,
            RunFacet=Facet,
            output_statistics_output_dataset=statistics,
        ),
    ]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_inputs_outputs_and_the_decision(openlineage: None) -> None:
    lineage = Lineage(
        (LineageDataset("s3://lake", "raw", bytes=5, files=2), LineageDataset("airflow-recovery", "d.g.a", 2, "abc")),
        (LineageDataset("airflow-recovery", "d.g.b", 1, None, 3, 9, 1, "s3://results/x"),),
        (LineageRun("b", "kept", 1, "date-x", 2.0),),
    )
    found = operator_lineage(lineage)
    assert [(dataset.namespace, dataset.name) for dataset in found.inputs] == [
        ("s3://lake", "raw"),
        ("airflow-recovery", "d.g.a"),
    ]
    assert found.inputs[0].facets == {}
    assert (found.inputs[1].facets["recovery"].attempt, found.inputs[1].facets["recovery"].digest) == (2, "abc")
    (output,) = found.outputs
    assert output.facets["recovery"].location == "s3://results/x"
    assert vars(output.outputFacets["outputStatistics"]) == {"rowCount": 3, "size": 9, "fileCount": 1}
    assert found.run_facets["recovery"].regions[0]["decision"] == "kept"


def test_a_task_that_ran_no_region_says_nothing(openlineage: None) -> None:
    assert vars(operator_lineage(Lineage())) == {"inputs": [], "outputs": [], "run_facets": {}}
