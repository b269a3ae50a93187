"""What each DAG has to come to, computed in plain Python: no Spark, no Airflow, nothing of this package.

Rows are tuples of a row's values by the names of its columns, in their order; the rows of a result are sorted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

FACTORS = (3, 4)
"""What the job of `chain` multiplies with: its deploys go forth and back between them."""
NUMBERS = range(60)
"""All numbers in the files of the lake."""

Rows = list[tuple[Any, ...]]
Truth = Mapping[str, Rows]
"""The rows of each result, by its name; of a committing sink those in its table; of lines, tuples of one text."""


def _chain(day: int, factor: int) -> Truth:
    numbers = [(number, number * factor) for number in range(30 + day)]
    thirds = [row for row in numbers if row[0] % 3 == 0]
    halves = [row for row in numbers if row[0] % 2 == 0]
    both = [*thirds, *halves]
    return {
        "numbers": numbers,
        "thirds": thirds,
        "halves": halves,
        "total": [(len(both), sum(value for _, value in both))],
    }


def _months(day: int) -> Truth:
    ids = range(10 + day)
    truth: dict[str, Rows] = {}
    for month, name in enumerate(("jan", "feb", "mar")):
        truth[f"days[{name}]"] = sorted((number, month) for number in ids)
        truth[f"kept[{name}]"] = sorted((number, month) for number in ids if number % 4 < 3)
    each = sum(number % 4 < 3 for number in ids)
    return {**truth, "by_month": [(each, month) for month in range(3)]}


def _batches() -> Truth:
    kept = [number for number in NUMBERS if number >= 5]
    counted = Counter(kept)
    return {
        "numbers": [(number,) for number in kept],
        "counted": sorted((count, number) for number, count in counted.items()),
    }


def _ledger(day: int) -> Truth:
    entries = [(number * 7, number) for number in range(20 + day)]
    return {"entries": entries, "booked": [row for row in entries if row[1] % 5 == 0]}


def _shell(day: int) -> Truth:
    squares = [number * number for number in range(1, 21 + day)]

    def lines(numbers: list[int]) -> Rows:
        return sorted((str(number),) for number in numbers)

    return {
        "squares": lines(squares),
        "summed": lines([sum(squares)]),
        "evens": lines([square for square in squares if square % 2 == 0]),
    }


_DELAYS = {"UA": 11, "AA": 33, "MQ": None, "B6": 20}
_TABLES: Truth = {
    "arrived": sorted((carrier, delay) for carrier, delay in _DELAYS.items() if delay is not None),
    "cancelled": [(carrier, delay) for carrier, delay in _DELAYS.items() if delay is None],
    "late": sorted((carrier, delay) for carrier, delay in _DELAYS.items() if delay is not None and delay > 15),
}
_EVENS = [number for number in NUMBERS if number % 2 == 0]

_TRUTHS: Mapping[str, Callable[[int, int], Truth]] = {
    "chain": _chain,
    "mixed": _chain,
    "own": _chain,
    "months": lambda day, factor: _months(day),
    "ledger": lambda day, factor: _ledger(day),
    "batches": lambda day, factor: _batches(),
    "streams": lambda day, factor: {"table": [(2 * number, number) for number in NUMBERS]},
    "drop_in": lambda day, factor: {
        "cleaned": [(number,) for number in _EVENS],
        "report": [(len(_EVENS), sum(_EVENS))],
    },
    "shell": lambda day, factor: _shell(day),
    "tables": lambda day, factor: _TABLES,
    "delta": lambda day, factor: {name: _TABLES[name] for name in ("arrived", "late")},
}
DAGS = tuple(_TRUTHS)


def truths(dag_id: str, day: str) -> list[Truth]:
    """What a run of ``day`` (``2013-01-31``) may have published: one truth for each version of the code."""
    found: list[Truth] = []
    for factor in FACTORS:
        truth = _TRUTHS[dag_id](int(day[-2:]), factor)
        if truth not in found:
            found.append(truth)
    return found


def wrong_rows(published: Truth, allowed: list[Truth]) -> list[str]:
    """A text for each result that is not what *one* of ``allowed`` has; empty where one fits all of them.

    A result of which the published run has no rows any more (it was released) is not in ``published``.
    """
    best: list[str] | None = None
    for truth in allowed:
        texts = []
        for name, rows in sorted(published.items()):
            if name not in truth:
                texts.append(f"{name} is no result that is known")
            elif sorted(rows, key=repr) != sorted(truth[name], key=repr):
                texts.append(f"{name} has {_few(rows)}, expected {_few(truth[name])}")
        if best is None or len(texts) < len(best):
            best = texts
    return best or []


def _few(rows: Rows) -> str:
    text = ", ".join(map(str, sorted(rows, key=repr)[:6]))
    return f"{len(rows)} rows ({text}{', ...' if len(rows) > 6 else ''})"
