"""Real Spark drivers of streaming regions, to be killed, frozen and woken: spark-submit, in a session of its own.

A driver process runs one attempt after the other, so that a test pays for a JVM's start once, and can have spare ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.submit import submit_environment
from airflow_recovery.testing.patience import HANG_S, wait_until

_APPLICATION = """
import json, os, signal, sys, time
from pathlib import Path
from airflow_recovery.driver import driver
from airflow_recovery.streaming import ends
from airflow_recovery.driver.region_spec import RegionSpec

def at(do):
    def wrapped(end, batch, *given):
        if batch == moments.get("die_at"):
            os.killpg(0, signal.SIGKILL)
        if batch == moments.get("hold_at"):
            held.touch()
            while not go.exists():
                time.sleep(0.02)
        return do(end, batch, *given)
    return wrapped

ends.ChannelInput.commit = at(ends.ChannelInput.commit)
publish = ends.ChannelOutput.publish
while True:
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        request = json.loads(path.read_text())
        spec, moments = RegionSpec.from_json(request["spec"]), request["moments"]
        held, go = path.with_suffix(".held"), path.with_suffix(".go")
        ends.ChannelOutput.publish = publish if spec.mode.input else at(publish)
        path.unlink()
        code = driver.drive(spec)
        path.with_suffix(".part").write_text(str(code))
        path.with_suffix(".part").rename(path.with_suffix(".code"))
    time.sleep(0.05)
"""


@dataclass(frozen=True)
class Moments:
    """Where an attempt stops: right before it commits this batch; between its two logs where it has two.

    ``hold_at``: until `StreamingDriverProcess.go`. ``die_at``: ``kill -9`` of the whole session.
    """

    hold_at: int | None = None
    die_at: int | None = None


class StreamingDriverProcess:
    """``code``: folders for the Python path, with the job's code and this package."""

    def __init__(
        self,
        folder: Path,
        code: Sequence[Path],
        *,
        environment: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._current: RegionSpec | None = None
        folder.mkdir(parents=True)
        application = folder / "application.py"
        application.write_text(_APPLICATION)
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **(conf or {}),
        }
        path = os.pathsep.join(map(str, code))
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    *("spark-submit", "--master", "local[2]"),
                    *(name for item in settings.items() for name in ("--conf", "=".join(item))),
                    *(str(application), str(folder)),
                ],
                env=submit_environment({**os.environ, **(environment or {}), "PYTHONPATH": path}),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def begin(self, spec: RegionSpec, moments: Moments | None = None) -> None:
        """Hand it an attempt; a second time the same one, too."""
        for kind in (".code", ".held", ".go"):
            self._path(spec, kind).unlink(missing_ok=True)
        self._current = spec
        path = self._path(spec, ".part-json")
        path.write_text(json.dumps({"spec": spec.to_json(), "moments": asdict(moments or Moments())}))
        path.rename(self._path(spec, ".json"))

    def wait_until_held(self, spec: RegionSpec) -> None:
        """Wait until the driver waits right before its commit."""
        self.wait(self._path(spec, ".held").exists, "the batch that it holds at")

    def go(self, spec: RegionSpec) -> None:
        """Let the driver commit."""
        self._path(spec, ".go").touch()

    def code(self, spec: RegionSpec) -> int:
        """Wait for the end of the attempt, and return its exit code."""
        path = self._path(spec, ".code")
        self.wait(path.exists, "the end of the attempt")
        return int(path.read_text())

    def wait(self, what: Callable[[], bool], awaited: str) -> None:
        """Wait until it is so. Raises `AssertionError` with the log if the attempt ends before."""

        def is_over() -> bool:
            has_ended = self._current is not None and self._path(self._current, ".code").exists()
            return has_ended or self.process.poll() is not None

        wait_until(what, awaited, describe=lambda: f"The driver's log:\n{self.log()}", is_over=is_over)

    def wait_for_death(self) -> None:
        """Wait until the driver has killed itself."""
        self.process.wait(HANG_S)

    def log(self) -> str:
        """What the driver has written to its log."""
        return (self.folder / "log").read_text(errors="replace")

    def freeze(self) -> None:
        """Freeze the driver, its JVM, reader and workers (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let all of them go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """``kill -9`` of the whole session; harmless where it is gone."""
        with suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self.process.wait()

    def is_alive(self) -> bool:
        """Whether the spark-submit of the attempt still runs."""
        return self.process.poll() is None

    def is_idle(self) -> bool:
        """Whether it lives, and has nothing to do."""
        return self.is_alive() and (self._current is None or self._path(self._current, ".code").exists())

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def _path(self, spec: RegionSpec, kind: str) -> Path:
        return self.folder / f"{spec.identity.run_key}-{spec.identity.group_id}-{spec.region}-{spec.attempt}{kind}"
