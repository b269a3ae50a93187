"""Whether the versions that are installed here fit each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path

from airflow_recovery.doctor.programs import run_program
from airflow_recovery.doctor.result import CheckResult, not_checked, ok, wrong
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.store_sdks import sdk_archives, sdks_for
from airflow_recovery.driver.submit import submit_environment
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.store.schemes import packages_of, reference_to, scheme_for

OURS = "airflow-recovery"
PYTHONS = ((3, 10), (3, 13))
"""The oldest and the newest Python that are supported."""

REGION_JOB = "airflow_recovery.doctor.region:job"
"""The job of one small region."""

_SPARKS_PACKAGES = ("pyspark", "pyspark-client")
_PLUGIN_GROUPS = ("apache_airflow_provider", "airflow.plugins")
_ARCHIVE_TIMEOUT_S = 60.0
_IN_THE_DRIVER = """
import importlib, json, pathlib, sys
archive, sdks, schemes, *modules = sys.argv[1:]
sys.path.insert(0, archive)
failed = ""
if schemes:
    from airflow_recovery.store.scheme import StoreSpec
    from airflow_recovery.store.schemes import know
    know(*(StoreSpec("", scheme=scheme) for scheme in schemes.split(",")))
for sdk in filter(None, sdks.split(":")):
    from airflow_recovery.driver.store_sdks import provide_sdk
    try:
        provide_sdk(pathlib.Path(sdk))
    except RuntimeError as error:
        failed, modules = str(error), []
for module in modules:
    try:
        importlib.import_module(module)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        break
ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "airflow_recovery"]
places = [getattr(module, "__file__", None) or "" for module in ours]
elsewhere = [place for place in places if not place.startswith(archive + "/")]
print(json.dumps({"python": list(sys.version_info[:2]), "elsewhere": elsewhere, "failed": failed}))
"""


def check_versions(*, in_airflow: bool) -> Iterator[CheckResult]:
    """All that is installed in this environment; ``in_airflow``: as a component of Airflow."""
    installed = installed_versions()
    yield from check_python(sys.version_info[:2])
    yield from check_packages(requirements(), installed, in_airflow=in_airflow)
    yield from check_pyspark(installed)
    if in_airflow:
        yield from check_entry_points()


def check_python(version: tuple[int, int]) -> Iterator[CheckResult]:
    """Whether this Python, ``version`` as (major, minor), is one of the supported."""
    oldest, newest = (".".join(map(str, python)) for python in PYTHONS)
    name = ".".join(map(str, version))
    if PYTHONS[0] <= version <= PYTHONS[1]:
        yield ok("Python", name)
        return
    yield wrong(
        "Python",
        expected=f"{oldest} to {newest}",
        found=name,
        next_step="Install Airflow and airflow-recovery for one of these.",
    )


def installed_versions() -> dict[str, str]:
    """The versions of our package and of those that `requirements` names; one that is not installed is left out."""
    versions: dict[str, str] = {}
    for name in (OURS, *requirements()):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def requirements() -> dict[str, tuple[str, str | None]]:
    """What our own package asks for: by name, the versions and the extra; `None` for what everybody needs.

    Empty where our package is not installed, but only lies on the Python path, or where there is no `packaging`.
    """
    try:
        from packaging.requirements import Requirement

        declared = requires(OURS) or ()
    except (ImportError, PackageNotFoundError):
        return {}
    wanted: dict[str, tuple[str, str | None]] = {}
    for text in declared:
        requirement = Requirement(text)
        extra = next((name for name in ("spark",) if f'extra == "{name}"' in str(requirement.marker or "")), None)
        if requirement.marker is None or extra is not None:
            wanted[requirement.name] = (str(requirement.specifier), extra)
    return wanted


def check_packages(
    wanted: Mapping[str, tuple[str, str | None]], installed: Mapping[str, str], *, in_airflow: bool
) -> Iterator[CheckResult]:
    """Each package that we need, and those of an extra that are installed. Without Airflow, not what is Airflow's.

    Spark's are left to `check_pyspark`: the extra names one pair of versions that fit, and any other pair may be there.
    """
    if not wanted:
        yield not_checked("packages", "what airflow-recovery needs is not known here, where pip has not installed it")
        return
    from packaging.specifiers import SpecifierSet

    if OURS in installed:
        yield ok(OURS, installed[OURS])
    for name, (specifier, extra) in wanted.items():
        text = installed.get(name)
        if name in _SPARKS_PACKAGES:
            continue
        if text is None and (extra is not None or not (in_airflow or not name.startswith("apache-airflow"))):
            continue
        if text is not None and SpecifierSet(specifier).contains(text, prereleases=True):
            yield ok(name, text)
            continue
        of = f"[{extra}]" if extra else ""
        yield wrong(
            name,
            expected=f"version {specifier}" if specifier else "it to be installed",
            found=text or "nothing",
            next_step=f"pip install 'airflow-recovery{of}', with Airflow's constraints, in this environment.",
        )


def check_pyspark(installed: Mapping[str, str]) -> Iterator[CheckResult]:
    """Both packages own the same files: two versions are a mixture of both."""
    package, client = installed.get("pyspark"), installed.get("pyspark-client")
    if package is None or client is None:
        return
    if package == client:
        yield ok("pyspark and pyspark-client", f"both {package}")
        return
    yield wrong(
        "pyspark and pyspark-client",
        expected="the same version of both, since they write the same files",
        found=f"pyspark {package} and pyspark-client {client}",
        next_step=f"pip uninstall both, then pip install pyspark=={package} pyspark-client=={package}.",
    )


def check_entry_points() -> Iterator[CheckResult]:
    """Whether the package's entry points are installed, by which Airflow finds the provider and its plugin."""
    missing = [
        group
        for group in _PLUGIN_GROUPS
        if not any(point.value.startswith("airflow_recovery.") for point in entry_points(group=group))
    ]
    if not missing:
        yield ok("entry points", "Airflow finds the provider and its plugin")
        return
    yield wrong(
        "entry points",
        expected=f"airflow-recovery's in the groups {' and '.join(_PLUGIN_GROUPS)}",
        found=f"none in {' and '.join(missing)}",
        next_step="Install the package with pip in this environment; a folder on PYTHONPATH is not enough.",
    )


