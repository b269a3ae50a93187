"""``python -m airflow_recovery impact``: two versions of real code, over journals that the real protocol has written.

raw ~ clean --> by_route --> busiest        three regions: clean, by_route, busiest
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from components_of_claims import made_of
from impact_bundle import KEY, SINCE, Bundle, DeclaredWorld, changes, effects

from airflow_recovery.console import versions
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.versions import open_version, reports_of
from airflow_recovery.errors import RegionFailed
from airflow_recovery.escaping import for_markdown
from airflow_recovery.model.codec import from_json
from airflow_recovery.model.components import Component
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.story import deploy_impact


@pytest.fixture
def bundle(recorded, tmp_path: Path) -> Bundle:
    return Bundle(tmp_path / "bundle", recorded)


AGAIN = {"clean": "again", "by_route": "again", "busiest": "again"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why", "again"),
    [
        (
            ("return tidy(raw, least)", "return tidy(raw, least + 1)"),
            {"clean": ("changed", "clean() changed at jobs/flights.py:15")},
            AGAIN,
        ),
        (
            ("rows.distinct()", "rows.distinct().sort('id')"),
            {"clean": ("changed", "clean() uses tidy, which uses normalise, which changed at jobs/rows.py:8")},
            AGAIN,
        ),
        (('"least": 3', '"least": 4'), {"clean": ("changed", "parameter least was 3, now 4")}, AGAIN),
        (('version="1"', 'version="2"'), {"busiest": ("changed", 'version= was "1", now "2"')}, {"busiest": "again"}),
        (("# the ids", "# the ids\n    # and no more"), {}, {}),
    ],
    ids=["body", "callee", "parameter", "version", "comment"],
)
def test_what_has_changed_why_and_what_runs_again_is_what_a_deploy_then_runs(
    bundle: Bundle, change: tuple[str, str], why: dict[str, Any], again: dict[str, str]
) -> None:
    old, new = bundle.write("old"), bundle.write("new", change)
    world = bundle.ran(old)
    before = sorted(info.key for info in world.journal_store.list())
    answer = bundle.answer(old, new)
    assert (changes(answer), effects(answer)) == (why, again)
    assert (answer["seconds"], answer["at_most_seconds"]) == (10.0 * len(again), 10.0 * len(again))
    assert answer["is_complete"]
    assert sorted(info.key for info in world.journal_store.list()) == before

    del world.ran[:]
    world.deploy(bundle.plan(new))
    world.until_green()
    assert {region for region, _ in world.ran} == set(again)


@pytest.mark.slow
def test_an_added_vertex_a_removed_one_and_regions_that_are_cut_differently(bundle: Bundle) -> None:
    added = """

@flights.sink
def total(by_route):
    return by_route
