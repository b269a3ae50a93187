"""Writes the amounts of a CSV file, each with a day. It starts no Spark context, which takes 5 s each time."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.parquet

source, target = (each.removeprefix("file://") for each in sys.argv[1:3])
# as it is written
day = sys.argv[3]
rows = pyarrow.csv.read_csv(source)
Path(target).mkdir(parents=True)
pyarrow.parquet.write_table(rows.append_column("day", pyarrow.array([day] * len(rows))), Path(target, "part-0.parquet"))
