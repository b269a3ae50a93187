from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from expected_errors import fails_with
from our_imports import imports_of

from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.job import package_files
from airflow_recovery.job.module_code import canonical, find_module
from airflow_recovery.rooms import ANNEX_ROOMS, reachable


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"airflow-recovery-{os.getuid()}"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "code"
    for name in ("shippedjobs/__init__.py", "shippedjobs/deep/steps.py", "shippedjobs/data/airports.csv", "lonely.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    (folder / "shippedjobs/__pycache__").mkdir()
    (folder / "shippedjobs/__pycache__/x.cpython-311.pyc").write_bytes(b"")
    (folder / "shippedjobs/.git").mkdir()
    (folder / "shippedjobs/.git/config").write_text("secret")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def names(archive: Path) -> set[str]:
    """Without bytecode and folders."""
    return {name for name in zipfile.ZipFile(archive).namelist() if not name.endswith((".pyc", "/"))}


@pytest.mark.slow
def test_holds_our_airflow_free_packages_and_the_jobs_package(code: Path) -> None:
    found = names(build_archive("shippedjobs.deep.steps:job"))
    jobs = {name for name in found if not name.startswith("airflow_recovery/")}
    assert jobs == {"shippedjobs/__init__.py", "shippedjobs/deep/steps.py", "shippedjobs/data/airports.csv"}
    assert {"airflow_recovery/__init__.py", "airflow_recovery/errors.py", "airflow_recovery/driver/main.py"} <= found
    assert "airflow_recovery/sinks/declaration.py" in found
    assert not {name.split("/")[1] for name in found} & {"operators", "sensors", "hooks", "plugins", "testing"}


@pytest.mark.slow
def test_single_module_and_extra_packages(code: Path) -> None:
    found = names(build_archive("lonely:job", ["shippedjobs"]))
    assert {"lonely.py", "shippedjobs/deep/steps.py"} <= found


def test_named_by_content_and_reused(code: Path, own_cache: Path) -> None:
    first = build_archive("shippedjobs.deep.steps:job")
    made = first.stat().st_ino
    os.utime(code / "shippedjobs/__init__.py", (1, 1))  # a new checkout: the same content
    assert build_archive("shippedjobs.deep.steps:job") == first
    assert first.stat().st_ino == made

    bytes_before = first.read_bytes()
    first.unlink()
    assert build_archive("shippedjobs.deep.steps:job").read_bytes() == bytes_before

    (code / "shippedjobs/data/airports.csv").write_text("changed")
    assert build_archive("shippedjobs.deep.steps:job") != first
    assert {path.suffix for path in own_cache.iterdir()} == {".zip"}


@pytest.mark.slow
def test_code_is_taken_from_its_folder_where_an_archive_stands_before_it_on_the_path(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's Connect client puts an archive there: the next region of the process has one made as well."""
    first = build_archive("lonely:job", ["shippedjobs"])
    monkeypatch.syspath_prepend(str(first))
    assert build_archive("lonely:job", ["shippedjobs"]) == first
    (code / "lonely.py").write_text("changed")
    changed = build_archive("lonely:job", ["shippedjobs"])
    assert zipfile.ZipFile(changed).read("lonely.py") == b"changed"


def test_folder_of_somebody_else_is_refused(code: Path, own_cache: Path) -> None:
    own_cache.mkdir(mode=0o777)
    own_cache.chmod(0o777)
    with fails_with("folder-not-private"):
        build_archive("lonely:job")


def test_code_that_is_nowhere_is_refused(code: Path) -> None:
    for job in ("nosuchpackage.jobs:job", "sys:job"):
        with fails_with("package-not-in-files"):
            build_archive(job)


LONELY = """
def where():
    import inspect
    return where.__code__.co_filename, "a traceback shows this" in inspect.getsource(where)
"""


def python_with(archive: Path, program: str) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, "-c", program], {"PYTHONPATH": str(archive)}
    return subprocess.run(command, cwd=archive.parent, env=environment, capture_output=True, text=True, check=False)


def imported(archive: Path) -> tuple[str, str]:
    """What an interpreter has the module `lonely` from, and what its function answers."""
    done = python_with(archive, "import lonely; print(lonely.__file__); print(lonely.where())")
    assert done.returncode == 0, done.stderr
    module, answer = done.stdout.splitlines()
    return module.removeprefix(f"{archive}/"), answer


@pytest.mark.slow
def test_a_package_without_init_is_imported(code: Path) -> None:
    done = python_with(build_archive("shippedjobs.deep.steps:job"), "import shippedjobs.deep.steps")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a newer Python knows folders by the files in them")
def test_control_without_its_folder_it_is_not_found(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.driver.code_archive._folders", lambda names: [])
    done = python_with(build_archive("shippedjobs.deep.steps:job"), "import shippedjobs.deep.steps")
    assert "No module named 'shippedjobs.deep'" in done.stderr


def altered(archive: Path, name: str, old: bytes, new: bytes) -> Path:
    path = archive.with_name("altered.zip")
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(path, "w") as out:
        for each in whole.namelist():
            body = whole.read(each)
            assert each != name or old in body
            out.writestr(each, body.replace(old, new) if each == name else body)
    return path


@pytest.mark.slow
def test_a_python_like_the_makers_compiles_nothing_and_tracebacks_show_the_source(code: Path) -> None:
    (code / "lonely.py").write_text(LONELY)
    assert imported(build_archive("lonely:job")) == ("lonely.pyc", "('lonely.py', True)")


@pytest.mark.slow
def test_another_python_takes_the_sources_and_so_does_one_that_finds_them_altered(code: Path) -> None:
    (code / "lonely.py").write_text(LONELY)
    archive = build_archive("lonely:job")
    other = altered(archive, "lonely.pyc", MAGIC_NUMBER, b"\x00\x00\r\n")
    assert imported(other)[0] == "lonely.py"
    assert imported(altered(archive, "lonely.py", b"return where", b"return 'altered', where"))[1].startswith("('alt")


@pytest.mark.slow
def test_each_version_of_python_has_an_archive_of_its_own(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_archive("lonely:job")
    monkeypatch.setattr("importlib.util.MAGIC_NUMBER", b"\x00\x00\r\n")
    assert build_archive("lonely:job") != first


@pytest.mark.slow
def test_a_file_that_can_not_be_compiled_is_shipped_as_it_is(code: Path) -> None:
    (code / "lonely.py").write_text("{{ not Python }")
    with zipfile.ZipFile(build_archive("lonely:job")) as archive:
        assert "lonely.pyc" not in archive.namelist()
        assert archive.read("lonely.py") == b"{{ not Python }"


@pytest.mark.slow
def test_the_fingerprint_of_code_is_the_same_in_an_archive(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / "lonely.py").write_text(LONELY)
    on_disk = find_module("lonely")
    archive = build_archive("lonely:job")
    monkeypatch.setattr("sys.path", [str(archive), *(entry for entry in sys.path if entry != str(code))])
    in_archive = find_module("lonely")
    assert on_disk is not None
    assert in_archive is not None
    assert canonical(in_archive.tree) == canonical(on_disk.tree)


HASHED = ("shippedjobs/__init__.py", "shippedjobs/data/airports.csv")


def hash_all() -> None:
    """As a fingerprint does it."""
    package = find_module("shippedjobs")
    assert package is not None
    for _, digest in package_files.data_files("shippedjobs", package.spec):
        digest()


def shipped(archive: Path, name: str) -> str:
    return zipfile.ZipFile(archive).read(name).decode()


def replaced_after_hashing(code: Path) -> list[str]:
    """What is shipped of files that are replaced between the fingerprint and the archive."""
    hash_all()
    for name in HASHED:
        (code / name).write_text("# another deploy\n")
    archive = build_archive("shippedjobs.deep.steps:job")
    return [shipped(archive, name) for name in HASHED]


@pytest.mark.slow
def test_the_bytes_that_were_hashed_are_shipped_though_the_files_were_replaced(code: Path) -> None:
    assert replaced_after_hashing(code) == [f"# {name}\n" for name in HASHED]
    hash_all()
    archive = build_archive("shippedjobs.deep.steps:job")
    assert [shipped(archive, name) for name in HASHED] == ["# another deploy\n"] * 2, "the next fingerprint is of them"


@pytest.mark.slow
@pytest.mark.control
def test_control_read_again_other_code_is_shipped_than_was_hashed(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_files.HashedFiles, "content", lambda _, path: Path(path).read_bytes())
    assert replaced_after_hashing(code) == ["# another deploy\n"] * 2


def test_a_replaced_file_whose_bytes_were_not_kept_ends_the_attempt(tmp_path: Path) -> None:
    files, path = package_files.HashedFiles(most_bytes=3), tmp_path / "a.csv"
    path.write_bytes(b"old")
    assert files.keep(str(path), b"old") == files.keep(str(path), b"old") == package_files.file_digest(str(path))
    path.write_bytes(b"new")
    assert files.content(str(path)) == b"old"
    other = tmp_path / "b.csv"
    other.write_bytes(b"b")
    files.keep(str(other), b"b")
    assert files.content(str(other)) == b"b", "it was not replaced"
    other.write_bytes(b"c")
    with fails_with("code-replaced-before-start"):
        files.content(str(other))
    files.keep_digest(str(path), "")
    assert files.keep(str(other), b"c"), "there is room again"
    assert files.content(str(other)) == b"c"


IMPORT_ALL = """
import importlib, sys
for blocked in ("airflow", "pyspark", "boto3"):
    sys.modules[blocked] = None  # as where they are not installed
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if getattr(error, "name", None) is None or error.name.partition(".")[0] == "airflow_recovery":
            raise
elsewhere = [name for name, each in sys.modules.items()
             if name.startswith("airflow_recovery") and not each.__file__.startswith({archive!r})]
print(elsewhere)
"""


def import_all(archive: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Import every module of ours in the archive, in an interpreter that has nothing else of ours."""
    names = [module_of(name) for name in zip_names(archive)]
    code = IMPORT_ALL.format(
        names=[name for name in names if name.startswith("airflow_recovery")], archive=str(archive)
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def zip_names(archive: Path) -> list[str]:
    return sorted(name for name in names(archive) if name.endswith(".py"))


@pytest.mark.slow
def test_a_driver_imports_all_that_it_has_of_ours_from_the_archive_alone(code: Path, tmp_path: Path) -> None:
    answer = import_all(build_archive("lonely:job"), tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "[]\n"


@pytest.mark.slow
def test_control_a_room_that_does_not_travel_is_missed(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sinks = reachable("__init__", "driver", *ANNEX_ROOMS) - {"sinks"}
    monkeypatch.setattr("airflow_recovery.driver.code_archive.reachable", lambda *rooms: without_sinks)
    archive = build_archive("lonely:job")
    answer = import_all(archive, tmp_path)
    assert "No module named 'airflow_recovery.sinks'" in answer.stderr
    assert "airflow_recovery.sinks.declaration" in missing_from(archive)


def missing_from(archive: Path) -> set[str]:
    """What the archive's modules import of ours, at any depth and in functions, and the archive does not hold."""
    held = {module_of(name) for name in zip_names(archive)}
    held |= {each.rpartition(".")[0] for each in held}
    with zipfile.ZipFile(archive) as files:
        imported = {
            candidate
            for name in zip_names(archive)
            for candidate in imports_of(files.read(name).decode(), name.rpartition("/")[0].replace("/", "."))
            if candidate.startswith("airflow_recovery.")
        }
    # `from airflow_recovery.job import files` may mean a module, or a name in one.
    return {candidate for candidate in imported if candidate not in held and candidate.rpartition(".")[0] not in held}


@pytest.mark.slow
def test_whatever_a_function_in_it_may_import_of_ours_is_in_it(code: Path) -> None:
    assert missing_from(build_archive("lonely:job")) == set()
