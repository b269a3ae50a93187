"""scripts/restart_table: what it runs, how it reads pytest's report, and what it writes into the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.restart_table import BEGIN, END, PAGE, SUPPORTED, Row, named_tests, outcome, row_of, run_again, with_rows

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = ("tests/integration/test_x.py::test_one", "tests/integration/test_x.py::test_two")
PAGE_BEFORE = f"| it | `{TESTS[1]}` |\n| that | `{TESTS[0]}` |\n| and that | `{TESTS[0]}` |\n{BEGIN}{END}behind\n"


def rows_of(page: str) -> dict[str, list[str]]:
    block = page.partition(BEGIN)[2].partition(END)[0]
    return {line.split(" | ")[0].strip("| "): line.strip("| \n").split(" | ")[1:] for line in block.splitlines()[2:]}


def report(folder: Path, **cases: str) -> Path:
    """``one`` and ``two``: what stands in each test case."""
    text = "".join(
        f'<testcase classname="tests.integration.test_x" name="{name.replace("__", "[")}">{inside}</testcase>'
        for name, inside in cases.items()
    )
    (folder / "report.xml").write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    return folder / "report.xml"


def test_each_test_of_the_page_is_run_once_in_the_order_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.restart_table.REPOSITORY", tmp_path)
    (tmp_path / "tests" / "integration").mkdir(parents=True)
    (tmp_path / TESTS[0].partition("::")[0]).write_text(
        "def test_two(): ...\ndef test_more(): ...\ndef test_one(): ..."
    )
    assert named_tests(PAGE_BEFORE) == [TESTS[1], TESTS[0]]


@pytest.mark.parametrize(
    ("cases", "failed"),
    [
        ({"test_one": "", "test_two": ""}, ()),
        ({"test_one": "", "test_two": "<failure/>"}, TESTS[1:]),
        ({"test_one": "", "test_two": "<error/>"}, TESTS[1:]),
        ({"test_one": "", "test_two": "<skipped/>"}, TESTS[1:]),
        ({"test_one": ""}, TESTS[1:]),  # it was not collected
        ({"test_one": "", "test_two__a": "<failure/>", "test_two__b": ""}, TESTS[1:]),
    ],
)
def test_what_did_not_pass_has_failed(tmp_path: Path, cases: dict[str, str], failed: tuple[str, ...]) -> None:
    assert outcome(report(tmp_path, **cases), TESTS) == failed


def test_a_version_that_is_run_again_has_its_row_replaced_and_the_others_stay() -> None:
    first = with_rows(
        PAGE_BEFORE, [Row("3.3.10", "3.11.7", 2, (), "2026-01-01", TESTS[1:]), Row("3.3.2", "3.11.7", 2, (), "d")]
    )
    second = with_rows(first, [Row("3.3.2", "3.12.1", 2, TESTS[:1], "2026-02-02")])
    assert list(rows_of(second)) == ["3.3.2", "3.3.10"]
    assert rows_of(second)["3.3.2"] == ["3.12.1", "2", "1", "none", "`test_one`", "2026-02-02"]
    assert rows_of(second)["3.3.10"] == ["3.11.7", "2", "2", "`test_two`", "none", "2026-01-01"]
    assert second.endswith("behind\n")


def test_what_has_failed_is_run_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    page = with_rows(PAGE.read_text(encoding="utf-8"), [])
    first, second, third = named_tests(page)[:3]
    page = with_rows(page, [Row("3.3.9", "3.11.7", 44, (first, second), "2026-01-01", (third,))])
    row = row_of(page, "3.3.9")
    assert row == Row("3.3.9", "3.11.7", 44, (first, second), "2026-01-01", (third,))

    def run(airflow: str, tests: tuple[str, ...]) -> Row:
        assert (airflow, tests) == ("3.3.9", (first, second))
        return Row(airflow, "3.11.8", len(tests), (second,), "2026-02-02")

    monkeypatch.setattr("scripts.restart_table.run", run)
    assert run_again(row) == Row("3.3.9", "3.11.8", 44, (second,), "2026-02-02", tuple(sorted((first, third))))
    with pytest.raises(ValueError, match=r"expected a row of Airflow 3\.3\.8, found none"):
        row_of(page, "3.3.8")


def test_a_page_without_the_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"restarts\.md: expected <!-- versions: begin -->"):
        with_rows("nothing", [])


def test_on_each_version_every_test_that_was_run_has_passed_and_one_of_them_is_the_installed_one() -> None:
    """The page says how many tests were added or removed since they were run, so the figures are exact."""
    page = PAGE.read_text(encoding="utf-8")
    (since,) = re.findall(r"Tests of this page since these runs: (\d+) added, (\d+) removed\.", page)
    rows, tests = rows_of(page), str(len(named_tests(page)) - int(since[0]) + int(since[1]))
    pinned = re.findall(r"^apache-airflow==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned[0] in rows
    for version, (_, run, passed, _, failed, _) in rows.items():
        assert version.startswith(SUPPORTED)
        assert (run, passed, failed) == (tests, tests, "none"), version
