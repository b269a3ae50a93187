"""Good journals pass; each invariant is found to be violated by a journal in which it alone is."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress

import fakes
import pyarrow
import pyarrow.parquet as parquet
import pytest
from spoiled_journal import PREFIX, Spoiled

from airflow_recovery.attempt import region_task
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Closed, Released
from airflow_recovery.testing import Fault, FaultKind, FaultyStore, Verb
from airflow_recovery.testing.simulation import TOPOLOGIES, Schedule, Settings, Trouble, Violation, job_of
from airflow_recovery.testing.simulation.jobs import IDENTITY
from airflow_recovery.verify import Report, verify_run
from airflow_recovery.verify.finding import INVARIANTS, Verdict

# good ones


def test_a_run_with_a_failure_a_loss_and_a_reset_passes(running: Spoiled) -> None:
    report = running.verify()
    assert report.violated == ()
    said = {answer.invariant: answer.verdict for answer in report.answers}
    assert set(said) == set(INVARIANTS)
    assert [number for number, verdict in said.items() if verdict is Verdict.NOT_APPLICABLE] == [9, 13, 14, 15]


def test_a_published_run_that_has_ended_passes(published: Spoiled) -> None:
    assert published.verify(ended=True).violated == ()


def test_a_run_that_has_just_begun_passes() -> None:
    world = fakes.World(fakes.PAIR)
    process = fakes.Process()
    task = world.region_task(world.airflow.start("P"), process, fakes.Hooks(on_start=process.kill))
    with pytest.raises(fakes.Killed):
        task.execute()
    assert Spoiled(world).verify().violated == ()
    assert Spoiled(world).verify(ended=True).violated == (13,)  # it has not ended


def test_nothing_recorded_passes_and_says_so() -> None:
    report = Spoiled(fakes.World(fakes.PAIR)).verify()
    assert report.violated == ()
    assert "nothing is recorded yet" in report.text()


def test_a_run_that_was_purged_and_came_back_passes(published: Spoiled) -> None:
    world = published.world
    world.journal().close(Closed(tuple(InputRef(name, world.attempts(name)) for name in "PCDE")), 1)
    published.delete(*(each for each in published.keys("") if not each.startswith("closed")))
    world.new_airflow()
    world.until_green()
    assert world.current("P") == 4
    assert published.verify(ended=True).violated == ()


@pytest.mark.parametrize("topology", ["pair", "diamond"])
def test_what_the_protocol_makes_of_any_order_of_requests_and_faults_passes(topology) -> None:
    """Seeded: crashes, zombies, users who clear and restart. An outsider's deletion after the end is seen."""
    for seed in range(60):
        schedule = Schedule(seed, Settings.drawn(seed, topology))
        schedule.run()
        found = verify_simulated(schedule)
        troubles = schedule.settings.troubles.keys()
        seen = {4} if {Trouble.DELETE, Trouble.ALTER} & troubles else set()
        if Trouble.VERSION in troubles:
            seen |= {7, 12, 13}  # what a version to come has written can't be read, nor what rests on it
        assert set(found.violated) <= seen, f"seed {seed}\n{found.text()}"


@pytest.mark.slow
def test_control_without_the_final_check_the_checker_sees_the_false_green(monkeypatch) -> None:
    monkeypatch.setattr(region_task, "final_check", lambda run, region, attempt: None)
    numbers: set[int] = set()
    for seed in range(200):
        schedule = Schedule(seed, Settings(job_of(TOPOLOGIES["pair"]), {Trouble.RESTART: 1}, publishes=False))
        with suppress(Violation):
            schedule.run()
        numbers |= set(verify_simulated(schedule).violated)
    assert 7 in numbers


def verify_simulated(schedule: Schedule) -> Report:
    world = schedule.world
    return verify_run(
        world.journal_store,
        lambda location: world.results,
        dag_id=IDENTITY.dag_id,
        run_key=IDENTITY.run_key,
        group_id=IDENTITY.group_id,
        ended=True,
    )


# bad ones: before the publish


def finish_by_another(it: Spoiled) -> None:
    it.edit("t/E/00000001.outcome", lambda body: body.update(writer="somebody else"))


def finish_in_two_places(it: Spoiled) -> None:
    it.edit("t/E/00000001.outcome", lambda body: None, to="t/E/00000002.outcome")


def hole_in_the_numbers(it: Spoiled) -> None:
    it.delete("t/C/00000001.claim")


def number_left_out(it: Spoiled) -> None:
    for kind in ("claim", "outcome"):
        it.edit(f"t/E/00000001.{kind}", lambda body: body.update(attempt=2), to=f"t/E/00000002.{kind}")
        it.delete(f"t/E/00000001.{kind}")


