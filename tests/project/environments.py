"""Virtual environments that hold the built wheel and, of all that is installed here, only what was asked for.

Nothing is downloaded: files of the packages are linked from the environment of the tests, as pip would have put them.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.wheel import DIST

LAUNCHER = """#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


class Environment:
    """``airflow-recovery`` with ``extras``, installed from the wheel into ``folder``, and what those need."""

    def __init__(self, folder: Path, *extras: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        (site,) = folder.glob("lib/python*/site-packages")
        (wheel,) = DIST.glob("*.whl")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.bin / "python")]
        install = [*pip, "install", "-q", "--no-deps", str(wheel)]
        subprocess.run(install, env={**os.environ, "PYTHONPATH": ""}, check=True)
        (ours,) = [candidate for candidate in distributions(path=[str(site)]) if candidate.name == "airflow-recovery"]
        for name in sorted(needed_by(ours, extras)):
            self._link(distribution(name), site)

    def variables(self) -> dict[str, str]:
        """The environment of a shell in which it is activated, without Airflow's settings and Python's paths."""
        left_out = ("AIRFLOW", "PYTHONPATH", "PYSPARK")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{os.defpath}{os.pathsep}{java_folder()}"}

    def _link(self, package: Distribution, site: Path) -> None:
        """Strings and no paths: there are some 30,000 files."""
        source, root = str(package.locate_file("")), f"{self.bin.parent}{os.sep}"
        for name, *_ in csv.reader((package.read_text("RECORD") or "").splitlines()):
            at, target = os.path.normpath(f"{site}/{name}"), os.path.normpath(f"{source}/{name}")
            if not at.startswith(root) or os.path.lexists(at):
                continue  # a cache, or a file that several packages have
            _symlink(at, target)
            # pip lists no caches that were made apart, and without them each command compiles Airflow anew.
            if name.endswith(".py") and os.path.exists(compiled := cache_from_source(target)):
                _symlink(cache_from_source(at), compiled)
        for entry in package.entry_points.select(group="console_scripts"):
            launcher = self.bin / entry.name
            launcher.unlink(missing_ok=True)
            python = self.bin / "python"
            launcher.write_text(LAUNCHER.format(python=python, module=entry.module, function=entry.attr))
            launcher.chmod(0o755)


def _symlink(at: str, target: str) -> None:
    with suppress(FileNotFoundError):
        return os.symlink(target, at)
    os.makedirs(os.path.dirname(at), exist_ok=True)
    return os.symlink(target, at)


def java_folder() -> str:
    """The folder of ``java``."""
    home = os.environ.get("JAVA_HOME")
    folders = [f"{home}/bin"] if home else os.environ["PATH"].split(os.pathsep)
    return next(folder for folder in folders if os.access(f"{folder}/java", os.X_OK))


def needed_by(package: Distribution, extras: Iterable[str]) -> set[str]:
    """The names of all distributions that ``package`` needs with ``extras``, as the metadata of each says."""
    found: set[tuple[str, str]] = set()
    wanted = [(package, extra) for extra in ("", *extras)]
    while wanted:
        at, extra = wanted.pop()
        for text in at.requires or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            for further in ("", *requirement.extras):
                key = (canonicalize_name(requirement.name), further)
                if key not in found:
                    found.add(key)
                    wanted.append((distribution(requirement.name), further))
    return {name for name, _ in found}
