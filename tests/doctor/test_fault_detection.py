"""Airflow's settings that decide how soon a fault is noticed: warned of are its defaults, not what is recommended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_recovery.doctor.components import Component
from airflow_recovery.doctor.fault_detection import SETTINGS, DetectionSetting, check_detection
from airflow_recovery.doctor.result import CheckResult, Status, is_wrong

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fault-detection.md"
LONGER_THAN_NEEDED = {
    "[scheduler] orphaned_tasks_check_interval",
    "[scheduler] task_instance_heartbeat_timeout",
    "[workers] execution_api_retries",
    "[workers] execution_api_retry_wait_max",
}


def results(component: Component, values: dict[str, float], *, is_local: bool = True) -> dict[str, CheckResult]:
    """By setting; ``values`` are those of all settings, by name."""

    def read(section: str, option: str) -> float:
        return values[f"[{section}] {option}"]

    return {result.check: result for result in check_detection(component, read, is_local_executor=is_local)}


def values_of(attribute: str) -> dict[str, float]:
    return {setting.name: getattr(setting, attribute) for setting in SETTINGS}


@pytest.mark.parametrize("component", Component)
def test_what_is_recommended_is_not_warned_of(component: Component) -> None:
    found = results(component, values_of("recommended"))
    assert {result.status for result in found.values()} <= {Status.OK}


def test_airflows_defaults_are_warned_of_and_nothing_is_wrong() -> None:
    found = results(Component.WORKER, values_of("default"))
    assert {name for name, result in found.items() if result.status is Status.WARNING} == LONGER_THAN_NEEDED
    assert not is_wrong(found.values())
    line = found["[scheduler] orphaned_tasks_check_interval"].text()
    assert "recommended 30 s, found 300 s: tasks of a killed scheduler may wait" in line
    assert (
        "Set AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL=30 for the scheduler (docs/fault-detection.md)." in line
    )


@pytest.mark.parametrize("setting", [each for each in SETTINGS if each.at_least > 0], ids=lambda each: each.name)
def test_less_than_is_safe_is_warned_of(setting: DetectionSetting) -> None:
    found = results(setting.readers[0], {**values_of("recommended"), setting.name: setting.at_least - 1})
    assert {name for name, result in found.items() if result.status is Status.WARNING} == {setting.name}
    assert setting.too_little in found[setting.name].found


def test_a_component_is_asked_for_what_it_reads_and_a_worker_for_the_schedulers_too() -> None:
    defaults = values_of("default")
    assert set(results(Component.TRIGGERER, defaults)) == {"[triggerer] triggerer_health_check_threshold"}
    assert set(results(Component.API_SERVER, defaults)) == set()
    own = set(results(Component.SCHEDULER, defaults))
    assert {name.partition("]")[0] for name in own} == {"[scheduler"}
    assert own < set(results(Component.WORKER, defaults))


def test_a_worker_that_is_no_child_of_the_scheduler_says_where_to_look() -> None:
    name = "[scheduler] orphaned_tasks_check_interval"
    elsewhere = "--component scheduler"
    assert elsewhere in results(Component.WORKER, values_of("default"), is_local=False)[name].next_step
    for component, is_local in ((Component.WORKER, True), (Component.SCHEDULER, False)):
        found = results(component, values_of("default"), is_local=is_local)
        assert elsewhere not in found[name].next_step


def test_the_defaults_are_those_of_the_installed_airflow() -> None:
    from airflow.configuration import conf

    installed = {
        setting.name: float(conf.configuration_description[setting.section]["options"][setting.option]["default"])
        for setting in SETTINGS
    }
    assert installed == values_of("default")


def test_the_page_has_every_setting_with_its_default_and_what_is_recommended() -> None:
    rows = re.findall(r"^\| `(\[\w+\] \w+)` \| (\d+) \| \*?\*?(\d+)", PAGE.read_text(), re.MULTILINE)
    assert {name: (float(default), float(recommended)) for name, default, recommended in rows} == {
        setting.name: (setting.default, setting.recommended) for setting in SETTINGS
    }
