"""A real API server under attack: requests whose bodies never come, huge bodies of strangers, a crowd at a large run.

Each attack is tried on the real routes, and as a control on routes of the same process without the protection
(`without_protection/starved_app.py`). Counts decide, and no times.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.api_server.store_routes import ROOM
from airflow_recovery.testing.patience import HANG_S, wait_until
from benchmarks.crowded_server import LARGE_PAGE, SMALL_PAGE, CrowdedServer, crowded_server

pytestmark = pytest.mark.airflow

PLUGIN = """
from airflow.plugins_manager import AirflowPlugin

from airflow_recovery.api_server.plugin import LazyApp


class Starved(AirflowPlugin):
    name = "starved"
    fastapi_apps = [{"app": LazyApp("starved_app", "app"), "url_prefix": "/starved", "name": "Without protection"}]
"""
HUGE = 64 * 1024 * 1024
PART = bytes(256 * 1024)
BUFFERS = 16 * 1024 * 1024
"""More than the kernel and the server take of a body that nobody reads."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrowdedServer]:
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).parent / "without_protection"), os.environ.get("PYTHONPATH")])
    )
    folder = tmp_path_factory.mktemp("starved")
    env = {"PYTHONPATH": path}
    with crowded_server(folder, 60, 10, viewers=ROOM + 1, env=env, plugins={"starved.py": PLUGIN}) as started:
        yield started


def counts(server: CrowdedServer) -> dict[str, int]:
    found: dict[str, int] = server.get("/starved/counts", server.viewers[0]).json()
    return found


def switch(server: CrowdedServer, name: str, *, on: bool) -> None:
    assert server.airflow.request("POST", f"/starved/{name}/{on}").ok


def idle_posts(server: CrowdedServer, prefix: str, stack: ExitStack) -> list[socket.socket]:
    """As many as there are places, without a token and without a body."""
    path = f"{prefix}/plan"
    return [stack.enter_context(server.post_head(path, None, 100)) for _ in range(ROOM)]


def test_fault_370_posts_of_strangers_without_a_body_are_answered_and_hold_nothing(server: CrowdedServer) -> None:
    with ExitStack() as stack:
        idle = idle_posts(server, LARGE_PAGE, stack)
        assert {each.recv(64).split(b" ")[1] for each in idle} == {b"401"}
        assert server.get(SMALL_PAGE, server.viewers[0]).status_code == 200


def test_fault_370_a_user_whose_bodies_never_come_holds_no_place(server: CrowdedServer) -> None:
    with ExitStack() as stack:
        path = f"{LARGE_PAGE}/plan"
        for _ in range(2 * ROOM):
            stack.enter_context(server.post_head(path, server.viewers[0], 100))
        assert server.get(SMALL_PAGE, server.viewers[0]).status_code == 200
        assert counts(server)["taken"] == 0


def test_fault_370_control_where_a_place_comes_first_they_close_the_pages(server: CrowdedServer) -> None:
    place_first = LARGE_PAGE.replace("/airflow-recovery/v1", "/starved")
    assert server.get(place_first, server.viewers[0]).status_code == 200
    with ExitStack() as stack:
        idle_posts(server, place_first, stack)
        wait_until(lambda: counts(server)["place first"] == ROOM, "the places to be taken")
        assert server.get(place_first, server.viewers[0]).status_code == 503
    wait_until(lambda: counts(server)["place first"] == 0, "the places to be free")


def sent_before_the_answer(server: CrowdedServer, path: str) -> tuple[int, bytes]:
    """How many bytes of a huge body a stranger has sent when he is answered, and the status of the answer."""
    sent = 0
    with server.post_head(path, None, HUGE) as connection, selectors.DefaultSelector() as either:
        either.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while True:
            ((_, events),) = either.select(HANG_S)
            if events & selectors.EVENT_READ:
                return sent, connection.recv(64).split(b" ")[1]
            sent += connection.send(PART[: HUGE - sent])


