"""An outcome that an earlier version wrote larger than any is read: named by each reader, with the way out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import ObjectTooLarge
from airflow_recovery.journal.published import published_result
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES

RUN = ("flights", "2026-01-01")


@pytest.mark.slow
def test_every_reader_names_it_and_what_to_do_and_that_gets_the_run_going(recorded, tmp_path: Path) -> None:
    world = recorded.world()
    world.go_all(["raw", "by_route"])
    outcome = tmp_path / "journal" / world.journal().layout.attempt("by_route", 1, "outcome")
    os.truncate(outcome, MAX_OBJECT_BYTES + 1)
    advice = (
        f"{outcome}: expected at most {MAX_OBJECT_BYTES} bytes in the outcome of by_route@1, found "
        f"{MAX_OBJECT_BYTES + 1}: an earlier version of recovery may have written it, and nobody reads it. Delete this "
        "object, and clear the task of by_route"
    )
    world.go("by_carrier")  # which does not read it
    with pytest.raises(ObjectTooLarge) as told:
        world.go("busiest")
    assert advice in str(told.value)
    for command in ("show", "plan", "restart", "release", "pin", "abandon", "confirm"):
        regions = () if command in ("show", "plan") else ("by_route",)
        assert recorded.call(command, *RUN, *regions)[0] == ExitCode.NO_ANSWER
        assert advice in recorded.errors
    code, said = recorded.call("gc")
    assert (code, advice in said) == (ExitCode.NO_ANSWER, True)
    code, said = recorded.call("verify", *RUN)
    assert code == ExitCode.VIOLATED
    assert f"{MAX_OBJECT_BYTES + 1} bytes; at most {MAX_OBJECT_BYTES} are read: `airflow recovery show` says" in said

    outcome.unlink()
    world.airflow.clear("by_route")
    world.until_green()
    assert (world.current("by_route"), world.current("raw")) == (2, 1)
    assert published_result(world.journal(), "by_route").attempt == 2
    assert recorded.call("verify", *RUN)[0] == ExitCode.DONE
