"""Text of others reaches no place in which it does more than to be read: a table of places and nasty texts."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Killed, Process, world_in

from airflow_recovery.attempt.clear_protocol import NOTE_SIGN, noted
from airflow_recovery.console import impact_text, terminal
from airflow_recovery.console.impact_text import impact_markdown
from airflow_recovery.console.impact_text import impact_text as impact_for_terminal
from airflow_recovery.console.main import main
from airflow_recovery.escaping import for_markdown, for_message, for_note, for_terminal, one_line
from airflow_recovery.results import sweep_report
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.story.deploy_impact import Impact, JobImpact
from airflow_recovery.verify.finding import Answer, Finding, Verdict
from airflow_recovery.verify.report import Report

ROOT = Path(__file__).parents[2]
DOM = ROOT / "airflow_recovery" / "api_server" / "static" / "dom.js"
LOG_PREFIX = "[2026-01-01T00:00:00.000+0000] {taskinstance.py:1} INFO - FORGED by another task"

NASTY = {
    "a line end": "x\nFORGED",
    "a carriage return": "x\rFORGED",
    "Windows' line end": "x\r\nFORGED",
    "other line ends": "x\x0bFORGED\x0cFORGED\x85FORGED\u2028FORGED\u2029FORGED",
    "another task's log line": f"x\n{LOG_PREFIX}",
    "a heading": "# FORGED",
    "a heading behind a line end": "x\n\n# FORGED\n\nall is well",
    "an underlined heading": "x\n===",
    "a rule": "---",
    "a list": "- FORGED",
    "a numbered list": "1. FORGED",
    "a quote": "> FORGED",
    "a command of GitLab": "/close",
    "a link": "[click](https://evil.example)",
    "a link by reference": "x\n[a]: https://evil.example\n[a]",
    "a bare link": "see https://evil.example/x and www.evil.example",
    "an image": "![x](https://evil.example/pixel.png)",
    "emphasis": "**FORGED** _a_ ~~b~~",
    "a table's cell": "a | b | c",
    "code": "`a` ```b```",
    "a fence": "x\n```\nFORGED\n```",
    "mathematics": "$x$",
    "a tag": "<img src=x onerror=alert(1)>",
    "a script": "</td><script>alert(1)</script>",
    "an entity": "&lt;b&gt; &#64;team",
    "a comment": "<!-- x",
    "a mention": "@team and a@b.example",
    "an issue": "fixes #12, GH-12, !34",
    "an emoji": ":white_check_mark: Limit: 0.0 s of Spark may run again",
    "a path and a time": "/tmp/a/b at 2026-01-01T00:00:00+00:00",
    "Slack's channel": "<!channel> <@U123> <https://evil.example|click>",
    "a terminal's command": "\x1b]0;title\x07 \x1b[2J\x1b[31mred",
    "a C1 command": "\x9b2J",
    "right to left": "\u202efdp.exe\u202c \u2066x\u2069",
    "zero width": "a\u200bb\ufeffc\u00adc",
    "a NUL": "a\0b",
    "half a character": "a\ud800b",
    "a backslash": "\\",
    "a backslash before markup": "\\[a](b)",
    "very long": "x" * 200_000,
}
nasty = pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
RECORDED = {name: text for name, text in NASTY.items() if "\ud800" not in text and len(text) < 10_000}
"""Those that a journal takes."""
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u00ad\ud800-\udfff]")


def check_line(line: str) -> None:
    """It is one line, and all of it shows."""
    assert "\n" not in line
    assert not UNSEEN.search(line)


# each function for each text


@nasty
def test_fault_384_one_line_is_one_line_that_shows_itself(text: str) -> None:
    check_line(one_line(text))
    assert not any(line.startswith(("FORGED", LOG_PREFIX)) for line in f"said {one_line(text)}".splitlines())


@nasty
def test_a_terminal_is_given_no_command(text: str) -> None:
    assert not UNSEEN.search(for_terminal(text))


ACTIVE = {
    "a block or a command at the beginning": re.compile(r"^\s*(#{1,6}\s|[-+*]\s|\d+[.)]\s|>|/close|=|---)"),
    "markup that no backslash precedes": re.compile(r"(?<!\\)(?:\\\\)*[`*_<>|\[\]~$]"),
    "an entity that is not ours": re.compile(r"&(?!amp;|#8203;)"),
}
SEEN = {
    "a mention": re.compile(r"@(?!&#8203;)"),
    "an issue or a heading": re.compile(r"(?<!&)#(?!&#8203;)"),
    "a link": re.compile(r"://|www\.(?!&#8203;)"),
    "an emoji": re.compile(r":(?:[+-]1|[\w+-]*[a-z][\w+-]*):"),
    "another reference": re.compile(r"!\d|GH-\d"),
}


@nasty
def test_fault_384_in_markdown_nothing_is_markup(text: str) -> None:
    shown = for_markdown(text)
    check_line(shown)
    assert len(shown) < 20_000
    assert not [name for name, pattern in ACTIVE.items() if pattern.search(shown)], shown[:200]
    seen = re.sub(r"\\(.)", r"\1", shown)  # in the page, where links are looked for once more
    assert not [name for name, pattern in SEEN.items() if pattern.search(seen)], shown[:200]


def test_markdown_shows_what_was_written() -> None:
    """Without what escapes, a text is what it was."""
    for text in NASTY.values():
        shown = re.sub(r"\\(.)", r"\1", for_markdown(text).replace("&#8203;", "")).replace("&amp;", "&")
        assert shown == one_line(text) or len(text) > 1000


@nasty
def test_fault_384_a_note_has_no_link_image_or_tag(text: str) -> None:
    note = noted(f"failed: {text}")
    check_line(note)
    assert note.startswith(NOTE_SIGN)
    assert len(note) <= 1000
    assert not re.search(r"\]\(|(?<!\\)<", note)
    assert noted(note) == note, "the API server escapes it once more"


class Tags(HTMLParser):
    """What a browser, or a mail reader, would take for a tag or a comment."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        self.found.append(data)

    def handle_decl(self, decl: str) -> None:
        self.found.append(decl)

    def handle_data(self, data: str) -> None:
        self.text += data


