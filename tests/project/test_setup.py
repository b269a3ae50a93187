"""The set-up: the order of its parts, what it prints, and how it fails. Nothing is installed here."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from scripts import setup
from scripts.parts import Commands, Failed, LeftOut, Maker, Part, Progress

REPOSITORY = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def part(
    name: str, *needs: str, make: Callable[[], None] = lambda: None, exists: bool = False, seconds: float = 1
) -> Part:
    return Part(name, lambda: exists, make, needs, seconds)


def make(*parts: Part) -> tuple[dict[str, float], str]:
    """Make the parts; the seconds that each took, and what was printed."""
    printed = io.StringIO()
    return Maker(parts, Progress(printed)).make(), printed.getvalue()


def test_a_part_is_made_after_those_that_it_needs() -> None:
    made: list[str] = []
    needs = {"wheel": ("packages",), "jars": ("packages", "java"), "packages": ("venv",), "java": (), "venv": ()}
    make(*(part(name, *needs[name], make=partial(made.append, name)) for name in needs))
    assert sorted(made) == ["jars", "java", "packages", "venv", "wheel"]
    assert made.index("venv") < made.index("packages") < min(made.index("wheel"), made.index("jars"))
    assert made.index("java") < made.index("jars")


def test_parts_that_need_nothing_are_made_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    def meet() -> None:
        both.wait()

    took, _ = make(part("packages", make=meet), part("server", make=meet))
    assert took.keys() == {"packages", "server"}


def test_a_part_that_exists_is_not_made() -> None:
    def fail() -> None:
        raise AssertionError("it was made")

    took, printed = make(part("venv", exists=True, make=fail), part("packages", "venv", exists=True, make=fail))
    assert (took.keys(), printed) == ({"venv", "packages"}, "")


def test_a_part_that_is_left_out_is_named_and_the_others_are_made() -> None:
    def leave_out() -> None:
        raise LeftOut("go is not on the PATH")

    took, printed = make(part("server", make=leave_out), part("links", "server"))
    assert took.keys() == {"server", "links"}
    assert printed == "setup: server: go is not on the PATH\n"


def test_after_a_failure_nothing_begins_that_needs_the_part() -> None:
    made: list[str] = []

    def fail() -> None:
        raise Failed("no space left on device\npip ended with 1. Make room.")

    with pytest.raises(Failed) as caught:
        make(part("packages", make=fail), part("wheel", "packages", make=lambda: made.append("wheel")))
    assert str(caught.value) == "no space left on device\npackages: pip ended with 1. Make room."
    assert made == []


def test_parts_that_need_each_other_or_a_missing_part_are_refused() -> None:
    with pytest.raises(ValueError, match="found one, two"):
        make(part("one", "two"), part("two", "one"), part("three"))
    with pytest.raises(ValueError, match="found wheel"):
        make(part("wheel", "packages"))


@pytest.mark.parametrize("target", setup.TARGETS)
def test_each_target_is_a_table_in_order_that_has_the_parts_of_the_demo(target: str) -> None:
    parts = setup.parts_for(target)
    Maker(parts, Progress(io.StringIO()))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert {part.name for part in setup.parts_for("")} <= set(names)


def test_what_only_all_tests_or_the_drill_use_is_not_made_for_the_tests() -> None:
    named = {target: {part.name for part in setup.parts_for(target)} for target in setup.TARGETS}
    assert named["--all"] - named["--test"] == {"fake-gcs-server", "Azurite", "YARN"}
    assert named["--all"] <= named["--drill"]
    assert named["--test"] - named["--dev"] - named["--s3a"] == {"Debian's programs"}
    assert named[""] == named["--dev"]


def test_what_needs_no_other_part_begins_at_once() -> None:
    at_once = {part.name for part in setup.parts_for("--drill") if not part.needs}
    servers = {"versitygw", "fake-gcs-server", "Azurite", "Kubernetes API server"}
    assert at_once == {"virtual environment", "Java", "Debian's programs", *servers}


def test_no_spark_runs_while_its_archives_of_modules_are_replaced() -> None:
    (classes,) = [part for part in setup.parts_for("") if part.name == "Spark's classes"]
    assert "Spark's Python" in classes.needs


def test_a_terminal_has_one_line_that_is_rewritten() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress(stream, clock)
    progress.show("1 s")
    progress.show("2 s")
    progress.say("ready")
    assert stream.getvalue() == "\rsetup: 1 s\x1b[K\rsetup: 2 s\x1b[K\r\x1b[Ksetup: ready\n"


def test_a_file_has_a_line_every_20_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, clock)
    for clock.s in range(0, 61, 5):
        progress.show(f"{clock.s} s")
    assert stream.getvalue() == "setup: 20 s\nsetup: 40 s\nsetup: 60 s\n"


def test_the_status_names_what_is_waited_for_and_what_is_left() -> None:
    clock, running, go_on = Clock(), threading.Event(), threading.Event()

    def wait() -> None:
        running.set()
        go_on.wait(30)

    maker = Maker(
        [part("packages", make=wait, seconds=30), part("wheel", "packages", seconds=8)], Progress(io.StringIO(), clock)
    )
    thread = threading.Thread(target=maker.make)
    thread.start()
    assert running.wait(30)
    clock.s = 12.0
    assert maker.status() == "12 s, 0 of 2 parts are ready, about 26 s left; waiting for packages"
    clock.s = 50.0
    assert maker.status() == "50 s, 0 of 2 parts are ready, about 9 s left; waiting for packages"
    go_on.set()
    thread.join(30)
    assert maker.status() == "50 s, 2 of 2 parts are ready, about 0 s left; waiting for nothing"


def test_a_program_that_fails_shows_the_end_of_its_log_and_the_advice(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    script = "for at in range(100): print('line', at)\nraise SystemExit(3)"
    with pytest.raises(Failed) as caught:
        commands.run("packages", [sys.executable, "-c", script], advice="Try again.")
    *lines, message = str(caught.value).splitlines()
    assert lines == [f"line {at}" for at in range(85, 100)]
    log = tmp_path / "packages.log"
    assert message == f"{Path(sys.executable).name} ended with 3. Try again. The log is {log}."
    assert "line 0\n" in log.read_text()


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="/no/such/program could not be started"):
        Commands(tmp_path).run("java", ["/no/such/program"])


def test_after_a_stop_running_programs_end_and_no_others_start(tmp_path: Path) -> None:
    commands, errors = Commands(tmp_path), list[str]()

    def run() -> None:
        try:
            commands.run("server", ["sh", "-c", "echo begun; exec sleep 600"])
        except Failed as error:
            errors.append(str(error).splitlines()[-1])

    thread = threading.Thread(target=run)
    thread.start()
    while not (tmp_path / "server.log").exists() or "\nbegun" not in (tmp_path / "server.log").read_text():
        thread.join(0.01)
    commands.stop()
    thread.join(30)
    assert errors[0].startswith("sh ended with -15")
    with pytest.raises(Failed, match="stopped"):
        commands.run("server", ["true"])


def test_a_failure_ends_the_set_up_with_1_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise Failed("E: Unable to locate package\napt-get ended with 100. Correct what it reports.")

    assert setup._make([part("Java", make=fail)], Progress(io.StringIO())) == 1
    assert capsys.readouterr().err.splitlines() == [
        "E: Unable to locate package",
        "setup: error: Java: apt-get ended with 100. Correct what it reports.",
    ]


def test_without_debian_or_root_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Failed, match="found none; install what Debian calls chromium chromium-driver, and put it"):
        setup.apt_install("the tests need chromium, and found none", ["chromium", "chromium-driver"])


def test_what_is_stamped_is_made_again_when_its_files_change(tmp_path: Path) -> None:
    folder = tmp_path / "versitygw"
    (folder / "left_out").mkdir(parents=True)
    (folder / "left_out" / "one.go").write_text("package one")
    before = setup.hash_of(folder)
    (folder / "small_build.pyc").write_text("no source")
    assert setup.hash_of(folder) == before
    (folder / "left_out" / "one.go").write_text("package two")
    assert setup.hash_of(folder) != before


def test_an_environment_with_more_extras_has_those_of_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "VENV", tmp_path)
    assert not setup.packages_exist(("spark", "demo"))
    (tmp_path / ".setup-stamp").write_text(f"{setup.packages_hash()} spark,demo")
    assert setup.packages_exist(("spark", "demo"))
    assert not setup.packages_exist(("spark", "demo", "dev"))
    (tmp_path / ".setup-stamp").write_text(f"{setup.packages_hash()} spark,demo,dev")
    assert setup.packages_exist(("spark", "demo"))
    (tmp_path / ".setup-stamp").write_text("another-list spark,demo,dev")
    assert not setup.packages_exist(("spark", "demo"))


def test_uv_has_the_settings_that_pip_has_and_a_variable_wins_over_a_file() -> None:
    # The names of two settings are put together here: no file may name a registry (test_constraints.py).
    index = "index" + "-url"
    listed = "\n".join(
        [
            ":env:.find-links='/opt/wheels /opt/more'",
            ":env:.timeout='60'",
            "freeze.timeout='1'",
            "global.cert='/etc/ca.pem'",
            "global.timeout='15'",
            f"global.{index}='https://one.example/simple'",
            f"install.extra-{index}='\\nhttps://two.example/simple\\nhttps://three.example/simple'",
            "install.trusted-host='two.example'",
            "global.no-index='true'",
        ]
    )
    settings, arguments = setup.uv_settings(
        setup.parse_pip_settings(listed), {"UV_DEFAULT_INDEX": "https://own.example"}
    )
    assert settings == {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_DEFAULT_INDEX": "https://own.example",
        "UV_FIND_LINKS": "/opt/wheels,/opt/more",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INDEX": "https://two.example/simple https://three.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "two.example",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "true",
    }
    assert arguments == ["--no-index"]
    assert setup.uv_settings({}, {}) == ({"UV_SYSTEM_CERTS": "true", "UV_PYTHON_DOWNLOADS": "never"}, [])


def test_the_small_server_is_of_the_version_that_messages_name() -> None:
    module = (REPOSITORY / "scripts" / "versitygw" / "go.mod").read_text()
    (version,) = re.findall(r"^require github.com/versity/versitygw (\S+)$", module, re.MULTILINE)
    message = (REPOSITORY / "airflow_recovery" / "testing" / "s3_server.py").read_text()
    assert f"versitygw/cmd/versitygw@{version}`" in message


def test_the_launcher_lists_no_arguments_of_its_own() -> None:
    done = subprocess.run(
        [REPOSITORY / "scripts" / "setup.sh", "--dev", "--test"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("setup: error: unknown argument --dev --test; expected nothing, --s3a, ")
