"""``impact`` says what a deploy runs again; then the deploy is made, its run is cleared, and both are compared.

numbers ~ base --+--> left ----> merged
                 +--> right ---> side           lone
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline import DagRun, Pipeline, empty_folder

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

REGIONS = ("base", "left", "lone", "merged", "right", "side")
OF_THE_BUNDLE = ("deployed_dag.py", "integration_jobs/__init__.py", "integration_jobs/gates.py")
JOB = "integration_jobs/deployed.py"


class Bundle:
    """What is deployed, and the next version of it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.dags = pipeline.folder / "dags"
        self.old, self.new = (empty_folder(pipeline.folder / f"deployed-{name}") for name in ("old", "new"))
        for folder in (self.old, self.new):
            for file in (*OF_THE_BUNDLE, JOB):
                (folder / file).parent.mkdir(exist_ok=True)
                shutil.copy(self.dags / file, folder / file)

    def change(self, *changes: tuple[str, str]) -> None:
        """The next version: what is deployed, with these texts replaced."""
        text = (self.old / JOB).read_text()
        for before, after in changes:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (self.new / JOB).write_text(text)

    def deploy(self) -> None:
        """From now on the new version is what every task imports."""
        for folder in (self.dags, self.old):
            shutil.copy(self.new / JOB, folder / JOB)

    def impact(self, run: DagRun, old: Path | str, *options: str, code: ExitCode = ExitCode.DONE) -> Any:
        """Of that run, as CI asks: no Airflow configuration, and no database that would answer."""
        airflow, s3 = self.pipeline.airflow, self.pipeline.s3
        env = {
            **{name: value for name, value in airflow.env.items() if not name.startswith("AIRFLOW_")},
            "AIRFLOW_HOME": str(empty_folder(self.pipeline.folder / "ci")),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://nobody:none@127.0.0.1:1/none",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        journal, results = f"s3://{self.pipeline.bucket}/journal", f"file://{self.pipeline.folder}/results"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "airflow_recovery", "impact", "--from", str(old), "--to", str(self.new)),
                *("--dag", run.dag_id, "--since", run.day, "--until", run.day, "--json", *options),
                *("--journal", journal, "--results", results),
                *("--endpoint-url", s3.endpoint_url, "--s3-region", REGION),
            ],
            env=env,
            cwd=self.pipeline.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)


def effects(answer: Any) -> dict[str, set[str]]:
    """The regions by what is said of them."""
    ((run,),) = [job["runs"] for job in answer["jobs"]]
    found: dict[str, set[str]] = {}
    for region in run["regions"]:
        found.setdefault(region["effect"], set()).add(region["name"])
    return found


def test_what_a_deploy_runs_again_is_what_was_said_of_it_region_by_region(pipeline: Pipeline) -> None:
    bundle, run = Bundle(pipeline), pipeline.run("deployed")
    journal = run.start().ends()
    assert journal.executions() == dict.fromkeys(REGIONS, 1)

    def cleared() -> set[str]:
        """What the deploy and a clear of the whole run make run again."""
        before = run.journal()
        bundle.deploy()
        run.clear()
        after = run.ends()
        run.recovery("verify", "--ended")  # where a reader kept its result, `check` would not know why
        return set(after.ran_since(before))

    # Comments: nothing.
    bundle.change(("# by one", "# by one, and why"))
    assert effects(bundle.impact(run, bundle.old)) == {}
    assert cleared() == set()

    # What `left` calls, and another way to the same rows of `right`: its reader may run, and then is kept.
    bundle.change(("id + 1 AS id", "id + 2 AS id"), ("id * 10 AS weight", "id * 2 * 5 AS weight"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {"left", "merged", "right"}, "maybe": {"side"}}
    why = {change["name"]: change["why"] for change in answer["jobs"][0]["changes"]}
    assert why == {
        "left": ["left() uses shifted, which changed at integration_jobs/deployed.py:38"],
        "right": ["right() changed at integration_jobs/deployed.py:44"],
    }
    seconds = {
        region["name"]: region["cost"]["seconds"] for run in answer["jobs"][0]["runs"] for region in run["regions"]
    }
    recorded = {name: journal.attempts[name][1].outcome["spark_seconds"] for name in seconds}
    assert seconds == recorded
    assert answer["at_most_seconds"] == pytest.approx(sum(recorded.values()))
    bundle.impact(run, bundle.old, "--max-seconds", "0", code=ExitCode.OVER_LIMIT)
    # The journal alone can't say of parameters over the run's conf what they come to.
    assert effects(bundle.impact(run, "journal"))["maybe"] >= {"left", "merged", "right", "side"}
    assert cleared() == {"left", "merged", "right"}

    # Other rows, and what has to be read for them is gone.
    bundle.change(("id * 2 * 5 AS weight", "id * 20 AS weight"))
    run.delete("base")
    assert effects(bundle.impact(run, bundle.old)) == {"again": {"base", "left", "merged", "right"}, "maybe": {"side"}}
    assert cleared() == {"base", "left", "merged", "right", "side"}
    assert run.journal().rows("merged") == [(sum(range(2, 12)),)]

    # Nothing is left to be done.
    assert effects(bundle.impact(run, bundle.old)) == {}
