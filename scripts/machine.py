"""The machine and the versions that what is measured or recorded here belongs to."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import version

PACKAGES = ("apache-airflow-core", "apache-airflow-providers-apache-spark", "boto3", "pyspark", "airflow-recovery")


def describe_machine() -> dict[str, str]:
    """What one has to know to compare with another machine. The load is that at the start: it should be near zero."""
    import psutil  # type: ignore[import-untyped]

    found = {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "load in the last minute": f"{os.getloadavg()[0]:.2f}",
        "ten million additions in Python": f"{_additions_s():.1f} s of CPU",
        "python": platform.python_version(),
        "java": described_java(),
    }
    return found | {name: version(name) for name in PACKAGES}


def _additions_s() -> float:
    """Two machines that say the same of themselves may still differ by more than twice in this."""
    begun_s, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begun_s


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.processor() or "unknown"


def described_java() -> str:
    """The first line of what the ``java`` on the PATH says of its version."""
    java = shutil.which("java")
    if java is None:
        return "none on the PATH"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    return said.splitlines()[0] if said else "unknown"
