"""The versions of a DAG bundle that `impact` compares: folders, wheels, git revisions; each imported by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import airflow_recovery
from airflow_recovery.errors import ConfigurationError

IMPORT_TIMEOUT_S = 600.0
_START = (
    "import sys; del sys.path[0]; sys.path.append({ours!r}); "
    "from airflow_recovery.console.version_report import main; main()"
)
"""Not ``-m``, which puts the current folder first: the version's modules would be those that stand there."""


@dataclass(frozen=True)
class Version:
    """One version of the bundle, as a folder that only this command reads. ``dags``: where its DAG files are.

    ``code_version`` is its version as Airflow's bundles have it: a commit of git, else ``name``.
    """

    name: str
    root: Path
    dags: Path
    paths: tuple[Path, ...]
    code_version: str


@contextmanager
def open_version(name: str, dags: str | None, paths: Sequence[str]) -> Iterator[Version]:
    """The version that ``name`` names: a folder, a wheel or zip, else a git revision of the current folder.

    ``dags`` and ``paths`` are folders in it. Raises `ConfigurationError` for what is none of them.
    """
    folder = Path(name)
    if folder.is_dir():
        yield _version(name, folder.resolve(), dags, paths)
        return
    with tempfile.TemporaryDirectory(prefix="recovery-impact-") as temporary:
        root = Path(temporary).resolve()
        if folder.is_file():
            try:
                with zipfile.ZipFile(folder) as wheel:
                    wheel.extractall(root)
            except (zipfile.BadZipFile, OSError) as error:
                raise ConfigurationError(
                    f"Expected a folder, a wheel or a git revision, found {name}, which can't be unpacked: {error}."
                ) from error
            yield _version(name, root, dags, paths, installed=_installed(root))
        else:
            commit = _check_out(name, root)
            yield replace(_version(name, root, dags, paths), code_version=commit)


def _installed(root: Path) -> list[Path]:
    """What Python finds of an unpacked wheel once it is installed, whichever folder of it has the DAG files."""
    return [root, *sorted(path for kind in ("purelib", "platlib") for path in root.glob(f"*.data/{kind}"))]


def _version(name: str, root: Path, dags: str | None, paths: Sequence[str], installed: Sequence[Path] = ()) -> Version:
    folders = [root / (dags or "."), *(root / path for path in paths)]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigurationError(
                f"Expected the folder {folder.relative_to(root)} in {name}, found none: --dags and --path name folders "
                "that both versions have."
            )
    named = (folder.resolve() for folder in folders[1:])
    return Version(name, root, folders[0].resolve(), tuple(dict.fromkeys((*named, *installed))), name)


def _check_out(revision: str, root: Path) -> str:
    """The current folder as ``revision`` has it. Returns the commit. Raises `ConfigurationError`."""
    expected = f"Expected {revision!r} as a folder, a wheel or a git revision of the current folder"
    if revision.startswith("-"):
        raise ConfigurationError(f"{expected}, found an option.")
    try:
        known = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if known.returncode != 0:
            said = known.stderr.strip() or "git knows no such revision"
            raise ConfigurationError(f"{expected}, found none of them: {said}. In CI, fetch that revision first.")
        packed = subprocess.run(["git", "archive", known.stdout.strip()], capture_output=True, check=False)
    except OSError as error:
        raise ConfigurationError(f"{expected}, found neither, and no git here: {error}.") from error
    if packed.returncode != 0:
        raise ConfigurationError(f"{expected}, found one without it: {packed.stderr.decode().strip()}.")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(root, filter="data")
        else:  # a Python of before the filters; git has made it, and no file in it lies elsewhere
            archive.extractall(root)
    return known.stdout.strip()


def reports_of(versions: Sequence[Version], runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each version says (`version_report`), each in a process of its own, at the same time.

    Raises `ConfigurationError` for one whose process dies, or takes too long.
    """
    counts = _version_counts()
    with tempfile.TemporaryDirectory(prefix="recovery-impact-") as temporary:
        started = [
            _start(version, runs, Path(temporary) / str(at), version.code_version if counts else "")
            for at, version in enumerate(versions)
        ]
        try:
            return [_answer(*each) for each in started]
        finally:
            for _, process, _ in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _version_counts() -> bool:
    """Whether ``[recovery] code_version`` puts the version of a bundle into fingerprints."""
    if find_spec("airflow") is None:
        return False
    from airflow_recovery.hooks.settings import CodeVersion, configured_code_version

    return configured_code_version() is CodeVersion.BUNDLE


def _start(
    version: Version, runs: Sequence[dict[str, Any]], folder: Path, code_version: str
) -> tuple[Version, subprocess.Popen[bytes], Path]:
    folder.mkdir()
    request, answer, said = folder / "request.json", folder / "answer.json", folder / "said"
    document = {
        "root": str(version.root),
        "dags": str(version.dags),
        "runs": list(runs),
        "version": code_version,
    }
    request.write_text(json.dumps(document))
    given = os.environ.get("PYTHONPATH", "")
    path = [str(each) for each in (version.dags, *version.paths)]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*path, *([given] if given else [])]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AIRFLOW__CORE__DAGS_FOLDER": str(version.dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACKS": "True",
        "AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACK_DEPTH": "100",
    }
    start = _START.format(ours=str(Path(airflow_recovery.__file__).parents[1]))
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", start, str(request), str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd=version.root,
        )
    return version, process, answer


def _answer(version: Version, process: subprocess.Popen[bytes], answer: Path) -> dict[str, Any]:
    try:
        code = process.wait(IMPORT_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"Expected {version.name} to be imported within {IMPORT_TIMEOUT_S:.0f} s, found it still at it."
        ) from error
    if code != 0 or not answer.is_file():
        said = (answer.parent / "said").read_text(errors="replace").strip().splitlines()
        raise ConfigurationError(
            f"{version.name} can't be imported: its process ended with {code}: {said[-1] if said else 'no message'}"
        )
    found: dict[str, Any] = json.loads(answer.read_text())
    return found
