"""docker-compose.yaml can't be started here: everything that it names is looked up instead."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from airflow_recovery.doctor.components import Component
from airflow_recovery.doctor.fault_detection import SETTINGS, check_detection
from airflow_recovery.doctor.result import Status

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMA = Path(__file__).parent / "data" / "compose-spec.json"
PORT_OF_IMAGE = {"postgres": 5432}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "docker-compose.yaml").read_text())


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return compose["services"]


def words(value: Any) -> list[str]:
    """A command as words: of a list, or of a shell line with its connectives removed."""
    listed = value if isinstance(value, list) else [value or ""]
    return [word for info in listed for word in shlex.split(info) if word not in ("&&", "CMD", "CMD-SHELL")]


def test_it_is_valid_against_the_compose_schema(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(compose)


def test_control_a_typo_in_a_key_is_refused_by_the_schema(compose: dict[str, Any]) -> None:
    broken = json.loads(json.dumps(compose))
    broken["services"]["s3"]["comand"] = broken["services"]["s3"].pop("command")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(broken)


def test_it_has_every_service_of_the_issue(services: dict[str, Any]) -> None:
    expected = "postgres s3 init airflow-apiserver airflow-scheduler airflow-dag-processor airflow-triggerer"
    assert set(services) == {*expected.split(), "spark-master", "spark-worker", "spark-connect"}


def test_every_path_of_this_repository_exists(compose: dict[str, Any], services: dict[str, Any]) -> None:
    named = set()
    for service in services.values():
        named |= {each.split(":")[0] for each in service.get("volumes", []) if each.startswith(".")}
        named |= {service["build"]["context"]} if "build" in service else set()
    for line in dockerfile(compose):
        if line.startswith("COPY") and "--from=" not in line:
            sources = [word for word in line.split()[1:-1] if not word.startswith("--")]
            named |= set(sources)
    assert "./dags" in named
    assert "airflow_recovery" in named
    assert [each for each in sorted(named) if not (REPOSITORY / each).exists()] == []


def test_every_named_volume_is_declared(compose: dict[str, Any], services: dict[str, Any]) -> None:
    used = {each.split(":")[0] for service in services.values() for each in service.get("volumes", [])}
    assert {each for each in used if not each.startswith(".")} == set(compose["volumes"])


def test_the_image_installs_our_provider_with_the_pinned_versions(compose: dict[str, Any]) -> None:
    text = "\n".join(dockerfile(compose))
    pinned = dict(re.findall(r"^(\S+?)==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE))
    assert f"FROM apache/airflow:{pinned['apache-airflow']}-python3." in text
    # The wheel, and nothing of the source tree beside it.
    _, built, final = text.split("FROM ")
    assert "pip wheel --no-cache-dir --no-deps --wheel-dir /tmp/dist ." in built
    assert 'pip install --no-cache-dir -c constraints.txt "$(ls /tmp/dist/*.whl)[spark]"' in final
    assert "airflow_recovery" not in final
    minor = int(re.findall(r"-python3\.(\d+)", text)[0])
    assert 10 <= minor <= 13
    assert "openjdk-17-jre-headless" in text


def test_every_airflow_command_exists(services: dict[str, Any]) -> None:
    from airflow.cli.cli_parser import get_parser

    found = []
    for name in (service for service in services if service == "init" or service.startswith("airflow-")):
        service = services[name]
        for key in (service.get("command"), (service.get("healthcheck") or {}).get("test")):
            command = words(key)
            if "airflow" in command:
                start = command.index("airflow") + 1
                end = command.index("python") if "python" in command else len(command)
                arguments = [word.replace("$$", "$") for word in command[start:end]]
                found.append(arguments[0])
                get_parser().parse_args(arguments)  # exits where a command or an option does not exist
    assert set(found) == {"db", "api-server", "scheduler", "dag-processor", "triggerer", "jobs"}


def test_control_an_unknown_airflow_command_is_refused() -> None:
    from airflow.cli.cli_parser import get_parser

    with pytest.raises(SystemExit):
        get_parser().parse_args(["webserver"])


def test_every_job_type_of_a_health_check_exists(services: dict[str, Any]) -> None:
    from airflow.jobs.dag_processor_job_runner import DagProcessorJobRunner
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.jobs.triggerer_job_runner import TriggererJobRunner

    known = {each.job_type for each in (DagProcessorJobRunner, SchedulerJobRunner, TriggererJobRunner)}
    named = set()
    for service in services.values():
        command = words((service.get("healthcheck") or {}).get("test"))
        if "--job-type" in command:
            named.add(command[command.index("--job-type") + 1])
    assert named == known


def test_every_python_module_and_script_exists(services: dict[str, Any]) -> None:
    environment = services["airflow-apiserver"]["environment"]
    module, _, name = environment["AIRFLOW__STATE_STORE__BACKEND"].rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), name), type)
    init = services["init"]
    script = words(init["command"])[-1]
    inside = "/opt/airflow-recovery/"
    assert script.startswith(inside)
    source = (REPOSITORY / script.removeprefix(inside)).read_text()
    compile(source, script, "exec")
    for imported in re.findall(r"^(?:from|import) ([\w.]+)", source, re.MULTILINE):
        assert find_spec(imported), imported
    assert init["environment"]["PYTHONPATH"] == inside.rstrip("/")
    for variable in re.findall(r'environ\["(\w+)"\]', source):
        assert variable in init["environment"]


def test_every_setting_of_airflow_exists(services: dict[str, Any]) -> None:
    from airflow.configuration import conf

    for service in services.values():
        for name in service.get("environment", {}):
            if name.startswith("AIRFLOW__"):
                section, _, key = name.removeprefix("AIRFLOW__").lower().partition("__")
                assert key in known_options(section, conf), name


def detection_warnings(environment: dict[str, str]) -> set[str]:
    """The settings of which ``doctor`` would warn a worker with this environment; all others are Airflow's defaults."""

    def read(section: str, option: str) -> float:
        default = next(each.default for each in SETTINGS if (each.section, each.option) == (section, option))
        return float(environment.get(f"AIRFLOW__{section}__{option}".upper(), default))

    found = [result for component in Component for result in check_detection(component, read, is_local_executor=True)]
    return {result.check for result in found if result.status is Status.WARNING}


