"""Runs the tests behind docs/restarts.md on each Airflow that is supported, and writes into the page what came of it.

    python -m scripts.restart_table                  every version that the package index has
    python -m scripts.restart_table 3.3.1 3.3.2      these; the rows of others stay
    python -m scripts.restart_table --again 3.3.1    only what its row says has failed

Each version gets an environment of its own in ``build/``, made once (a few minutes); a run takes a quarter of an hour.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email import message_from_string
from importlib.metadata import version as version_of
from pathlib import Path
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "restarts.md"
BUILD = REPOSITORY / "build"
SUPPORTED = "3.3."
BEGIN, END = "<!-- versions: begin -->\n", "<!-- versions: end -->\n"
HEAD = (
    "| Airflow | Python | tests | passed | of these when run again | failed | run on |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


@dataclass(frozen=True)
class Row:
    """What one run has shown. ``failed``: the tests that did not pass, as the page names them.

    ``again``: those that passed when their files were run once more, alone: on a busy machine a test may time out.
    """

    airflow: str
    python: str
    tests: int
    failed: tuple[str, ...]
    day: str
    again: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The row as a line of the table in the page."""
        passed = self.tests - len(self.failed)
        cells = (self.airflow, self.python, self.tests, passed, _names(self.again), _names(self.failed), self.day)
        return f"| {' | '.join(str(cell) for cell in cells)} |\n"


def _names(tests: tuple[str, ...]) -> str:
    return ", ".join(f"`{test.partition('::')[2]}`" for test in tests) or "none"


def named_tests(page: str) -> list[str]:
    """The tests that the page names, each once and as they stand in their files: some go on where another has ended."""
    named = set(re.findall(r"`(tests/\S+::\w+)`", page))
    tests = []
    for path in sorted({match.partition("::")[0] for match in named}):
        functions = re.findall(r"^def (\w+)", (REPOSITORY / path).read_text(encoding="utf-8"), re.MULTILINE)
        tests += [name for function in functions if (name := f"{path}::{function}") in named]
    return tests


def cut(page: str) -> tuple[str, dict[str, str], str]:
    """What is before the rows, the rows as lines by version, and what is behind. Raises `ValueError` without marks."""
    before, begin, rest = page.partition(BEGIN)
    block, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name}: expected {BEGIN.strip()} and {END.strip()}")
    lines = {line.split(" ")[1]: line for line in block.splitlines(keepends=True) if line.startswith(f"| {SUPPORTED}")}
    return before + begin, lines, end + after


def with_rows(page: str, rows: Iterable[Row]) -> str:
    """The page with ``rows`` in place of those of the same versions."""
    before, lines, after = cut(page)
    lines |= {row.airflow: str(row) for row in rows}
    return f"{before}{HEAD}{''.join(lines[line] for line in sorted(lines, key=Version))}{after}"


def outcome(report: Path, tests: Sequence[str]) -> tuple[str, ...]:
    """Of ``tests`` those that did not pass in all their parameters, from pytest's JUnit report. A skip is no pass."""
    good: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        is_good = not any(case.findall(name) for name in ("failure", "error", "skipped"))
        good[name] = good.get(name, True) and is_good
    return tuple(test for test in tests if not good.get(test))


def available() -> list[str]:
    """The supported versions that the package index has, oldest first."""
    listing = _pip(sys.executable, "index", "versions", "apache-airflow")
    listed = re.findall(r"[\d.]+", next(line for line in listing.splitlines() if line.startswith("Available versions")))
    return sorted({info for info in listed if info.startswith(SUPPORTED)}, key=Version)


