"""Each error code is of one class, stands in docs/errors.md, and is expected by a test."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery import errors
from airflow_recovery.driver.failure import describe
from airflow_recovery.errors import InputLost, JobDefinitionError, ManifestInvalid, RecoveryError, RegionFailed
from airflow_recovery.task.failures import airflow_errors
from scripts.error_codes import PAGE, codes, page

TESTS = Path(__file__).resolve().parents[1]
FOUND = codes()


def test_each_code_is_of_one_class_and_is_no_other_ones_own() -> None:
    own = {kind.code: name for name, kind in vars(errors).items() if hasattr(kind, "code")}
    assert {code: names for code, names in FOUND.items() if names != {own.get(code, min(names))}} == {}
    assert [code for code in FOUND if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)] == []


def test_the_page_is_made_from_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m scripts.error_codes"


def test_each_code_is_expected_by_a_test() -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py"))
    named = set(re.findall(r'"([a-z0-9-]+)"', texts))
    assert sorted(FOUND.keys() - named) == []


def test_an_error_has_the_code_of_its_class_if_it_has_none_of_its_own() -> None:
    assert InputLost("gone").code == InputLost.code == "input-lost"
    assert InputLost("gone", code="a-case").code == "a-case"


def test_the_fields_are_attributes() -> None:
    error = JobDefinitionError("twice", code="vertex-name-twice", vertex="a")
    assert (error.fields, vars(error)["vertex"], str(error)) == ({"vertex": "a"}, "a", "twice")


@pytest.mark.parametrize(
    "error",
    [
        JobDefinitionError("twice", code="a-case", vertex="a"),
        errors.UnknownRegion("none", code="a-case", vertex="a"),
        errors.InputSkipped("skipped", "why", code="a-case", vertex="a"),
        RegionFailed("failed", errors.Failure("Any", "message"), code="a-case", vertex="a"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_code_and_fields_travel_between_processes(error: RecoveryError) -> None:
    error.__dict__.pop("forget", None)
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), there.code, there.fields, str(there)) == (type(error), "a-case", {"vertex": "a"}, str(error))


def test_an_error_of_the_driver_reaches_the_task_with_its_code() -> None:
    failure = describe(ManifestInvalid("other rows", code="rows-differ", expected=2, found=3))
    assert dict(failure.labels) == {"code": "rows-differ", "expected": "2", "found": "3"}
    assert RegionFailed("r@1 failed", failure).code == "rows-differ"
    assert RegionFailed("r@1 failed", describe(OSError("not ours"))).code == "region-failed"


class BadRows(errors.UserCodeError):
    def __init__(self, rows: int) -> None:
        self.rows = rows


def test_a_users_own_error_need_not_call_our_constructor() -> None:
    assert dict(describe(BadRows(3)).labels)["code"] == "bad-rows"


def test_an_error_reaches_airflow_with_its_code() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with fails_with("a-case", by=AirflowFailException, vertex="a"), airflow_errors():
        raise JobDefinitionError("twice", code="a-case", vertex="a")


@pytest.mark.control
@pytest.mark.parametrize(("code", "vertex"), [("another-case", "a"), ("a-case", "b")])
def test_control_another_code_or_field_is_noticed(code: str, vertex: str) -> None:
    with pytest.raises(AssertionError, match="has a-case and"), fails_with(code, vertex=vertex):
        raise JobDefinitionError("twice", code="a-case", vertex="a")
