"""The pipeline that all peers run: eight applications by spark-submit, a diamond, a side branch and two sinks.

::

    flights --+                +--> by_carrier          (a sink: the side branch)
    weather --+--> joined -----+--> by_route ----+
    planes  --+                +--> by_weather --+--> report   (a sink; it reads `joined`, too)
                               +-----------------+

Nothing but the standard library is imported: this file is read where neither Airflow nor this project is installed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

APPLICATION = str(Path(__file__).parent / "application.py")
STEPS: dict[str, tuple[str, ...]] = {
    "flights": (),
    "weather": (),
    "planes": (),
    "joined": ("flights", "weather", "planes"),
    "by_carrier": ("joined",),
    "by_route": ("joined",),
    "by_weather": ("joined",),
    "report": ("joined", "by_route", "by_weather"),
}
"""Each step with those whose results it reads."""
SINKS = ("by_carrier", "report")
AT_ONCE = 2
"""How many applications run at the same time, wherever they are started from."""

CONF = {
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LAKE, OUTPUT, LEDGER, ORDER = (f"BENCHMARK_{name}" for name in ("LAKE", "OUTPUT", "LEDGER", "ORDER"))
"""Variables: the folder of the CSV files, that of the results (of the peers), and what `application` looks at."""


def arguments(step: str, lake: str, inputs: Mapping[str, str], out: str) -> list[str]:
    """What the application of ``step`` is called with."""
    read = [word for name in STEPS[step] for word in ("--in", f"{name}={inputs[name]}")]
    return [step, "--lake", lake, "--out", out, *read]


def submit(step: str, folder: str, log: IO[bytes] | None = None) -> None:
    """Run one step by spark-submit, to its end; each result has a folder below ``folder``, which is overwritten.

    ``log`` is where it says what it does; by default where this process does. Raises `subprocess.CalledProcessError`
    where it fails.
    """
    inputs = {name: f"{folder}/{name}" for name in STEPS[step]}
    conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    words = arguments(step, os.environ[LAKE], inputs, f"{folder}/{step}")
    command = ["spark-submit", "--master", "local[2]", "--name", step, *conf, APPLICATION, *words]
    subprocess.run(command, check=True, stdout=log, stderr=log)
