"""A driver process of its own for each attempt, forked from the task's: as spark-submit on the worker's machine."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.model.records import ExternalObject, Outcome
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.testing.crash_kit.crasher import Crasher
from airflow_recovery.testing.crash_kit.points import Step, When

Drive = Callable[[RegionSpec], int]
"""Runs one attempt to its outcome object, and returns the exit code of the process: `runtime.driver.drive`."""


class DriverDied(Exception):
    """The driver ended with another exit code than 0. What it said of itself is in its failure file."""


class ForkedApplication(SparkApplication):
    """Runs the driver of ``program`` in a forked process instead of a spark-submit."""

    def __init__(self, program: RegionProgram, drive: Drive, crasher: Crasher) -> None:
        self._program = program
        self._drive = drive
        self._crasher = crasher

    def externals(self) -> tuple[ExternalObject, ...]:
        """The splits that the region's sources would read now."""
        return self._program.externals()

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Run the region's program for ``attempt``; returns and raises as `RegionProgram.run`."""
        return self._program.run(attempt, self._launch)

    def _launch(self, spec: RegionSpec, folder: Path) -> None:
        """Fork, and wait for the driver's end. Raises `DriverDied`."""
        del folder
        self._crasher.passes(When.BEFORE, Step.SUBMIT)
        pid = self._crasher.fork()
        if pid == 0:
            self._be_the_driver(spec)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._crasher.passes(When.AFTER, Step.APPLICATION, changes=True)
        if code != 0:
            raise DriverDied(f"the driver ended with {code}" if code > 0 else f"the driver was killed (signal {-code})")

    def stop(self) -> None:
        """Nothing to do: it is never asked to, since one task runs at a time."""

    def _be_the_driver(self, spec: RegionSpec) -> None:
        code = 1
        try:
            die_with_parent()
            self._crasher.passes(When.AFTER, Step.SUBMIT, changes=True)
            code = self._drive(spec)
        except BaseException:
            traceback.print_exc()
        finally:
            # Not sys.exit: this is a copy of a process that has its own things to end.
            os._exit(code)