@nasty
def test_fault_384_a_message_has_no_tag_and_notifies_no_channel(text: str) -> None:
    shown = for_message(text)
    check_line(shown)
    assert not re.search(r"[<>]", shown)
    tags = Tags()
    tags.feed(shown)
    tags.close()
    assert tags.found == []
    assert tags.text == one_line(text)


@nasty
def test_json_is_a_value_and_ascii(text: str) -> None:
    """Every ``--json``, OpenLineage's facets and the audit log: nothing of it is escaped by hand."""
    assert json.dumps({"text": text}).isprintable()


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_fault_384_a_page_shows_what_shows_nothing() -> None:
    texts = [text for text in NASTY.values() if len(text) < 1000 and "\ud800" not in text]
    script = f"import {{ shown }} from {json.dumps(DOM.as_uri())};"
    script += f"console.log(JSON.stringify({json.dumps(texts)}.map(shown)))"
    answer = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    pages = json.loads(answer.stdout)
    assert not any(UNSEEN.search(page) for page in pages)
    assert pages[texts.index(NASTY["a tag"])] == NASTY["a tag"]  # a text node: markup is text there
    assert r"\u{202e}fdp.exe" in pages[texts.index(NASTY["right to left"])]


def test_a_page_is_made_of_text_nodes_alone() -> None:
    sources = list(DOM.parent.glob("*.js"))
    assert len(sources) > 5
    for source in sources:
        text = source.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|\beval\(|new Function", text
        )


# the places


def impact(text: str) -> Impact:
    """Every free text of the answer is ``text``."""
    return Impact(
        old=text,
        new=text,
        span=text,
        jobs=(JobImpact(text, text, text, notes=(text,)), JobImpact("dag", "g", "x:y", why_not=text)),
        failures=(text,),
        notes=(text,),
    )


OURS = re.compile(r"^(### What this deploy|\*\*|#### DAG |- |Nothing changes|:grey_question:|:x:|:white_check_mark:|$)")


@nasty
def test_fault_384_the_comment_of_impact_has_our_lines_alone(text: str) -> None:
    lines = impact_markdown(impact(text), 5.0).splitlines()
    assert [line[:80] for line in lines if not OURS.match(line)] == []
    assert sum(line.startswith("#") for line in lines) == 2
    assert sum(line.startswith(":") for line in lines) == 1
    assert "@team" not in "".join(lines)


@pytest.mark.control
def test_fault_384_control_unescaped_an_error_writes_a_heading_and_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impact_text, "for_markdown", lambda text: text)
    lines = impact_markdown(impact("x\n\n### Approved\n\n:white_check_mark: @team"), 5.0).splitlines()
    assert "### Approved" in lines
    assert ":white_check_mark: @team" in "\n".join(lines)


@nasty
def test_impact_on_a_terminal_has_one_line_for_each_text(text: str) -> None:
    assert not any(line.startswith("FORGED") for line in impact_for_terminal(impact(text), 5.0).splitlines())


