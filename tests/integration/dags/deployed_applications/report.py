"""Writes the sum of the amounts of each day."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet

source, target = (each.removeprefix("file://") for each in sys.argv[1:3])
totals = pyarrow.parquet.read_table(source).group_by("day").aggregate([("amount", "sum")])
Path(target).mkdir(parents=True)
pyarrow.parquet.write_table(totals, Path(target, "part-0.parquet"))
