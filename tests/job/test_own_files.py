"""Files that code reads at a path that it makes of ``__file__`` (fault 393)."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from airflow_recovery.job import code_closure
from airflow_recovery.job.fingerprint import function_code
from airflow_recovery.job.own_files import own_files

FILES = ("rates.csv", "sql/day.sql", "sql/more/week.sql", "rates_de.json", "clean.sql", "other.py", ".git/config")
DATA = {"rates.csv", "sql/day.sql", "sql/more/week.sql", "rates_de.json", "clean.sql"}
SQL = {"sql/day.sql", "sql/more/week.sql"}
HERE = "HERE = Path(__file__).parent\n"

READ: dict[str, tuple[str, set[str]]] = {
    "a name that is written out": ("open(Path(__file__).parent / 'rates.csv')", {"rates.csv"}),
    "a computed name": ("open(Path(__file__).parent / f'{name}.csv')", DATA),
    "a computed name in a folder": ("open(Path(__file__).parent / 'sql' / f'{name}.sql')", SQL),
    "a constant": (f"{HERE}(HERE / 'sql' / (name + '.sql')).read_text()", SQL),
    "os.path": ("H = os.path.dirname(os.path.abspath(__file__))\nopen(os.path.join(H, 'sql', name))", SQL),
    "os.path, written out": ("open(os.path.join(os.path.dirname(__file__), 'sql', 'day.sql'))", {"sql/day.sql"}),
    "an f-string": (f"{HERE}open(f'{{HERE}}/sql/{{name}}.sql')", SQL),
    "an f-string, the begin of a name": (f"{HERE}open(f'{{HERE}}/rates_{{name}}.json')", DATA),
    "texts that are added": ("open(os.path.dirname(__file__) + '/sql/' + name + '.sql')", SQL),
    "joinpath": (f"{HERE}HERE.joinpath('sql', name).read_text()", SQL),
    "a glob": (f"{HERE}for one in (HERE / 'sql').glob('*'): pass", SQL),
    "a list of names": (f"{HERE}paths = [HERE / 'rates.csv', HERE / 'clean.sql']", {"rates.csv", "clean.sql"}),
    "another ending": ("Path(__file__).with_suffix('.sql').read_text()", {"clean.sql"}),
    "another ending, computed": ("Path(__file__).with_suffix(ending).read_text()", DATA),
    "a function that returns the folder": ("def here():\n    return Path(__file__).parent\nopen(here() / name)", DATA),
    "a function that is given the folder": (f"{HERE}load(HERE / 'sql', name)", SQL),
    "a function that is given __file__": ("load(__file__, 'sql')", DATA),
    "a default": (f"{HERE}def read(name, folder=HERE / 'sql'):\n    return open(folder / name)", SQL),
    "an attribute": ("class A:\n    def __init__(s):\n        s.at = Path(__file__).parent / 'sql'\n    def r(s, n):\n"
                     "        return open(s.at / n)", SQL),
    "a class attribute": ("class A:\n    AT = Path(__file__).parent / 'sql'\nopen(A.AT / name)", SQL),
    "the program's name": ("open(os.path.join(os.path.dirname(sys.argv[0]), 'sql', name))", SQL),
    "inspect": ("open(Path(inspect.getsourcefile(f)).parent / name)", DATA),
    "resources": ("importlib.resources.files(__name__).joinpath(name)", DATA),
    "a condition": (f"{HERE}open((HERE / 'sql' if x else HERE) / 'day.sql')", {"sql/day.sql"}),
    "a begin that is held": (f"{HERE}BEGIN = HERE / 'rates_'\nopen(f'{{BEGIN}}{{name}}.json')", DATA),
    "a folder above": ("open(Path(__file__).parents[1] / 'config' / f'{name}.yaml')", {"../config/day.yaml"}),
}  # fmt: skip
UNREAD: dict[str, str] = {
    "no file": "open(f'{name}.csv')",
    "a folder of modules": "sys.path.insert(0, str(Path(__file__).parent))",
    "the name of the program": "log = logging.getLogger(__file__)\nname = Path(__file__).stem\nprint(f'{__file__}')",
    "a file that is written": f"{HERE}open(HERE / 'log.txt', 'w')\n(HERE / 'out').mkdir(exist_ok=True)",
    "where Airflow looks for templates": f"{HERE}DAG('d', template_searchpath=[HERE / 'sql'])",
    "a file that does not exist": f"{HERE}open(HERE / 'none.csv')",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*FILES, "../config/day.yaml"):
        path = tmp_path / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    return tmp_path / "app"


def found(folder: Path, *sources: str) -> set[str]:
    modules = [
        (folder / ("clean.py" if at == 0 else f"m{at}.py"), ast.parse(source)) for at, source in enumerate(sources)
    ]
    return {_below(path, folder) for path in own_files(modules)}


def _below(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else f"../{path.relative_to(folder.parent)}"


@pytest.mark.parametrize("case", READ)
def test_fault_393_files_behind_a_path_that_is_made_of_the_own_one(case: str, folder: Path) -> None:
    source, expected = READ[case]
    assert found(folder, source) == expected


@pytest.mark.parametrize("case", UNREAD)
def test_fault_393_other_files_do_not_count(case: str, folder: Path) -> None:
    assert found(folder, UNREAD[case]) == set()


def test_fault_393_a_path_is_followed_from_module_to_module(folder: Path) -> None:
    assert found(folder, "from m1 import HERE\nopen(HERE / 'sql' / name)", HERE) == SQL
    assert found(folder, "import m1\nopen(m1.HERE / 'sql' / name)", HERE) == SQL
    assert found(folder, "from m1 import HERE as H\nopen(H / 'sql' / name)", HERE) == SQL


def test_a_long_text_takes_no_time_and_no_stack(folder: Path) -> None:
    long = " + ".join(["'a'"] * 300)
    assert found(folder, f"x = {long}\nopen(os.path.dirname(__file__) + '/sql/' + name + {long})") == SQL


# --- in a function outside of any package -----------------------------------------------------------------------------

Function = Callable[[str], ModuleType]


@pytest.fixture
def module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Function]:
    """Imports a module that lies in no package, as a DAG file does."""

    def imported(source: str) -> ModuleType:
        (folder / "alone.py").write_text(f"from pathlib import Path\n{source}")
        sys.modules.pop("alone", None)
        importlib.invalidate_caches()
        return importlib.import_module("alone")

    monkeypatch.syspath_prepend(folder)
    yield imported
    sys.modules.pop("alone", None)


BESIDE = {
    "a computed name": f"{HERE}def run(name):\n    return open(HERE / f'{{name}}.csv')\n",
    "a name that is written out": "def run(name):\n    return open(Path(__file__).parent / 'rates.csv')\n",
}


NAMED = {"other": "rates.csv", "run": "clean.sql"}


@pytest.mark.parametrize("case", BESIDE)
def test_fault_393_a_file_beside_the_module_of_a_function_counts(case: str, module: Function, folder: Path) -> None:
    run = module(BESIDE[case]).run
    before = function_code(run)
    (folder / "other.py").write_text("2")
    (folder / ".git" / "config").write_text("2")
    assert function_code(run) == before
    (folder / "rates.csv").write_text("2")
    assert function_code(run) != before


def test_fault_393_a_file_that_another_function_reads_does_not_count(module: Function, folder: Path) -> None:
    functions = [f"def {name}():\n    return open(HERE / '{file}')\n" for name, file in NAMED.items()]
    run = module(f"{HERE}{''.join(functions)}").run
    before = function_code(run)
    (folder / "rates.csv").write_text("2")
    assert function_code(run) == before
    (folder / "clean.sql").write_text("2")
    assert function_code(run) != before


@pytest.mark.control
def test_fault_393_control_without_the_files_beside_a_module_a_change_is_not_noticed(
    module: Function, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_closure, "own_files", lambda *_: [])
    run = module(BESIDE["a computed name"]).run
    before = function_code(run)
    (folder / "rates.csv").write_text("2")
    assert function_code(run) == before
