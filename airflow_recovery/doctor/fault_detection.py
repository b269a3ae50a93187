"""Airflow's own settings that decide how soon a fault is noticed, and what of them is recommended.

docs/fault-detection.md says what each costs, measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from airflow_recovery.doctor.components import Component
from airflow_recovery.doctor.result import CheckResult, ok, warning


@dataclass(frozen=True)
class DetectionSetting:
    """One option of Airflow: who reads it, what is recommended, and between which values it is left alone.

    ``too_much`` and ``too_little`` say what a value above ``at_most`` or below ``at_least`` costs. Values are seconds,
    where ``unit`` does not say something else.
    """

    section: str
    option: str
    readers: tuple[Component, ...]
    default: float
    recommended: float
    at_least: float = 0
    at_most: float = float("inf")
    too_much: str = ""
    too_little: str = ""
    unit: str = "s"

    @property
    def name(self) -> str:
        """As Airflow's documentation has it: ``[section] option``."""
        return f"[{self.section}] {self.option}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"AIRFLOW__{self.section}__{self.option}".upper()


SETTINGS = (
    DetectionSetting(
        "scheduler",
        "orphaned_tasks_check_interval",
        (Component.SCHEDULER,),
        default=300,
        recommended=30,
        at_most=60,
        too_much="tasks of a killed scheduler may wait so long until another one looks for them",
    ),
    DetectionSetting(
        "scheduler",
        "scheduler_health_check_threshold",
        (Component.SCHEDULER,),
        default=30,
        recommended=30,
        at_least=15,
        at_most=60,
        too_much="so long a killed scheduler counts as alive, and its tasks are left alone",
        too_little="a scheduler whose database is slow is taken for dead, and its tasks are run again",
    ),
    DetectionSetting(
        "scheduler",
        "task_instance_heartbeat_timeout",
        (Component.SCHEDULER, Component.WORKER),
        default=300,
        recommended=120,
        at_least=60,
        at_most=180,
        too_much="so long a task whose worker is gone counts as running",
        too_little="tasks are run again after a pause of the API server or its database that they would survive",
    ),
    DetectionSetting(
        "scheduler",
        "task_instance_heartbeat_timeout_detection_interval",
        (Component.SCHEDULER,),
        default=10,
        recommended=10,
        at_most=30,
        too_much="so much longer a task whose worker is gone counts as running",
    ),
    DetectionSetting(
        "triggerer",
        "triggerer_health_check_threshold",
        (Component.TRIGGERER,),
        default=30,
        recommended=30,
        at_least=15,
        at_most=60,
        too_much="so long nobody takes over what a killed triggerer waited for",
        too_little="a triggerer whose database is slow is taken for dead, and its triggers run twice",
    ),
    DetectionSetting(
        "workers",
        "execution_api_retries",
        (Component.WORKER,),
        default=5,
        recommended=10,
        at_least=8,
        too_little="running tasks are ended when the API server or its database is away for half a minute",
        unit="attempts",
    ),
    DetectionSetting(
        "workers",
        "execution_api_retry_wait_max",
        (Component.WORKER,),
        default=90,
        recommended=10,
        at_least=5,
        at_most=20,
        too_much="so long after a pause of the API server a task may be silent still, and be taken for dead",
        too_little="a pause of the API server uses up all attempts",
    ),
)


def check_detection(
    component: Component, read: Callable[[str, str], float], *, is_local_executor: bool
) -> Iterator[CheckResult]:
    """Each setting that ``component`` reads, and on a worker those of the scheduler too, as ``read`` has them here.

    A warning at most: nothing is wrong, but a bad night takes longer. ``read`` is given section and option.
    ``is_local_executor``: a task has the scheduler's own settings, since it is a child of the scheduler.
    """
    for setting in SETTINGS:
        is_own = component in setting.readers
        if is_own or (component is Component.WORKER and Component.SCHEDULER in setting.readers):
            yield _compare(setting, read(setting.section, setting.option), is_read_here=is_own or is_local_executor)


def _compare(setting: DetectionSetting, value: float, *, is_read_here: bool) -> CheckResult:
    if setting.at_least <= value <= setting.at_most:
        return ok(setting.name, f"{value:g} {setting.unit}")
    readers = " and ".join(reader.value for reader in setting.readers)
    cost = setting.too_much if value > setting.at_most else setting.too_little
    elsewhere = "" if is_read_here else " Its own settings count: call this there with --component scheduler."
    set_it = f"Set {setting.variable}={setting.recommended:g} for the {readers} (docs/fault-detection.md)."
    return warning(
        setting.name,
        recommended=f"{setting.recommended:g} {setting.unit}",
        found=f"{value:g} {setting.unit}: {cost}",
        next_step=f"{set_it}{elsewhere}",
    )
