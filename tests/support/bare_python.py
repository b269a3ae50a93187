"""A Python as a stock image of Spark has it: the standard library, and what is asked for by name."""

from __future__ import annotations

import os
import venv
from importlib.util import find_spec
from pathlib import Path

OF_STREAMS = ("pyarrow", "pandas", "numpy", "dateutil", "pytz", "six")
"""What Spark's own ``mapInArrow`` and Python sources ask for, with what that needs."""


def make_bare_python(folder: Path, *packages: str) -> Path:
    """Its program, in ``folder``; of the tests' own Python it has these ``packages`` and modules."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in packages:
        spec = find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        path = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        (site / path.name).symlink_to(path)
    return folder / "bin" / "python"


def bare_environment(python_path: str) -> dict[str, str]:
    """For a process of such a Python: nothing of the tests' environment but the way to Java and to S3."""
    kept = ("PATH", "TMPDIR", "JAVA_HOME")
    variables = {name: os.environ[name] for name in os.environ if name in kept or name.startswith("AWS_")}
    return {**variables, "PYTHONPATH": python_path}
