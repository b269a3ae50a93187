"""Real processes on a real S3 server: killed with SIGKILL, frozen and woken, and counted independently of the log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import channel_end_process
import pytest
from channel_consumer import ChannelConsumer
from channel_ends import Source, client, committed_rows, drain, lost_rows

from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S


class ChannelEndProcess:
    def __init__(self, server: S3Server, uri: str, role: str, attempt: int, reconnect: Reconnect) -> None:
        arguments = [role, str(attempt), reconnect.value, uri, server.endpoint_url]
        self._process = subprocess.Popen(
            [sys.executable, channel_end_process.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **server.environment()},
        )
        self._is_at_gate = False

    def until(self, what: str) -> None:
        """Through every gate on the way to ``what``, and stop there."""
        while (line := self._next_gate()) != what:
            assert line, f"ended before {what!r}"

    def _next_gate(self) -> str:
        """Let it go on, where it stands at a gate; where it stops next, or nothing when it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._is_at_gate:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        self._is_at_gate = bool(line)
        return line

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(HANG_S)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def exit_code(self) -> int:
        """Through every gate to the end."""
        while self._next_gate():
            pass
        return self._process.wait(HANG_S)

    def close(self) -> None:
        if self.is_alive():
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


Start = Callable[[str, int, Reconnect], ChannelEndProcess]


@pytest.fixture
def channel_store(one_s3_server: S3Server) -> S3Store:
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    return S3Store(uri, endpoint_url=one_s3_server.endpoint_url, session=one_s3_server.session())


@pytest.fixture
def start(one_s3_server: S3Server, channel_store: S3Store) -> Iterator[Start]:
    """Processes of streaming regions, which end with the test."""
    started: list[ChannelEndProcess] = []

    def start_one(role: str, attempt: int, reconnect: Reconnect) -> ChannelEndProcess:
        started.append(ChannelEndProcess(one_s3_server, channel_store.base_uri, role, attempt, reconnect))
        return started[-1]

    yield start_one
    for process in started:
        process.close()


def test_fault_11_14_59_a_sink_is_frozen_woken_late_and_killed(channel_store: S3Store, start: Start) -> None:
    """With ``latest``: attempt 1 is frozen, 2 takes over, 1 wakes; 1 comes again; 2 is killed, then 3."""
    source = Source(channel_store)
    source.emit(*range(10))
    first = start("sink", 1, Reconnect.LATEST)
    first.until("idle")
    source.emit(*range(10, 20))
    first.until("planned 1")
    first.freeze()  # with a plan, and with rows that it is about to commit

    source.emit(*range(20, 25))
    second = start("sink", 2, Reconnect.LATEST)
    second.until("attached")
    source.emit(*range(25, 35))
    first.wake()
    assert first.exit_code() == channel_end_process.EVICTED
    assert start("sink", 1, Reconnect.LATEST).exit_code() == channel_end_process.EVICTED
    second.until("idle")

    source.emit(*range(35, 40))
    second.until("planned 2")
    second.kill()
    third = start("sink", 3, Reconnect.LATEST)
    third.until("attached")
    source.emit(*range(40, 44))
    source.producer.finish()
    assert third.exit_code() == 0

    committed, lost = committed_rows(channel_store), lost_rows(channel_store, source.sent)
    assert sorted(committed) == [*range(10), *range(25, 35), *range(40, 44)]
    assert sorted(lost) == [*range(10, 25), *range(35, 40)]
    assert sorted(committed + lost) == sorted(source.sent.values())


@pytest.mark.slow
def test_fault_13_a_scorer_dies_between_its_two_logs(channel_store: S3Store, start: Start) -> None:
    """Killed with its output published and its input not committed; the neighbours go on as they are."""
    source = Source(channel_store)
    source.emit(*range(10))
    first = start("scorer", 1, Reconnect.REWIND)
    first.until("attached")
    sink = ChannelConsumer(client(channel_store, "scores"), 1)
    sink.connect()
    first.until("between 0")
    drain(sink)
    first.kill()

    source.emit(*range(10, 20))
    second = start("scorer", 2, Reconnect.REWIND)
    second.until("between 1")
    source.producer.finish()
    assert second.exit_code() == 0
    drain(sink)

    assert sink.is_drained
    assert sorted(committed_rows(channel_store, "scores")) == sorted(-row for row in range(20))
    raw, scores = client(channel_store, "raw").refresh(), client(channel_store, "scores").refresh()
    assert (raw.ledger, scores.ledger) == ([], [])
    assert (raw.producer, raw.view, scores.producer, scores.view) == (1, 2, 2, 1)
