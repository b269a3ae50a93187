"""What a commit makes run, of 100 typical commits to packages of 500 files."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Report, Table

FILES, VERTICES, COMMITS, SEED = 500, 20, 100, 37
BEFORE = "AIRFLOW_RECOVERY_BEFORE"
"""The variable that names the folder of an earlier version's code; without it only this version is measured."""
READER = """
import importlib, json, pathlib, sys, time
from airflow_recovery.job import fingerprint
root, commits = pathlib.Path(sys.argv[1]), json.load(sys.stdin)
def fingerprints():
    for name in [name for name in sys.modules if name.partition(".")[0] == "etl"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    job = importlib.import_module("etl.flights").flights
    began = time.process_time()
    one = getattr(fingerprint, "JobCode", None)
    read = one(job).of if one else lambda name: fingerprint.vertex_code(job, name)
    found = {name: fingerprint.vertex_fingerprint(job, name, {}, code=read(name)) for name in job.vertices}
    return {"found": found, "seconds": time.process_time() - began}
answers = [fingerprints(), fingerprints()]
for changed in commits:
    before = {name: (root / name).read_text() if (root / name).exists() else None for name in changed}
    for name, text in changed.items():
        (root / name).write_text(text)
    answers.append(fingerprints())
    for name, text in before.items():
        (root / name).unlink()
        if text is not None:
            (root / name).write_text(text)
print(json.dumps(answers))
"""
KINDS = {
    "the body of a vertex": 30,
    "a helper that one vertex uses": 25,
    "the shared helper": 8,
    "a new helper": 10,
    "a constant that one vertex uses": 7,
    "a comment or a docstring": 8,
    "an import of the standard library": 4,
    "a file that no vertex uses": 8,
}


def package(shape: str) -> dict[str, str]:
    """``steps``: a module for each vertex; ``layers``: modules that import others; ``flat``: many small modules."""
    files = {
        "etl/__init__.py": "",
        "etl/common.py": "LIMIT = 3\n\n\ndef shared(x):\n    return x + LIMIT\n",
        "etl/lib/__init__.py": "",
    }
    rest = FILES - len(files) - 1
    for n in range(rest):
        deeper = f"from etl.lib.m{n + VERTICES} import f{n + VERTICES}\n" if n + VERTICES < rest else ""
        uses = f"f{n + VERTICES}(x)" if deeper and shape != "flat" else "x"
        helper = f"def f{n}(x):\n    return shared({uses}) * SIZE{n}\n\n\ndef g{n}(x):\n    return x\n"
        needed = deeper if shape != "flat" else ""
        files[f"etl/lib/m{n}.py"] = (
            f'"""Module {n}."""\nfrom etl.common import shared\n{needed}SIZE{n} = {n}\n\n\n{helper}'
        )
    each = rest // VERTICES if shape == "flat" else 1
    text = "from airflow_recovery import BLOCKING, job\n"
    names: dict[int, list[str]] = {}
    for v in range(VERTICES):
        for k in range(each):
            text += f"from etl.lib.m{v + k * VERTICES} import f{v + k * VERTICES}\n"
            names.setdefault(v, []).append(f"f{v + k * VERTICES}(raw)")
    text += "\nflights = job('flights')\n"
    for v in range(VERTICES):
        kind, parameter = ("source", "spark") if v == 0 else ("vertex", "raw")
        options = "" if v == 0 else f"(inputs={{'raw': 'v{(v - 1) // 2}'}}, result=BLOCKING)"
        body = ", ".join(names[v]).replace("raw", parameter)
        text += f"\n\n@flights.{kind}{options}\ndef v{v}({parameter}):\n    return [{body}]\n"
    files["etl/flights.py"] = text
    return files