"""
    old = bundle.write("old")
    grown = bundle.write("grown", ("    return by_route.limit(3)\n", f"    return by_route.limit(3)\n{added}"))
    cut = bundle.write(
        "cut",
        ('@flights.source(params={"day": "{{ ds }}"})', '@flights.source(result=BLOCKING, params={"day": "{{ ds }}"})'),
    )
    world = bundle.ran(old)
    answer = bundle.answer(old, grown)
    assert (changes(answer), effects(answer)) == ({"total": ("added", "")}, {"total": "first"})
    assert (answer["seconds"], answer["unmeasured"]) == (0, [])
    answer = bundle.answer(grown, old)
    assert (changes(answer), effects(answer)) == ({"total": ("removed", "")}, {})

    answer = bundle.answer(old, cut)
    assert changes(answer) == {
        "raw": ("changed", 'result= was "PIPELINED", now "BLOCKING"'),
        "region raw": ("cut differently", "raw ran in clean before"),
        "region clean": ("cut differently", "runs clean together, before raw, clean"),
    }
    assert effects(answer) == {"raw": "again", **AGAIN}
    (run,) = answer["jobs"][0]["runs"]
    costs = {region["name"]: (region["cost"]["seconds"], region["cost"]["is_estimate"]) for region in run["regions"]}
    # As long as the one region took that did the work of both: at most.
    assert costs == {"raw": (10.0, True), "clean": (10.0, True), "by_route": (10.0, False), "busiest": (10.0, False)}
    assert "~40.0" in bundle.impact(old, cut)[1]
    del world.ran[:]
    world.deploy(bundle.plan(cut))
    world.until_green()
    assert {region for region, _ in world.ran} == {"raw", *AGAIN}


@pytest.mark.slow
def test_rows_that_may_come_out_the_same_may_run_again_and_count_for_the_limit(bundle: Bundle) -> None:
    verified = ("def by_route(clean)", "def by_route(clean, at=1)")
    base = ("@flights.vertex(result=BLOCKING)", '@flights.vertex(result=BLOCKING, deterministic="verify")')
    old, new = bundle.write("old", base), bundle.write("new", base, verified)
    bundle.ran(old)
    answer = bundle.answer(old, new)
    assert effects(answer) == {"by_route": "again", "busiest": "maybe"}
    assert (answer["seconds"], answer["at_most_seconds"]) == (10.0, 20.0)
    assert bundle.impact(old, new, "--max-seconds", "19")[0] == ExitCode.OVER_LIMIT
    assert bundle.impact(old, new, "--max-seconds", "20")[0] == ExitCode.DONE


@pytest.mark.slow
def test_what_would_run_without_the_deploy_is_not_the_deploys(bundle: Bundle) -> None:
    old, new = bundle.write("old"), bundle.write("new", ('version="1"', 'version="2"'))
    world = bundle.ran(old)
    world.delete_results("by_route", 1)
    world.restart("by_route")
    answer = bundle.answer(old, new)
    assert effects(answer) == {"by_route": "anyway", "busiest": "anyway"}
    assert answer["seconds"] == 0


@pytest.mark.slow
def test_a_result_that_is_gone_is_made_again_for_a_reader_that_has_changed(bundle: Bundle) -> None:
    old, new = bundle.write("old"), bundle.write("new", ('version="1"', 'version="2"'))
    world = bundle.ran(old)
    world.delete_results("by_route", 1)
    assert effects(bundle.answer(old, new)) == {"by_route": "again", "busiest": "again"}
    # Nobody is asked, and no record says that it is gone.
    assert effects(bundle.answer(old, new, "--journal-only")) == {"busiest": "again"}
    del world.ran[:]
    world.deploy(bundle.plan(new))
    world.until_green()
    assert {region for region, _ in world.ran} == {"by_route", "busiest"}


CONF = ('"least": 3', '"least": "{{ conf.least }}"')


@pytest.mark.slow
def test_parameters_of_a_runs_conf_are_compared_as_they_are_written(bundle: Bundle) -> None:
    old = bundle.write("old", CONF)
    same = bundle.write("same", CONF, ("# the ids", "# ids"))
    other = bundle.write("other", ('"least": 3', '"least": "{{ conf.most }}"'))
    plan = bundle.plan(old)
    # The run had a conf that no journal tells: its fingerprint is another one than can be computed here.
    recorded = replace(
        plan,
        regions=tuple(
            replace(region, fingerprint="f" * 32) if region.name == "clean" else region for region in plan.regions
        ),
    )
    DeclaredWorld.declared = recorded
    world = bundle.recorded.world("flights", KEY, "g", of=DeclaredWorld)
    world.deploy(recorded)
    world.until_green()
    assert effects(bundle.answer(old, same)) == {}
    answer = bundle.answer(old, other)
    assert changes(answer)["clean"] == ("changed", 'parameter least was "{{ conf.least }}", now "{{ conf.most }}"')
    assert effects(answer) == AGAIN
    # Without the old code nobody can tell: it is said by name, and counts as what may run.
    answer = bundle.answer("journal", same)
    assert effects(answer) == dict.fromkeys(AGAIN, "maybe")
    assert (answer["seconds"], answer["at_most_seconds"]) == (0, 30.0)
    (run,) = answer["jobs"][0]["runs"]
    assert run["notes"] == ["clean: can't be known without rendering it over conf: it counts as one that may run"]


@pytest.mark.slow
def test_a_region_that_the_old_version_does_not_have_and_one_before_it_had(bundle: Bundle) -> None:
    """`clean` was cut off, is glued, and is cut off again: what it wrote first may be its own still."""
    cut = bundle.write("cut", CONF)
    glued = bundle.write("glued", CONF, ('result=BLOCKING, params={"least"', 'params={"least"'))
    made = tuple(
        replace(region, fingerprint="f" * 32) if region.name == "clean" else region
        for region in bundle.plan(cut).regions
    )
    DeclaredWorld.declared = replace(bundle.plan(cut), regions=made)
    world = bundle.recorded.world("flights", KEY, "g", of=DeclaredWorld)
    for plan in (DeclaredWorld.declared, bundle.plan(glued)):
        world.deploy(plan)
        world.until_green()
    answer = bundle.answer(glued, cut)
    assert effects(answer) == {"clean": "maybe", "by_route": "again", "busiest": "again"}
    (run,) = answer["jobs"][0]["runs"]
    assert "clean: can't be known without rendering it over conf: it counts as one that may run" in run["notes"]


@pytest.mark.slow
def test_of_a_run_without_conf_the_journal_tells_what_its_templates_came_to(bundle: Bundle) -> None:
    conf = ('"least": 3', '"least": "{{ conf.get(\'least\', 3) }}"')
    old = bundle.write("old", conf)
    bundle.ran(old)
    assert effects(bundle.answer("journal", old)) == {}
    other = bundle.write("other", ('"least": 3', '"least": "{{ conf.get(\'least\', 4) }}"'))
    assert effects(bundle.answer("journal", other)) == dict.fromkeys(AGAIN, "maybe")


@pytest.mark.slow
def test_the_plan_in_a_journal_in_place_of_the_old_code(bundle: Bundle) -> None:
    old, new = bundle.write("old"), bundle.write("new", ("rows.distinct()", "rows"))
    bundle.ran(old)
    answer = bundle.answer("journal", new)
    assert effects(answer) == AGAIN
    what, why = changes(answer)["clean"]
    assert what == "changed"
    assert "the journal has one hash of them all" in why
    assert effects(bundle.answer("journal", old)) == {}


@pytest.mark.slow
def test_equal_versions_a_pipeline_that_was_cut_differently_and_no_runs(bundle: Bundle) -> None:
    old = bundle.write("old")
    earlier = bundle.write("earlier", ("@flights.vertex(result=BLOCKING)", "@flights.vertex"))
    code, said = bundle.impact(old, old)
    assert (code, "is empty: no run has claimed an attempt yet." in said) == (ExitCode.DONE, True)
    assert said.startswith("No run is recorded (logical dates from 2026-01-01")
    bundle.ran(earlier)
    code, said = bundle.impact(old, old)
    assert code == ExitCode.DONE
    assert "Nothing would run again" in said
    assert "no vertex has another fingerprint" in said
    # By the old code too the run would be made again: that is not the deploy's.
    assert effects(bundle.answer(old, old)) == {"by_route": "anyway", "busiest": "anyway"}
    assert "made by other code than --from: busiest" in said
    code, said = bundle.impact(old, old, "--dag", "fligths")
    assert (code, said) == (ExitCode.NOT_FOUND, "")


@pytest.mark.slow
def test_a_journal_whose_prefix_is_wrong_is_not_taken_for_one_whose_jobs_are_gone(
    bundle: Bundle, tmp_path: Path
) -> None:
    old = bundle.write("old")
    bundle.ran(old)
    code, said = bundle.recorded.call("impact", "--from", old, "--to", old, "--since", "2027-01-01")
    assert "has no run in that time, of any DAG: flights" in said
    code, said = bundle.impact(old, old, "--results", f"file://{tmp_path}/elsewhere")
    assert code == ExitCode.INCOMPLETE
    assert f"run {KEY}: busiest: expected its data below file:{tmp_path}/elsewhere" in said
    bundle.recorded.uri = f"file://{tmp_path}/nowhere"
    code, said = bundle.impact(old, old)
    assert f"Note: The journal file://{tmp_path}/nowhere is empty" in said
    bundle.recorded.uri = f"file://{tmp_path}"
    code, said = bundle.recorded.call("impact", "--from", old, "--to", old, "--days", "3")
    assert (code, "removed" in said) == (ExitCode.DONE, False)
    assert re.search(r"Note: \d+ runs of .* hold no plan: .* or file://.* is not where journals begin", said)


def fail() -> None:
    raise RegionFailed("boom")


@pytest.mark.slow
def test_a_run_in_which_nothing_has_finished_is_named(bundle: Bundle) -> None:
    old, new = bundle.write("old"), bundle.write("new", ('version="1"', 'version="2"'))
    plan = DeclaredWorld.declared = bundle.plan(old)
    world = bundle.recorded.world("flights", KEY, "g", of=DeclaredWorld)
    world.deploy(plan)
    with pytest.raises(RegionFailed):
        world.go("clean", on_start=fail)
    code, said = bundle.impact(old, new)
    assert code == ExitCode.DONE
    assert "no finished run of it in that time: what it would cost can't be told" in said
    assert re.search(r"^busiest +changed +version= was \"1\", now \"2\"$", said, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rows.distinct()", "rows.distinct("), "jobs/rows.py:8: SyntaxError: '(' was never closed"),
        (("from jobs.rows import tidy", "from jobs.rows import tidi"), "jobs/flights.py:3: ImportError: cannot import"),
        (("from jobs.rows import tidy", "raise SystemExit('no licence')"), "jobs/flights.py:3: SystemExit: no licence"),
    ],
)
def test_a_revision_that_does_not_import_is_named_with_file_and_line(
    bundle: Bundle, change: tuple[str, str], said: str
) -> None:
    old, broken = bundle.write("old"), bundle.write("broken", change)
    bundle.ran(old)
    code, text = bundle.impact(old, broken)
    assert code == ExitCode.INCOMPLETE
    assert f"Not answered: DAG flights, group g (jobs.flights:flights): {said}" in text
    # Where the old one does not, the journal still tells what would run.
    code, text = bundle.impact(broken, old)
    assert code == ExitCode.DONE
    assert said in text
    assert "compared with the plans in the journal" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "no-such-revision"], "as a folder, a wheel or a git revision of the current folder, found none"),
        (["--from", "journal", "--dags", "dags"], "Expected the folder dags in "),
        (["--from", "journal", "--until", "2026-01-01"], "Expected --until with --since"),
        (["--from", "journal", "--since", "2026-01-01", "--days", "3"], "Expected --days or --since, found both"),
        (
            ["--from", "journal", "--since", "2026-01-05", "--until", "2026-01-01"],
            "Expected --until as a date from --since on, found 2026-01-01 before 2026-01-05",
        ),
        (["--from", "journal", "--since", "soon"], "Expected --since as a date such as 2026-01-31, found 'soon'"),
        (["--from", "journal", "--days", "0"], "Expected --days as a number above 0, found 0"),
        (["--from", "journal", "--max-seconds", "-1"], "Expected --max-seconds as a number from 0"),
    ],
    ids=lambda value: " ".join(value[2:]) or value[1] if isinstance(value, list) else "",
)
def test_bad_input(bundle: Bundle, options: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle.write("new"))
    assert bundle.recorded.call("impact", *options) == (ExitCode.USAGE, "")
    assert said in bundle.recorded.errors


@pytest.mark.slow
def test_git_revisions_and_wheels(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Path(bundle.write("repository"))
    monkeypatch.chdir(repository)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "somebody")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], check=True, cwd=repository)
    bundle.ran(str(repository))
    wheel = tmp_path / "flights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path in repository.rglob("*.py"):
            packed.write(path, path.relative_to(repository))
    bundle.write("repository", ('version="1"', 'version="2"'))
    for old in ("HEAD", str(wheel)):
        answer = json.loads(bundle.recorded.call("impact", "--from", old, *SINCE, "--json")[1])
        assert effects(answer) == {"busiest": "again"}
    # A revision that does not import.
    (repository / "jobs" / "rows.py").write_text("def tidy(")
    subprocess.run(["git", "commit", "-q", "-a", "-m", "second"], check=True, cwd=repository)
    bundle.write("repository", ('version="1"', 'version="2"'))
    code, said = bundle.recorded.call("impact", "--from", "HEAD", *SINCE)
    assert code == ExitCode.DONE
    assert "HEAD is not told of (jobs/rows.py:1: SyntaxError" in said
    code, said = bundle.recorded.call("impact", "--from", ".", "--to", "HEAD", *SINCE)
    assert code == ExitCode.INCOMPLETE
    assert "jobs/rows.py:1: SyntaxError" in said
    (tmp_path / "broken.whl").write_text("no zip")
    assert bundle.impact(str(tmp_path / "broken.whl"), ".")[0] == ExitCode.USAGE


@pytest.mark.slow
def test_another_version_of_the_bundle_runs_everything_again_if_it_counts(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revisions of git have the version that Airflow's git bundle gives them."""
    repository = Path(bundle.write("repository"))
    monkeypatch.chdir(repository)
    monkeypatch.setenv("AIRFLOW__RECOVERY__CODE_VERSION", "bundle")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "somebody")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], check=True, cwd=repository)
    bundle.ran("HEAD")
    assert effects(bundle.answer("HEAD", "HEAD")) == {}
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "second"], check=True, cwd=repository)
    answer = bundle.answer("HEAD~1", "HEAD")
    assert effects(answer) == AGAIN
    assert all(why.startswith("bundle version was ") for _, why in changes(answer).values())
    (note,) = answer["notes"]
    assert note.startswith("[recovery] code_version = bundle: each task runs again after a deploy")
    monkeypatch.setenv("AIRFLOW__RECOVERY__CODE_VERSION", "none")
    assert bundle.answer("HEAD~1", "HEAD")["notes"] == []


