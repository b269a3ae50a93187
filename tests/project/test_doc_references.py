"""A reference in code, tests or docs leads somewhere: to a page, a fault, an invariant, a module, a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("airflow_recovery", "tests", "benchmarks", "scripts", "dags", "docs")
NUMBERS = r"\d+(?:(?:, | and |, and | to |-)\d+)*"
IN_A_NAME = r"\d+(?:_(?:and_|to_)?\d+)*"

PAGE = re.compile(r"docs/([\w-]+\.md)((?:#[\w-]+)?(?: and #[\w-]+)?)")
FAULTS = re.compile(rf"(?<![A-Za-z])[Ff]aults?(?: ({NUMBERS})|_({IN_A_NAME})(?!\d))")
INVARIANT = re.compile(r"\bI(\d{1,2})\b()")
CRASH_CASES = re.compile(rf"(?<![A-Za-z])(?:[Cc]rash cases? ({NUMBERS})|test_\w*case_({IN_A_NAME})(?!\d))")
DECISIONS = re.compile(rf"\b[Dd]ecisions? ({NUMBERS})\b()")
PAPERS = re.compile(
    r"\b(?:(?:PROTOCOL|PROMISES|SPLITS|APPROXIMATE|DESIGN|HOUSE|FLINK|AIRFLOW|SPARK|USERS|FINDINGS|STYLE|S3)\.md"
    r"|(?:PROTOCOL|PROMISES|SPLITS|APPROXIMATE|DESIGN|HOUSE)(?: section)? \d"
    r"|(?:PROTOCOL|PROMISES), [a-zP]|[Ii]ssue \d+, section|work/shared)"
)
"""What a project's notes were called before they were pages of docs/."""
EXAMPLES = frozenset({"test_one", "test_two"})
"""Tests of a table that a test makes up."""
PATH = re.compile(rf"(?:(?:{'|'.join(FOLDERS)})/[\w./-]*|[a-z_]+/\w[\w/]*\.py)(?:::\w+)?")
TICKED = re.compile(r"`([^`\n]+)`")


def sources() -> Iterator[Path]:
    """Text that people write and read: no data, nothing of other makers."""
    yield ROOT / "README.md"
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_text = path.suffix in {".py", ".md", ".sh", ".js"} and "vendor" not in path.parts
            if is_text and path != Path(__file__):
                yield path


@cache
def anchors_of(page: str) -> frozenset[str]:
    """As the site makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings)


@cache
def numbers_in(page: str, pattern: str) -> frozenset[int]:
    """What a page has a row or a heading for."""
    return frozenset(map(int, re.findall(pattern, (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)))


def expanded(said: str) -> set[int]:
    """``"3, 5 to 7 and 9"`` and ``"3_5_to_7_9"``: 3, 5, 6, 7, 9."""
    numbers: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:(?: to |_to_|-)(\d+))?", said):
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def dangling(text: str) -> list[str]:
    """The references in ``text`` that lead nowhere."""
    wrong = [f"{match}: not in this repository" for match in PAPERS.findall(text)]
    for page, anchors in PAGE.findall(text):
        if not (ROOT / "docs" / page).is_file():
            wrong.append(f"docs/{page}: no such page")
            continue
        wrong += [
            f"docs/{page}#{match}" for match in re.findall(r"#([\w-]+)", anchors) if match not in anchors_of(page)
        ]
    numbered = (
        (FAULTS, "faults.md", r"^\| (\d+) \|"),
        (INVARIANT, "promises.md", r"^\| I(\d+) \|"),
        (CRASH_CASES, "protocol.md", r"^\| (\d+) \|"),
        (DECISIONS, "decisions.md", r"^## (\d+)\."),
    )
    for pattern, page, row in numbered:
        for said in pattern.findall(text):
            missing = sorted(expanded("".join(said)) - numbers_in(page, row))
            wrong += [f"{number}: not in docs/{page}" for number in missing]
    return wrong


# modules, classes, functions, files, tests


@cache
def names_in(path: Path) -> dict[str, frozenset[str]]:
    """The names at the top of a module, each with those that it has itself."""
    found: dict[str, frozenset[str]] = {}
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.ClassDef):
            members = {each for inner in node.body for each in bound_by(inner)}
            found[node.name] = frozenset(members)
        else:
            found |= dict.fromkeys(bound_by(node), frozenset())
    return found


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module, also below ``if TYPE_CHECKING``."""
    for node in body:
        yield from statements([*node.body, *node.orelse]) if isinstance(node, ast.If) else [node]


def bound_by(node: ast.stmt) -> set[str]:
    """What a statement gives a name to."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(name.asname or name.name).partition(".")[0] for name in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def is_there(dotted: str) -> bool:
    """Is there such a package, module, class, function or member?"""
    path, (first, *rest) = ROOT, dotted.split(".")
    names = [first, *rest]
    while names and (path / names[0]).is_dir():
        path /= names.pop(0)
    is_module = bool(names) and (path / f"{names[0]}.py").is_file()
    module = path / (f"{names.pop(0)}.py" if is_module else "__init__.py")
    if not names:
        return module.is_file()
    known = names_in(module) if module.is_file() else {}
    if names[0] in known:
        return len(names) == 1 or not known[names[0]] or names[1] in known[names[0]]
    return False


@cache
def code() -> str:
    """The package's own text: an audit log's event, say, has a dotted name that is no module's."""
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "airflow_recovery").rglob("*.py"))