def test_fault_370_a_strangers_huge_body_is_not_read(server: CrowdedServer) -> None:
    sent, status = sent_before_the_answer(server, f"{LARGE_PAGE}/plan")
    assert (sent < BUFFERS, status) == (True, b"401")


def test_fault_370_control_where_the_body_comes_first_all_of_it_is_read(server: CrowdedServer) -> None:
    with server.post_head(f"{LARGE_PAGE.replace('/airflow-recovery/v1', '/starved')}/plan", None, HUGE) as connection:
        for _ in range(HUGE // len(PART)):
            connection.sendall(PART)
        assert connection.recv(64).split(b" ")[1] in (b"401", b"422")


class Crowd:
    """All viewers but the last ask for the large run at the same time."""

    def __init__(self, server: CrowdedServer, pool: ThreadPoolExecutor) -> None:
        self._asked = [pool.submit(server.get, LARGE_PAGE, viewer) for viewer in server.viewers[:ROOM]]

    def answers(self) -> list[Any]:
        return [each.result(HANG_S) for each in self._asked]


def test_fault_371_a_crowd_at_a_large_run_costs_one_reading_and_holds_no_place(server: CrowdedServer) -> None:
    switch(server, "protected", on=True)
    before = counts(server)
    switch(server, "hold", on=True)
    with ThreadPoolExecutor(ROOM) as pool:
        crowd = Crowd(server, pool)
        # Each asks for the run's task instances first, then for the run.
        wait_until(lambda: counts(server)["entered"] - before["entered"] == 2 * ROOM, "the crowd")
        wait_until(lambda: counts(server)["held"] == 1, "the reading")

        assert server.get(SMALL_PAGE, server.viewers[-1]).status_code == 200
        assert server.write_state("while they wait").status_code == 204
        assert counts(server)["taken"] == 0

        switch(server, "hold", on=False)
        answers = crowd.answers()
    assert [each.status_code for each in answers] == [200] * ROOM
    assert len({each.content for each in answers}) == 1
    # One for those who came before it began, one for those who came after.
    assert counts(server)["asked"] - before["asked"] <= 2


def test_fault_371_control_where_each_reads_for_himself_other_dags_are_refused(server: CrowdedServer) -> None:
    switch(server, "protected", on=False)
    switch(server, "hold", on=True)
    with ThreadPoolExecutor(ROOM) as pool:
        crowd = Crowd(server, pool)
        wait_until(lambda: counts(server)["held"] == ROOM, "the readings")

        assert server.get(SMALL_PAGE, server.viewers[-1]).status_code == 503

        switch(server, "hold", on=False)
        assert [each.status_code for each in crowd.answers()] == [200] * ROOM
    switch(server, "protected", on=True)


def test_fault_373_a_large_run_is_read_by_a_process_without_airflows_sockets_and_secrets(
    server: CrowdedServer,
) -> None:
    assert server.get(LARGE_PAGE, server.viewers[0]).status_code == 200
    servers, readers = server.processes()
    assert len(readers) == 1
    ports = {each.laddr.port for each in servers[0].net_connections() if each.status == "LISTEN"}
    assert server.airflow.port in ports
    held = readers[0].net_connections()
    assert not [each for each in held if each.status == "LISTEN" or each.laddr.port in ports]
    assert not [name for name in readers[0].environ() if name.startswith("AIRFLOW_")]


def test_a_large_run_comes_by_page_and_is_not_sent_twice(server: CrowdedServer) -> None:
    run = server.get(LARGE_PAGE, server.viewers[0])
    etag = run.headers["ETag"]
    assert server.get(LARGE_PAGE, server.viewers[0], **{"If-None-Match": etag}).status_code == 304
    page = server.get(f"{LARGE_PAGE}/regions?search=v7[&limit=3&offset=4", server.viewers[0]).json()
    assert page["total"] == 10
    assert [each["story"]["name"] for each in page["regions"]] == [f"v7[0.{at}]" for at in (4, 5, 6)]
