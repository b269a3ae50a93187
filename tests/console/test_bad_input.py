"""What people mistype on a command line: refused in words, before a store is asked, and nothing is changed."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest

from airflow_recovery.console import arguments
from airflow_recovery.console import main as command_line
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import subcommands
from airflow_recovery.errors import RegionFailed
from airflow_recovery.escaping import for_terminal

DAG, DATE = "flights", "2026-01-01"
POSITIONAL = {"dag": DAG, "run": DATE, "region": "raw"}


def values_of(command) -> list[tuple[str, list[str]]]:
    """Every option or positional of a subcommand that takes a value, and a command line on which it is empty."""
    parser = argparse.ArgumentParser(add_help=False)
    command.load().add_arguments(parser)
    from airflow_recovery.console.deployment import add_standalone_arguments

    add_standalone_arguments(parser)
    positional = [action.dest for action in parser._actions if not action.option_strings]
    found = []
    for action in parser._actions:
        if action.nargs != 0:
            given = ["" if dest == action.dest else POSITIONAL.get(dest, "x") for dest in positional]
            option = [action.option_strings[0], ""] if action.option_strings else []
            found.append((action.dest, [command.name, *given, *option]))
    return found


EMPTY = [
    (f"{subcommand.name} {option}", line) for subcommand in subcommands() for option, line in values_of(subcommand)
]


def called(line: list[str], capsys) -> tuple[int, str]:
    """The exit code and what was said, also where argparse itself refuses."""
    try:
        code = command_line.main([line[0], "--journal", "/no/such/folder", *line[1:]])
    except SystemExit as ended:
        return int(str(ended.code)), "argparse"
    return code, capsys.readouterr().err


@pytest.mark.parametrize("line", [line for _, line in EMPTY], ids=[name for name, _ in EMPTY])
def test_an_option_that_is_empty_is_refused_and_no_store_is_asked(line, monkeypatch, capsys):
    """As ``"$DAG"`` is where the variable is not set: it must not mean the same as leaving the option out."""
    monkeypatch.setattr(
        "airflow_recovery.console.deployment.open_store", lambda *_, **__: pytest.fail("a store is opened")
    )
    code, said = called(line, capsys)
    assert code == ExitCode.USAGE
    assert said == "argparse" or ("Expected a value for" in said and "Leave the option out" in said)


def test_control_an_empty_option_means_none_where_nobody_looks(recorded, monkeypatch):
    monkeypatch.setattr(command_line, "_check_values", lambda args: None)
    assert recorded.call("gc", "--grace", "", "--dry-run")[0] == ExitCode.DONE


@pytest.mark.parametrize("option", ["--diff", "--apply"])
def test_a_saved_plan_that_is_nested_without_end_is_refused(recorded, tmp_path, option):
    recorded.world().until_green()
    file = tmp_path / "plan.json"
    file.write_text("[" * 200_000)
    assert recorded.call("plan", DAG, DATE, option, str(file)) == (ExitCode.USAGE, "")
    assert "nested deeper than" in recorded.errors


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *[
            (["show", DAG, DATE, "--journal", uri], "Expected s3://<bucket>/<prefix>")
            for uri in ("s3://", "s3:///x", "s3://b/../x", "s3://b//x", "hdfs://b/x", "http://b/x")
        ],
        (["gc", "--results", "hdfs://b/x"], "Expected s3://<bucket>/<prefix>"),
        (["gc", "--purge", "--older-than", "0d"], "Expected --older-than to be 1d or more, found 0d"),
        (["gc", "--dag", "typo"], "is empty: no run has claimed"),
        (["gc", "--journal", "s3://b/x", "--endpoint-url", "nonsense"], "Expected --endpoint-url as http://<host>"),
        (["show", DAG, DATE, "--journal", "/"], "Expected the journal's URI, found none"),
    ],
)  # fmt: skip
def test_what_names_no_place_or_no_time_is_refused_in_words(line, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = [line[0], "--journal", str(tmp_path), *line[1:]]  # a second --journal counts
    assert command_line.main(line) in (ExitCode.USAGE, ExitCode.NOT_FOUND)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert said in printed.err
    # A scheme that nobody knows is not taken for a folder beside the caller.
    assert {path.name for path in tmp_path.iterdir()} <= {"_journal", "_results"}


def test_bytes_that_are_no_text_are_refused(recorded):
    """As Python hands in a byte of an argument that is not UTF-8."""
    assert recorded.call("show", "caf\udce9", DATE) == (ExitCode.USAGE, "")
    assert "Expected a text in UTF-8 for dag, found 'caf\\udce9'" in recorded.errors


# --- a stranger's bundle ----------------------------------------------------------------------------------------------

HUGE = 200 * 1024 * 1024


@pytest.fixture
def bundle(recorded, tmp_path):
    """The path of a real bundle."""
    recorded.world().until_green()
    path = tmp_path / "bundle.zip"
    assert recorded.call("export", DAG, DATE, "--out", str(path))[0] == ExitCode.DONE
    return path


def rewritten(path: Path, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """A copy of a bundle in which every entry is what ``change`` makes of it."""
    copy = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return copy


def huge_index(name: str, body: bytes) -> bytes:
    return body + b" " * HUGE if name == "bundle.json" else body


def huge_object(name: str, body: bytes) -> bytes:
    return body + b" " * HUGE if "/plan/" in name else body


def all_large(name: str, body: bytes) -> bytes:
    return body + b" " * (8 * 1024 * 1024) if name.startswith("journal/") else body


def deep_index(name: str, body: bytes) -> bytes:
    return b"[" * 200_000 if name == "bundle.json" else body


def says_it_is_small(path: Path) -> Path:
    """Both headers of each entry that is huge say that it has 100 bytes."""
    body = bytearray(path.read_bytes())
    huge = re.compile(rb"(PK\x01\x02.{20}|PK\x03\x04.{18})(....)", re.DOTALL)
    for match in huge.finditer(bytes(body)):
        if int.from_bytes(match[2], "little") >= HUGE:
            body[match.start(2) : match.end(2)] = (100).to_bytes(4, "little")
    path.write_bytes(body)
    return path


def shown(recorded, path: Path) -> tuple[int, str, int]:
    """The exit code of `show --bundle`, the error, and the most bytes that Python held."""
    tracemalloc.start()
    try:
        code, said = recorded.call("show", "--bundle", str(path))
        assert said == "", "nothing is shown of it"
        return code, recorded.errors, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("change", [huge_index, huge_object, all_large, deep_index])
def test_a_strangers_bundle_takes_no_more_memory_than_a_run_of_its_size(recorded, bundle, change):
    code, error, most = shown(recorded, rewritten(bundle, change))
    assert (code, error.count("\n")) == (ExitCode.NO_ANSWER, 1)
    assert "Ask for the bundle again" in error or "nested deeper than" in error
    assert most < 100 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("change", [huge_index, huge_object])
def test_what_a_bundle_says_of_sizes_is_not_believed(recorded, bundle, change):
    code, _, most = shown(recorded, says_it_is_small(rewritten(bundle, change)))
    assert code == ExitCode.NO_ANSWER
    assert most < 100 * 1024 * 1024


def test_a_compression_that_unpacks_without_a_limit_is_refused(recorded, bundle):
    code, error, _ = shown(recorded, rewritten(bundle, lambda name, body: body, zipfile.ZIP_BZIP2))
    assert (code, "stored or deflated" in error) == (ExitCode.NO_ANSWER, True)


@pytest.mark.slow
def test_control_without_the_limit_a_small_file_takes_all_the_memory_it_asks_for(recorded, bundle, monkeypatch):
    copy = rewritten(bundle, huge_index)
    assert copy.stat().st_size < 1024 * 1024
    for limit in ("ROOM_BYTES", "MAX_RECORD_BYTES"):
        monkeypatch.setattr(f"airflow_recovery.console.bundle.{limit}", 1 << 40)
    assert shown(recorded, copy)[2] > HUGE


# --- what a terminal obeys --------------------------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2K\rAll is well.\x9b2J\u202egnp\u2066\u200b\x08\x7f\udcff"


def fail_with(text: str) -> Callable[[], None]:
    def fail() -> None:
        raise RegionFailed(text)

    return fail


@pytest.fixture
def failed(recorded):
    """A run whose failure says what a terminal would obey."""
    world = recorded.world()
    world.go("raw")
    with pytest.raises(RegionFailed):
        world.go("by_route", on_start=fail_with(EVIL[:-1]))
    world.keep_events()
    return world


@pytest.mark.parametrize(
    "line", [["show", DAG, DATE], ["plan", DAG, DATE], ["events", DAG, DATE]], ids=lambda line: line[0]
)
def test_nothing_that_a_terminal_obeys_is_printed(recorded, failed, line):
    code, said = recorded.call(*line)
    assert code == ExitCode.DONE
    assert "\\x1b]0;owned\\x07" in said
    assert [each for each in said if not (each.isprintable() or each in "\n\t")] == []


def test_nothing_that_a_terminal_obeys_is_in_an_error(recorded, failed):
    assert recorded.call("show", EVIL[:-1], DATE)[0] == ExitCode.NOT_FOUND
    assert recorded.errors.rstrip("\n").isprintable()


def test_control_printed_as_it_is_the_terminal_gets_its_orders(recorded, failed, monkeypatch):
    monkeypatch.setattr("airflow_recovery.console.terminal.for_terminal", lambda text: text)
    assert "\x1b]0;owned\x07" in recorded.call("show", DAG, DATE)[1]


@pytest.fixture
def noisy(recorded, failed, monkeypatch, tmp_path):
    """What a command imports prints a line, as Airflow and DAG files do."""
    (tmp_path / "noisy_while_imported.py").write_text(
        "import sys\nprint('noise')\nsys.stdout.buffer.write(b'more\\n')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "noisy_while_imported", raising=False)
    view_run = arguments.view_run

    def viewed(*args, **kwargs):
        import_module("noisy_while_imported")
        return view_run(*args, **kwargs)

    monkeypatch.setattr(arguments, "view_run", viewed)
    return recorded


def test_only_the_answer_is_on_standard_output(noisy):
    code, said = noisy.call("plan", DAG, DATE, "--json")
    assert (code, json.loads(said)["dag_id"]) == (ExitCode.DONE, DAG)
    assert "noise" in noisy.errors


def test_control_with_one_stream_for_all_a_script_reads_no_json(noisy, monkeypatch):
    monkeypatch.setattr(command_line, "answers_only", nullcontext)
    with pytest.raises(json.JSONDecodeError):
        json.loads(noisy.call("plan", DAG, DATE, "--json")[1])


def test_what_shows_itself_is_printed_as_it_is():
    assert for_terminal("Größe: 3 │ 日本\n\tb") == "Größe: 3 │ 日本\n\tb"
    assert for_terminal(EVIL).isprintable()
    assert for_terminal("\ud800") == "\\ud800", "a half of a character can't be written at all"