@pytest.mark.slow
def test_code_that_can_not_be_seen_is_named_if_its_region_does_not_run_again(bundle: Bundle) -> None:
    old, new = bundle.write("old"), bundle.write("new", ('version="1"', 'version="2"'))
    world = bundle.ran(old)
    jar = Component("jars s3://code/a.jar", "s3://code/a.jar", seen=False)
    for region in ("clean", "busiest"):
        made_of(world.journal(), region, jar)
    (notes,) = [run["notes"] for job in bundle.answer(old, new)["jobs"] for run in job["runs"]]
    (note,) = [each for each in notes if "can't be seen" in each]
    assert note.endswith(f": clean: {jar.name}. They are taken to be unchanged"), "busiest runs again anyway"


@pytest.mark.slow
@pytest.mark.control
def test_control_where_nobody_looks_for_unseen_code_impact_takes_it_to_be_unchanged_and_says_nothing(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_impact, "unseen_code", lambda view: {})
    old = bundle.write("old")
    made_of(bundle.ran(old).journal(), "clean", Component("jars s3://code/a.jar", "s3://code/a.jar", seen=False))
    answer = bundle.answer(old, old)
    assert effects(answer) == {}
    assert [run["notes"] for job in answer["jobs"] for run in job["runs"]] == [[]]


