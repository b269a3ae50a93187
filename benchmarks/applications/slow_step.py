"""An existing application: waits, and writes its rows to Parquet. It needs no Spark session: that would only add noise.

    slow_step.py OUT SECONDS [--in FOLDER] [--shuffle] [--fail-if FILE]

``--shuffle``: the rows are in another order and in other files each time, as after a shuffle over several machines.
``--fail-if``: where the file is there, take it away, remove the folder of the input, and fail.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
import uuid
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("seconds", type=float)
parser.add_argument("--in", dest="read")
parser.add_argument("--shuffle", action="store_true")
parser.add_argument("--fail-if", type=Path)
given = parser.parse_args()
source = None if given.read is None else Path(given.read.removeprefix("file://"))
if given.fail_if is not None and given.fail_if.exists():
    given.fail_if.unlink()
    shutil.rmtree(str(source))
    sys.exit("this step was told to fail")
time.sleep(given.seconds)
rows = list(range(100_000)) if source is None else [sum(pq.read_table(source)["id"].to_pylist())]
files = 1
if given.shuffle:
    random.shuffle(rows)
    files = random.randint(2, 5)
folder, job = Path(given.out.removeprefix("file://")), uuid.uuid4()
folder.mkdir(parents=True)
for at in range(files):
    pq.write_table(pa.table({"id": rows[at::files]}), folder / f"part-{at:05}-{job}-c000.snappy.parquet")
