"""The Sparks that users have, each in a folder of its own: what `make matrix` and its drills run on.

    python -m scripts.sparks [SERIES...]     install those that are missing: half a GB each

A folder is a virtual environment with pyspark and what that alone needs: its Python is as bare as a stock image's.
The folders are in the user's cache, or where the variable SPARKS says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NEWEST = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""Of each series the newest version in the package index."""


@dataclass(frozen=True)
class Spark:
    """``folder`` is its virtual environment, on this machine or not yet."""

    series: str
    version: str
    folder: Path

    @property
    def python(self) -> Path:
        """A Python that has this pyspark, and nothing beyond the standard library besides."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Where its pyspark is: before all else on a Python's path, that Python has this Spark."""
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    @property
    def home(self) -> Path:
        """For ``SPARK_HOME``."""
        return self.site / "pyspark"

    @property
    def submit(self) -> Path:
        """Its ``spark-submit``, as in a distribution: it takes the Spark that it lies in."""
        return self.home / "bin" / "spark-submit"

    def is_installed(self) -> bool:
        """Whether pip has come to its end here."""
        return (self.site / f"pyspark-{self.version}.dist-info" / "RECORD").exists()

    def install(self) -> None:
        """By pip of this Python, from the package index that it knows. Raises `subprocess.CalledProcessError`."""
        venv.create(self.folder, with_pip=False, symlinks=True, clear=True)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-cache-dir"]
        subprocess.run([*pip, f"pyspark=={self.version}"], check=True)


def spark_of(series: str, environment: Mapping[str, str] = os.environ) -> Spark:
    """The newest Spark of ``series``. Raises `KeyError` for a series that is not in `NEWEST`."""
    caches = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(environment.get("SPARKS") or Path(caches, "airflow-recovery", "sparks"))
    return Spark(series, NEWEST[series], folder / NEWEST[series])


def installed_spark(series: str) -> Spark:
    """As `spark_of`. Raises `FileNotFoundError` where it is not on this machine."""
    spark = spark_of(series)
    if not spark.is_installed():
        raise FileNotFoundError(
            f"expected Spark {spark.version} in {spark.folder}, found none: python -m scripts.sparks {series}"
        )
    return spark


def main(arguments: list[str]) -> int:
    """The command."""
    for series in arguments or NEWEST:
        spark = spark_of(series)
        if not spark.is_installed():
            print(f"pip install pyspark=={spark.version}, into {spark.folder}", flush=True)
            spark.install()
        print(f"Spark {spark.version}: {spark.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
