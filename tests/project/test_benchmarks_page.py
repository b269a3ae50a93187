"""`docs/benchmarks.md` is what the results say."""

from __future__ import annotations

from pathlib import Path

from benchmarks import page, plot
from benchmarks.report import Figure, Record, Report, Table, read_record


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.render(page.read_records())


def test_the_charts_are_what_the_results_say() -> None:
    charts = page.charts(page.read_records())
    assert {path.name for path in page.PAGE.parent.glob("benchmarks-*.svg")} == set(charts)
    for name, svg in charts.items():
        assert (page.PAGE.parent / name).read_text(encoding="utf-8") == svg


def test_a_chart_shows_who_never_got_there_and_who_was_wrong() -> None:
    outcome = {"disturbance": "a result is gone", "work_s": 10.0, "right": True, "ratio": 1.25, "text": "1.25"}
    svg = plot.recoveries(
        {
            "outcomes": [
                {**outcome, "system": "airflow-recovery"},
                {**outcome, "system": "<b>", "ratio": None, "text": "never"},
                {**outcome, "system": "green", "right": False, "text": "done with wrong numbers"},
            ]
        }
    )
    assert svg.count('<rect class="ours"') == 1
    assert '<rect class="others"' not in svg
    for said in (">never<", ">done with wrong numbers<", ">&lt;b&gt;<"):
        assert said in svg


def test_a_chart_of_failures_has_a_bar_for_each_try_and_as_few_lanes_as_ran_at_once() -> None:
    def tried(task: str, begun: float, ended: float, *, succeeded: bool) -> dict[str, object]:
        return {"task": task, "number": 1, "begun": begun, "ended": ended, "succeeded": succeeded}

    clean = {"seconds": 10.0, "tries": [tried("a", 0, 5, succeeded=True), tried("b", 5, 10, succeeded=True)]}
    disturbed = {
        "seconds": 15.0,
        "seed": 1,
        "kills": [4.0],
        "tries": [
            tried("a", 0, 4, succeeded=False),
            tried("a", 4, 10, succeeded=True),
            tried("b", 8, 15, succeeded=True),
        ],
    }
    svg = plot.failures({"clean": clean, "runs": [disturbed], "goal": 2.2, "flink": 2.0})
    assert (svg.count('<rect class="ours"'), svg.count('<rect class="bad"')) == (4, 1)
    assert ">1.50<" in svg
    heights = {line.split('y="')[1].split('"')[0] for line in svg.splitlines() if line.startswith('<rect class="ours"')}
    assert len(heights) == 3


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = Report(
        "peers",
        "A title",
        "How {it} was [measured].",
        [Figure("one", 1.5, "s", "at most 2 s", True), Figure("none", float("inf"), "s")],
        [Table("Rows", ["a", "b"], [["x | y", 1], ["{", "]"]])],
        {"tries": [{"begun": 1.0, "name": "a"}, {"begun": 2.0, "name": "[b\n]"}], "kills": [1, 2], "none": []},
    )
    record = Record(report, "2026-01-01T00:00+00:00", 3, {"cores": "2"})
    path = record.write(tmp_path)
    assert read_record(path) == record
    assert '{"begun": 1.0, "name": "a"}' in path.read_text()