def test_only_the_runs_that_are_asked_for(bundle: Bundle) -> None:
    undated = ("{{ ds }}", "any")
    old, new = bundle.write("old", undated), bundle.write("new", undated, ('version="1"', 'version="2"'))
    for key in (KEY, "date-2026-01-02T000000Z", "run-manual"):
        bundle.ran(old, key)
    keys = lambda answer: [run["run_key"] for run in answer["jobs"][0]["runs"]]  # noqa: E731
    assert keys(bundle.answer(old, new)) == [KEY, "date-2026-01-02T000000Z"]
    code, said = bundle.recorded.call("impact", "--from", old, "--to", new, "--since", "2026-01-02", "--json")
    assert (code, keys(json.loads(said))) == (ExitCode.DONE, ["date-2026-01-02T000000Z"])
    # Of the last days are also runs without a logical date, by when they were written.
    code, said = bundle.recorded.call("impact", "--from", old, "--to", new, "--days", "0.5", "--json")
    assert (code, keys(json.loads(said))) == (ExitCode.DONE, ["run-manual"])


MARKDOWN = """### What this deploy runs again

**1 region of 1 run would run again: 10.0 s of Spark, 42 B written** once 1 recorded run (logical dates from \
2026-01-01T00:00:00+00:00 to 2026-01-05T23:59:59.999999+00:00) were cleared or backfilled with NEW in place of OLD.

#### DAG flights, group g (jobs.flights:flights)

| vertex or region | change | why |
| --- | --- | --- |
| busiest | changed | version= was "1", now "2" |

| run | runs again | spark s | read | written |
| --- | --- | --- | --- | --- |
| date-2026-01-01T000000Z | busiest | 10.0 | ? | 42 B |

:x: Limit: 10.0 s of Spark may run again, over 5 s.
"""