@pytest.mark.parametrize("name", ["scheduler", "apiserver", "dag-processor", "triggerer"])
def test_faults_are_noticed_as_soon_as_recommended(services: dict[str, dict[str, Any]], name: str) -> None:
    environment = services[f"airflow-{name}"]["environment"]
    changed = {each.variable: f"{each.recommended:g}" for each in SETTINGS if each.recommended != each.default}
    assert {variable: environment.get(variable) for variable in changed} == changed
    assert detection_warnings(environment) == set()


def test_control_with_airflows_defaults_they_are_not(services: dict[str, dict[str, Any]]) -> None:
    environment = services["airflow-scheduler"]["environment"]
    changed = {each.variable for each in SETTINGS if each.recommended != each.default}
    left = {name: value for name, value in environment.items() if name not in changed}
    assert detection_warnings(left) == {each.name for each in SETTINGS if each.variable in changed}


def test_every_spark_class_and_launcher_is_in_the_wheel(services: dict[str, Any]) -> None:
    wheel = distribution("pyspark")
    jars = [
        Path(str(candidate.locate()))
        for candidate in wheel.files or []
        if candidate.name.startswith(("spark-core", "spark-conn"))
    ]
    classes = {name for jar in jars if jar.suffix == ".jar" for name in zipfile.ZipFile(jar).namelist()}
    named = {
        word
        for service in services.values()
        for word in words(service.get("command"))
        if word.startswith("org.apache.spark.")
    }
    assert {word.rpartition(".")[2] for word in named} == {"Master", "Worker", "SparkConnectServer"}
    assert [word for word in sorted(named) if f"{word.replace('.', '/')}.class" not in classes] == []
    launchers = {candidate.name for candidate in wheel.files or [] if candidate.parent.name == "bin"}
    for service in ("spark-master", "spark-worker", "spark-connect"):
        assert services[service]["entrypoint"][0] in launchers


