"""The clients of object stores that travel with a driver: a stock Spark image has none in its Python.

A driver puts its outcome into the journal by itself, also when its task is long dead. So it needs a client of the
journal's store wherever it runs. The worker's goes along in an archive of its own, which the driver looks at only where
its Python has none that will do. That of S3 is pure Python. The other one (obstore) is compiled: it runs where the
driver has the worker's kind of machine, and a Python not older than the one it was built for. Executors need none, but
for streaming regions, which hand it on (`airflow_recovery.streaming.workers`).
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path

from airflow_recovery.driver.code_archive import build_from_files, files_of, unpacked
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import scheme_of
from airflow_recovery.store.scheme import ClientLibrary
from airflow_recovery.store.schemes import registered

_TAG = re.compile(r"^Tag: (?P<python>cp3(?P<minor>\d+))-(?P<abi>\w+)-(?P<platform>\S+)$", re.MULTILINE)
_WHEEL = "_wheel.txt"
"""In an archive: what its library was built for."""


def sdks_for(*uris: str) -> tuple[ClientLibrary, ...]:
    """The libraries by which a driver talks to the stores at ``uris``, besides what Spark reads and writes."""
    names = {scheme_of(uri) for uri in uris}
    return tuple(dict.fromkeys(sdk for scheme in registered() if scheme.name in names for sdk in scheme.libraries))


def sdk_archives(*uris: str) -> list[Path]:
    """The archives of this environment's libraries for ``uris``, each made once a machine, as `build_archive`'s.

    Raises `ConfigurationError` for one that is not installed here.
    """
    return [build_from_files(sdk.archive, dict(_files(sdk))) for sdk in sdks_for(*uris)]


_given: dict[str, Path] = {}
"""By the name of its `ClientLibrary`."""


def given_sdks(*uris: str) -> list[Path]:
    """The archives for ``uris`` that this process was given, whether it has needed them or not."""
    return [_given[sdk.name] for sdk in sdks_for(*uris) if sdk.name in _given]


def provide_sdk(archive: Path) -> None:
    """Let this process import the library in ``archive``, where its Python has none, or one that is too old.

    One that is missing is put at the end of the path, so that whatever this Python has by itself (urllib3, six) stays
    as it is. One that is too old is replaced. Raises `RuntimeError` where the archive's can't run here.
    """
    known = (sdk for scheme in registered() for sdk in scheme.libraries)
    sdk = next(sdk for sdk in known if archive.name.startswith(sdk.archive))
    _given[sdk.name] = archive
    found = _installed(sdk)
    if found is not None and found >= sdk.oldest:
        return
    folder = unpacked(archive)
    if sdk.is_compiled:
        _check_fits(sdk, (folder / sdk.top / _WHEEL).read_text())
    sys.path.insert(len(sys.path) if found is None else 0, str(folder))


def _installed(sdk: ClientLibrary) -> tuple[int, ...] | None:
    if find_spec(sdk.top) is None:
        return None
    try:
        return tuple(int(number) for number in version(sdk.top).split(".")[:2])
    except (PackageNotFoundError, ValueError):  # there, but not by pip: whoever did that knows
        return sdk.oldest


def _check_fits(sdk: ClientLibrary, wheel: str) -> None:
    """Raises `RuntimeError` where a library with these tags of its wheel can't be loaded by this Python."""
    here = f"Python {platform.python_version()} on {platform.machine()} with {platform.libc_ver()[0] or 'another libc'}"
    tags = [*_TAG.finditer(wheel)]
    if any(_is_for_us(tag) for tag in tags):
        return
    built = ", ".join(f"{tag['python']}-{tag['abi']}-{tag['platform']}" for tag in tags)
    raise RuntimeError(
        f"expected {sdk.top} {'.'.join(map(str, sdk.oldest))} or later in the Python of this driver, found none, and "
        f"the worker's ({built}) does not run here ({here}). Install {sdk.top} into the image of the driver, or give "
        "it a Python and a machine like the worker's"
    )


def _is_for_us(tag: re.Match[str]) -> bool:
    minor, ours = int(tag["minor"]), sys.version_info.minor
    is_python = minor <= ours if tag["abi"] == "abi3" else minor == ours
    is_linux = tag["platform"].startswith("manylinux") and platform.libc_ver()[0] == "glibc"
    return is_python and is_linux and tag["platform"].endswith(f"_{platform.machine()}")


def _files(sdk: ClientLibrary) -> Iterator[tuple[str, Path]]:
    for package in sdk.packages:
        for name, path in files_of(package):
            if path.suffix != ".pyi" and not sdk.leaves_out(name):
                yield name, path
    if sdk.is_compiled:
        wheel = next((file for file in distribution(sdk.top).files or () if file.name == "WHEEL"), None)
        if wheel is None:
            raise ConfigurationError(
                f"expected {sdk.top} as pip installs it, found no WHEEL beside it: install it again"
            )
        yield f"{sdk.top}/{_WHEEL}", Path(str(wheel.locate()))
