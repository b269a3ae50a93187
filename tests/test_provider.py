"""What Airflow sees of the installed package."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft7Validator

from airflow_recovery.get_provider_info import get_provider_info
from airflow_recovery.testing.patience import HANG_S

OPTIONS = {
    "journal", "results", "aws_conn_id", "results_aws_conn_id", "gcp_conn_id", "wasb_conn_id", "allowed_locations",
    "api_conn_id", "request_timeout", "unseen_code", "code_version",
    "deployment", "driver_jvm", "class_archives", "spark_idle_timeout", "spark_max_life", "preload",
    "retention", "grace", "previous_worker_timeout", "orphaned_driver_timeout", "spark_history_url",
    "job_recovery_enabled", "job_event_store_write_buffer_size", "job_event_store_write_buffer_flush_interval",
    "job_event_store_on_failure", "job_recovery_snapshot_min_pause",
    "failure_enrichers", "maximum_per_task_failures", "maximum_total_task_failures", "restart_strategy",
}  # fmt: skip


COMMANDS = """
import contextlib, io, json, sys
from airflow.cli.cli_parser import get_parser

said = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        parsed = get_parser().parse_args(arguments)
        parsed.func(parsed)
    said.append(out.getvalue())
json.dump(said, sys.stdout)
"""
LIST = ("providers", "list", "--output", "json")
GET = ("providers", "get", "airflow-recovery", "--full", "--output", "json")
SETTINGS = ("config", "list", "--section", "recovery", "--include-descriptions", "--defaults", "--color=off")
HOOKS = ("providers", "hooks", "--output", "json")


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], str]:
    """What each of these commands of Airflow's prints. One process runs them: to start is most of the work of each."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW__")}
    env |= {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow-home")), "COLUMNS": "300"}
    commands = [LIST, GET, SETTINGS, HOOKS]
    program = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=HANG_S, check=True)
    return dict(zip(commands, json.loads(done.stdout), strict=True))


def modules() -> list[str]:
    info = get_provider_info()
    kinds = ("operators", "sensors", "triggers", "hooks")
    return [module for kind in kinds for each in info[kind] for module in each["python-modules"]]


def test_provider_info_is_what_airflow_accepts() -> None:
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())

    Draft7Validator(schema).validate(get_provider_info())


def test_the_entry_points_are_installed() -> None:
    (provider,) = [
        point for point in entry_points(group="apache_airflow_provider") if point.value.startswith("airflow_recovery.")
    ]
    (plugin,) = [point for point in entry_points(group="airflow.plugins") if point.name == "airflow_recovery"]

    assert provider.load()() == get_provider_info()
    assert plugin.load().name == "airflow_recovery"


def test_airflow_lists_the_provider(airflow: dict[tuple[str, ...], str]) -> None:
    listed = json.loads(airflow[LIST])
    assert [info["version"] for info in listed if info["package_name"] == "airflow-recovery"] == ["0.1.0"]

    (shown,) = json.loads(airflow[GET])
    assert shown["package-name"] == "airflow-recovery"
    assert shown["plugins"] == get_provider_info()["plugins"]


def test_airflow_shows_the_settings_with_descriptions(airflow: dict[tuple[str, ...], str]) -> None:
    shown = airflow[SETTINGS]

    assert "[recovery]" in shown
    for option in OPTIONS:
        assert f"\n# {option} =" in shown or f"\n{option} =" in shown, shown
    assert "must support conditional writes" in " ".join(shown.replace("\n#", "").split())


def test_every_setting_is_described() -> None:
    options: dict[str, Any] = get_provider_info()["config"]["recovery"]["options"]

    assert set(options) == OPTIONS
    for option in options.values():
        assert {"description", "version_added", "type", "example", "default"} <= set(option)


def test_airflow_knows_the_connection_type(airflow: dict[tuple[str, ...], str]) -> None:
    hooks = json.loads(airflow[HOOKS])

    (ours,) = [hook for hook in hooks if hook["connection_type"] == "airflow_recovery"]
    assert ours["hook_name"] == "Airflow Recovery API"
    assert ours["conn_id_attribute_name"] == "recovery_conn_id"


@pytest.mark.parametrize("module", modules())
def test_every_named_module_can_be_imported(module: str) -> None:
    importlib.import_module(module)


def test_the_package_is_typed() -> None:
    assert files("airflow_recovery").joinpath("py.typed").is_file()


def test_provider_info_imports_nothing_but_yaml() -> None:
    code = (
        "import sys; from airflow_recovery.get_provider_info import get_provider_info; get_provider_info();"
        "print([each for each in ('airflow', 'boto3', 'pyspark', 'requests', 'jinja2') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
