"""Before every success: whoever stands on a superseded input is cleared, and nobody reports a success that does."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from fakes import CHAIN, DIAMOND, FORK, PAIR, PUBLISH, Process, World

from airflow_recovery.attempt import final_check as final_check_module
from airflow_recovery.attempt import region_task
from airflow_recovery.errors import ClearNotConfigured, Overtaken
from airflow_recovery.journal.published import published_result
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Claim, Reset
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.testing.fake_airflow import FakeClearClient


def remake(world: World, region: str) -> None:
    """A user's restart of ``region``, run to its finish."""
    world.restart(region)
    world.go(region)


def test_a_consumer_that_is_green_on_a_superseded_input_is_cleared():
    world = World(PAIR)
    world.go_all()
    remake(world, "P")
    assert world.airflow.cleared == ["C"]
    assert world.go("C").attempt == 2


def test_case_1_a_consumer_that_finishes_on_the_old_attempt_is_overtaken():
    """C@1 reads P@1; P is reset; P@2 finishes while C runs; C's finish is no success."""
    world = World(PAIR)
    world.go("P")
    with fails_with("overtaken-while-running", attempt=1):
        world.go("C", on_written=lambda: quietly(world))
    world.until_green()
    assert world.state().of("C").current.outcome.inputs[0].attempt == 2


def quietly(world: World) -> None:
    """P is made again, and its final check does not reach C: only C's own look can help."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region_task, "final_check", lambda *args: None)
        remake(world, "P")


def test_case_1_control_without_the_final_check_it_is_green_on_the_old_attempt(monkeypatch):
    world = World(PAIR)
    world.go("P")
    monkeypatch.setattr(region_task, "final_check", lambda *args: None)
    world.go("C", on_written=lambda: quietly(world))
    assert world.airflow.state("C") == "success"
    assert world.state().of("C").current.outcome.inputs[0].attempt == 1
    assert world.current("P") == 2


def p_is_made_again_before_c_reports(world: World) -> bool:
    """C has made its final check, not yet reported, when P@2 finishes and makes its own. Whether C's success counts."""
    world.go("P")
    c = world.airflow.start("C")
    world.region_task(c, Process()).execute()
    remake(world, "P")
    return world.airflow.end(c, "success")


def test_case_2_a_running_consumer_is_cleared_too():
    world = World(PAIR)
    assert not p_is_made_again_before_c_reports(world)
    world.until_green()
    assert world.state().of("C").current.outcome.inputs == (InputRef("P", 2),)


def test_case_2_control_where_the_final_check_clears_finished_tasks_only(monkeypatch):
    monkeypatch.setattr(final_check_module, "RUNNING_STATES", frozenset())
    world = World(PAIR)
    assert p_is_made_again_before_c_reports(world)
    assert world.state().of("C").current.outcome.inputs == (InputRef("P", 1),)


def a_reset_without_its_clear_beside_a_later_try(world: World) -> bool:
    """C@1 is published; C's second try has kept it and made its final check, but not yet reported. Now somebody resets
    C and dies before the clear; then P, cleared by hand, is kept. Whether the second try's success counts.
    """
    world.go_all()
    world.publish()
    world.airflow.clear("C")
    c = world.airflow.start("C")
    world.region_task(c, Process()).execute()
    assert c.try_number == 2  # later than the try that made C@1
    world.journal().reset(Reset("C", 1, "user", "asked for"))
    world.airflow.clear("P")
    world.go("P")
    return world.airflow.end(c, "success")


def test_a_try_after_the_one_that_was_reset_may_have_looked_before_the_reset_and_is_cleared():
    world = World(PAIR)
    assert not a_reset_without_its_clear_beside_a_later_try(world)
    world.until_green()
    assert world.current("C") == 2


def test_control_where_a_later_try_is_trusted_to_have_seen_the_reset_it_is_forgotten(monkeypatch):
    why_overtaken = final_check_module._why_overtaken

    def trusting(evaluation, region, ti_id):
        has_basis = evaluation.basis(region, ti_id) is not None
        return why_overtaken(evaluation, region, ti_id) if has_basis else None

    monkeypatch.setattr(final_check_module, "_why_overtaken", trusting)
    world = World(PAIR)
    assert a_reset_without_its_clear_beside_a_later_try(world)
    assert world.until_green() == []
    assert world.current("C") == 0