def two_open(it: Spoiled) -> None:
    it.delete("t/P/00000001.outcome")


def reset_of_what_never_was(it: Spoiled) -> None:
    it.edit("t/C/00000001.reset", lambda body: body.update(attempt=7), to="t/C/00000007.reset")
    it.edit("t/C/00000001.reset", lambda body: None)


def reads_a_fenced_attempt(it: Spoiled) -> None:
    for kind in ("claim", "outcome"):
        it.edit(f"t/D/00000001.{kind}", lambda body: body["inputs"][0].update(attempt=1, digests=[]))


def reads_what_is_not_there(it: Spoiled) -> None:
    for kind in ("claim", "outcome"):
        it.edit(f"t/D/00000001.{kind}", lambda body: body["inputs"][0].update(attempt=8, digests=[]))


def reads_other_than_it_claimed(it: Spoiled) -> None:
    it.edit("t/E/00000001.outcome", lambda body: body["inputs"].pop())


def was_told_another_digest(it: Spoiled) -> None:
    it.edit("t/D/00000001.claim", lambda body: body["inputs"][0].update(digests=[["P", "0"]]))


def lacks_an_object(it: Spoiled) -> None:
    it.world.delete_results("E", 1)


def has_another_object(it: Spoiled) -> None:
    (key,) = [each.key for each in it.results.list("") if "/E/00000001" in each.key]
    it.results.put(key, b"else")


def resets_without_a_cause(it: Spoiled) -> None:
    it.edit("t/C/00000001.reset", lambda body: body.update(why=" "))


def runs_again_without_a_cause(it: Spoiled) -> None:
    it.edit("t/E/00000001.claim", lambda body: body.update(attempt=2), to="t/E/00000002.claim")
    (key,) = [each.key for each in it.results.list("") if "/E/00000001" in each.key]
    it.results.put(key.replace("00000001", "00000002"), it.results.objects[key])

    def other_place(body: dict) -> None:
        location = body["outputs"][0]["location"].replace("00000001", "00000002")
        body.update(attempt=2)
        body["outputs"][0].update(location=location)

    it.edit("t/E/00000001.outcome", other_place, to="t/E/00000002.outcome")


def plan_under_another_hash(it: Spoiled) -> None:
    (key,) = it.keys("plan/")
    it.edit(key, lambda body: body.update(job="another"))


def region_twice(it: Spoiled) -> None:
    it.replan(lambda regions: regions.append(regions[-1]))


def vertex_in_two_regions(it: Spoiled) -> None:
    it.replan(lambda regions: regions[1].update(vertices=["P", "C"]))


def inputs_come_later(it: Spoiled) -> None:
    it.replan(lambda regions: regions.reverse())


def claimed_by_no_plan(it: Spoiled) -> None:
    it.edit("t/E/00000001.claim", lambda body: body.update(plan_hash="ab" * 16))


def decision_forgets_a_consumer(it: Spoiled) -> None:
    it.replan(lambda regions: regions[0].pop("determinism"))
    it.edit(
        "t/P/00000002.lost", lambda body: body.update(plan=[each for each in body["plan"] if each[0] not in ("D", "E")])
    )


def decision_forgets_what_is_lost(it: Spoiled) -> None:
    it.edit("t/P/00000002.lost", lambda body: body.update(plan=[each for each in body["plan"] if each[0] != "P"]))


def deleted_while_it_is_read(it: Spoiled) -> None:
    it.delete("t/E/00000001.outcome")
    it.world.journal().release(Released("D", 1, "sweeper"))
    it.world.delete_results("D", 1)


def two_attempts_in_one_place(it: Spoiled) -> None:
    location = it.body("t/C/00000002.outcome")["outputs"][0]["location"]
    it.edit("t/C/00000001.outcome", lambda body: body["outputs"][0].update(location=location))


def result_twice(it: Spoiled) -> None:
    it.edit("t/C/00000001.outcome", lambda body: body["outputs"].append(body["outputs"][0]))


def committed_without_a_finish(it: Spoiled) -> None:
    it.edit("t/P/00000001.claim", lambda body: body.update(end="COMMITTED"), to="t/P/00000001.committed")
    document = json.loads(it.journal.objects[f"{PREFIX}t/P/00000001.committed"])
    it.write("t/P/00000001.committed", {**document, "kind": "committed"})


def overwritten_while_it_is_read(it: Spoiled) -> None:
    key = f"{PREFIX}t/E/00000001.outcome"
    changed = it.journal.objects[key] + b" "
    listings = [0]
    listed = it.journal.list

    def list_(prefix: str = "", *, start_after: str = ""):
        listings[0] += 1
        if listings[0] == 2:
            it.journal.objects[key] = changed
        return listed(prefix, start_after=start_after)

    it.journal.list = list_


