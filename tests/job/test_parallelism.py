"""What ``parallelism=`` may be, which vertices share their subtasks, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import BLOCKING, JobDefinitionError, files, job, per_file, same_as
from airflow_recovery.job import Job
from airflow_recovery.job.chains import chains, initializers
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.job.parallelism import (
    FixedParallelism,
    LiteralKeys,
    PerFile,
    TemplatedKeys,
    in_recorded_order,
    templated_keys,
)
from airflow_recovery.model.groups import subtask_region

DAYS = ["mon", "tue"]


def declare(made: Job, name: str, *inputs: str, sink: bool = False, **options: Any) -> None:
    """Vertices whose functions are never called."""
    arguments = ", ".join(["spark", *(["splits"] if "splits" in options else []), *options.get("params", ()), *inputs])
    namespace: dict[str, Any] = {}
    exec(f"def {name}({arguments}): ...", namespace)
    if not inputs:
        made.source(**options)(namespace[name])
    elif sink:
        made.sink(**options)(namespace[name])
    else:
        made.vertex(**options)(namespace[name])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, None),
        (3, FixedParallelism(3)),
        (DAYS, LiteralKeys(("mon", "tue"))),
        ("{{ params.days | join(',') }}", TemplatedKeys("{{ params.days | join(',') }}")),
    ],
)
def test_a_vertex_is_split_by_number_by_keys_or_by_what_the_run_says(given: Any, expected: object) -> None:
    made = job("j")
    declare(made, "a", parallelism=given)
    assert made.parallelism_of("a") == expected


def test_a_source_has_a_subtask_a_file_and_its_readers_the_same() -> None:
    made = job("j")
    declare(made, "raw", splits=files("s3://lake/*.csv"), parallelism=per_file)
    declare(made, "kept", "raw", parallelism=same_as("raw"), result=BLOCKING)
    declare(made, "all", "kept", sink=True)
    assert made.parallelism_of("kept") is made.parallelism_of("raw")
    assert made.parallelism_of("raw") == PerFile("raw")
    assert made.parallelism_of("all") is None
    assert initializers(made) == {"kept.subtasks": PerFile("raw")}


def test_fault_62_the_same_keys_in_another_order_are_the_same_subtasks() -> None:
    made = job("j")
    declare(made, "a", parallelism=DAYS, result=BLOCKING)
    declare(made, "b", "a", parallelism=DAYS[::-1], result=BLOCKING)
    declare(made, "other", "b", parallelism=["mon", "sun"], sink=True)
    assert made.parallelism_of("b") is made.parallelism_of("a") == LiteralKeys(("mon", "tue"))
    assert made.parallelism_of("other") is not made.parallelism_of("a")
    assert [chain.regions for chain in chains(made)] == [("a", "b"), ("other",)]


def test_a_chain_joins_what_is_read_subtask_by_subtask() -> None:
    #   a[d] --> b[d] --> both[d] <-- c[d]          lone[d] has the same keys, and is read by nobody of the chain
    #              \--> all
    made = job("j")
    declare(made, "a", parallelism=DAYS, result=BLOCKING)
    declare(made, "c", parallelism=DAYS, result=BLOCKING)
    declare(made, "lone", parallelism=DAYS, result=BLOCKING)
    declare(made, "b", "a", parallelism=DAYS, result=BLOCKING)
    declare(made, "both", "b", "c", parallelism=DAYS, sink=True)
    declare(made, "all", "b", "lone", sink=True)
    assert {chain.regions for chain in chains(made)} == {("a", "c", "b", "both"), ("lone",)}


def test_a_number_of_subtasks_is_in_the_fingerprint_and_keys_are_not() -> None:
    def fingerprint(parallelism: Any) -> str:
        made = job("j")

        @made.source(version="1", parallelism=parallelism)
        def a(spark: Any) -> Any: ...

        return vertex_fingerprint(made, "a", {})

    assert fingerprint(2) != fingerprint(3)
    assert fingerprint(["x"]) == fingerprint(["x", "y"]) == fingerprint(1)


def test_a_subtask_s_name_is_injective() -> None:
    assert subtask_region("a", None) == "a"
    pairs = [("a", None), ("a", "b"), ("a", "b]"), ("a", "[b]"), ("a.b", "c"), ("a", "b.c")]
    assert len({subtask_region(*pair) for pair in pairs}) == len(pairs)


def test_fault_62_recorded_keys_keep_their_order_and_new_ones_come_last() -> None:
    assert in_recorded_order(["a", "b", "c"], ["d", "c", "a"]) == ("a", "c", "d")
    assert in_recorded_order([], ["b", "a"]) == ("b", "a")


def test_keys_of_a_template_stand_between_commas() -> None:
    assert templated_keys(" a, b ,,c", where="w") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"parallelism": 0}, ("a number from 1", "found 0")),
        ({"parallelism": True}, ("found True",)),
        ({"parallelism": "mon"}, ("a list of keys", "found 'mon'")),
        ({"parallelism": []}, ("at least one key", "skip the run")),
        ({"parallelism": ["a", "a"]}, ("unique keys", "'a' more than once")),
        ({"parallelism": ["a", " b"]}, ("without spaces", "' b'")),
        ({"parallelism": ["a", 1]}, ("found 1",)),
        ({"parallelism": ["a\nb"]}, ("printable", "a\\nb")),
        ({"parallelism": "{{ ti.try_number }}"}, ("over the run alone", "'ti'")),
        ({"parallelism": per_file}, ("needs a source with splits", "same_as")),
        ({"params": {"x": "{{ subtask }}"}}, ("names the subtask", "no parallelism=")),
        ({"splits": files("s3://l/{{ subtask }}.csv")}, ("names the subtask", "no parallelism=")),
        ({"splits": files("s3://l/{{ subtask }}.csv"), "parallelism": per_file}, ("per_file makes the subtasks",)),
        ({"splits": files("s3://l/*.csv"), "parallelism": DAYS}, ("which splits belong to which", "{{ subtask }}")),
    ],
)
def test_what_can_not_be_split_is_refused_with_advice(options: dict[str, Any], texts: tuple[str, ...]) -> None:
    made = job("j")
    with pytest.raises(JobDefinitionError) as error:
        declare(made, "a", **options)
    assert str(error.value).startswith("job 'j', vertex 'a'")
    for text in texts:
        assert text in str(error.value)


def test_same_as_leads_somewhere() -> None:
    for parallelism, code in (
        ("nobody", "same-as-leads-nowhere"),
        ("a", "same-as-leads-nowhere"),
        ("b", "same-as-declares-none"),
    ):
        made = job("j")
        declare(made, "a", parallelism=same_as(parallelism))
        declare(made, "b")
        with fails_with(code):
            made.parallelism_of("a")
    with fails_with("same-as-no-name"):
        same_as("")


def test_one_application_has_one_kind_of_subtasks() -> None:
    made = job("j")
    declare(made, "a", parallelism=DAYS)
    declare(made, "b", "a", sink=True)
    with fails_with("pipelined-other-subtasks", where="job 'j', vertex 'b'", input="a"):
        made.regions()
