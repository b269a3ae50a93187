"""Spark's own declarative pipelines: the same eight steps as materialized views of one application.

Its unit of failure is not a step but the application: so what it needs is compared with a run that nothing disturbs,
and not with steps by spark-submit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.report import Table

PIPELINE = Path(__file__).parent / "flights" / "declarative_pipeline.py"
TITLE = "Spark's declarative pipelines, the same steps in one application"
TIMEOUT_S = 240.0


def measure_declarative(folder: Path, env: Mapping[str, str], order: Path) -> dict[str, Any]:
    """``{"table": Table, "samples": ...}``: three runs, of which two are disturbed."""
    folder.mkdir(parents=True)
    order.unlink(missing_ok=True)
    run = _Pipeline(folder, env)
    samples: dict[str, Any] = {}
    code, clean_s = run.to_end()
    if code != 0:
        said = run.said()[-1500:]
        rows = [("a run that nothing disturbs", f"does not run here: {said.splitlines()[-1] if said else code}")]
        return {"table": Table(TITLE, ("disturbance", "what happened"), rows), "samples": {"said": said}}
    samples["clean_s"] = clean_s
    rows = [("none", f"{clean_s:.0f} s, of which a session takes most")]
    order.write_text(json.dumps({"step": "report", "lose": None, "one_file": False}))
    code, raised_s = run.to_end()
    samples["raises"] = {"code": code, "seconds": raised_s}
    if code == 0:
        told = f"it repeats the step by itself: {raised_s:.0f} s in all, {raised_s / clean_s:.2f} of the clean run"
    else:
        code, again_s = run.to_end()
        samples["raises"]["again_s"] = again_s
        told = f"the run fails; a person starts it again: all eight once more, {again_s / clean_s:.2f} of the clean run"
    rows.append(("the last step raises", told))
    code, killed_s = run.to_end(lambda: run.is_made("joined"))
    code, again_s = run.to_end()
    samples["jvm"] = {"seconds": killed_s, "again_s": again_s}
    told = f"the run is gone; a person starts it again: all eight once more, {again_s / clean_s:.2f} of the clean run"
    rows.append(("its JVM is killed after `joined`", told if code == 0 else f"a second start ends with {code}"))
    return {"table": Table(TITLE, ("disturbance", "what happened"), rows), "samples": samples}


class _Pipeline:
    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = {**env, "PYTHONPATH": str(folder)}  # also of the Python workers
        self._begun = 0.0
        spec = {
            "name": "flights",
            "storage": f"file://{folder / 'storage'}",
            "libraries": [{"glob": {"include": PIPELINE.name}}],
            "configuration": {"spark.sql.shuffle.partitions": "4"},
        }
        (folder / "spark-pipeline.yml").write_text(json.dumps(spec))  # JSON is YAML
        for name in ("declarative_pipeline.py", "application.py", "steps.py"):
            (folder / name).write_bytes((PIPELINE.parent / name).read_bytes())

    def to_end(self, kill_when: Callable[[], bool] | None = None) -> tuple[int, float]:
        """Run it; its exit code, and the seconds that it took. ``kill_when``: then its JVM is killed."""
        self._begun = time.time()
        command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=self._folder, env=self._env, stdout=log, stderr=log)
            try:
                while kill_when is not None and process.poll() is None and not kill_when():
                    time.sleep(0.05)
                if kill_when is not None and process.poll() is None:
                    _kill_jvms(process.pid)
                code = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                _kill_jvms(process.pid)
                process.kill()
        return code, time.time() - self._begun

    def is_made(self, table: str) -> bool:
        """Whether this run has written the table."""
        done = self._folder / "spark-warehouse" / table / "_SUCCESS"
        return done.exists() and done.stat().st_mtime > self._begun

    def said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")


def _kill_jvms(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with suppress(psutil.NoSuchProcess):
            if "java" in member.name():
                member.kill()
