"""What else is found by a process or a port of this machine, as another of its users would have it found."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from second_user import OTHER_USER, OtherUser, needs_second_user, other_user

from airflow_recovery.driver import cached_blocks, process_identity, submit_keeper
from airflow_recovery.driver.cached_blocks import _evicted
from airflow_recovery.driver.process_identity import own_process
from airflow_recovery.driver.submit_keeper import end_keeper_of, keeper_of, order_name
from airflow_recovery.model.cached_location import CachedLocation
from airflow_recovery.task import class_archive
from airflow_recovery.task.class_archive import (
    NoArchive,
    SparkInstallation,
    find_archive,
    find_or_make_archive,
    make_archive,
)

pytestmark = needs_second_user

# the keeper of a driver, which is found by its arguments

TAG = "0123456789abcdef"
IMITATE = """
import os, sys
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def imitator() -> Iterator[OtherUser]:
    """A process of another user with the arguments of the keeper of an attempt."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        script = folder / "submit_keeper.py"
        script.write_text("import time\nprint('BEGAN', flush=True)\ntime.sleep(86400)\n")
        with other_user(IMITATE, script, folder / order_name(TAG)) as running:
            running.wait_says("BEGAN")
            yield running


def test_fault_376_a_process_of_another_user_is_no_keeper(imitator: OtherUser) -> None:
    assert keeper_of(TAG) is None
    end_keeper_of(TAG)
    assert psutil.Process(imitator.pid).uids().real == OTHER_USER  # it lives


def test_fault_376_control_by_its_arguments_alone_it_is_taken_for_one(
    imitator: OtherUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try would follow it, and would not end the driver that is meant."""
    monkeypatch.setattr(submit_keeper, "_is_of_this_user", lambda pid: True)
    assert keeper_of(TAG) == imitator.pid


# the archive of Spark's classes, which is found in a folder

PLANT = """
import os, sys
os.mkdir(sys.argv[1], 0o755)
open(os.path.join(sys.argv[1], sys.argv[2]), "w").write("classes of mine")
"""


@pytest.fixture
def planted() -> Iterator[tuple[SparkInstallation, Path]]:
    """A Spark, and the folder for its archive, where another user has put one first."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        home = Path(name, "home")
        (home / "jars").mkdir(parents=True)
        java = home / "java"
        java.touch()
        os.chmod(name, 0o1777)
        spark, folder = SparkInstallation(home / "spark-submit", java, home, home / "conf"), Path(name, "classes")
        OtherUser(PLANT, folder, f"{spark.key()}.jsa").wait()
        yield spark, folder


def test_fault_379_classes_that_another_user_has_put_there_are_not_loaded(
    planted: tuple[SparkInstallation, Path],
) -> None:
    spark, folder = planted
    for look in (find_archive, partial(find_or_make_archive, environment={}), partial(make_archive, environment={})):
        with pytest.raises(NoArchive, match="to belong to this user"):
            look(spark, folder)


def test_fault_379_control_in_a_folder_that_is_not_looked_at_they_are(
    planted: tuple[SparkInstallation, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "_check_owner", lambda folder: None)
    assert find_archive(*planted).read_text() == "classes of mine"


# a process that this user may not see

IS_GONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("process_identity", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if sys.argv[3] == "off":
    module._is_hidden = lambda pid: False
print("GONE", module.is_gone(sys.argv[2]), "KNOWN", module.own_process() is not None)
"""
HIDING = (
    "unshare", "-m", "sh", "-c",
    'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid "$0" --regid "$0" --clear-groups "$@"',
    str(OTHER_USER),
)  # fmt: skip


def said_where_processes_are_hidden(protection: str) -> str:
    """Whether this process is gone, as another user says it who can't see it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        code = shutil.copy(process_identity.__file__, name)
        program = ["/usr/bin/python3", "-c", IS_GONE, code, str(own_process()), protection]
        done = subprocess.run([*HIDING, *program], capture_output=True, text=True, check=False, cwd="/")
    if "mount" in done.stderr:
        pytest.skip(f"this machine lets nobody mount /proc: {done.stderr}")
    return done.stdout


def test_fault_377_a_process_that_is_hidden_is_not_gone() -> None:
    assert said_where_processes_are_hidden("on") == "GONE False KNOWN True\n"


def test_fault_377_control_it_looks_as_if_it_had_ended() -> None:
    assert said_where_processes_are_hidden("off") == "GONE True KNOWN True\n"


# the UI, which is found by its port

UI = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Nothing(BaseHTTPRequestHandler):
    def do_GET(self):
        print("ASKED", self.path, flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")
server = HTTPServer(("127.0.0.1", 0), Nothing)
print("LISTENS", server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def server() -> Iterator[CachedLocation]:
    """The address of a server of this user's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield CachedLocation(f"127.0.0.1:{listener.getsockname()[1]}", "app-1", "view_1")


def asked(port: int, location: CachedLocation) -> str | None:
    conf = {"spark.driver.host": "127.0.0.1", "spark.ui.port": str(port)}
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: conf.get(name, default)))
    return _evicted(spark, location)


@pytest.fixture
def others_ui() -> Iterator[int]:
    with other_user(UI) as running:
        running.wait_says("LISTENS")
        yield int(running.text().split()[1])


def test_fault_378_what_another_user_says_on_the_uis_port_is_not_believed(
    server: CachedLocation, others_ui: int
) -> None:
    assert asked(others_ui, server) is None


def test_fault_378_control_he_says_that_a_result_is_lost(
    server: CachedLocation, others_ui: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be made again, as often as he likes."""
    monkeypatch.setattr(cached_blocks, "users_of_port", lambda port: set())
    assert asked(others_ui, server) == "all of its partitions were evicted"


def test_the_ui_of_this_user_is_believed(server: CachedLocation) -> None:
    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

    with HTTPServer(("127.0.0.1", 0), Nothing) as ui:
        threading.Thread(target=ui.serve_forever, daemon=True).start()
        assert asked(ui.server_port, server) == "all of its partitions were evicted"
        ui.shutdown()
