"""``python -m scripts.soak --hours H --seed N``: what ``make soak`` runs. Exit code 1 where anything was wrong.

A signal ends it in order, with a last pause and the report; a second one ends it at once.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path

from scripts.wheel import use_wheel

use_wheel()

from scripts.soak.ground import open_ground  # noqa: E402
from scripts.soak.report import write_report  # noqa: E402
from scripts.soak.soak import Soak  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the soak, and write its report. Returns 0 where nothing was wrong, else 1."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-every", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "soak", help="emptied; keeps the logs")
    parser.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "soak.md", help="where the report goes")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another soak is running in {folder}: stop it first", file=sys.stderr)
            return 1
        shutil.rmtree(folder / "run", ignore_errors=True)
        with open_ground(folder / "run", arguments.seed) as ground:
            soak = Soak(ground, arguments.seed, arguments.hours, arguments.pause_every)

            def stop(number: int, frame: object) -> None:
                print("\nStopping at the next tick ...", file=sys.stderr, flush=True)
                soak.stopped = True
                signal.signal(number, signal.SIG_DFL)

            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, stop)
            soak.run()
            write_report(soak.log, arguments.page)
    print(f"{len(soak.violations)} violations; the report is {arguments.page}, logs are in {folder / 'run'}")
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
