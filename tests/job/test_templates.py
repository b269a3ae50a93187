from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import JobDefinitionError
from airflow_recovery.job import templates
from airflow_recovery.job.templates import check_templates, render, uses_subtask

WHERE = "job 'flights', vertex 'cleaned'"


@dataclass(frozen=True)
class Run:
    logical_date: str | None = "2013-01-02T03:04:05+00:00"
    data_interval_start: str | None = "2013-01-02T00:00:00+00:00"
    data_interval_end: str | None = "2013-01-03T00:00:00+00:00"
    conf: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)


def rendered(text: str, run: Run | None = None) -> Any:
    return render({"p": text}, run or Run(), where=WHERE)["p"]


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ ds }}", "2013-01-02"),
        ("{{ ds_nodash }}", "20130102"),
        ("{{ ts }}", "2013-01-02T03:04:05+00:00"),
        ("{{ logical_date.add(days=1).to_date_string() }}", "2013-01-03"),
        ("{{ logical_date.year }}-{{ '%02d' % logical_date.month }}", "2013-01"),
        ("{{ (data_interval_end - data_interval_start).in_hours() }}", "24"),
        ("{% for n in range(3) %}{{ n }}{% endfor %}", "012"),
        ("no template", "no template"),
    ],
)
def test_the_run_is_what_templates_see(template: str, value: str) -> None:
    assert rendered(template) == value


def test_conf_and_params_are_the_runs_own() -> None:
    run = Run(conf={"n": 3, "today": "x"}, params={"carrier": "AA"})
    assert rendered("{{ conf.n }}", run) == "3"  # a text, as in Airflow
    assert rendered("{{ conf.today }}", run) == "x"  # a key of the user's, no clock
    assert rendered("{{ params['carrier'] }}", run) == "AA"


def test_templates_deep_in_values_are_rendered_and_other_values_stay() -> None:
    values = {"a": ["{{ ds }}", {"b": "{{ ds }}", "{{ ds }}": 1}], "n": 1, "f": 1.5, "none": None, "t": True}
    assert render(values, Run(), where=WHERE) == {
        "a": ["2013-01-02", {"b": "2013-01-02", "{{ ds }}": 1}],
        "n": 1,
        "f": 1.5,
        "none": None,
        "t": True,
    }


@pytest.mark.parametrize(
    "name", ["ti", "task_instance", "macros", "now", "run_id", "try_number", "dag_run", "lipsum", "var", "prev_ds"]
)
def test_anything_but_the_run_is_refused_at_declaration(name: str) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        check_templates({"day": ["{{ " + name + " }}"]}, where=WHERE)
    text = str(refused.value)
    assert text.startswith("job 'flights', vertex 'cleaned', parameter 'day'[0]:")
    assert repr(name) in text
    assert "data_interval_start" in text
    assert "must not depend on when or where it runs" in text


@pytest.mark.parametrize("clock", ["logical_date.now()", "logical_date.add(days=1).utcnow()", "logical_date.age"])
def test_the_clock_is_not_reached_through_a_date(clock: str) -> None:
    with fails_with("template-reads-more"):
        check_templates({"p": "{{ " + clock + " }}"}, where=WHERE)


@pytest.mark.parametrize(
    "clock", ["logical_date['now']()", "logical_date | attr('now')", "[logical_date][0]['today']()"]
)
def test_the_clock_is_not_reached_by_a_detour(clock: str) -> None:
    with fails_with("template-fails", where="job 'flights', vertex 'cleaned', parameter 'p'"):
        rendered("{{ " + clock + " }}{{ 1 }}")


def test_there_is_no_random_filter() -> None:
    with fails_with("template-invalid"):
        check_templates({"p": "{{ [1, 2] | random }}"}, where=WHERE)


def test_a_template_that_is_no_template_is_refused_at_declaration() -> None:
    with fails_with("template-invalid", where="job 'flights', vertex 'cleaned', parameter 'p'"):
        check_templates({"p": "{{ ds "}, where=WHERE)


def test_python_is_out_of_reach() -> None:
    with fails_with("template-fails"):
        rendered("{{ ''.__class__.__mro__[1].__subclasses__() }}")


def test_a_missing_key_is_named() -> None:
    with fails_with("template-without-value", where="job 'flights', vertex 'cleaned', parameter 'p'"):
        rendered("{{ conf.n }}")


def test_a_run_without_logical_date_says_so() -> None:
    run = Run(logical_date=None, data_interval_start=None, data_interval_end=None, conf={"n": 1})
    with fails_with("template-without-value"):
        rendered("{{ ds }}", run)
    assert rendered("{{ conf.n }}", run) == "1"
    assert rendered("{{ ds if ds is defined else 'none' }}", run) == "none"


@pytest.mark.parametrize(
    ("template", "is_used"),
    [
        ("s3://lake/{{ subtask }}/*.csv", True),
        ("{% if subtask == 'a' %}x{% endif %}", True),
        ("{{ conf[subtask] }}", True),
        ("subtask", False),
        ("subtask {{ ds }}", False),
        ("{{ conf.subtask }}", False),
        ("{{ conf['subtask'] }}", False),
        ('{{ conf["subtask"] }}', False),
        ("{{ subtasks }}", False),
        ("{# {{ subtask }} #}{{ ds }}", False),
    ],
)
def test_where_there_is_no_jinja_the_subtask_is_found_too(
    template: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver imports the job, and with it declares it; its Python may have no Jinja."""
    assert uses_subtask({"p": template}) is is_used
    monkeypatch.setattr(templates, "_has_jinja", lambda: False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert uses_subtask({"p": template}) is is_used
    check_templates({"p": template}, where=WHERE)
