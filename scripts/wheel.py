"""The wheel of this checkout, installed into a folder of its own: what tests, demo and benchmarks run, as users do.

    python -m scripts.wheel                           build dist/*.whl and dist/*.tar.gz, and install the wheel
    python -m scripts.wheel MODULE [ARGUMENT ...]     run a module on the installed wheel, as ``python -m`` would

Nothing is done where the installed wheel was made of the files that are here now. The wheel is built from the source
distribution, so that one which lacks a file is seen too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "airflow_recovery"
DIST = REPOSITORY / "dist"
INSTALLED = REPOSITORY / "build" / "installed"
_STAMP = ".made-of"
_META = ("pyproject.toml", "README.md", "LICENSE")


def use_wheel() -> Path:
    """Have this process, and those that it starts, import the package from the installed wheel; its folder.

    The checkout goes to the end of this process's path, for ``scripts`` and ``benchmarks``, and off that of others.
    Raises `RuntimeError` where the package has been imported from elsewhere.
    """
    installed = str(ensure_installed())
    others = [name for name in sys.path if name != installed]
    sys.path[:] = [installed, *(other for other in others if not _is_checkout(other)), str(REPOSITORY)]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    inherited = [piece for piece in inherited if piece and piece != installed and not _is_checkout(piece)]
    os.environ["PYTHONPATH"] = os.pathsep.join([installed, *inherited])
    imported = getattr(sys.modules.get(PACKAGE), "__file__", None)
    if imported is not None and not Path(imported).is_relative_to(installed):
        raise RuntimeError(f"expected {PACKAGE} below {installed}, found it imported from {imported}")
    return INSTALLED


def ensure_installed() -> Path:
    """Build and install the wheel where the installed one was made of other files; its folder.

    Raises `subprocess.CalledProcessError`, with the tools' output in the terminal, where that fails.
    """
    wanted = _sources()
    with _locked():
        stamp = INSTALLED / _STAMP
        if not (stamp.exists() and stamp.read_text() == wanted):
            with tempfile.TemporaryDirectory(dir=INSTALLED.parent) as scratch:
                _build(Path(scratch))
                _install(Path(scratch), wanted)
    return INSTALLED


def is_installed() -> bool:
    """Whether the installed wheel was made of the files that are here now."""
    stamp = INSTALLED / _STAMP
    return stamp.exists() and stamp.read_text() == _sources()


def _sources() -> str:
    """A hash of all that the wheel is made of."""
    digest = hashlib.sha256()
    package = (path for path in (REPOSITORY / PACKAGE).rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in sorted((*package, *(REPOSITORY / name for name in _META))):
        body = path.read_bytes()
        digest.update(f"{path.relative_to(REPOSITORY)} {len(body)} ".encode() + body)
    return digest.hexdigest()


@contextmanager
def _locked() -> Iterator[None]:
    INSTALLED.parent.mkdir(exist_ok=True)
    with (INSTALLED.parent / "wheel.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(scratch: Path) -> None:
    # Without isolation: the build needs setuptools alone, which the constraints pin, and no network.
    _quietly("-m", "build", "--no-isolation", "--outdir", str(scratch / "dist"), str(REPOSITORY))
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob(f"{PACKAGE}-*"):
        old.unlink()
    for made in (scratch / "dist").iterdir():
        shutil.copy(made, DIST)


def _install(scratch: Path, sources: str) -> None:
    (wheel,) = DIST.glob(f"{PACKAGE}-*.whl")
    fresh = scratch / "installed"
    _quietly("-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--target", str(fresh), str(wheel))
    (fresh / _STAMP).write_text(sources)
    if INSTALLED.exists():
        INSTALLED.rename(scratch / "old")
    fresh.rename(INSTALLED)


def _quietly(*arguments: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=INSTALLED.parent,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        done.check_returncode()


def _is_checkout(entry: str) -> bool:
    return Path(entry or os.curdir).resolve() == REPOSITORY


def main(arguments: list[str]) -> int:
    """Install the wheel of the package as it is now; then run the module that ``arguments`` names, if any."""
    use_wheel()
    if arguments:
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        print(f"{INSTALLED.relative_to(REPOSITORY)} is the wheel of {', '.join(path.name for path in DIST.glob('*'))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
