"""`left`: operators that leave XComs and asset events in Airflow. `left_reader`: runs for each of its publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, AssetAlias, get_current_context, task

from airflow_recovery.operators import RecoveryPublishOperator, recoverable

PUBLISHED = Asset("left_published")
MADE = Asset("left_made")
Bash = recoverable(BashOperator, paths="plain")
WRITE = "mkdir -p '{output:rows}' && echo rows > '{output:rows}/part-0'"

with DAG("left", schedule=None, render_template_as_native_obj=False):

    @recoverable(task, paths="plain")(outputs=["rows"], multiple_outputs=True, outlets=[MADE, AssetAlias("left_alias")])
    def made(out: str) -> dict[str, Any]:
        """Leave an XCom of each kind. What it writes is the same in every run."""
        context = get_current_context()
        gates = Path(context["dag_run"].conf["gates"])
        calls = len(list(gates.glob("made.called-*")))
        (gates / f"made.called-{calls}").touch()
        Path(out).mkdir(parents=True)
        (Path(out) / "part-0").write_text("rows")
        context["ti"].xcom_push(key="watermark", value=41)
        context["ti"].xcom_push(key="watermark", value=42)
        if (gates / "large").exists():
            context["ti"].xcom_push(key="much", value="x" * 1024**2)
        if (gates / "secret").exists():
            context["ti"].xcom_push(key="url", value="postgres://me:a-password@host/db")
        context["outlet_events"][MADE].extra = {"watermark": 42}
        context["outlet_events"][AssetAlias("left_alias")].add(Asset("left_found"), extra={"found": True})
        return {"day": context["ds"], "words": ("a", "b")}

    first = made(out="{output:rows}")

    @recoverable(task, paths="plain")(outputs=["rows"])
    def words(out: str) -> list[str]:
        """Return what is mapped over."""
        Path(out).mkdir(parents=True)
        (Path(out) / "part-0").write_text("rows")
        return ["one", "two", "three"]

    @task
    def length(word: str) -> int:
        """No operator of ours."""
        return len(word)

    listed = words(out="{output:rows}")
    length.expand(word=listed)
    reads = Bash(
        task_id="reads",
        inputs={"rows": first.operator.result("rows")},
        outputs=["seen"],
        bash_command="mkdir -p '{output:seen}' && cat '{input:rows}'/* > /dev/null && echo "
        "\"{{ ti.xcom_pull('made', key='watermark') }} {{ ti.xcom_pull('made')['words'][1] }} "
        "{{ ti.xcom_pull('made', key='day') }}\" | tee '{output:seen}/part-0'",
    )
    [reads, listed] >> RecoveryPublishOperator(task_id="publish", outlets=[PUBLISHED], retries=0)

with DAG("left_reader", schedule=[PUBLISHED]):
    BashOperator(task_id="run", bash_command="true")
