"""An application that writes what ``--in`` holds (or ``--say``), a file a line, for tests without Spark."""

import argparse
import pathlib
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--in", dest="input")
parser.add_argument("--say", default="rows")
parser.add_argument("--fail-after-writing", action="store_true")
parser.add_argument("--write-nothing", action="store_true")
arguments, _ = parser.parse_known_args()

if not arguments.write_nothing:
    out = pathlib.Path(arguments.out.removeprefix("file://"))
    out.mkdir(parents=True, exist_ok=True)
    said = arguments.say
    if arguments.input:
        folder = pathlib.Path(arguments.input.removeprefix("file://"))
        said = "".join(path.read_text() for path in sorted(folder.glob("part-*")))
    for n, line in enumerate(said.split("\n")):
        (out / f"part-{n}").write_text(line)
    (out / ".part-0.crc").write_text("crc")
    (out / "_temporary").mkdir(exist_ok=True)
    (out / "_temporary" / "part-9").write_text("of a dead task")
    (out / "_delta_log").mkdir(exist_ok=True)
    (out / "_delta_log" / "0.json").write_text("{}")
    (out / "_SUCCESS").write_text("")
if arguments.fail_after_writing:
    sys.exit(1)
