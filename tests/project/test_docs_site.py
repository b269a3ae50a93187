"""The documentation as a site: it is built with every warning an error, and says what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from airflow_recovery.console.exit_codes import EXIT_CODES
from airflow_recovery.console.main import subcommands
from airflow_recovery.model.record_kinds import RECORD_KINDS
from airflow_recovery.task import metrics
from scripts.configuration_reference import PAGE, page

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Without a network, as far as Python asks for one: a proxy where nobody listens.

    Not ``--quiet``: a warning that is not shown is no error either.
    """
    nobody = "http://127.0.0.1:9"
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "http_proxy": nobody, "https_proxy": nobody}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


class Loads(HTMLParser):
    """What a page makes a browser load, in contrast to what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        address = values.get("href") if tag == "link" else values.get("src")
        if address and values.get("rel") != "canonical":
            self.found.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY, path)
    assert done.returncode == 0, done.stderr
    return path


def test_it_builds_with_every_warning_an_error(site: Path) -> None:
    assert {path.stem for path in site.glob("*.html")} == {"404", *(candidate.stem for candidate in PAGES)}


@pytest.mark.slow
def test_control_a_link_to_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    text = (REPOSITORY / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(f"{text.partition('nav:' + chr(10) + '  - Home')[0]}")
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md)")
    assert build(tmp_path, tmp_path / "site").returncode != 0


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = Loads()
    for path in site.glob("*.html"):
        loads.feed(path.read_text())
    assert loads.found
    assert [each for each in loads.found if each.startswith(("http:", "https:", "//"))] == []


def test_the_configuration_page_is_the_providers_own_yaml() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m scripts.configuration_reference"


def test_the_command_line_page_names_every_command_and_exit_code() -> None:
    text = (DOCS / "cli.md").read_text()
    commands = re.findall(r"^\| `(\w+)", text, re.MULTILINE)
    assert sorted(commands) == sorted(subcommand.name for subcommand in subcommands())
    codes = {
        int(code): said.replace("`", "") for code, said in re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE)
    }
    assert codes == {exit_code.value: exit_code.meaning for exit_code in EXIT_CODES}


def test_the_format_names_every_kind_of_record() -> None:
    text = (DOCS / "journal-format.md").read_text(encoding="utf-8")
    said = text.partition("`kind` is ")[2].partition(";")[0]
    assert set(re.findall(r"`(\w+)`", said)) == set(RECORD_KINDS)


def test_every_metric_has_a_row() -> None:
    text = (DOCS / "observe.md").read_text()
    for name in re.findall(r"recovery\.[\w.]+\w(?![\w.])", str(metrics.__doc__)):
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_on_a_page_is_python(path: Path) -> None:
    for block in re.findall(r"^```python.*?\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
        is_decorator = block.startswith("@") and "\ndef " not in block
        compile(f"{block}def _(): ..." if is_decorator else block, path.name, "exec")