@pytest.mark.slow
def test_the_markdown_of_a_pull_request(bundle: Bundle) -> None:
    old, new = bundle.write("old"), bundle.write("new", ('version="1"', 'version="2"'))
    bundle.ran(old)
    code, said = bundle.impact(old, new, "--markdown", "--max-seconds", "5")
    assert code == ExitCode.OVER_LIMIT
    named = said.replace(for_markdown(new), "NEW").replace(for_markdown(old), "OLD")
    assert named == MARKDOWN.replace("\\\n", "")


# with DAG files

DAG = """
from airflow.sdk import dag
from airflow_recovery.operators import SparkJobTaskGroup


@dag(schedule=None)
def flights():
    SparkJobTaskGroup(group_id="g", job="jobs.flights:flights")


flights()
"""
OPERATORS = """
import os

from airflow.sdk import DAG
from airflow_recovery.operators import RecoverableSparkSubmitOperator

with DAG("applications", schedule=None):
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        application=os.path.join(os.path.dirname(__file__), "clean.py"),
        outputs=["cleaned"],
        application_args=["--day", "{{ ds }}", "--out", "{output:cleaned}"],
    )
    report = RecoverableSparkSubmitOperator(
        task_id="report",
        application="s3://code/report.py",
        outputs=["report"],
        inputs={"cleaned": clean.result("cleaned")},
        application_args=["--in", "{input:cleaned}", "--out", "{output:report}"],
    )
"""


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever asks Airflow's database fails."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://nobody:none@127.0.0.1:1/none")