def fitting_constraints(airflow: str) -> str:
    """Our pins without those that this Airflow does not allow: pip takes what it asks for itself."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("apache-airflow", "apache-airflow-core"):
            _pip(sys.executable, "download", "--no-deps", "--dest", folder, f"{name}=={airflow}")
        needed = [requirement for wheel in Path(folder).glob("*.whl") for requirement in _requirements(wheel)]
    kept = []
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines():
        pin = Requirement(line)
        version = str(pin.specifier).removeprefix("==")
        refused = [
            requirement
            for requirement in needed
            if canonicalize_name(requirement.name) == canonicalize_name(pin.name)
            and not requirement.specifier.contains(version)
        ]
        if not refused and pin.name != "apache-airflow":
            kept.append(line)
    return "\n".join(kept)


def environment(airflow: str) -> Path:
    """A Python with this Airflow and what the tests need; ours, where it is that."""
    if version_of("apache-airflow") == airflow:
        return Path(sys.executable)
    folder = BUILD / f"airflow-{airflow}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"Airflow {airflow}: installing into {folder.relative_to(REPOSITORY)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        constraints = folder / "constraints.txt"
        constraints.write_text(fitting_constraints(airflow))
        _pip(python, "install", "-c", str(constraints), f"apache-airflow=={airflow}", f"{REPOSITORY}[spark,demo,dev]")
        _pip(python, "uninstall", "--yes", "airflow-recovery")  # the tests run the wheel
        ready.touch()
    return python


def row_of(page: str, airflow: str) -> Row:
    """What the page says of one version. Raises `ValueError` where it has no row of it."""
    _, lines, _ = cut(page)
    if airflow not in lines:
        raise ValueError(f"{PAGE.name}: expected a row of Airflow {airflow}, found none: run it without --again first")
    _, python, tests, _, again, failed, day = lines[airflow].strip("| \n").split(" | ")
    by_name = {test.partition("::")[2]: test for test in named_tests(page)}

    def meant(cell: str) -> tuple[str, ...]:
        return tuple(by_name[match] for match in re.findall(r"`(\w+)`", cell))

    return Row(airflow, python, int(tests), meant(failed), day, meant(again))


def run_again(row: Row) -> Row:
    """Run what has failed once more, on the same Airflow."""
    done = run(row.airflow, row.failed)
    passed = [name for name in row.failed if name not in done.failed]
    return replace(done, tests=row.tests, again=tuple(sorted({*row.again, *passed})))


def run(airflow: str, tests: Sequence[str]) -> Row:
    """Run ``tests`` on this Airflow, and the files of those that fail once more."""
    python = environment(airflow)
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    first = _failed(python, env, airflow, tests)
    files = {name.partition("::")[0] for name in first}
    failed = set(_failed(python, env, airflow, [test for test in tests if test.partition("::")[0] in files]))
    version = subprocess.run([python, "-m", "airflow", "version"], env=env, capture_output=True, text=True, check=True)
    if version.stdout.split()[-1] != airflow:
        raise RuntimeError(f"expected Airflow {airflow} in {python.parent.parent}, found {version.stdout.split()[-1]}")
    today = datetime.now(timezone.utc).date().isoformat()
    again, left = ([name for name in first if (name in failed) is is_left] for is_left in (False, True))
    return Row(airflow, platform.python_version(), len(tests), tuple(left), today, tuple(again))


def _failed(python: Path, env: dict[str, str], airflow: str, tests: Sequence[str]) -> tuple[str, ...]:
    if not tests:
        return ()
    report = BUILD / f"restart-table-{airflow}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    # With those that are otherwise in `make drill` alone.
    options = ["-q", "-p", "no:cacheprovider", "--drill", "1", f"--junitxml={report}"]
    command = [str(python), "-m", "pytest", *options, *tests]
    subprocess.run(command, cwd=REPOSITORY, env=env, check=False)
    return outcome(report, tests)


def main(arguments: Sequence[str]) -> int:
    """Run all of the versions. 1 where a test failed."""
    is_again, versions = "--again" in arguments, [argument for argument in arguments if argument != "--again"]
    rows = []
    for version in versions or available():
        page = PAGE.read_text(encoding="utf-8")
        rows.append(run_again(row_of(page, version)) if is_again else run(version, named_tests(page)))
        PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
        print(rows[-1], end="", flush=True)
    return int(any(row.failed for row in rows))


def _requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as content:
        name = next(name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(content.read(name).decode())
    requirements = [Requirement(name) for name in metadata.get_all("Requires-Dist", [])]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


def _pip(python: str | Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", *arguments, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
