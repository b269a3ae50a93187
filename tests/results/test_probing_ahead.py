"""The data of many inputs is looked for at once, by listed pages, and never believed twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from expected_errors import fails_with
from fakes import FolderByFolder, MemoryStore, World
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.attempt.rebuild import asked_for
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.planning.evaluation import AskedResult, Evaluation
from airflow_recovery.planning.reason import Why
from airflow_recovery.results import availability
from airflow_recovery.results import prober as probing
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb
from airflow_recovery.testing.patience import HANG_S

MANY = [f"P{at:02d}" for at in range(20)]
COLLECTS = {**dict.fromkeys(MANY, ()), "C": tuple(MANY)}


@pytest.fixture
def world() -> World:
    found = World(COLLECTS)
    found.go_all(MANY)
    return found


def currents(world: World) -> list[AskedResult]:
    state = world.state()
    return [AskedResult(each, state.of(each).current, each) for each in MANY]


class Meeting(CountingStore):
    """Answers when as many ask at the same time as there are inputs."""

    meet: threading.Barrier

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self.meet.wait()
        return super().list(prefix, start_after=start_after)


def test_twenty_inputs_are_looked_for_in_one_round_trip(world: World):
    store = Meeting(world.results)
    store.meet = threading.Barrier(len(MANY), timeout=HANG_S)
    prober = ResultProber(lambda location: store)
    found = currents(world)
    prober.look_ahead(found)
    assert [prober(*asked) for asked in found] == [None] * len(MANY)
    assert store.counts() == {Verb.LIST: len(MANY)}, "one listing a result, and nothing object by object"


def test_control_asked_one_after_the_other_nobody_meets(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probing, "MANY", 1_000)
    store = Meeting(world.results)
    store.meet = threading.Barrier(len(MANY), timeout=0.2)
    prober = ResultProber(lambda location: store)
    found = currents(world)
    prober.look_ahead(found)
    with pytest.raises(threading.BrokenBarrierError):
        prober(*found[0])


@pytest.mark.parametrize("has_failed", [False, True], ids=["first attempts", "after a failure"])
def test_a_region_with_many_inputs_asks_for_each_once(world: World, has_failed: bool):
    if has_failed:
        world.restart("P03")
        world.go("P03")
    counted = CountingStore(world.results)
    world.results = counted
    world.go("C")
    assert counted.count(Verb.LIST) == len(MANY)


def test_an_answer_serves_once(world: World):
    prober = ResultProber(lambda location: world.results)
    found = currents(world)
    prober.look_ahead(found)
    assert prober(*found[0]) is None
    world.delete_results("P00", 1)
    again = prober(*found[0])
    assert again is not None
    assert again.why is Why.OUTPUT_MISSING


def test_what_is_gone_is_lost_and_woken_all_the_same(world: World):
    world.delete_results("P07", 1)
    with fails_with("input-cleared", cleared=["P07"]):
        world.go("C")
    world.until_green()
    assert world.ran[-2:] == [("P07", 2), ("C", 1)]


def test_fault_27_denied_ahead_is_denied_when_it_is_asked_for_and_no_loss(world: World):
    prober = ResultProber(lambda location: FaultyStore(world.results, [Fault(Verb.LIST, FaultKind.DENIED)]))
    found = currents(world)
    prober.look_ahead(found)
    with pytest.raises(StoreAccessDenied):
        prober(*found[0])


def test_a_rebuild_asks_ahead_for_exactly_what_its_judgement_asks_for(world: World):
    world.go("C")
    world.restart("P03")
    state = world.state()
    asked: set[str] = set()
    evaluation = Evaluation(world.plan, state, available=lambda region, attempt, result: asked.add(region))
    ahead = {asked.region for asked in asked_for(evaluation)}
    for candidate in world.plan.regions:
        evaluation.why_must_run(candidate.name)
    assert asked <= ahead == {*MANY} - {"P03"}


# very many: several results by one listing


@pytest.fixture
def very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "CONNECTIONS", 4)
    monkeypatch.setattr(availability, "PAGE_KEYS", 6)


@pytest.mark.usefixtures("very_many")
def test_very_many_results_are_listed_page_by_page(world: World):
    world.delete_results("P07", 1)
    store = CountingStore(world.results)
    prober = ResultProber(lambda location: store)
    asked = currents(world)
    prober.look_ahead(asked)
    reasons = {result.region: prober(*result) for result in asked}
    assert {region: reason.why for region, reason in reasons.items() if reason} == {"P07": Why.OUTPUT_MISSING}
    assert store.counts() == {Verb.LIST: 5}, "one file a result, five results a page, and P07 once more, alone"
    prober(*asked[0])
    assert store.counts() == {Verb.LIST: 6}, "an answer serves once"


@pytest.mark.usefixtures("very_many")
def test_results_on_a_server_that_lists_folder_by_folder_are_not_taken_to_be_gone():
    """There ``a/x`` comes before ``a-b/x``."""
    names = ["a", *(f"a-{number:02d}" for number in range(20))]
    world = World(dict.fromkeys(names, ()))
    world.results = FolderByFolder("memory://results")
    world.go_all()
    state = world.state()
    asked = [AskedResult(name, state.of(name).current, name) for name in names]
    prober = ResultProber(lambda location: world.results)
    prober.look_ahead(asked)
    assert [prober(*result) for result in asked] == [None] * len(names)


@pytest.mark.usefixtures("very_many")
def test_where_much_else_lies_between_them_the_rest_is_listed_alone(world: World):
    [info] = [info for info in world.results.list() if "/P02/" in info.key]
    region = info.key[: info.key.index("/P02/")]
    for number in range(50):
        world.results.put(f"{region}/P02/00000002-{number:08x}/out/part-0", b"x")
    store = CountingStore(world.results)
    prober = ResultProber(lambda location: store)
    asked = currents(world)
    prober.look_ahead(asked)
    assert [prober(*result) for result in asked] == [None] * len(MANY)
    assert store.counts() == {Verb.LIST: 4 + 2}, "P03 and P04 were not reached"


@pytest.mark.usefixtures("very_many")
def test_fault_27_a_denied_page_is_asked_for_alone_and_says_so(world: World):
    faults = [Fault(Verb.LIST, FaultKind.DENIED)] * 9
    prober = ResultProber(lambda location: FaultyStore(world.results, faults))
    asked = currents(world)
    prober.look_ahead(asked)
    with pytest.raises(StoreAccessDenied):
        prober(*asked[0])


PREFIXES = st.text("ab/", min_size=1, max_size=4).filter(lambda text: not {"", "."} & set(text.split("/")))


@given(there=st.sets(PREFIXES, max_size=30), wanted=st.sets(PREFIXES, min_size=1), length=st.integers(1, 4))
def test_what_is_listed_together_is_what_is_listed_alone(there: set[str], wanted: set[str], length: int):
    store = MemoryStore("memory://results")
    for key in there:
        store.put(f"{key}/file", b"x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(availability, "PAGE_KEYS", length)
        for page in availability.in_pages({f"{prefix}/": 1 for prefix in wanted}):
            for prefix, listed in availability.list_together(store, page).items():
                assert listed == [*store.list(prefix)]
