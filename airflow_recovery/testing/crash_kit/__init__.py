"""A loop that kills real processes at every point of a run, and at pairs of points, and checks what is left.

A run is that of a job, over real stores: each try is a process, forked from this one, and each Spark application is one
below it. A fake Airflow starts tries until all are green. At a named point (`CrashPoint`, `Step`) the process sends
itself SIGKILL, or is frozen and wakes as a zombie when all is green. Then the independent checker reads the journal
and the results (I1 to I14), and the run has to be as good as an undisturbed one: the same rows, no finished region run
again, and nothing run that the crash does not explain::

    from airflow_recovery.testing.crash_kit import Engine, crash_test

    crash_test("my_jobs.flights:job", pairs=50)
    crash_test("my_jobs.flights:job", engine=Engine.SPARK, singles=10, frozen=5, pairs=5)

No hook stands in the product's code: points are at its seams (`seams`). Where a step gets a seam of its own, one line
in ``seams.FUNCTIONS`` makes it a point. *Not tested here*: processes that run at the same time (the simulation), and
the real Airflow, whose processes `make drill` kills. POSIX only; without Linux, a driver may outlive its task.
"""

from airflow_recovery.testing.crash_kit.job_setup import Engine, JobSetup, Scenario
from airflow_recovery.testing.crash_kit.kit import crash_test
from airflow_recovery.testing.crash_kit.loop import CrashLoop, Tally, distinct
from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm, Passed, Step, Victim, When
from airflow_recovery.testing.simulation.settings import Violation

__all__ = [
    "CrashLoop",
    "CrashPoint",
    "Engine",
    "Harm",
    "JobSetup",
    "Passed",
    "Scenario",
    "Step",
    "Tally",
    "Victim",
    "Violation",
    "When",
    "crash_test",
    "distinct",
]
