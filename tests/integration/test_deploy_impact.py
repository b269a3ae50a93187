"""``impact`` says what a deploy runs again; then the deploy is made, its run is cleared, and both are compared.

numbers ~ base --+--> left ----> merged
                 +--> right ---> side           lone
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pipeline import DagRun, Pipeline, empty_folder, fresh_day
from streams_run import FILES, IDS, started

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

SOURCES = Path(__file__).parent / "dags"
REGIONS = ("base", "left", "lone", "merged", "right", "side")
JOB = "integration_jobs/deployed.py"
OF_THE_JOB = ("deployed_dag.py", "integration_jobs/__init__.py", "integration_jobs/gates.py", JOB)
CLEAN, REPORT = "deployed_applications/clean.py", "deployed_applications/report.py"
APPLICATIONS_DAG = "deployed_applications_dag.py"
OF_THE_SPLITS = ("deployed_splits_dag.py", *OF_THE_JOB[1:3], "integration_jobs/deployed_splits.py")
OF_THE_STREAMS = (
    "deployed_streams_dag.py",
    *OF_THE_JOB[1:3],
    "integration_jobs/streams.py",
    "integration_jobs/deployed_streams.py",
)


class Bundle:
    """What is deployed, and the next version of it: ``files`` of the folder of DAGs."""

    def __init__(self, pipeline: Pipeline, files: tuple[str, ...] = OF_THE_JOB) -> None:
        self.pipeline = pipeline
        self.dags = pipeline.folder / "dags"
        self._files = files
        self.old, self.new = (empty_folder(pipeline.folder / f"deployed-{name}") for name in ("old", "new"))
        for file in files:
            for folder in (self.old, self.new):
                (folder / file).parent.mkdir(exist_ok=True)
                shutil.copy(SOURCES / file, folder / file)
            shutil.copy(SOURCES / file, self.dags / file)

    def change(self, *changes: tuple[str, str]) -> None:
        """The next version: what is deployed, with these texts replaced."""
        texts = {file: (self.old / file).read_text() for file in self._files}
        for before, after in changes:
            assert sum(text.count(before) for text in texts.values()) == 1, before
            texts = {file: text.replace(before, after) for file, text in texts.items()}
        for file, text in texts.items():
            (self.new / file).write_text(text)

    def deploy(self) -> None:
        """From now on the new version is what every task imports."""
        for folder in (self.dags, self.old):
            for file in self._files:
                if (self.new / file).read_text() != (folder / file).read_text():
                    shutil.copy(self.new / file, folder / file)

    def is_parsed(self, dag_id: str, *regions: str) -> None:
        """Wait until Airflow has parsed the DAG's file again: its tasks are these regions."""
        airflow, file = self.pipeline.airflow, self.dags / f"{dag_id}_dag.py"
        file.touch()
        touched = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)

        def tasks() -> set[str]:
            found = airflow.api("GET", f"/dags/{dag_id}/tasks")["tasks"]
            return {str(task["task_id"]).removeprefix("g.") for task in found} - {"audit", "publish"}

        def is_done() -> bool:
            parsed = airflow.api("GET", f"/dags/{dag_id}")["last_parsed_time"]
            return datetime.fromisoformat(parsed.replace("Z", "+00:00")) > touched and tasks() == set(regions)

        airflow.wait_until(is_done, f"tasks {regions}", lambda: str(tasks()))

    def impact_of(self, dag_id: str, since: str, until: str, old: Path | str, *options: str) -> Any:
        """As `impact`, of the runs of these dates."""
        return self._asked(dag_id, since, until, old, options, ExitCode.DONE)

    def impact(self, run: DagRun, old: Path | str, *options: str, code: ExitCode = ExitCode.DONE) -> Any:
        """Of that run, as CI asks: no Airflow configuration, and no database that would answer."""
        return self._asked(run.dag_id, run.day, run.day, old, options, code)

    def _asked(
        self, dag_id: str, since: str, until: str, old: Path | str, options: tuple[str, ...], code: ExitCode
    ) -> Any:
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
                *("--dag", dag_id, "--since", since, "--until", until, "--json", *options),
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


def effects_by_run(answer: Any) -> dict[str, dict[str, set[str]]]:
    """Of each run key, the regions by what is said of them."""
    found: dict[str, dict[str, set[str]]] = {}
    for run in (run for job in answer["jobs"] for run in job["runs"]):
        of_run = found.setdefault(run["run_key"], {})
        for region in run["regions"]:
            of_run.setdefault(region["effect"], set()).add(region["name"])
    return found


def effects(answer: Any) -> dict[str, set[str]]:
    """Of the only run."""
    (found,) = effects_by_run(answer).values()
    return found


