"""The pipeline in Dagster: ``python dagster_pipeline.py FOLDER [again]``.

``again``: what a person does after a failure: the newest run is executed again from its failure. One that was killed is
marked as failed first, as the person has to. Steps run one after the other, in this process: with a process each, as
Dagster has it by default, every step takes some seconds more.
"""

import os
import sys

from dagster import (  # type: ignore[import-not-found]
    DagsterInstance,
    DagsterRunStatus,
    In,
    Nothing,
    OpExecutionContext,
    Out,
    ReexecutionOptions,
    execute_job,
    in_process_executor,
    job,
    op,
    reconstructable,
)
from steps import STEPS, submit  # type: ignore[import-not-found]

FOLDER = "BENCHMARK_DAGSTER_FOLDER"


def op_of(step: str) -> object:
    @op(name=step, ins={f"after_{name}": In(Nothing) for name in STEPS[step]}, out=Out(Nothing))  # type: ignore[untyped-decorator]
    def run(context: OpExecutionContext) -> None:
        submit(step, os.environ[FOLDER])

    return run


@job(executor_def=in_process_executor)  # type: ignore[untyped-decorator]
def flights() -> None:
    made: dict[str, object] = {}
    for step, reads in STEPS.items():
        made[step] = op_of(step)(**{f"after_{name}": made[name] for name in reads})  # type: ignore[operator]


if __name__ == "__main__":
    os.environ[FOLDER] = sys.argv[1]
    with DagsterInstance.get() as instance:
        options = None
        if sys.argv[2:] == ["again"]:
            newest = instance.get_runs(limit=1)[0]
            if newest.status != DagsterRunStatus.FAILURE:
                instance.report_run_failed(newest, "its process was killed")
            options = ReexecutionOptions.from_failure(newest.run_id, instance)
        done = execute_job(reconstructable(flights), instance, reexecution_options=options, raise_on_error=False)
        sys.exit(0 if done.success else 1)
