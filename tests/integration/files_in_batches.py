"""A run of `by_file` in which one loses its input: raw[file] --> cleaned[file] --> merged, two files a task instance.

The batches are a b | c d.
"""

from __future__ import annotations

from pathlib import Path

from pipeline import DagRun, Pipeline

FILES = ["a.csv", "b.csv", "c.csv", "d.csv"]


def write_file(lake: Path, name: str) -> None:
    """Two rows, of which one is kept."""
    lake.mkdir(parents=True, exist_ok=True)
    (lake / name).write_text(f"{name},0\n{name},{ord(name[0])}\n")


def lose_an_input_while_a_neighbour_is_at_work(pipeline: Pipeline, name: str = "") -> DagRun:
    """`c` loses its input in the second batch, when `a` of the first one, which reads no other's, is at work."""
    lake = pipeline.folder / f"files{name}"
    for candidate in FILES:
        write_file(lake, candidate)
    run = pipeline.run("by_file", {"lake": f"file://{lake}"}, name=f"by-file{name}")
    run.hold("raw-a.csv", "cleaned-c.csv")
    run.make_fail_once("cleaned-c.csv")
    run.make_fail_once("cleaned-b.csv")
    run.start()
    run.wait_called("raw-a.csv")
    run.wait_called("cleaned-c.csv")
    run.delete_outputs("raw[c.csv]")
    run.release("cleaned-c.csv")
    run.wait_called("raw-c.csv", 2)
    return run
