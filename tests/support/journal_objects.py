"""A run's journal, read from the bucket as plain JSON. Shares no rules with the product.

See docs/promises.md#invariants.

`JournalObjects.check` has the product's independent checker look as well (`airflow_recovery.verify`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from airflow_recovery.verify import Report

ATTEMPT = re.compile(r"t/(?P<region>[^/]+)/(?P<number>\d{8})\.(?P<kind>\w+)")
PUBLISH = re.compile(r"publish/\d{8}")


@dataclass
class Attempt:
    """The objects of one attempt that are there, by kind."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def outcome(self) -> dict[str, Any]:
        return self.objects.get("outcome", {})

    @property
    def is_finished(self) -> bool:
        return bool(self.outcome.get("state") == "FINISHED")

    @property
    def reads(self) -> dict[str, int]:
        return {pin["region"]: pin["attempt"] for pin in self.outcome.get("inputs", ())}


def decoded(segment: str) -> str:
    """The region that a folder of the journal stands for; a subtask's name has brackets."""
    return re.sub(r"~([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), segment)


class JournalObjects:
    """One reading of everything below ``prefix`` in a bucket. ``client`` is a boto3 S3 client.

    ``verify`` reads it all again, and checks I1 to I13 of a run that has ended.
    """

    def __init__(self, client: Any, bucket: str, prefix: str, verify: Callable[[], Report]) -> None:
        self._verify = verify
        self.keys: dict[str, str] = {}
        self.attempts: dict[str, dict[int, Attempt]] = {}
        self.publishes: list[dict[str, Any]] = []
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for candidate in (found for page in pages for found in page.get("Contents", ())):
            key = candidate["Key"][len(prefix) :]
            self.keys[key] = candidate["ETag"]
            attempt = ATTEMPT.fullmatch(key)
            if attempt or PUBLISH.fullmatch(key):
                body = json.loads(client.get_object(Bucket=bucket, Key=candidate["Key"])["Body"].read())["body"]
                if attempt:
                    number = int(attempt["number"])
                    self.attempts.setdefault(decoded(attempt["region"]), {}).setdefault(number, Attempt()).objects[
                        attempt["kind"]
                    ] = body
                else:
                    self.publishes.append(body)

    def executions(self) -> dict[str, int]:
        """How many attempts of each region were claimed."""
        return {
            region: sum("claim" in attempt.objects for attempt in attempts.values())
            for region, attempts in self.attempts.items()
        }

    def ran_since(self, before: JournalObjects) -> dict[str, int]:
        """The regions of which attempts were claimed since an earlier reading, and how many."""
        then = before.executions()
        added = {region: count - then.get(region, 0) for region, count in self.executions().items()}
        return {region: count for region, count in added.items() if count}

    def current(self, region: str) -> int:
        """The attempt that counts: the highest finished one above the highest reset."""
        attempts = self.attempts[region]
        mark = max((n for n, each in attempts.items() if "reset" in each.objects), default=0)
        return max(n for n, each in attempts.items() if each.is_finished and n > mark)

    def fenced(self, region: str) -> list[str]:
        """Causes of the attempts of a region that ended without a result, oldest first."""
        ended = [each.outcome for _, each in sorted(self.attempts[region].items())]
        return [str(outcome["cause"]) for outcome in ended if outcome.get("state") == "FENCED"]

    def manifest(self, result: str, attempt: int | None = None) -> dict[str, Any]:
        """The manifest of a result, of its region's current attempt or of ``attempt``."""
        for region, attempts in self.attempts.items():
            names = {each["result"] for one in attempts.values() for each in one.outcome.get("outputs", ())}
            if result in names:
                outputs = attempts[attempt or self.current(region)].outcome["outputs"]
                return next(output for output in outputs if output["result"] == result)
        raise KeyError(f"{result} is not among the results of {sorted(self.attempts)}")

    def files(self, result: str, attempt: int | None = None) -> list[Path]:
        """The registered files of a result on the local disk."""
        manifest = self.manifest(result, attempt)
        folder = Path(manifest["location"].removeprefix("file://"))
        return [folder / path for path, _, _ in manifest["objects"]]

    def rows(self, result: str) -> list[tuple[Any, ...]]:
        """All rows of a result as it is now, sorted."""
        tables = [parquet.read_table(candidate, partitioning=None) for candidate in self.files(result)]
        return sorted(tuple(row[name] for name in sorted(row)) for table in tables for row in table.to_pylist())

    def check(self) -> None:
        """The invariants that need the journal and the files alone, of a run that has just ended in success."""
        current = {}
        for region, attempts in self.attempts.items():
            assert sorted(n for n, each in attempts.items() if "claim" in each.objects) == list(
                range(1, self.executions()[region] + 1)
            ), f"{region}: the numbers of its claims have holes"
            for number, each in attempts.items():
                if "claim" in each.objects:
                    assert each.outcome, f"{region}@{number} is open"
            if any(attempt.is_finished for attempt in attempts.values()):
                current[region] = self.current(region)
        for region, number in current.items():
            for producer, read in self.attempts[region][number].reads.items():
                assert self.attempts[producer][read].is_finished, f"{region}@{number} read {producer}@{read}"
                assert current[producer] == read, f"{region}@{number} rests on {producer}@{read}, not the current one"
        newest = self.publishes[-1]
        assert {publish["region"]: publish["attempt"] for publish in newest["regions"]} == current
        for each in newest["regions"]:
            if not newest["skipped"] and each["region"] in current:
                outputs = self.attempts[each["region"]][each["attempt"]].outcome["outputs"]
                assert {one["result"] for one in outputs} == set(each["results"])
        report = self._verify()
        assert not report.violated, report.text()
