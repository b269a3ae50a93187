"""A drop-in's application gets folders: it is finished only after a listing later than its claim shows no release.

p ---> c          the journal on an S3 server behind a proxy; `c` is claimed while a sweeper deletes what `p` has made
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from test_drop_in_application import dag_of, location_of
from tries import RUN_KEY, run_try

from airflow_recovery.errors import ClearNotConfigured, InputReleased, StoreTimeout
from airflow_recovery.hooks import stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import FenceCause, RunIdentity
from airflow_recovery.results.release import Releaser
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task import drop_in
from airflow_recovery.task.spark_submission import SparkSubmission
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S
from scripts.s3_proxy import Fate, LostReply, S3Proxy, S3Request

pytestmark = pytest.mark.s3

CLAIM_OF_C = "/t/c/00000001.claim"
OUTCOME_OF_C = "/t/c/00000001.outcome"


class HalfWay(LocalStore):
    """A sweeper's store: when the application reads, one of the two files is deleted and the other one is not yet."""

    def delete(self, keys: Iterable[str]) -> None:
        super().delete([key for key in keys if key.endswith("/part-0")])


class Race(S3Proxy):
    """Between `c`'s look at its input and its claim, ``before_claim`` happens.

    A listing after that claim is held back until ``may_list``; then ``to_listing`` says what becomes of it.
    """

    def __init__(self, server: S3Server, uri: str) -> None:
        super().__init__(server)
        store = S3Store(uri, endpoint_url=server.endpoint_url, session=server.session())
        self.journal = Journal(store, RunIdentity("d", RUN_KEY, OPERATORS_GROUP), writer="sweeper")
        self.before_claim: Callable[[], object] = lambda: None
        self.to_listing: Callable[[], LostReply | None] = lambda: None
        self.may_list = threading.Event()
        self.application_ended = threading.Event()
        self.lists_when: threading.Event = self.application_ended
        self.is_claimed = threading.Event()
        self.finish_seen = threading.Event()
        self.listings = 0

    def evaluate(self, request: S3Request) -> Fate | None:
        if request.method == "PUT" and request.key.endswith(CLAIM_OF_C):
            self.before_claim()
            self.is_claimed.set()
        if request.method == "PUT" and request.key.endswith(OUTCOME_OF_C):
            self.finish_seen.set()
        is_listing = not request.key and request.query.get("prefix", "").endswith("~28operators~29/")
        if is_listing and self.is_claimed.is_set() and not self.may_list.is_set():
            self.listings += 1
            assert self.lists_when.wait(HANG_S)
            return self.to_listing()
        return super().evaluate(request)

    def release_p(self) -> None:
        """The real releaser, up to half of its deletion. It sees no claim."""
        attempt = self.journal.load(self.journal.list(["p"])).of("p").attempts[1]
        assert attempt.outcome is not None
        results = HalfWay(attempt.outcome.outputs[0].location.partition("/d/")[0])
        assert Releaser(self.journal, results, who="gc").release("p", attempt).readers == ""

    def cause_of_c(self) -> FenceCause | None:
        outcome = self.journal.read_outcome("c", 1)
        assert outcome is not None
        return outcome.cause


@pytest.fixture
def race(
    recovery: Path,
    submitted: Path,
    start_s3_server: Callable[[str], S3Server],
    s3_server_names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Race]:
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    with Race(start_s3_server(s3_server_names[-1]), uri) as found:
        monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", uri)
        monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS", f"file://{recovery}/results")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", found.endpoint_url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", os.environ.get("AWS_DEFAULT_REGION", "us-east-1"))
        monkeypatch.setattr(stores, "Timeouts", partial(stores.Timeouts, read_attempts=1))
        submit = SparkSubmission.submit

        def submit_and_tell(submission: SparkSubmission, job: Any, name: str) -> None:
            submit(submission, job, name)
            if job.task_id == "c":
                found.application_ended.set()

        monkeypatch.setattr(SparkSubmission, "submit", submit_and_tell)
        yield found


def tasks() -> dict[str, Any]:
    return dag_of({"task_id": "p", "say": ["--say", "a\nb"]}, {"task_id": "c", "reads": "p"})


def rows(answer: dict[str, Any]) -> str:
    return "".join(path.read_text() for path in sorted(location_of(answer).glob("part-*")))


def check_the_next_tries_make_it_whole(race: Race) -> None:
    race.may_list.set()
    made = tasks()
    with pytest.raises(AirflowFailException) as caught:
        run_try(made["c"], try_number=2)
    assert isinstance(caught.value.__cause__, ClearNotConfigured)
    assert run_try(made["p"], try_number=2)["attempt"] == 2
    assert rows(run_try(made["c"], try_number=3)) == "ab"


def lost_reply() -> LostReply:
    return LostReply()


@pytest.mark.slow
def test_fault_121_the_answer_comes_after_the_application_has_read_half_of_its_input(race: Race) -> None:
    run_try(tasks()["p"])
    race.before_claim = race.release_p
    with pytest.raises(InputReleased, match=r"c@1: p@1 was released after it was claimed: .* may have read a part"):
        run_try(tasks()["c"])
    assert race.application_ended.is_set()
    assert race.cause_of_c() is FenceCause.LOST_INPUT
    check_the_next_tries_make_it_whole(race)


@pytest.mark.slow
def test_fault_121_the_look_beside_the_application_fails_and_is_made_again_before_the_finish(race: Race) -> None:
    run_try(tasks()["p"])
    race.before_claim = race.release_p
    race.lists_when = race.is_claimed
    race.to_listing = lambda: None if race.application_ended.is_set() else LostReply()
    with pytest.raises(InputReleased, match="c@1: p@1 was released"):
        run_try(tasks()["c"])
    assert race.listings == 2
    assert race.cause_of_c() is FenceCause.LOST_INPUT
    check_the_next_tries_make_it_whole(race)


@pytest.mark.slow
def test_fault_121_without_any_answer_nothing_is_finished(race: Race) -> None:
    run_try(tasks()["p"])
    race.before_claim = race.release_p
    race.to_listing = lost_reply
    with pytest.raises(StoreTimeout):
        run_try(tasks()["c"])
    assert race.cause_of_c() is FenceCause.OWN_FAILURE
    check_the_next_tries_make_it_whole(race)


@pytest.mark.slow
def test_fault_121_control_where_the_finish_does_not_wait_half_of_the_input_is_green(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "ensure_inputs_kept", lambda run, attempt: None)
    monkeypatch.setattr(drop_in.DropInApplication, "_changed_inputs", lambda self, attempt: "")
    run_try(tasks()["p"])
    race.before_claim = race.release_p
    race.lists_when = race.finish_seen
    answer = run_try(tasks()["c"])
    assert (answer["decision"], rows(answer)) == ("ran", "b")


@pytest.mark.slow
def test_an_input_that_is_kept_costs_the_one_listing_that_is_made_anyway(race: Race) -> None:
    run_try(tasks()["p"])
    answer = run_try(tasks()["c"])
    assert (answer["decision"], rows(answer)) == ("ran", "ab")
    assert race.listings == 1 + 1  # beside the application, and at the end of a leaf (final check)


@pytest.mark.slow
def test_a_look_that_failed_costs_one_more_listing_and_no_attempt(race: Race) -> None:
    run_try(tasks()["p"])
    race.lists_when = race.is_claimed
    race.to_listing = lambda: None if race.application_ended.is_set() else LostReply()
    assert rows(run_try(tasks()["c"])) == "ab"
    assert race.listings == 3
