"""The demo's job with all flights in one region, as the overhead benchmarks run it: eight regions, eight tasks.

The same vertex functions, without the demo's subtasks: both sides then have one task a region, and what is compared
does not change with the number of months.
"""

from __future__ import annotations

from jobs import flights as demo

from airflow_recovery import files, job
from airflow_recovery.job.vertex import VertexKind

flights = job("flights", packages=["jobs"])

for _each in demo.flights.vertices.values():
    _inputs = {read.parameter: read.vertex for read in _each.inputs}
    _params = dict.fromkeys(_each.params, "")  # no rehearsal of a failure
    if _each.kind is VertexKind.SOURCE:
        _table = _each.name.removeprefix("raw_")
        _splits = files(f"{{{{ params.lake }}}}/{_table}*.csv")
        flights.source(name=_each.name, splits=_splits, params=_params, result=_each.result)(_each.function)
    elif _each.kind is VertexKind.SINK:
        flights.sink(name=_each.name, inputs=_inputs, params=_params)(_each.function)
    else:
        flights.vertex(
            name=_each.name,
            inputs=_inputs,
            params=_params,
            result=_each.result,
            deterministic=_each.determinism.value,
        )(_each.function)
