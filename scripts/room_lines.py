"""Lines a room of the package, the largest first: ``python -m scripts.room_lines``. Nothing is enforced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "airflow_recovery"
A_ROW = 4


def room_lines(package: Path = PACKAGE) -> Counter[str]:
    """Lines by room; a module that is in no room counts by its own name. Blank lines and comments are lines."""
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        lines[path.relative_to(package).parts[0]] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def main() -> None:
    """Print them, with what all but `testing` comes to."""
    lines = room_lines()
    product = lines.total() - lines["testing"]
    print(f"{product:,} lines in {len(lines) - 1} rooms and modules, and {lines['testing']:,} in testing:")
    cells = [f"{room:16} {count:6,}" for room, count in lines.most_common()]
    for at in range(0, len(cells), A_ROW):
        print("   ".join(cells[at : at + A_ROW]))


if __name__ == "__main__":
    main()
