"""The README's Python blocks as DAG files that Airflow can run. Only what each function names is put around them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

README = Path(__file__).resolve().parents[2] / "README.md"

ADOPT = "RecoverableSparkSubmitOperator("
JOB = "# jobs/flights.py"
DAG_FILE = "# dags/flights.py"
READ = "RecoveryResultSensor("
SIGNS = (ADOPT, JOB, DAG_FILE, READ)
"""By which each block is known."""

LAKE = "s3://lake/flights"
AFTER_THE_SENSOR = "# and in a task after it"

ADOPT_DAG = """from airflow.sdk import DAG

with DAG("adopt", schedule=None):
{block}"""

READ_DAG = """from airflow.sdk import DAG, task

with DAG("read", schedule=None):
{sensor}
    @task
    def read(logical_date=None):
{hook}
        return list(result.files)

    ready >> read()
"""


def python_blocks() -> list[str]:
    """Every Python block of the README, in its order."""
    return re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def block(sign: str) -> str:
    """The one block that holds ``sign``."""
    (found,) = [block for block in python_blocks() if sign in block]
    return found


def write_dags(folder: Path, lake: str = LAKE) -> None:
    """The README as a DAGs folder: DAGs ``adopt``, ``flights`` and ``read``, and the module ``jobs.flights``.

    ``lake`` is the one thing that is another than in the README: where the example's files lie.
    """
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs" / "__init__.py").touch()
    (folder / "jobs" / "flights.py").write_text(block(JOB).replace(LAKE, lake))
    (folder / "flights.py").write_text(block(DAG_FILE))
    (folder / "adopt.py").write_text(ADOPT_DAG.format(block=indent(block(ADOPT), " " * 4)))
    sensor, comment, hook = block(READ).partition(AFTER_THE_SENSOR)
    read = READ_DAG.format(sensor=indent(sensor, " " * 4), hook=indent(comment + hook, " " * 8))
    (folder / "read.py").write_text(read)