def test_every_address_names_a_service_and_the_port_it_listens_on(services: dict[str, Any]) -> None:
    listening = {name: listening_ports(name, service) for name, service in services.items()}
    assert listening["s3"] == {7070}
    found = 0
    for name, service in services.items():
        texts = [str(each) for each in service.get("environment", {}).values()] + words(service.get("command"))
        for text in texts:
            for host, port in addresses(text):
                found += 1
                assert int(port) in listening[host], f"{name}: {text}"
    assert found >= 12
    for name, service in services.items():
        for published in service.get("ports", []):
            address, _, inside = published.split(":")
            assert address == "127.0.0.1"
            assert int(inside) in listening[name], published
        check = " ".join(words((service.get("healthcheck") or {}).get("test")))
        for port in re.findall(r"(?:localhost:|-p )(\d+)", check):
            assert int(port) in listening[name], check


def test_both_sides_of_s3_use_the_same_bucket_and_credentials(services: dict[str, Any]) -> None:
    server, init = services["s3"]["environment"], services["init"]["environment"]
    connection = json.loads(init["AIRFLOW_CONN_RECOVERY_S3"])
    expected = (server["ROOT_ACCESS_KEY"], server["ROOT_SECRET_KEY"])
    assert (connection["login"], connection["password"]) == expected
    assert (init["AWS_ACCESS_KEY_ID"], init["AWS_SECRET_ACCESS_KEY"]) == expected
    assert connection["extra"]["endpoint_url"] == init["AWS_ENDPOINT_URL"]
    assert init["AIRFLOW__RECOVERY__JOURNAL"].startswith(f"s3://{init['JOURNAL_BUCKET']}/")
    assert init["AIRFLOW__RECOVERY__AWS_CONN_ID"] == "recovery_s3"


def test_results_and_lake_are_on_a_volume_that_airflow_and_the_workers_share(services: dict[str, Any]) -> None:
    environment = services["airflow-scheduler"]["environment"]
    for name in ("AIRFLOW__RECOVERY__RESULTS", "FLIGHTS_LAKE"):
        assert environment[name].startswith("file:///data/")
    for name in ("airflow-scheduler", "spark-worker", "spark-connect", "init"):
        assert "data:/data" in services[name]["volumes"], name


def dockerfile(compose: dict[str, Any]) -> list[str]:
    """The lines of the one image, continuation lines joined."""
    (text,) = {each["build"]["dockerfile_inline"] for each in compose["services"].values() if "build" in each}
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def listening_ports(name: str, service: dict[str, Any]) -> set[int]:
    """The ports that a service's own command makes it listen on."""
    if name in PORT_OF_IMAGE:
        return {PORT_OF_IMAGE[name]}
    command = words(service.get("command"))
    numbers = set()
    for option, value in pairwise(command):
        if option in ("--port", "--webui-port"):
            numbers.add(int(value.lstrip(":")))
        if value.startswith("spark.connect.grpc.binding.port="):
            numbers.add(int(value.partition("=")[2]))
    return numbers


def addresses(text: str) -> list[tuple[str, str]]:
    """(host, port) of every URL or connection in ``text``."""
    if text.startswith("{"):
        connection = json.loads(text)
        found = addresses(str(connection.get("extra", {}).get("endpoint_url", "")))
        if "port" in connection:
            found.append((connection["host"].rpartition("/")[2], str(connection["port"])))
        return found
    return re.findall(r"://(?:[^@/]*@)?([a-z][\w-]*):(\d+)", text)


def known_options(section: str, conf: Any) -> set[str]:
    if section == "recovery":
        declared = yaml.safe_load((REPOSITORY / "airflow_recovery" / "provider.yaml").read_text())
        return set(declared["config"][section]["options"])
    options = set(conf.configuration_description.get(section, {}).get("options", {}))
    # Options of the simple auth manager and other core parts are declared without a description of their own.
    return options | set((conf.getsection(section) or {}).keys())