def final_check_beside_a_zombies_claim(world: World) -> None:
    """C is green on P@1; a zombie of C opens C@2 on P@2, and stalls, while P@2 makes its final check."""
    world.go_all()
    world.restart("P")
    process = Process()

    def zombie_claims(request: str) -> None:
        if request == "observe":  # P@2 is finished, its final check begins
            process.gate = lambda request: None
            claim = Claim("C", 2, "zombie", "0", (InputRef("P", 2),), "run", 1, "an older instance", "tag", "now")
            world.journal(writer="zombie").claim(claim)

    process.gate = zombie_claims
    world.go("P", process=process)


def test_case_3_a_zombies_open_claim_is_nobodys_basis():
    world = World(PAIR)
    final_check_beside_a_zombies_claim(world)
    assert world.airflow.cleared == ["C"]


def test_case_3_control_where_any_open_claim_counts(monkeypatch):
    basis = Evaluation.basis
    monkeypatch.setattr(Evaluation, "basis", lambda self, region, ti_id: basis(self, region, None))
    world = World(PAIR)
    final_check_beside_a_zombies_claim(world)
    assert world.airflow.cleared == []


def test_a_later_claim_supersedes_nothing():
    """Hole 11: a zombie claims P@2 and stalls; C on P@1 stays green."""
    world = World(PAIR)
    world.go_all("P")
    world.journal(writer="zombie").claim(Claim("P", 2, "zombie", "0", (), "run", 1, "old", "tag", "now"))
    assert world.go("C").attempt == 1
    assert world.airflow.cleared == []


def test_the_whole_diamond_follows_a_restart_of_its_source():
    world = World(DIAMOND)
    world.go_all()
    world.publish()
    world.restart("P")
    assert world.until_green() == ["P", "C", "D", "E"]
    assert {region: world.current(region) for region in DIAMOND} == dict.fromkeys(DIAMOND, 2)


def test_an_inner_region_at_its_first_attempt_and_try_asks_nobody():
    world = World(CHAIN)
    requests: list[str] = []
    process = Process(gate=requests.append)
    world.go("P", process=process)
    assert [request.split()[0] for request in requests if "results" not in request][
        -1
    ] == "PUT"  # the outcome is the last


def test_a_kept_leaf_makes_the_final_check():
    """The leaf was kept by its pre-check; before it reports, P@2 finishes."""
    world = World(PAIR)
    world.go_all()
    world.airflow.clear("C")
    process = Process()
    lists = []

    def remade_in_between(request: str) -> None:
        if request.startswith("LIST") and "results" not in request:
            lists.append(request)
        if request == "observe" and len(lists) >= 1:
            process.gate = lambda request: None
            quietly(world)

    process.gate = remade_in_between
    with pytest.raises(Overtaken):
        world.go("C", process=process)


def test_without_a_clear_client_a_superseded_input_fails_and_names_both_settings():
    world = World(PAIR, can_clear=False)
    world.go_all()
    world.restart("P")
    with pytest.raises(ClearNotConfigured) as failed:
        world.go("P")
    assert "[state_store] backend" in str(failed.value)
    assert "[recovery] api_conn_id" in str(failed.value)


def p_is_made_again_without_a_clear_client() -> World:
    """C, D and the publish are green on P@1 when a user restarts P: P@2 can't clear them, and fails for good."""
    world = World(FORK, can_clear=False, retries=0)
    world.go_all()
    world.publish()
    world.restart("P")
    with fails_with("no-way-to-clear-readers", region="P"):
        world.go("P")
    assert world.airflow.state("P") == "failed"
    return world