def ran_once_cleared(bundle: Bundle, run: DagRun, *, parsed: tuple[str, ...] = ()) -> set[str]:
    """What the deploy and a clear of the whole run make run again. ``parsed``: the DAG's regions from now on."""
    before = run.journal()
    bundle.deploy()
    if parsed:
        bundle.is_parsed(run.dag_id, *parsed)
    run.clear()
    after = run.ends()
    run.recovery("verify", "--ended")  # where a reader kept its result, `check` would not know why
    return set(after.ran_since(before))


def test_what_a_deploy_runs_again_is_what_was_said_of_it_region_by_region(pipeline: Pipeline) -> None:
    bundle, run = Bundle(pipeline), pipeline.run("deployed")
    journal = run.start().ends()
    assert journal.executions() == dict.fromkeys(REGIONS, 1)

    def cleared() -> set[str]:
        return ran_once_cleared(bundle, run)

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


@pytest.mark.drill
def test_a_pipeline_that_is_cut_differently_and_back_again(pipeline: Pipeline) -> None:
    bundle, run = Bundle(pipeline), pipeline.run("deployed")
    run.start().ends()

    # A boundary less: `left` and `merged` are one region now.
    written, glued = (
        "@deployed.vertex(result=BLOCKING, params=GATES)\ndef left",
        "@deployed.vertex(params=GATES)\ndef left",
    )
    bundle.change((written, glued))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {"merged"}}
    assert "runs left, merged together, before merged" in str(answer["jobs"][0]["changes"])
    ((said,),) = [each["regions"] for each in answer["jobs"][0]["runs"]]
    assert said["cost"]["is_estimate"]
    assert effects(bundle.impact(run, "journal"))["again"] == {"merged"}
    others = tuple(region for region in REGIONS if region != "left")
    assert ran_once_cleared(bundle, run, parsed=others) == {"merged"}

    # Back: what `left` has written before the first of the two deploys is still there, and still its own. With other
    # parameters, which are over the run's conf, it would not be.
    bundle.change((glued, written))
    assert effects(bundle.impact(run, bundle.old)) == {"again": {"merged"}, "maybe": {"left"}}
    assert ran_once_cleared(bundle, run, parsed=REGIONS) == {"merged"}

    # A boundary more, at the very beginning.
    source = '@deployed.source(params={"day": "{{ ds }}"})'
    cut = '@deployed.source(result=BLOCKING, params={"day": "{{ ds }}"})'
    bundle.change((source, cut))
    every = {"numbers", "base", "left", "merged", "right"}
    assert effects(bundle.impact(run, bundle.old)) == {"again": every, "maybe": {"side"}}
    assert ran_once_cleared(bundle, run, parsed=("numbers", *REGIONS)) == every

    bundle.change((cut, source))
    assert effects(bundle.impact(run, bundle.old)) == {"again": every - {"numbers"}, "maybe": {"side"}}
    assert ran_once_cleared(bundle, run, parsed=REGIONS) == every - {"numbers"}


@pytest.mark.drill
def test_a_backfill_with_another_version_of_two_packages_region_by_region_and_run_by_run(pipeline: Pipeline) -> None:
    bundle = Bundle(pipeline)
    days = [fresh_day() for _ in range(3)]
    runs = [pipeline.run("deployed", day=day) for day in days]
    for run in runs:  # a backfill has one conf
        run.gates = runs[0].gates
        run.conf["gates"] = str(run.gates)
    *finished, half = runs
    for run in finished:
        run.start()
    for run in finished:
        run.ends()
    half.make_broken("side")
    half.start().ends("failed")
    half.repair("side")

    bundle.change(
        ("@deployed.sink\ndef lone", '@deployed.sink(version="2")\ndef lone'),
        ('deterministic="verify", params=GATES)', 'deterministic="verify", version="2", params=GATES)'),
    )
    answer = bundle.impact_of("deployed", days[0], days[-1], bundle.old)
    again = {"lone", "right"}
    said = effects_by_run(answer)
    assert said == {
        **{f"date-{day}T000000Z": {"again": again, "maybe": {"side"}} for day in days[:-1]},
        f"date-{days[-1]}T000000Z": {"again": again, "anyway": {"side"}},
    }
    why = {change["name"]: change["why"] for change in answer["jobs"][0]["changes"]}
    assert why == {name: ['version= was none, now "2"'] for name in ("lone", "right")}

    before = [run.journal() for run in runs]
    bundle.deploy()
    airflow = pipeline.airflow
    backfill = airflow.backfill("deployed", days[0], days[-1], reprocess="completed", conf=half.conf)
    assert {each["state"] for each in airflow.wait_backfill(backfill)} == {"success"}
    ran = [set(run.journal().ran_since(then)) for run, then in zip(runs, before, strict=True)]
    # The rows of `right` are the same: its reader was kept, where it had finished.
    assert ran == [again, again, again | {"side"}]
    assert all(
        not found for found in effects_by_run(bundle.impact_of("deployed", days[0], days[-1], bundle.old)).values()
    )