@cache
def names_of_tests() -> frozenset[str]:
    files = [*(ROOT / "tests").rglob("*.py")]
    functions = (
        re.findall(r"^ *def (test_\w+)", candidate.read_text(encoding="utf-8"), re.MULTILINE) for candidate in files
    )
    return frozenset(candidate.stem for candidate in files) | frozenset(
        name for function in functions for name in function
    )


def is_file_of_ours(said: str) -> bool:
    """A path, as it is from the root of the repository or of the package; a lone name, wherever the file lies."""
    path, _, function = said.partition("::")
    if "/" not in path.rstrip("/"):
        return any(True for folder in FOLDERS for _ in (ROOT / folder).rglob(path.rstrip("/")))
    near = [each / path for each in (ROOT, ROOT / "airflow_recovery", ROOT / "tests") if (each / path).exists()]
    return bool(near) and (not function or function in names_in(near[0]))


def missing_names(text: str, *, is_doc: bool) -> list[str]:
    """What stands in backticks and is not there. A doc's own examples of a user's files are not asked for."""
    wrong = []
    for said in TICKED.findall(text):
        if re.fullmatch(r"airflow_recovery(\.\w+)+", said):
            wrong += [] if is_there(said) or f'"{said}"' in code() else [said]
        elif re.fullmatch(r"test_\w+(\.py)?", said):
            wrong += [] if said.removesuffix(".py") in names_of_tests() | EXAMPLES else [said]
        elif is_doc and PATH.fullmatch(said):
            wrong += [] if is_file_of_ours(said) else [said]
    return wrong


@pytest.mark.parametrize("folder", ["README.md", *FOLDERS])
def test_every_reference_leads_somewhere(folder: str) -> None:
    wrong = []
    for path in sources():
        if path.relative_to(ROOT).parts[0] == folder:
            text = path.read_text(encoding="utf-8")
            is_doc = path.suffix == ".md"
            wrong += [f"{path.relative_to(ROOT)}: {each}" for each in dangling(text)]
            wrong += [f"{path.relative_to(ROOT)}: `{name}`" for name in missing_names(text, is_doc=is_doc)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "invented",
    [
        "see PROTOCOL 5.1",
        "(PROMISES, fault 7)",
        "see SPLITS.md section 4",
        "docs/no-such-page.md",
        "docs/protocol.md#no-such-place",
        "docs/protocol.md#clear and #no-such-place",
        "fault 999",
        "faults 7, 8 and 999",
        "faults 990 to 993",
        "def test_fault_999_it_is_held():",
        "def test_fault_7_fault_999():",
        "the checker's I99",
        "crash case 99",
        "def test_case_99_it_is_closed():",
        "decision 99",
    ],
)
def test_control_an_invented_reference_is_found(invented: str) -> None:
    assert dangling(invented + "\n")


@pytest.mark.parametrize(
    "invented",
    [
        "`airflow_recovery.no_such_room`",
        "`airflow_recovery.errors.NoSuchError`",
        "`airflow_recovery/no_such_file.py`",
        "`no_such_room/no_such_file.py`",
        "`tests/project/test_doc_references.py::test_no_such_test`",
        "`test_no_such_test`",
    ],
)
def test_control_an_invented_name_is_found(invented: str) -> None:
    assert missing_names(invented, is_doc=True)


def missing_modules(room: Path, docstring: str) -> list[str]:
    """Of the table in a room's docstring: module, what it does."""
    tabled = re.findall(r"^ {4}(\w+)  ", docstring, re.MULTILINE)
    return [match for match in tabled if not (room / f"{match}.py").is_file()]


@pytest.mark.parametrize("room", sorted((ROOT / "airflow_recovery").iterdir()), ids=lambda room: room.name)
def test_the_modules_that_a_room_lists_are_there(room: Path) -> None:
    if (room / "__init__.py").is_file():
        said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
        assert missing_modules(room, said) == []
        names = {name for path in room.glob("*.py") for name in names_in(path)} | {path.stem for path in room.iterdir()}
        words = [match for match in re.findall(r"`([a-z_]+)`", said.replace("``", "")) if match not in names]
        assert words == []


def test_control_a_module_that_a_room_has_not_is_seen() -> None:
    assert missing_modules(ROOT / "airflow_recovery" / "attempt", "One try.\n\n    no_such  module\n") == ["no_such"]


def test_what_is_there_is_found() -> None:
    here = (
        "`tests/project/test_doc_references.py::test_what_is_there_is_found`, `airflow_recovery.errors.RecoveryError`"
    )
    assert missing_names(f"{here}, `airflow_recovery/errors.py`, `test_doc_references`", is_doc=True) == []
    assert dangling("fault 7, faults 21 to 24, test_fault_7_8_11_it, I15, crash case 16, docs/protocol.md#clear") == []