def test_without_a_clear_client_clearing_by_hand_ends_green():
    world = p_is_made_again_without_a_clear_client()
    world.airflow.clear("P", downstream=True)
    assert world.until_green() == ["P", "C", "D", PUBLISH]
    assert {each: world.current(each) for each in FORK} == dict.fromkeys(FORK, 2)
    assert world.ran[-2:] == [("C", 2), ("D", 2)]  # P@2 was kept


def test_without_a_clear_client_clearing_by_hand_one_after_the_other_ends_green():
    """The other order that the message names."""
    world = p_is_made_again_without_a_clear_client()
    for each in "CD":
        world.airflow.clear(each)
    assert world.airflow.ready() == []  # upstream_failed, both
    world.airflow.clear("P")
    assert world.airflow.ready() == ["P"]
    world.go("P")
    for each in ("C", "D", PUBLISH):
        world.airflow.clear(each)
    assert world.until_green() == ["C", "D", PUBLISH]


def test_without_a_clear_client_who_was_not_cleared_is_named_again():
    world = p_is_made_again_without_a_clear_client()
    world.airflow.clear("C")
    world.airflow.clear("P")
    with fails_with("no-way-to-clear-readers", region="P"):
        world.go("P")


def test_control_where_nobody_is_asked_for_its_state_clearing_by_hand_never_ends(monkeypatch):
    monkeypatch.setattr(FakeClearClient, "states", lambda self, keys: dict.fromkeys(FORK, "success"))
    world = p_is_made_again_without_a_clear_client()
    for _ in range(3):
        world.airflow.clear("P", downstream=True)
        with pytest.raises(ClearNotConfigured):
            world.go("P")


def test_without_a_clear_client_nobody_is_asked_while_nothing_is_superseded():
    world = World(PAIR, can_clear=False)
    requests: list[str] = []
    world.go("P", process=Process(gate=requests.append))
    world.go("C", process=Process(gate=requests.append))
    assert "states" not in requests


def test_without_a_clear_client_ones_own_overtaken_input_retries():
    world = World(FORK, can_clear=False)
    world.go("P")
    with pytest.raises(Overtaken):
        world.go("C", on_written=lambda: quietly(world))
    assert world.go("C").attempt == 2


def a_published_leaf_is_made_again() -> World:
    """A user restarts C alone; its publish stays green on C@1."""
    world = World(PAIR, publish_keys=(PUBLISH,))
    world.go_all()
    world.publish()
    world.restart("C")
    world.go("C")
    return world


def test_the_final_check_clears_a_publish_that_names_what_was_made_again():
    world = a_published_leaf_is_made_again()
    assert world.airflow.cleared == [PUBLISH]
    assert world.until_green() == [PUBLISH]
    assert published_result(world.journal(), "C").attempt == 2


def test_control_where_the_final_check_does_not_look_at_the_publish_its_readers_wait_for_ever(monkeypatch):
    monkeypatch.setattr(final_check_module, "_why_publish_again", lambda *args: None)
    world = a_published_leaf_is_made_again()
    assert world.airflow.cleared == []
    assert world.airflow.is_green
    with fails_with("published-outdated", rests_on="C@1", now=2):
        published_result(world.journal(), "C")


def test_the_final_check_leaves_a_publish_alone_that_names_what_is_current():
    world = World(PAIR, publish_keys=(PUBLISH,))
    world.go_all()
    world.publish()
    world.airflow.clear("C")
    world.go("C")
    assert world.airflow.cleared == []


def test_without_a_clear_client_a_stale_publish_is_told(caplog):
    world = World(PAIR, publish_keys=(PUBLISH,), can_clear=False)
    world.go_all()
    world.publish()
    world.restart("C")
    with caplog.at_level("WARNING"):
        world.go("C")
    assert "publish 1 names C@1, now @2; this deployment gives no way to clear publish: clear it" in caplog.text


def test_fault_65_a_retry_of_a_leaf_unblocks_the_publish():
    world = World(PAIR, retries=0)
    world.go("P")

    def fail() -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        world.go("C", on_read=fail)
    world.airflow.ready()
    assert world.airflow.state(PUBLISH) == "upstream_failed"
    world.airflow.clear("C")
    assert world.until_green() == ["C", PUBLISH]