def swept(text: str) -> str:
    report = SweepReport(is_dry_run=False, warnings=[text], unread=[text], kept_after_deletion=[text])
    report.add(text, Action.KEPT, text, 1, 1)
    return report.text()


@nasty
def test_fault_384_the_report_of_gc_has_one_line_for_each_entry(text: str) -> None:
    assert len(swept(text).splitlines()) == 5


@pytest.mark.control
def test_fault_384_control_unescaped_a_name_forges_an_entry_of_gc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_report, "one_line", lambda text: text)
    assert "deleted  everything" in swept("x\ndeleted  everything").splitlines()


@nasty
def test_the_report_of_verify_has_one_line_for_each_part(text: str) -> None:
    answer = Answer(1, Verdict.VIOLATED, text, (Finding((text,), text, text, text),))
    lines = Report("dag", "key", "g", "where", (answer,)).text().splitlines()
    assert not any(line.startswith("FORGED") for line in lines)
    assert len(lines) == 3 + 1 + 5


@pytest.mark.parametrize("text", RECORDED.values(), ids=RECORDED)
def test_commands_show_what_others_have_written_into_the_journal(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Why somebody has pinned, withdrawn or restarted, and how an attempt has failed."""
    world = world_in(tmp_path)
    process = Process()
    with pytest.raises(Killed):
        world.go("P", process=process, on_written=process.kill)
    world.airflow.lose_heartbeat("P")
    world.go_all()
    world.publish()
    identity = world.journal().identity
    run = (identity.dag_id, identity.run_key)
    folder = ("--journal", f"file://{tmp_path}/journal", "--results", f"file://{tmp_path}/journal/_results")
    why = text if text.strip() else "."
    assert main(["pin", *run, "P", f"--why={why}", *folder]) == 0
    assert main(["withdraw", *run, "C", f"--reason={why}", *folder]) == 0
    for command in (("show", "--all"), ("plan",), ("pin",), ("events",), ("verify",)):
        main([command[0], *run, *command[1:], *folder])
    said = capsys.readouterr()
    for line in (said.out + said.err).split("\n"):
        assert not UNSEEN.search(line)
        assert not line.startswith(("FORGED", LOG_PREFIX, "# FORGED", "==="))


@nasty
def test_fault_384_an_error_of_a_command_has_its_own_lines_indented(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_recovery.console import main as commands
    from airflow_recovery.errors import ConfigurationError

    def fail(_: Any) -> int:
        raise ConfigurationError(text)

    subcommand = SimpleNamespace(load=lambda: SimpleNamespace(run=fail))
    commands.execute(subcommand, SimpleNamespace())  # type: ignore[arg-type]
    first, *more = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert first.startswith("error: ")
    assert all(line.startswith("  ") for line in more)
    assert not UNSEEN.search("".join([first, *more]))


@nasty
def test_fault_384_the_log_of_the_api_server_has_one_line_for_each_error(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_recovery.api_server.rest_errors import _of_recovery
    from airflow_recovery.errors import StoreUnavailable

    request: Any = SimpleNamespace(method="GET", url=SimpleNamespace(path=f"/dags/{text}"))
    with caplog.at_level(logging.WARNING):
        _of_recovery(request, StoreUnavailable(text))
    [record] = caplog.records
    check_line(record.getMessage())


def test_standard_error_takes_what_is_no_answer_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.answers_only():
        print("\x1b[2J")
    assert capsys.readouterr().err == "\\x1b[2J\n"


# metrics and lineage


@nasty
def test_no_metric_is_named_by_a_text_that_airflow_would_not_take(text: str) -> None:
    from airflow_recovery.task.metrics import RecoveryMetrics

    sent: list[tuple[str, dict[str, str]]] = []
    stats = SimpleNamespace(incr=lambda name, by, tags: sent.append((name, tags)))
    RecoveryMetrics(stats, {"dag_id": text}).count("attempts")
    assert sent == [("recovery.attempts", {"dag_id": text})]  # Airflow's own task instances have the same tags


PLACES: dict[str, Callable[[str], str]] = {
    "log, line of a terminal": one_line,
    "terminal": for_terminal,
    "Markdown": for_markdown,
    "note": for_note,
    "message": for_message,
}


def test_the_page_lists_every_place() -> None:
    import airflow_recovery.escaping as module

    functions = {name for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    assert functions - {"annotations"} == {place.__name__ for place in PLACES.values()}
    assert all(f"{name} " in (module.__doc__ or "") for name in functions)