def commit(files: Mapping[str, str], kind: str, source: random.Random) -> dict[str, str]:
    """The package after one commit of this kind."""
    v = source.randrange(VERTICES)
    job, used = "etl/flights.py", f"etl/lib/m{v}.py"
    if kind == "the body of a vertex":
        name, old, new = job, f"def v{v}(", f"def v{v}("
        text = files[job]
        at = text.index("return [", text.index(old))
        return {**files, job: f"{text[:at]}return [0, {text[at + len('return [') :]}"}
    changes = {
        "a helper that one vertex uses": (used, " * SIZE", " + SIZE"),
        "the shared helper": ("etl/common.py", "x + LIMIT", "x - LIMIT"),
        "a new helper": (used, "\n\ndef g", "\n\ndef fresh(x):\n    return -x\n\n\ndef g"),
        "a constant that one vertex uses": (used, f"SIZE{v} = ", f"SIZE{v} = 10 + "),
        "a comment or a docstring": (used, '"""Module', '# Why.\n"""The module'),
        "an import of the standard library": (source.choice((job, used)), "from etl", "import logging\nfrom etl"),
        "a file that no vertex uses": ("etl/reports.py", "", "def report():\n    return 1\n"),
    }
    name, old, new = changes[kind]
    before = files.get(name, "")
    return {**files, name: before.replace(old, new, 1) if old else new}


def measure(folder: Path, repeats: int | None) -> Report:
    """One process for each package and version. ``repeats``: how many commits of each kind are made (1)."""
    versions = {"now": str(Path(__file__).parents[1])}
    if BEFORE in os.environ:
        versions = {"before": os.environ[BEFORE], **versions}
    figures: list[Figure] = []
    rows: list[list[object]] = []
    for shape in ("steps", "layers", "flat"):
        files, source = package(shape), random.Random(SEED)
        kinds = [kind for kind in KINDS for _ in range(repeats or 1)]
        made = [_changed(files, commit(files, kind, source)) for kind in kinds]
        totals: dict[str, float] = {}
        runs: dict[str, dict[str, float]] = {}
        for version, code in versions.items():
            first, again, *after = _read(folder / shape / version, files, made, code)
            runs[version] = dict.fromkeys(KINDS, 0.0)
            for kind, each in zip(kinds, after, strict=True):
                ran = len(_with_readers(first["found"], each["found"]))
                runs[version][kind] += ran * KINDS[kind] / (repeats or 1)
            totals[version] = sum(runs[version].values())
        rows += [[shape, kind, KINDS[kind], *(f"{runs[version][kind]:.0f}" for version in versions)] for kind in KINDS]
        rows.append([shape, "all", COMMITS, *(f"{total:.0f}" for total in totals.values())])
        limit = 2 * totals["before"] if "before" in totals else None
        goal = "" if limit is None else f"at most twice {totals['before']:.0f}"
        reached = None if limit is None else totals["now"] <= limit
        figures += [
            Figure(f"{shape}: vertices that run", totals["now"], "", goal, reached),
            Figure(f"{shape}: first look", 1000 * first["seconds"], "ms"),
            Figure(f"{shape}: next look", 1000 * again["seconds"], "ms"),
        ]
    return Report(
        name="commits",
        title="What a commit makes run",
        method=(
            f"Three packages of {FILES} files, each with {VERTICES} vertices in one module and a helper that all of "
            f"them use. Commits of each kind are made, and count as often as the table's column `of {COMMITS}` says. "
            "`runs`: vertices with another fingerprint, and the vertices that read them, summed over the commits. "
            "`first look`: processor time for all fingerprints in a new process; `next look`: again in it. `before` is "
            "the fingerprint that followed names."
        ),
        figures=figures,
        tables=[
            Table("Vertices that run", ["package", "commit", f"of {COMMITS}", *(f"runs {v}" for v in versions)], rows)
        ],
    )


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in after.items() if before.get(name) != text}


def _with_readers(before: Mapping[str, str], after: Mapping[str, str]) -> set[int]:
    """The vertices that changed, and all that read them: vertex n reads (n - 1) // 2."""
    changed = {int(name[1:]) for name in before if before[name] != after.get(name)}
    for v in range(1, VERTICES):
        if (v - 1) // 2 in changed:
            changed.add(v)
    return changed


def _read(folder: Path, files: Mapping[str, str], commits: Sequence[Mapping[str, str]], code: str) -> list[Any]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), code]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", READER, str(folder)]
    asked = json.dumps(commits)
    done = subprocess.run(command, env=environment, input=asked, capture_output=True, text=True, check=True)
    answers: list[Any] = json.loads(done.stdout)
    return answers