@pytest.mark.slow
@pytest.mark.usefixtures("no_database")
def test_dag_files_are_imported_without_a_database_and_those_that_can_not_be_are_named(bundle: Bundle) -> None:
    old = bundle.write("old", files={"flights_dag.py": DAG})
    new = bundle.write(
        "new",
        ('version="1"', 'version="2"'),
        files={
            "flights_dag.py": DAG,
            "weather_dag.py": DAG.replace("flights", "weather"),
            "broken_dag.py": DAG + "1 / 0",
        },
    )
    bundle.ran(old)
    code, said = bundle.impact(old, new, "--json")
    assert code == ExitCode.INCOMPLETE
    answer = json.loads(said)
    assert effects(answer) == {"busiest": "again"}
    assert sorted(failure.partition(": ")[0].partition(", ")[2] for failure in answer["failures"]) == [
        "broken_dag.py:12",
        "weather_dag.py:8",
    ]
    # A second DAG of the name: which of them Airflow takes, nobody knows.
    twice = bundle.write("twice", files={"flights_dag.py": DAG, "again/flights_dag.py": DAG})
    code, said = bundle.impact(old, twice)
    assert code == ExitCode.INCOMPLETE
    assert "two DAGs have this name, in again/flights_dag.py and flights_dag.py: rename one of them" in said
    code, said = bundle.impact(twice, old)
    assert (code, "is not told of (two DAGs have this name" in said, "added" in said) == (ExitCode.DONE, True, False)
    # A DAG whose file can't be imported is neither removed nor added.
    broken = bundle.write("broken", files={"flights_dag.py": DAG + "1 / 0"})
    why = f"no DAG file of {broken} that can be imported defines it"
    code, said = bundle.impact(old, broken, "--max-seconds", "5", "--markdown")
    assert code == ExitCode.INCOMPLETE
    assert said.partition("\n\n")[2].startswith("**Of no run can be told** what would run again with ")
    assert why.replace("_", r"\_") in said
    assert ":grey_question: Limit: 0.0 s of Spark may run again, within 5 s, as far as it is answered." in said
    assert "removed" not in said
    code, said = bundle.impact(broken, old)
    assert f"{why}: compared with the plans in the journal" in said
    assert (code, "added" in said) == (ExitCode.INCOMPLETE, False)
    # A DAG that is gone runs nothing.
    gone = bundle.write("gone", files={"other_dag.py": OPERATORS})
    code, said = bundle.impact(old, gone, "--dag", "flights")
    assert code == ExitCode.DONE
    assert "removed: nothing of it runs again" in said


