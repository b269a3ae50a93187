"""``confirm``: a person's word, and the next try goes on. The real journal in a folder."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from fakes import Hooks, Killed, Process

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import SinkInDoubt
from airflow_recovery.model.committing import CommitKind
from airflow_recovery.testing.fake_sink import FakeTarget, fake_commit

RUN = ("flights", "2026-01-01")
SINK = "busiest"


@pytest.fixture
def world(recorded, monkeypatch):
    """A probe-only sink whose process was killed right before the commit."""
    found = recorded.world()
    target = FakeTarget()
    kind, run = type(found), type(found).run
    plan = kind.plan.fget

    def with_sink(self):
        commit = fake_commit(SINK, CommitKind.PROBE_ONLY)
        regions = (replace(region, commit=commit) if region.name == SINK else region for region in plan(self).regions)
        return replace(plan(self), regions=tuple(regions))

    monkeypatch.setattr(kind, "plan", property(with_sink))
    monkeypatch.setattr(
        kind,
        "run",
        lambda self, own, process, writer: replace(
            run(self, own, process, writer), open_committer=lambda spec: target.committer(spec, process.request)
        ),
    )
    found.target = target
    found.go_all(["raw", "by_route", "by_carrier"])
    process = Process()
    process.gate = lambda request: process.kill() if request.startswith("sink: commit") else None
    with pytest.raises(Killed):
        found.region_task(found.airflow.start(SINK), process, Hooks()).execute()
    found.airflow.lose_heartbeat(SINK)
    return found


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
    assert (document["region"], document["attempt"], document["turn"]) == (SINK, 1, 1)
    assert document["clear"] == [f"flights.{SINK}"]


@pytest.mark.parametrize(
    ("region", "said"), [("by_route", "there is nothing to confirm"), ("busyest", "did you mean 'busiest'")]
)
def test_what_is_not_in_doubt_is_not_found(recorded, world, region, said):
    code, _ = recorded.call("confirm", *RUN, region)
    assert code == ExitCode.NOT_FOUND
    assert said in recorded.errors