def cut_off(it: Spoiled) -> None:
    key = f"{PREFIX}t/E/00000001.outcome"
    it.journal.objects[key] = it.journal.objects[key][:-20]


def one_byte_flipped(it: Spoiled) -> None:
    """Still JSON, and a valid outcome: only its checksum tells."""
    key = f"{PREFIX}t/E/00000001.outcome"
    assert b'"rows":1' in it.journal.objects[key]
    it.journal.objects[key] = it.journal.objects[key].replace(b'"rows":1', b'"rows":3')


def of_another_run(it: Spoiled) -> None:
    document = json.loads(it.journal.objects[f"{PREFIX}t/E/00000001.outcome"])
    it.write("t/E/00000001.outcome", {**document, "dag_id": "another"})


def of_a_newer_version(it: Spoiled) -> None:
    document = json.loads(it.journal.objects[f"{PREFIX}t/E/00000001.outcome"])
    it.write("t/E/00000001.outcome", {**document, "format": 3})


def very_deep(it: Spoiled) -> None:
    it.journal.objects[f"{PREFIX}t/E/00000001.outcome"] = b'{"body":' + b"[" * 200_000


def claim_elsewhere(it: Spoiled) -> None:
    it.edit("t/E/00000001.claim", lambda body: None, to="t/E/00000002.claim")


def in_a_circle(it: Spoiled) -> None:
    for kind in ("claim", "outcome"):
        it.edit(f"t/P/00000003.{kind}", lambda body: body.update(inputs=[{"region": "E", "attempt": 1}]))


BEFORE = [
    (1, finish_by_another),
    (1, finish_in_two_places),
    (2, hole_in_the_numbers),
    (2, number_left_out),
    (2, two_open),
    (2, reset_of_what_never_was),
    (3, reads_a_fenced_attempt),
    (3, reads_what_is_not_there),
    (3, reads_other_than_it_claimed),
    (3, was_told_another_digest),
    (4, lacks_an_object),
    (4, has_another_object),
    (5, resets_without_a_cause),
    (5, runs_again_without_a_cause),
    (6, plan_under_another_hash),
    (6, region_twice),
    (6, vertex_in_two_regions),
    (6, inputs_come_later),
    (6, claimed_by_no_plan),
    (7, decision_forgets_a_consumer),
    (7, decision_forgets_what_is_lost),
    (8, deleted_while_it_is_read),
    (10, two_attempts_in_one_place),
    (10, result_twice),
    (10, committed_without_a_finish),
    (11, overwritten_while_it_is_read),
    (12, cut_off),
    (12, one_byte_flipped),
    (12, of_another_run),
    (12, of_a_newer_version),
    (12, very_deep),
    (12, claim_elsewhere),
    (12, in_a_circle),
]


@pytest.mark.parametrize(("invariant", "spoil"), BEFORE, ids=[each.__name__ for _, each in BEFORE])
def test_control_one_thing_is_wrong_and_one_invariant_says_so(
    running: Spoiled, invariant: int, spoil: Callable[[Spoiled], None]
) -> None:
    assert running.verify().violated == ()
    spoil(running)
    report = running.verify()
    assert report.violated == (invariant,), report.text()
    told = next(answer for answer in report.answers if answer.invariant == invariant).findings
    assert all(finding.expected and finding.found and finding.next_step for finding in told)


# bad ones: after the publish


def final_is_released(it: Spoiled) -> None:
    it.world.journal().release(Released("E", 1, "sweeper"))


def went_back(it: Spoiled) -> None:
    it.edit("publish/00000001", lambda body: body.update(number=2), to="publish/00000002")
    it.edit("publish/00000001", lambda body: body["regions"][2].update(attempt=9), to="publish/00000001")


def outcome_is_overwritten(it: Spoiled) -> None:
    it.journal.objects[f"{PREFIX}t/E/00000001.outcome"] += b"\n"


def names_a_fenced_attempt(it: Spoiled) -> None:
    it.edit("publish/00000001", lambda body: body["regions"][0].update(attempt=1, outcome_etag=""))


def names_a_superseded_attempt(it: Spoiled) -> None:
    def older(body: dict) -> None:
        named = next(each for each in body["regions"] if each["region"] == "C")
        named.update(attempt=1, outcome_etag="")

    it.edit("publish/00000001", older)


def names_no_final_result(it: Spoiled) -> None:
    it.edit("publish/00000001", lambda body: body["regions"].pop())


def names_a_result_that_nobody_made(it: Spoiled) -> None:
    it.edit("publish/00000001", lambda body: body["regions"][-1].update(results=["F"]))


