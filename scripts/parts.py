"""Make the parts of a set-up side by side, each as soon as the parts that it needs exist.

`Maker` runs the parts and shows the progress; `Commands` runs their programs, each with a log of its own. This module
knows nothing of the parts themselves: scripts/setup.py has them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

TICK_S = 0.5
"""A line on a terminal is rewritten so often."""
LINE_EVERY_S = 20.0
"""Elsewhere a new line is printed so often."""
LOG_LINES = 15
"""A failure shows so many of the last lines of the part's log."""


class Failed(Exception):
    """A part could not be made. The message has what happened, and what to do about it."""


class LeftOut(Exception):
    """A part is left out, and the set-up goes on without it. The message has the reason."""


@dataclass(frozen=True)
class Part:
    """One thing that the set-up makes.

    ``needs`` are the names of parts that must exist before. ``seconds`` is the time that ``make`` takes on two cores,
    from which the progress estimates how much is left. ``make`` raises `Failed` or `LeftOut`.
    """

    name: str
    exists: Callable[[], bool]
    make: Callable[[], None]
    needs: tuple[str, ...] = ()
    seconds: float = 1.0


class Commands:
    """Programs of all parts, each with its output in a log below ``logs``. Any thread may use it."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._begun: set[str] = set()

    def run(
        self,
        log: str,
        command: Sequence[object],
        *,
        advice: str = "",
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        interruptible: bool = True,
    ) -> None:
        """Run a program and add its output to a log, which is empty before the first program.

        Raises `Failed` with ``advice`` and the end of the log if the program fails. A program that is not
        ``interruptible`` runs to its end even if another part fails meanwhile: a package manager, for example.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"{log}.log"
        with self._lock:
            mode = "ab" if log in self._begun else "wb"
            self._begun.add(log)
        with path.open(mode) as output:
            output.write(f"$ {' '.join(map(str, command))}\n".encode())
            output.flush()
            status = self._status(command, output.fileno(), env, folder, interruptible)
        if status != 0:
            ended = f"{Path(str(command[0])).name} ended with {status}."
            message = " ".join(filter(None, [ended, advice, f"The log is {path}."]))
            raise Failed(f"{last_lines(path)}\n{message}")

    def stop(self) -> None:
        """End all interruptible programs and what they have started; start no others."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def _status(
        self,
        command: Sequence[object],
        output: int,
        env: Mapping[str, str] | None,
        folder: Path | None,
        interruptible: bool,
    ) -> int:
        with self._lock:
            if self._is_stopped:
                raise Failed("The set-up was stopped.")
            try:
                process = subprocess.Popen(
                    [str(word) for word in command],
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise Failed(f"{command[0]} could not be started: {error}.") from error
            if interruptible:
                self._running.add(process)
        status = process.wait()
        with self._lock:
            self._running.discard(process)
        return status


def last_lines(log: Path, count: int = LOG_LINES) -> str:
    """Return the last lines of a log that are not blank."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-count:])


class Progress:
    """What the user sees: one line that is rewritten on a terminal, a line every 20 s elsewhere."""

    def __init__(self, stream: TextIO = sys.stdout, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._is_terminal = stream.isatty()
        self._began = self._shown = now()
        self._has_line = False

    @property
    def elapsed_s(self) -> float:
        """The time since the start."""
        return self._now() - self._began

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._clear()
        print(f"setup: {text}", file=self._stream, flush=True)

    def show(self, status: str) -> None:
        """Show how far the set-up is, if it is time to."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{f'setup: {status}'[:width]}\x1b[K")
            self._stream.flush()
            self._has_line = True
        elif self._now() - self._shown >= LINE_EVERY_S:
            self._shown = self._now()
            self.say(status)

    def end(self) -> None:
        """Remove the line that is rewritten."""
        self._clear()
        self._stream.flush()

    def _clear(self) -> None:
        if self._has_line:
            self._stream.write("\r\x1b[K")
            self._has_line = False


class Maker:
    """Makes parts. Raises `ValueError` if they need parts that are not among them, or each other."""

    def __init__(self, parts: Iterable[Part], progress: Progress) -> None:
        self._parts = {part.name: part for part in parts}
        self._progress = progress
        self._done: set[str] = set()
        self._began: dict[str, float] = {}
        self._ended: queue.SimpleQueue[tuple[Part, BaseException | None]] = queue.SimpleQueue()
        self._check_order()

    def make(self) -> dict[str, float]:
        """Make all parts that do not exist; return the seconds that each took.

        Raises `Failed` as soon as a part fails. Other parts may be running then.
        """
        took: dict[str, float] = {}
        while len(self._done) < len(self._parts):
            self._start_ready()
            try:
                part, error = self._ended.get(timeout=TICK_S)
            except queue.Empty:
                self._progress.show(self.status())
                continue
            if isinstance(error, LeftOut):
                self._progress.say(f"{part.name}: {error}")
            elif isinstance(error, Failed):
                *log, message = str(error).splitlines()
                raise Failed("\n".join([*log, f"{part.name}: {message}"])) from error
            elif error is not None:
                raise error
            took[part.name] = self._progress.elapsed_s - self._began.pop(part.name)
            self._done.add(part.name)
        return took

    def status(self) -> str:
        """Return one line: the time so far, how many parts are ready, the time that is left, and the parts in work."""
        running = ", ".join(sorted(self._began, key=lambda name: -self._left_s(name))) or "nothing"
        ready = f"{len(self._done)} of {len(self._parts)} parts are ready"
        left = max((self._left_s(name) for name in self._parts), default=0.0)
        return f"{self._progress.elapsed_s:.0f} s, {ready}, about {left:.0f} s left; waiting for {running}"

    def _start_ready(self) -> None:
        for part in self._parts.values():
            if part.name not in self._done and part.name not in self._began and self._done.issuperset(part.needs):
                self._began[part.name] = self._progress.elapsed_s
                threading.Thread(target=self._run, args=(part,), name=part.name, daemon=True).start()

    def _run(self, part: Part) -> None:
        error: BaseException | None = None
        try:
            if not part.exists():
                part.make()
        except BaseException as raised:
            error = raised
        self._ended.put((part, error))

    def _left_s(self, name: str) -> float:
        """An estimate: a part that takes longer than usual ends in a second."""
        if name in self._done:
            return 0.0
        part = self._parts[name]
        if name in self._began:
            return max(1.0, part.seconds - (self._progress.elapsed_s - self._began[name]))
        return part.seconds + max((self._left_s(need) for need in part.needs), default=0.0)

    def _check_order(self) -> None:
        ordered: set[str] = set()
        while len(ordered) < len(self._parts):
            ready = {part.name for part in self._parts.values() if ordered.issuperset(part.needs)}
            if ready <= ordered:
                stuck = ", ".join(sorted(self._parts.keys() - ordered))
                raise ValueError(f"expected parts that need no missing part and not each other, found {stuck}")
            ordered |= ready
