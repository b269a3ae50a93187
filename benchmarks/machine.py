"""The machine and the versions that the figures of one run belong to."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import version

CPU_FILE_VARIABLE = "BENCHMARK_CPU_FILE"
"""Names the file to which every try in the benchmark's Airflow appends its CPU time."""

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
        "python": platform.python_version(),
        "java": _java(),
    }
    return found | {name: version(name) for name in PACKAGES}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.processor() or "unknown"


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none on the PATH"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    return said.splitlines()[0] if said else "unknown"