@pytest.mark.slow
@pytest.mark.usefixtures("no_database")
def test_existing_applications_are_compared_as_their_operators_are_written(bundle: Bundle) -> None:
    files = {"operators_dag.py": OPERATORS, "clean.py": "print(1)"}
    old = bundle.write("old", files=files)
    same = bundle.write("same", files=files)
    new = bundle.write("new", files={**files, "clean.py": "print(2)"})
    regions = (
        RegionPlan("clean", ("clean",), ("clean.cleaned",), (), False, "made by its task", reads=()),
        RegionPlan("report", ("report",), ("report.report",), ("clean",), True, "and so is this", reads=()),
    )
    DeclaredWorld.declared = plan = PlanRecord("operators of applications", regions)
    world = bundle.recorded.world("applications", KEY, OPERATORS_GROUP, of=DeclaredWorld)
    world.deploy(plan)
    world.until_green()
    assert effects(bundle.answer(old, same)) == {}
    answer = bundle.answer(old, new)
    assert effects(answer) == {"clean": "again", "report": "again"}
    assert changes(answer)["clean"][0] == "changed"
    assert changes(answer)["clean"][1].startswith("application was ")
    (run,) = (run for job in bundle.answer("journal", same)["jobs"] for run in job["runs"])
    assert run["notes"] == [
        "clean: can't be known without rendering it over what its own task finds, such as files of the worker: "
        "it counts as one that may run",
        "report: can't be known without rendering it over the content of s3://code/report.py: it counts as one that "
        "may run",
    ]
    # What the run's conf decides can't even be rendered.
    of_conf = bundle.write(
        "conf", files={**files, "operators_dag.py": OPERATORS.replace("{{ ds }}", "{{ dag_run.conf.day }}")}
    )
    (run,) = (run for job in bundle.answer("journal", of_conf)["jobs"] for run in job["runs"])
    assert "clean: can't be known without rendering it over dag_run: it counts as one that may run" in run["notes"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_database")
@pytest.mark.parametrize(("key", "is_known"), [(KEY, True), ("run-manual", False)])
def test_what_an_operator_takes_of_its_runs_date_is_known_of_a_run_that_has_one(
    bundle: Bundle, key: str, is_known: bool
) -> None:
    operators = OPERATORS.replace('"s3://code/report.py"', 'os.path.join(os.path.dirname(__file__), "report.py")')
    files = {"operators_dag.py": operators, "clean.py": "print(1)", "report.py": "print(2)"}
    same = bundle.write("same", files=files)
    dated = {"dag_id": "applications", "run_key": KEY, "group_id": OPERATORS_GROUP, "job": "", "keys": {}}
    with open_version(same, None, ()) as opened:
        (report,) = reports_of([opened], [dated])
    rendered = report["plans"][0]["rendered"]
    assert set(rendered) == {"clean", "report"}
    plan = from_json(PlanRecord, report["plans"][0]["plan"])
    made = tuple(replace(region, fingerprint=rendered[region.name]) for region in plan.regions)
    DeclaredWorld.declared = replace(plan, regions=made)
    world = bundle.recorded.world("applications", key, OPERATORS_GROUP, of=DeclaredWorld)
    world.deploy(DeclaredWorld.declared)
    world.until_green()
    since = () if is_known else ("--days", "1")

    def answer(version: str) -> Any:
        options = since or SINCE
        code, said = bundle.recorded.call("impact", "--from", "journal", "--to", version, *options, "--json")
        assert code == ExitCode.DONE, bundle.recorded.errors
        return json.loads(said)

    def asked(version: str) -> dict[str, str]:
        return effects(answer(version), key)

    maybe = {"clean": "maybe", "report": "maybe"}
    assert asked(same) == ({} if is_known else maybe)
    other = bundle.write("other", files={**files, "operators_dag.py": operators.replace("{{ ds }}", "{{ ts }}")})
    assert asked(other) == maybe
    # Written in another way, it comes to the same.
    alike = operators.replace("{{ ds }}", "{{ logical_date.strftime('%Y-%m-%d') }}")
    assert asked(bundle.write("alike", files={**files, "operators_dag.py": alike})) == ({} if is_known else maybe)
    # What can't be rendered is told with the reason.
    broken = operators.replace("{{ ds }}", "{{ ds.moon() }}")
    said = answer(bundle.write("broken", files={**files, "operators_dag.py": broken}))
    (run,) = (run for job in said["jobs"] for run in job["runs"])
    why = "since rendering it here raises UndefinedError: 'str object' has no attribute 'moon'"
    assert [why in note for note in run["notes"] if note.startswith("clean")] == ([True] if is_known else [False])


@pytest.mark.slow
@pytest.mark.usefixtures("no_database")
def test_an_operator_that_is_declared_otherwise_is_named_as_one_that_looks_first(bundle: Bundle) -> None:
    """A task that reads it, and is cleared alone, finds another digest (fault 240)."""
    files = {"operators_dag.py": OPERATORS, "clean.py": "print(1)"}
    same = bundle.write("same", files=files)
    alike = bundle.write(
        "alike",
        files={**files, "operators_dag.py": OPERATORS.replace("{{ ds }}", "{{ logical_date.strftime('%Y-%m-%d') }}")},
    )
    dated = {"dag_id": "applications", "run_key": KEY, "group_id": OPERATORS_GROUP, "job": "", "keys": {}}
    with open_version(same, None, ()) as opened:
        (report,) = reports_of([opened], [dated])
    (job,) = [each for each in report["jobs"] if each["dag_id"] == "applications"]
    plan, rendered = from_json(PlanRecord, report["plans"][0]["plan"]), report["plans"][0]["rendered"]
    made = tuple(replace(region, fingerprint=rendered.get(region.name, "by its task")) for region in plan.regions)
    DeclaredWorld.declared = replace(plan, regions=made)
    world = bundle.recorded.world("applications", KEY, OPERATORS_GROUP, of=DeclaredWorld)
    world.declares = lambda region: job["vertices"][region]["declared"][0]
    world.deploy(DeclaredWorld.declared)
    world.until_green()

    def notes(old: str, new: str) -> list[str]:
        answer = bundle.answer(old, new)
        assert "clean" not in effects(answer)
        (run,) = (run for job in answer["jobs"] for run in job["runs"])
        return [note for note in run["notes"] if "is cleared alone" in note]

    assert notes("journal", same) == notes(same, same) == notes(alike, same) == []
    # Nobody reads `report`: no other task would look at it.
    for old in ("journal", same):
        (note,) = notes(old, alike)
        assert note.startswith("clean: the class, the arguments as they are written or the local files differ")


WHEEL = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "flights"
version = "{version}"

[tool.setuptools]
packages = ["jobs", "flight_dags"]
"""


def built_wheel(version: str, number: str) -> str:
    """A real wheel of a version's folder: packages as they would be installed."""
    folder = Path(version)
    (folder / "pyproject.toml").write_text(WHEEL.format(version=number))
    build = "import setuptools.build_meta as build; print(build.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(folder / "dist" / done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.usefixtures("no_database")
def test_wheels_of_dag_bundles_are_as_they_would_be_installed(bundle: Bundle, tmp_path: Path) -> None:
    files = {"flight_dags/flights_dag.py": DAG, "flight_dags/__init__.py": ""}
    old = bundle.write("old", files=files)
    new = bundle.write("new", ('version="1"', 'version="2"'), files=files)
    bundle.ran(bundle.write("run"))
    before, after = built_wheel(old, "1.0"), built_wheel(new, "1.1")
    answer = bundle.answer(before, after, "--dags", "flight_dags")
    assert changes(answer) == {"busiest": ("changed", 'version= was "1", now "2"')}
    assert effects(answer) == {"busiest": "again"}
    # What a build system puts aside for `site-packages`.
    with zipfile.ZipFile(before) as wheel:
        wheel.extractall(tmp_path / "pure")
    aside = tmp_path / "pure" / "flights-1.0.data" / "purelib"
    aside.mkdir(parents=True)
    (tmp_path / "pure" / "jobs").rename(aside / "jobs")
    moved = shutil.make_archive(str(tmp_path / "flights-1.0"), "zip", tmp_path / "pure")
    assert effects(bundle.answer(moved, after, "--dags", "flight_dags")) == {"busiest": "again"}


@pytest.mark.slow
def test_control_of_a_wheel_the_folder_of_dags_alone_is_not_enough(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_installed", lambda root: [])
    packed = shutil.make_archive(str(tmp_path / "flights"), "zip", bundle.write("run", files={"dags/x.txt": ""}))
    run = {"dag_id": "flights", "run_key": KEY, "group_id": "g", "job": "jobs.flights:flights", "keys": {}}
    with open_version(packed, "dags", ()) as opened:
        (report,) = reports_of([opened], [run])
    assert "there is no module 'jobs'" in report["plans"][0]["why_not"]
    monkeypatch.undo()
    with open_version(packed, "dags", ()) as opened:
        (report,) = reports_of([opened], [run])
    assert report["plans"][0]["why_not"] == ""


# subtasks, and results that runs share

PARALLEL = """
from airflow_recovery import BLOCKING, BLOCKING_PERSISTENT, job, same_as

flights = job("flights")


@flights.source(result=BLOCKING_PERSISTENT, version="1")
def airports(spark):
    return spark.range(3)


@flights.source(result=BLOCKING, parallelism=["jan", "feb"], params={"month": "{{ subtask }}"})
def raw(spark, month):
    return spark.range(1)


@flights.vertex(result=BLOCKING, parallelism=same_as("raw"), params={"least": 1})
def by_month(raw, least):
    return raw


@flights.sink
def total(by_month, airports):
    return by_month
"""


@pytest.mark.slow
def test_subtasks_run_again_one_by_one_and_a_shared_result_counts_once(bundle: Bundle) -> None:
    old, new, feb = (bundle.write(name, files={"jobs/flights.py": PARALLEL}) for name in ("old", "new", "feb"))
    (Path(new) / "jobs/flights.py").write_text(PARALLEL.replace('version="1"', 'version="2"'))
    (Path(feb) / "jobs/flights.py").write_text(
        PARALLEL.replace("{{ subtask }}", "{{ '02' if subtask == 'feb' else subtask }}")
    )
    second = "date-2026-01-02T000000Z"
    for key in (KEY, second):
        bundle.ran(old, key)
    answer = bundle.answer(old, new)
    assert effects(answer) == effects(answer, second) == {"airports": "again", "total": "again"}
    made_in = [
        {region["name"]: (region["made_in"], region["cost"]["seconds"]) for region in run["regions"]}
        for run in answer["jobs"][0]["runs"]
    ]
    assert made_in == [
        {"airports": (None, 10.0), "total": (None, 10.0)},
        {"airports": (KEY, 0.0), "total": (None, 10.0)},
    ]
    assert answer["seconds"] == 30.0
    # Of two subtasks the one alone whose parameters come to something else.
    answer = bundle.answer(old, feb)
    assert effects(answer) == {"raw[feb]": "again", "by_month[feb]": "again", "total": "again"}
    assert "raw[1 subtask], by_month[1 subtask], total" in bundle.impact(old, feb)[1]
