"""``confirm``: a person's word, and the next try goes on. The real journal in a folder."""

from __future__ import annotations

import json
import shlex

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import SinkInDoubt
from airflow_recovery.model.committing import CommitKind

RUN = ("flights", "2026-01-01")
SINK = "busiest"


@pytest.fixture
def world(sink):
    return sink(CommitKind.PROBE_ONLY)


def test_a_commit_in_doubt_is_confirmed_and_goes_on(recorded, world):
    with pytest.raises(SinkInDoubt) as error:
        world.go(SINK)
    # The message names the command as it is to be given.
    command = shlex.split(str(error.value).rpartition("airflow recovery ")[2])
    assert [command[0], *command[3:]] == ["confirm", SINK, "--group", "flights"]
    assert recorded.call("plan", *RUN)[1].count("commit (to its sink, without Spark)") == 1
    assert "PREPARED" in recorded.call("show", *RUN)[1]
    code, said = recorded.call("confirm", *RUN, SINK, "--why", "the pod is gone")
    assert code == ExitCode.CLEAR_BY_HAND  # there is no Airflow here
    assert f"commits {SINK}@1 no more" in said
    assert "airflow tasks clear flights" in said
    world.go(SINK)
    assert world.target.applied == [(SINK, 1)]
    assert "committed: commit 1" in recorded.call("show", *RUN)[1]
    assert recorded.call("verify", *RUN)[0] == ExitCode.DONE


def test_as_json(recorded, world):
    _, said = recorded.call("confirm", *RUN, SINK, "--json")
    document = json.loads(said)
    assert (document["region"], document["attempt"], document["epoch"]) == (SINK, 1, 1)
    assert document["clear"] == [f"flights.{SINK}"]


@pytest.mark.parametrize(
    ("region", "said"), [("by_route", "there is nothing to confirm"), ("busyest", "did you mean 'busiest'")]
)
def test_what_is_not_in_doubt_is_not_found(recorded, world, region, said):
    code, _ = recorded.call("confirm", *RUN, region)
    assert code == ExitCode.NOT_FOUND
    assert said in recorded.errors
