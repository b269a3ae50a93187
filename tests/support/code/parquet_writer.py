"""An application that writes the delays of one carrier to ``--out``, as Parquet, for tests without Spark."""

import argparse
import pathlib

import pyarrow
import pyarrow.parquet

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--carrier", default="AA")
parser.add_argument("--layout", choices=["plain", "partitioned", "csv"], default="plain")
arguments, _ = parser.parse_known_args()

out = pathlib.Path(arguments.out.removeprefix("file://"))
folder = out / "day=1" if arguments.layout == "partitioned" else out
folder.mkdir(parents=True)
name = "part-0.csv" if arguments.layout == "csv" else "part-0.parquet"
rows = pyarrow.table({"carrier": [arguments.carrier] * 2, "delay": [1.5, -2.0]})
pyarrow.parquet.write_table(rows, folder / name)
(out / "_SUCCESS").touch()
