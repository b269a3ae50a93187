from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from expected_errors import fails_with

from airflow_recovery.driver.failure_enrichers import enrich, load_enrichers
from airflow_recovery.errors import Failure

log = logging.getLogger(__name__)


class Team:
    output_keys = frozenset({"team"})

    def process_failure(self, failure: Failure) -> Mapping[str, str]:
        seen = dict(failure.labels)["class"]
        return {"team": f"{failure.vertex} ({seen})", "foreign": "x"}


class Broken:
    output_keys = frozenset({"broken"})

    def process_failure(self, failure: Failure) -> Mapping[str, str]:
        raise ValueError("no")


class Ours(Broken):
    output_keys = frozenset({"class"})


class NoKeys:
    pass


def test_a_users_enricher_adds_its_keys_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    enriched = enrich(Failure("TypeError", "x", vertex="v"), load_enrichers([f"{__name__}.Team"]), log)
    assert dict(enriched.labels) == {"class": "user code", "recoverable": "no", "team": "v (user code)"}
    assert "gave ['foreign']" in caplog.text


def test_one_that_fails_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    enrichers = load_enrichers([f"{__name__}.Broken", f"{__name__}.Team"])
    assert "team" in dict(enrich(Failure("TypeError", "x"), enrichers, log).labels)
    assert "Failure enricher Broken failed" in caplog.text


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["nowhere.Enricher"], "failure-enricher-unfit"),
        (["Enricher"], "failure-enricher-unfit"),
        ([f"{__name__}.NoKeys"], "failure-enricher-unfit"),
        ([f"{__name__}.Ours"], "failure-enricher-key-taken"),
        ([f"{__name__}.Team", f"{__name__}.Team"], "failure-enricher-key-taken"),
    ],
)
def test_what_is_no_enricher_is_refused(names: list[str], code: str) -> None:
    with fails_with(code):
        load_enrichers(names)