def check_archive(environment: Mapping[str, str], stores: Sequence[str] = ()) -> Iterator[CheckResult]:
    """Whether the Python of a driver on this machine can import what is sent to it.

    ``environment`` is the one that spark-submit gets, ``stores`` the URIs of journal and results. A driver on a cluster
    has a Python of its own, which only a region tells of.
    """
    check = "the driver's archive"
    try:
        specs = [StoreSpec(uri, scheme=reference_to(scheme)) for uri in stores if (scheme := scheme_for(uri))]
        archive, sdks = build_archive(REGION_JOB, packages_of(*specs)), sdk_archives(*stores)
    except (ConfigurationError, OSError) as error:
        yield wrong(
            check,
            expected="airflow-recovery's code in an archive for Spark's drivers",
            found=error,
            next_step="Install airflow-recovery as files (pip does), and make the temporary folder writable.",
        )
        return
    modules = [sdk.module for sdk in sdks_for(*stores)]
    schemes = sorted({spec.scheme for spec in specs if spec.scheme is not None})
    yield from _imported(check, archive, sdks, schemes, modules, submit_environment(environment))


def _imported(
    check: str,
    archive: Path,
    sdks: Sequence[Path],
    schemes: Sequence[str],
    clients: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[CheckResult]:
    python = environment["PYSPARK_DRIVER_PYTHON"]
    job_module = REGION_JOB.partition(":")[0]
    modules = ["airflow_recovery.driver.driver", job_module, *clients]
    expected = f"{python} to import what is sent to drivers"
    try:
        # Isolated: neither the checkout nor PYTHONPATH, which a driver may not have.
        done = run_program(
            [python, "-I", "-c", _IN_THE_DRIVER, str(archive), ":".join(map(str, sdks)), ",".join(schemes), *modules],
            environment,
            _ARCHIVE_TIMEOUT_S,
        )
        if done.returncode == 0 and done.stdout:
            answer = json.loads(done.stdout.splitlines()[-1])
        else:
            answer = {"failed": done.stderr.strip()[-500:] or f"exit code {done.returncode}"}
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        answer = {"failed": str(error)}
    if answer["failed"]:
        yield wrong(
            check,
            expected=expected,
            found=answer["failed"],
            next_step="Set PYSPARK_PYTHON to a Python from 3.10 on, and reinstall airflow-recovery.",
        )
    elif answer["elsewhere"]:
        yield wrong(
            check,
            expected=f"all of airflow_recovery from {archive.name}",
            found=f"some from {answer['elsewhere'][0]}: the archive lacks it, or another one is in the way",
            next_step="Reinstall airflow-recovery with pip, and not in the editable way.",
        )
    elif tuple(answer["python"]) < PYTHONS[0]:
        oldest, there = (".".join(map(str, python)) for python in (PYTHONS[0], answer["python"]))
        yield wrong(
            check,
            expected=f"Python {oldest} or later for drivers",
            found=f"Python {there} ({python})",
            next_step="Set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to one minor version, here and on the cluster.",
        )
    else:
        text = version(OURS) if OURS in installed_versions() else "as here"
        yield ok(check, f"{python} imports it (airflow-recovery {text})")
