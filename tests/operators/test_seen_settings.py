"""Faults 232 and 234, when a DAG is parsed: a checkpoint that outlives its attempt, and a folder of all dates."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from expected_errors import fails_with
from tries import journal_in, run_try, state_in, submissions

from airflow_recovery.errors import RecoveryError
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator, drop_in, recoverable
from airflow_recovery.results.release import Releaser
from airflow_recovery.store.local import LocalStore

SETTING = "spark.sql.streaming.checkpointLocation"
MODE = "spark.sql.sources.partitionOverwriteMode"
OUT = ["--out", "{output:o}"]
SHARED = {"o": "s3://lake/t"}
MAKES_FOLDERS = """
import os, sys
for folder in sys.argv[1:3]:
    os.makedirs(folder.removeprefix("file://"))
    open(folder.removeprefix("file://") + "/0", "w").close()
"""


def submitted_task(args: Any = OUT, outputs: Any = ("o",), application: str = "s3://code/app.py", **given: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        outputs = list(outputs) if isinstance(outputs, tuple) else outputs
        return RecoverableSparkSubmitOperator(
            task_id="t", application=application, application_args=list(args), outputs=outputs, **given
        )


def in_python(**kwargs: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return recoverable(PythonOperator)(
            task_id="t", python_callable=print, op_kwargs={"out": "{output:o}", **kwargs}, outputs=["o"]
        )


def in_bash(command: str, outputs: Any = ("o",)) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        outputs = list(outputs) if isinstance(outputs, tuple) else outputs
        return recoverable(BashOperator)(task_id="t", bash_command=command, outputs=outputs)


FIXED_CHECKPOINTS = [
    lambda: submitted_task([*OUT, "--checkpoint", "s3://lake/ck"]),
    lambda: submitted_task([*OUT, "--checkpoint-location=/mnt/ck"]),
    lambda: submitted_task([*OUT, "--check-point", "file:///ck"]),
    lambda: submitted_task([*OUT, "abfss://c@a.dfs.core.windows.net/_checkpoints/flights"]),
    lambda: submitted_task(conf={SETTING: "s3://lake/ck"}),
    lambda: submitted_task(conf={SETTING: "s3://lake/ck/{{ ds }}"}),
    lambda: submitted_task(env_vars={"CHECKPOINT_DIR": "/mnt/ck"}),
    lambda: in_python(checkpoint="s3://lake/ck"),
    lambda: in_bash(f"spark-submit --conf {SETTING}=/mnt/ck app.py {{output:o}}"),
    lambda: in_python(args={"--job-bookmark-option": "job-bookmark-enable"}),
]


@pytest.mark.parametrize("made", FIXED_CHECKPOINTS)
def test_fault_232_a_fixed_checkpoint_beside_a_managed_output_is_refused(made: Any) -> None:
    with fails_with("checkpoint-not-of-attempt", task="t", output="o"):
        made()


SOURCES = [
    'spark.readStream.load("/in").writeStream.option("checkpointLocation", "/mnt/ck").start(out)',
    'query.options(checkpointLocation="s3://lake/ck", path=out).start()',
    f'builder.config("{SETTING}", "s3a://lake/ck")',
    f'builder.config(map={{"{SETTING}": "s3a://lake/ck"}})',
]


@pytest.mark.parametrize("source", SOURCES)
def test_fault_232_so_is_one_that_stands_in_the_application(tmp_path: Path, source: str) -> None:
    (tmp_path / "app.py").write_text(source)
    with fails_with("checkpoint-not-of-attempt"):
        submitted_task(application=str(tmp_path / "app.py"))


@pytest.mark.parametrize(
    "made",
    [
        lambda: submitted_task([*OUT, "--checkpoint", "{checkpoint:o}"]),
        lambda: submitted_task([*OUT, "--checkpoint", "{checkpoint:o}/clean"], conf={"spark.x": "s3://lake/x"}),
        lambda: submitted_task([*OUT, "--interval", "10 seconds", "--checkpoint-interval", "10"]),
        lambda: submitted_task(conf={SETTING: "{checkpoint:o}"}),
        lambda: submitted_task(conf={SETTING: "s3://lake/ck"}, outputs=SHARED),
        lambda: submitted_task([*OUT, "--checkpoint", "s3://lake/ck"], outputs=SHARED),
        lambda: submitted_task([*OUT, "--model", "s3://models/checkpoint/7"], idempotent=True),
        lambda: submitted_task([*OUT, "--model", "{input:m}"], inputs={"m": "s3://models/checkpoint/7"}),
        lambda: in_bash("app {output:o} --state {checkpoint:o}"),
        lambda: submitted_task([*OUT, "--fixed", "s3://lake/ck/checkpoint", "{checkpoint:o}"], outputs={"o": None, "p": "s3://lake/p"}),
    ],
)  # fmt: skip
def test_a_checkpoint_that_goes_with_its_output_is_taken(made: Any) -> None:
    made()


def test_a_managed_checkpoint_of_a_fixed_output_is_refused() -> None:
    with fails_with("checkpoint-without-output", output="o"):
        submitted_task([*OUT, "--checkpoint", "{checkpoint:o}"], outputs=SHARED)


@pytest.mark.control
@pytest.mark.parametrize("made", FIXED_CHECKPOINTS[:5])
def test_fault_232_control_nothing_else_would_refuse_them(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_in, "check_settings", lambda *_: None)
    made()


def test_fault_232_what_a_template_comes_to_is_refused_before_the_claim(recovery: Path, submitted: Path) -> None:
    task = submitted_task([*OUT, "--checkpoint", "{{ params.ck }}"])
    with fails_with("checkpoint-not-of-attempt", by=(RecoveryError, AirflowException)):
        run_try(task, params={"ck": f"{recovery}/ck"})
    assert not state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts


def test_each_attempt_has_a_checkpoint_of_its_own_which_goes_with_its_output(
    recovery: Path, submitted: Path, tmp_path: Path
) -> None:
    application = tmp_path / "app.py"
    for n in range(2):
        application.write_text(f"N = {n}{MAKES_FOLDERS}")
        given: Any = {"application": str(application), "conf": {SETTING: "{checkpoint:o}"}}
        run_try(submitted_task(["{output:o}", "{checkpoint:o}"], **given))
    first, second = (one["arguments"] for one in submissions(submitted))
    folders = [Path(folder.removeprefix("file://")) for folder in first]
    assert [(folder.parts[-2][:9], folder.parts[-1]) for folder in folders] == [
        ("00000001-", "o"),
        ("00000001-", "o.checkpoint"),
    ]
    assert re.search("/t/00000002-[0-9a-f]{8}/o.checkpoint$", second[1])
    assert f"{SETTING}={second[1]}" in submissions(submitted)[1]["options"]

    state = state_in(recovery, OPERATORS_GROUP, "t").of("t")
    assert [file.path for file in state.attempts[2].outcome.outputs[0].objects] == ["0"], "and not its checkpoint"
    Releaser(journal_in(recovery, OPERATORS_GROUP), LocalStore(f"file://{recovery}/results"), who="a test").release(
        "t", state.attempts[1]
    )
    assert [any(folder.rglob("*")) for folder in folders] == [False, False]


DYNAMIC = [
    lambda: submitted_task(outputs=SHARED, conf={MODE: "dynamic"}),
    lambda: submitted_task(outputs=SHARED, conf={MODE: "DYNAMIC"}),
    lambda: submitted_task([*OUT, "--conf", f"{MODE}=dynamic"], outputs=SHARED),
    lambda: submitted_task(outputs={"o": "s3://{{ var.value.bucket }}/t"}, conf={MODE: "dynamic"}),
    lambda: submitted_task(outputs={"m": None, "o": "s3://lake/t"}, args=[*OUT, "{output:m}"], conf={MODE: "dynamic"}),
    lambda: in_bash(f"spark-sql --conf {MODE}=dynamic -e 'x {{output:o}}'", SHARED),
    lambda: in_bash(f"spark-sql -e 'SET {MODE} = dynamic; INSERT {{output:o}}'", SHARED),
]


@pytest.mark.parametrize("made", DYNAMIC)
def test_fault_234_a_folder_whose_partitions_each_date_replaces_is_refused(made: Any) -> None:
    with fails_with("partitions-of-all-dates", task="t"):
        made()


@pytest.mark.parametrize(
    "source",
    [
        f'spark.conf.set("{MODE}", "dynamic")',
        'frame.write.option("partitionOverwriteMode", "dynamic").parquet(out)',
        'frame.write.parquet(out, partitionBy="day", partitionOverwriteMode="dynamic")',
    ],
)
def test_fault_234_so_is_one_of_which_the_application_says_so(tmp_path: Path, source: str) -> None:
    (tmp_path / "app.py").write_text(source)
    with fails_with("partitions-of-all-dates"):
        submitted_task(application=str(tmp_path / "app.py"), outputs=SHARED)


@pytest.mark.parametrize(
    "made",
    [
        lambda: submitted_task(outputs={"o": "s3://lake/t/day={{ ds }}"}, conf={MODE: "dynamic"}),
        lambda: submitted_task(outputs=["o"], conf={MODE: "dynamic"}),
        lambda: submitted_task(outputs={"o": "delta+s3://lake/t"}, conf={MODE: "dynamic"}),
        lambda: submitted_task(outputs=SHARED, conf={MODE: "static"}),
        lambda: submitted_task(outputs=SHARED, conf={MODE: "dynamic"}, idempotent=True),
    ],
)
def test_partitions_that_no_other_date_alters_are_taken(made: Any) -> None:
    made()


@pytest.mark.control
@pytest.mark.parametrize("made", DYNAMIC[:3])
def test_fault_234_control_nothing_else_would_refuse_them(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_in, "check_settings", lambda *_: None)
    made()
