"""Readers of a drop-in whose result was lost and is made again: which of them keep their own results, and why."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from tries import run_try, state_in

from airflow_recovery.errors import ClearNotConfigured
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.results.stored_rows import StoredRows
from airflow_recovery.task import drop_in

APPLICATION = """
import pathlib, sys, uuid
out, lines = pathlib.Path(sys.argv[1].removeprefix("file://")), pathlib.Path({lines!r}).read_text()
out.mkdir(parents=True)
for at, text in enumerate(lines.split("|")):
    (out / f"part-{{at:05}}-{{uuid.uuid4()}}-c000.json").write_text(text)
(out / "_SUCCESS").touch()
"""
ROWS = '{"a":1}\n{"a":2}\n'
SHUFFLED = '{"a":2}|{"a":1}'
OTHER = '{"a":1}\n{"a":3}\n'


class Lake:
    """``p``, and its two readers ``c`` and ``d``. The rows that it writes are not in its code."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.folder = folder
        self.lines = folder / "lines"
        self.application = folder / "application.py"
        self.application.write_text(APPLICATION.format(lines=str(self.lines)))
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            self.p = self.operator("p", **given)
            inputs = {"in": self.p.result("out")}
            self.c, self.d = (self.operator(name, inputs=inputs) for name in ("c", "d"))

    def operator(self, name: str, **given: Any) -> RecoverableSparkSubmitOperator:
        return RecoverableSparkSubmitOperator(
            task_id=name,
            application=str(self.application),
            outputs=["out"],
            application_args=["{output:out}"],
            **given,
        )

    def after_p_was_lost(self, now: str) -> str:
        """What becomes of ``c``, which had read all of ``p``, after ``p`` was made again for ``d``."""
        self.lines.write_text(ROWS)
        made = run_try(self.p)
        run_try(self.c)
        shutil.rmtree(made["results"]["p.out"]["location"].removeprefix("file://"))
        with pytest.raises(AirflowFailException) as caught:
            run_try(self.d)
        assert isinstance(caught.value.__cause__, ClearNotConfigured)
        self.lines.write_text(now)
        with suppress(AirflowFailException):  # where it would have `c` cleared: nobody is there to do that
            run_try(self.p, try_number=2)
        assert len(self.digests()) == 2
        decision: str = run_try(self.c, try_number=2)["decision"]
        return decision

    def digests(self) -> list[str | None]:
        attempts = state_in(self.folder, OPERATORS_GROUP, "p").of("p").attempts
        return [attempt.outcome.outputs[0].digest for attempt in attempts.values() if attempt.outcome]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "now", "becomes"),
    [
        ({}, ROWS, "kept"),
        ({}, SHUFFLED, "ran"),
        ({}, OTHER, "ran"),
        ({"deterministic": "verify"}, ROWS, "kept"),
        ({"deterministic": "verify"}, SHUFFLED, "kept"),
        ({"deterministic": "verify"}, OTHER, "ran"),
        ({"deterministic": "verify", "verify_max_bytes": 1}, ROWS, "kept"),
        ({"deterministic": "verify", "verify_max_bytes": 1}, SHUFFLED, "ran"),
        ({"deterministic": "always"}, ROWS, "ran"),
        ({"deterministic": "assume"}, OTHER, "kept"),
    ],
)
def test_readers_of_what_is_made_again(
    recovery: Path, submitted: Path, given: dict[str, Any], now: str, becomes: str
) -> None:
    assert Lake(recovery, **given).after_p_was_lost(now) == becomes


def test_fault_51_control_where_all_rows_are_taken_to_be_equal_a_reader_keeps_rows_that_are_gone(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def the_same(manifest: Any, store: Any, **given: Any) -> Any:
        from dataclasses import replace

        return replace(manifest, digest="rows1-all-alike")

    monkeypatch.setattr(drop_in, "digest_output", the_same)
    assert Lake(recovery, deterministic="verify").after_p_was_lost(OTHER) == "kept"


def test_what_nobody_reads_has_no_digest_and_is_not_read(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(recovery)
    lake.lines.write_text(ROWS)
    run_try(lake.p)
    monkeypatch.setattr(StoredRows, "digest", lambda self: pytest.fail("was read"))
    run_try(lake.c)
    (of_p,) = lake.digests()
    assert of_p is not None
    assert of_p.startswith("ordered1-")
    (of_c,) = state_in(recovery, OPERATORS_GROUP, "c").of("c").attempts.values()
    assert of_c.outcome.outputs[0].digest is None


def test_a_change_of_how_rows_are_compared_keeps_readers_of_equal_files(recovery: Path, submitted: Path) -> None:
    lake = Lake(recovery)
    verifying = Lake(recovery, deterministic="verify")
    lake.p, made = verifying.p, lake.p
    lake.lines.write_text(ROWS)
    run_try(made)
    before = lake.digests()
    assert lake.after_p_was_lost(ROWS) == "kept"
    assert lake.digests() == before * 2


def test_heartbeats_go_on_while_rows_are_read(recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beating: list[bool] = []
    heartbeat = drop_in.Heartbeat

    class Watched(heartbeat):  # type: ignore[valid-type, misc]
        def __enter__(self) -> Any:
            beating.append(True)
            return super().__enter__()

        def __exit__(self, *given: object) -> None:
            beating.pop()
            super().__exit__(*given)

    read = StoredRows.digest
    seen: list[int] = []

    def digest(rows: StoredRows) -> Any:
        seen.append(len(beating))
        return read(rows)

    monkeypatch.setattr(drop_in, "Heartbeat", Watched)
    monkeypatch.setattr(StoredRows, "digest", digest)
    lake = Lake(recovery, deterministic="verify")
    lake.lines.write_text(ROWS)
    run_try(lake.p)
    assert (seen, beating) == ([1], [])
