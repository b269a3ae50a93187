"""Writes docs/errors.md, the code of each error, from the places that raise them: `python -m scripts.error_codes`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from airflow_recovery import errors
from scripts.generated_tables import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
HEAD = """# Error codes

Made from the code by `python -m scripts.error_codes`. Each error has a code: `error.code`. It stays when the text of
the error changes. An error whose code is not in this table has the name of its class as its code: `InputLost` has
`input-lost`.

What the kind of an error means:

| kind | what happens, or what to do |
| --- | --- |
| retry | The next try may succeed. Nothing has to be changed for it. |
| fenced | Nothing has failed. Another process was faster, so the task starts again at once. |
| final | The same try would end the same way. Change what the text names, then clear the task. |
| in doubt | Recovery can't tell if something was done. A person must look, and say so. |
| corrupt | An object in a store is not what was written there. A person must look. |
| not found | What you asked for is not there. |
| outdated | The run has changed since you looked. Nothing was changed. Look again. |
| refused | What you asked for would do harm, or comes too late. Nothing was changed. |

"""


def codes() -> dict[str, set[str]]:
    """Return each code that the package gives an error, with the names of the errors' classes."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "airflow_recovery").rglob("*.py")):
        for name, code in _raised(ast.parse(path.read_text(encoding="utf-8"))):
            found[code].add(name)
    return dict(sorted(found.items()))


def _raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            code = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "code" and isinstance(code, str):
                name = ast.unparse(call.func).rpartition(".")[2]
                # If a caller chooses the class (`check_arguments`), it may be any.
                yield name if name[0].isupper() else errors.RecoveryError.__name__, code


def page() -> str:
    """Return the page, in Markdown."""
    rows = []
    for code, names in codes().items():
        (name,) = names
        kind = getattr(errors, name, errors.RecoveryError).kind.value
        rows.append((f"`{code}`", f"`{name}`", kind))
    return HEAD + table(("code", "error", "kind"), rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