@pytest.mark.drill
def test_other_applications_of_existing_jobs(pipeline: Pipeline) -> None:
    lake = pipeline.folder / "lake"
    lake.mkdir(exist_ok=True)
    (lake / "deployed.csv").write_text("amount\n1\n41\n")
    bundle = Bundle(pipeline, (APPLICATIONS_DAG, CLEAN, REPORT))
    run = pipeline.run("deployed_applications")
    run.group_id = "~28operators~29"
    assert run.start().ends().executions() == {"clean": 1, "report": 1}

    # How it is written down: nothing.
    bundle.change(('"""The DAG whose applications', '"""A DAG whose applications'))
    assert effects(bundle.impact(run, bundle.old)) == {}
    assert ran_once_cleared(bundle, run) == set()

    # What the date of the run decides, the name of its journal tells: its own tasks have taken the same.
    answer = bundle.impact(run, "journal")
    assert effects(answer) == {}, answer["jobs"]

    # An application's file, whose rows come out the same: its reader may run, and is kept.
    bundle.change(("# as it is written", "# as the argument has it"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {"clean"}, "maybe": {"report"}}
    ((change,),) = [job["changes"] for job in answer["jobs"]]
    assert change["why"][0].startswith("application was ")
    assert ran_once_cleared(bundle, run) == {"clean"}

    # A templated argument.
    bundle.change(("{{ ds }}", "{{ ds_nodash }}"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {"clean"}, "maybe": {"report"}}
    assert ran_once_cleared(bundle, run) == {"clean", "report"}

    # The reader alone.
    bundle.change(('"amount", "sum"', '"amount", "max"'))
    assert effects(bundle.impact(run, bundle.old)) == {"again": {"report"}}
    assert ran_once_cleared(bundle, run) == {"report"}
    ((*row,),) = run.journal().rows("report.report")
    assert set(map(str, row)) == {run.day.replace("-", ""), "41"}


# --- modes ------------------------------------------------------------------------------------------------------------

SUBTASKS = {"numbers[0]", "numbers[1]"}


def split_run(pipeline: Pipeline) -> DagRun:
    """Six files a subtask, in batches of two."""
    lake = pipeline.folder / "deployed-splits"
    lake.mkdir(exist_ok=True)
    for number in range(12):
        (lake / f"{number:02d}.csv").write_text(f"{number:05d}\n")
    return pipeline.run("deployed_splits", {"lake": f"file://{lake}"})


def attempts_of_batches(run: DagRun, *regions: str) -> set[int]:
    """The attempts that have read what counts."""
    journal = run.journal()
    outcomes = (journal.attempts[region][journal.current(region)].outcome for region in regions)
    return {batch["attempt"] for outcome in outcomes for batch in outcome["parts"]}


@pytest.mark.drill
def test_a_job_that_commits_split_by_split(pipeline: Pipeline) -> None:
    bundle, run = Bundle(pipeline, OF_THE_SPLITS), split_run(pipeline)
    assert run.start().ends().executions() == dict.fromkeys((*SUBTASKS, "counted"), 1)

    # What is behind the source, in its region: no batch is taken over.
    bundle.change(("number >= 0", "number >= 1"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {*SUBTASKS, "counted"}}
    assert [change["name"] for change in answer["jobs"][0]["changes"]] == ["numbers"]
    assert ran_once_cleared(bundle, run) == {*SUBTASKS, "counted"}
    assert attempts_of_batches(run, *SUBTASKS) == {2}
    assert run.journal().rows("counted") == [(11, sum(range(12)))]

    # How much is committed at once: nothing. Their reader: no split is read again.
    bundle.change(("batch_bytes=12", "batch_bytes=24"))
    assert effects(bundle.impact(run, bundle.old)) == {}
    assert ran_once_cleared(bundle, run) == set()
    bundle.change(("sum(number)", "max(number)"))
    assert effects(bundle.impact(run, bundle.old)) == {"again": {"counted"}}
    assert ran_once_cleared(bundle, run) == {"counted"}

    # Another number of subtasks gives every split another owner; with the earlier number the earlier owners are back.
    bundle.change(("WAYS = 2", "WAYS = 3"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {*SUBTASKS, "numbers[2]", "counted"}}
    assert ran_once_cleared(bundle, run, parsed=("numbers", "counted")) == {*SUBTASKS, "numbers[2]", "counted"}
    bundle.change(("WAYS = 3", "WAYS = 2"))
    assert effects(bundle.impact(run, bundle.old)) == {"again": {*SUBTASKS, "counted"}}
    assert ran_once_cleared(bundle, run, parsed=("numbers", "counted")) == {*SUBTASKS, "counted"}
    assert run.journal().rows("counted") == [(11, 11)]
    assert effects(bundle.impact(run, bundle.old)) == {}


@pytest.mark.drill
def test_a_deploy_while_splits_are_read(pipeline: Pipeline) -> None:
    """What has been committed of the old code is given up by whoever runs next, as it was said."""
    bundle, run = Bundle(pipeline, OF_THE_SPLITS), split_run(pipeline)
    run.hold("lines-1-2")  # two batches are read at once: one of them is committed before the third is called
    run.start()
    run.wait_called("lines-1-2")
    airflow = run.airflow
    first = partial(airflow.task_instance, run.dag_id, run.run_id, "g.numbers", 0)
    run.wait(lambda: first()["state"] == "success", "the end of subtask 0")

    bundle.change(("number >= 0", "number >= 1"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {"numbers[0]"}, "anyway": {"numbers[1]", "counted"}}
    (note,) = answer["jobs"][0]["runs"][0]["notes"]
    assert note.startswith("numbers[1]: without the deploy it would go on from ")
    bundle.deploy()
    kill_9(run.jvm("numbers[1]", 1))
    run.release("lines-1-2")
    assert run.ends().executions() == {"numbers[0]": 2, "numbers[1]": 2, "counted": 1}
    assert attempts_of_batches(run, *SUBTASKS) == {2}
    assert run.journal().rows("counted") == [(11, sum(range(12)))]


@pytest.mark.drill
def test_a_chain_of_streams(pipeline: Pipeline) -> None:
    bundle, streams = Bundle(pipeline, OF_THE_STREAMS), started(pipeline, "deployed_streams")
    run, chain = streams.run, {"events", "scores", "table"}
    rows = FILES * IDS
    assert streams.ends().executions() == dict.fromkeys((*chain, "report"), 1)
    assert run.journal().rows("report") == [(rows, sum(range(rows)) * 7)]

    # How many records may be lost: nothing. Who reads what the chain has written: nobody of it.
    bundle.change(("max_lost_records=900", "max_lost_records=5"))
    assert effects(bundle.impact(run, bundle.old)) == {}
    assert ran_once_cleared(bundle, run) == set()
    bundle.change(("sum(score)", "max(score)"))
    assert effects(bundle.impact(run, bundle.old)) == {"again": {"report"}}
    assert ran_once_cleared(bundle, run) == {"report"}

    # One in its middle: all that channels connect with it begins anew.
    bundle.change(("id * 7", "id * 3"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": {*chain, "report"}}
    assert [change["name"] for change in answer["jobs"][0]["changes"]] == ["scores"]
    assert ran_once_cleared(bundle, run) == {*chain, "report"}
    assert run.journal().rows("report") == [(rows, (rows - 1) * 3)]


@pytest.mark.drill
def test_a_channel_that_is_a_written_result_from_now_on(pipeline: Pipeline) -> None:
    bundle, streams = Bundle(pipeline, OF_THE_STREAMS), started(pipeline, "deployed_streams")
    run, regions = streams.run, {"events", "scores", "table", "report"}
    streams.ends()
    written = "@deployed_streams.vertex(result=BLOCKING"
    bundle.change(("SCORES = LATEST", "SCORES = BLOCKING"), (f"{written}, streaming=QUICK)", f"{written})"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"again": regions}
    assert 'result= was "PIPELINED_APPROXIMATE", now "BLOCKING"' in str(answer["jobs"][0]["changes"])
    assert ran_once_cleared(bundle, run, parsed=tuple(regions)) == regions


@pytest.mark.drill
def test_a_deploy_while_a_stream_is_at_work(pipeline: Pipeline) -> None:
    bundle, streams = Bundle(pipeline, OF_THE_STREAMS), started(pipeline, "deployed_streams", hold_at=4 * IDS)
    run, chain = streams.run, ("events", "scores", "table")
    streams.wait_done("scores", 4 * IDS)

    bundle.change(("id * 7", "id * 3"))
    answer = bundle.impact(run, bundle.old)
    assert effects(answer) == {"anyway": {*chain, "report"}}
    assert answer["jobs"][0]["runs"][0]["notes"] == [
        "scores: without the deploy it would go on from what attempt 1 has read, with it it starts over"
    ]
    bundle.deploy()
    streams.hold_at(None)
    # It goes on by the old code to its end. Then its reader, by the new code, finds that this does not count.
    journal = streams.ends()
    assert journal.executions() == {**dict.fromkeys(chain, 2), "report": 1}
    assert journal.rows("report") == [(FILES * IDS, sum(range(FILES * IDS)) * 3)]