AFTER = [
    ({8}, final_is_released),
    ({11}, outcome_is_overwritten),
    ({13}, names_a_superseded_attempt),
    ({13}, names_no_final_result),
    ({13}, names_a_result_that_nobody_made),
    ({2, 3}, went_back),  # the attempt that it went back from is no attempt
    ({3, 13}, names_a_fenced_attempt),  # which does not fit what was read either
]


@pytest.mark.parametrize(("invariants", "spoil"), AFTER, ids=[each.__name__ for _, each in AFTER])
def test_control_what_is_published_is_wrong(
    published: Spoiled, invariants: set[int], spoil: Callable[[Spoiled], None]
) -> None:
    assert published.verify().violated == ()
    spoil(published)
    report = published.verify()
    assert set(report.violated) == invariants, report.text()


# of a run that has ended


def test_a_consumer_that_rests_on_old_data_is_work_left_and_at_the_end_a_false_green(published: Spoiled) -> None:
    world = published.world
    world.restart("C")
    world.go("C")
    assert published.verify().violated == ()
    report = published.verify(ended=True)
    assert report.violated == (7, 13)
    assert "it read C@2; now it is C@3" in report.text()


def test_equal_rows_made_again_are_no_false_green(published: Spoiled) -> None:
    world = published.world
    world.restart("P")
    world.new_airflow()
    world.until_green()  # `verify`: C and D keep their results
    assert (world.current("P"), world.current("C"), world.current("D")) == (4, 2, 1)
    assert published.verify(ended=True).violated == ()


def test_rows_are_counted_on_demand() -> None:
    world = fakes.World({"P": ()})
    world.go("P")
    world.publish()
    spoiled = Spoiled(world)
    table = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": [1, 2, 3]}), table)
    (key,) = [each.key for each in world.results.list("")]
    info = world.results.put(f"{key}.parquet", table.getvalue())

    def registered(rows: int) -> Callable[[dict], None]:
        return lambda body: body["outputs"][0].update(objects=[["part-0.parquet", info.size, info.etag]], rows=rows)

    spoiled.edit("publish/00000001", lambda body: body["regions"][0].update(outcome_etag=""))
    spoiled.edit("t/P/00000001.outcome", registered(3))
    assert spoiled.verify(ended=True, deep=True).violated == ()
    assert "3 rows counted" in spoiled.verify(deep=True).text()
    spoiled.edit("t/P/00000001.outcome", registered(4))
    assert spoiled.verify(ended=True).violated == ()
    assert spoiled.verify(ended=True, deep=True).violated == (13,)


# what is no answer


def test_fault_27_a_store_that_denies_gives_no_answer(running: Spoiled) -> None:
    running.results = FaultyStore(running.results, [Fault(Verb.LIST, FaultKind.DENIED)])
    with pytest.raises(StoreAccessDenied):
        running.verify()


def test_what_a_spark_server_keeps_is_not_looked_at(running: Spoiled) -> None:
    it = running
    it.edit("t/E/00000001.outcome", lambda body: body["outputs"][0].update(location="spark-connect://h:1/app/view"))
    report = it.verify()
    assert report.violated == ()
    assert "1 kept by a Spark server or a table, not looked at" in report.text()


def test_an_older_attempt_at_a_users_own_location_was_overwritten(running: Spoiled) -> None:
    running.edit("t/C/00000001.outcome", lambda body: body["outputs"][0].update(managed=False))
    running.world.delete_results("C", 1)
    assert running.verify().violated == ()


def test_a_released_result_is_excused(running: Spoiled) -> None:
    running.world.release("C", 2)
    running.world.delete_results("C", 2)
    assert running.verify().violated == ()


def test_modes_decide_whether_another_attempt_is_a_cause() -> None:
    """C runs again after P, which wrote equal rows that C may keep: nobody needed it."""
    world = fakes.World(fakes.PAIR, modes={"P": Determinism.VERIFY})
    world.go_all()
    world.restart("P")
    world.go("P")
    spoiled = Spoiled(world)
    assert spoiled.verify().violated == ()
    for kind in ("claim", "outcome"):

        def again(body: dict) -> None:
            body.update(attempt=2)
            body["inputs"][0].update(attempt=2)
            for each in body.get("outputs", ()):
                each.update(location=each["location"].replace("00000001", "00000002"))

        spoiled.edit(f"t/C/00000001.{kind}", again, to=f"t/C/00000002.{kind}")
    (key,) = [each.key for each in world.results.list("") if "/C/00000001" in each.key]
    world.results.put(key.replace("00000001", "00000002"), world.results.objects[key])
    assert spoiled.verify().violated == (5,)
