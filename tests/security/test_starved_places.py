"""Who may work in the API server at the same time, who shares a reading, and how a body is read. In this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException
from large_run import AT
from rest_world import RestWorld

from airflow_recovery.api_server import bodies, store_routes
from airflow_recovery.api_server import places as places_module
from airflow_recovery.api_server.bodies import json_body
from airflow_recovery.api_server.places import NoPlace, Places, Who
from airflow_recovery.api_server.shared_reads import KeptDocuments, SharedReads
from airflow_recovery.api_server.silence import Silence
from airflow_recovery.errors import StoreTimeout
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.testing.patience import HANG_S

BODY = json_body(dict[str, int])
ANN, BEN = Who("ann", "a"), Who("ben", "b")


# --- places ----------------------------------------------------------------------------------------------------------


def ends(steps: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(steps(), HANG_S)

    return asyncio.run(limited())


async def settle() -> None:
    """Let all tasks run until each of them waits for another one."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "crowd", [[Who("ann", f"dag {n}") for n in range(20)], [Who(f"user {n}", "a") for n in range(20)]]
)
@pytest.mark.parametrize("is_protected", [True, False], ids=["protected", "control"])
def test_fault_371_neither_a_user_nor_a_dag_takes_all_places(crowd: list[Who], is_protected: bool) -> None:
    room = 8
    share = 4 if is_protected else room
    places = Places(room, by_user=share, by_dag=share, wait_s=0.01)

    async def other_is_served() -> bool:
        async with AsyncExitStack() as stack:
            for who in crowd:
                with suppress(NoPlace):
                    await stack.enter_async_context(places.take(who))
            with suppress(NoPlace):
                await stack.enter_async_context(places.take(BEN))
                return True
            return False

    assert ends(other_is_served) is is_protected
    assert (places.taken, places.waiting) == (0, 0)


def test_who_waits_is_served_in_turn_and_passes_those_who_have_their_share() -> None:
    places = Places(2, by_user=1, by_dag=2, wait_s=HANG_S)
    served: list[str] = []

    async def work(who: Who, go: asyncio.Event) -> None:
        async with places.take(who):
            served.append(who.user)
            await go.wait()

    async def steps() -> None:
        go = {name: asyncio.Event() for name in ("ann", "ann again", "ben", "carl")}
        tasks = []
        for name, event in go.items():
            tasks.append(asyncio.ensure_future(work(Who(name.partition(" ")[0], "a"), event)))
            await settle()
        assert served == ["ann", "ben"]
        go["ben"].set()
        await settle()
        assert served == ["ann", "ben", "carl"]  # ann has her share
        go["ann"].set()
        await settle()
        assert served == ["ann", "ben", "carl", "ann"]
        for event in go.values():
            event.set()
        await asyncio.gather(*tasks)

    ends(steps)
    assert places.taken == 0


def test_a_queue_that_is_too_long_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "MOST_WAITING_OF_A_USER", 2)
    places = Places(1, by_user=1, by_dag=1, wait_s=HANG_S)

    async def steps() -> None:
        async with places.take(ANN):
            waiting = [asyncio.ensure_future(places._enter(ANN)) for _ in range(2)]
            await settle()
            with pytest.raises(NoPlace) as refused:
                await places._enter(ANN)
            assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": f"{HANG_S:.0f}"})
            for each in waiting:
                each.cancel()
            await settle()
            assert places.waiting == 0

    ends(steps)


# --- shared readings -------------------------------------------------------------------------------------------------


class Reads:
    """Readings that wait until they are let go. ``begun`` counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.error: Exception | None = None
        self.let_go = threading.Event()
        self.shared = SharedReads()
        monkeypatch.setattr(store_routes, "places", Places(8, by_user=8, by_dag=8, wait_s=HANG_S))

    def work(self) -> int:
        self.begun += 1
        number = self.begun
        assert self.let_go.wait(HANG_S)
        if self.error is not None:
            raise self.error
        return number

    def ask(self, who: Who = ANN) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.shared.answer(who, "run", self.work))

    async def until_begun(self, number: int) -> None:
        while self.begun < number:
            await asyncio.sleep(0.001)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def test_fault_371_who_asks_at_the_same_time_shares_a_reading(reads: Reads) -> None:
    async def steps() -> list[int]:
        first = reads.ask()
        await reads.until_begun(1)
        late = [reads.ask(Who(f"user {number}", "a")) for number in range(20)]
        await settle()
        reads.let_go.set()
        return [await first, *[await each for each in late]]

    # The late ones are answered by a reading that has begun after they came.
    assert ends(steps) == [1, *[2] * 20]


def test_fault_374_a_reading_goes_on_without_the_client_that_began_it(reads: Reads) -> None:
    async def steps() -> int:
        first, second = reads.ask(), reads.ask(BEN)
        await reads.until_begun(1)
        first.cancel()
        await settle()
        reads.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return int(await second)

    assert ends(steps) == 1


def test_fault_374_an_error_is_told_to_who_waits_and_not_kept(reads: Reads) -> None:
    async def steps() -> int:
        reads.error = StoreTimeout("no answer")
        asked = [reads.ask(), reads.ask(BEN)]
        await reads.until_begun(1)
        reads.let_go.set()
        assert [type(each) for each in await asyncio.gather(*asked, return_exceptions=True)] == [StoreTimeout] * 2
        reads.error = None
        return int(await reads.ask())

    assert ends(steps) == 2
    assert reads.shared._readings == {}


def test_fault_374_control_a_shared_reading_without_the_moment_is_older_than_the_question(reads: Reads) -> None:
    reads.shared._moments = iter([1] * 100)  # type: ignore[assignment]

    async def steps() -> int:
        reads.ask()
        await reads.until_begun(1)
        late = reads.ask(BEN)
        await settle()
        reads.let_go.set()
        return int(await late)

    assert ends(steps) == 1


def test_who_shares_a_refusal_asks_once_on_his_own_account(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(2, by_user=1, by_dag=2, wait_s=0.01)
    monkeypatch.setattr(store_routes, "places", places)
    reads.let_go.set()

    async def steps() -> list[Any]:
        async with places.take(ANN):
            return list(await asyncio.gather(reads.ask(ANN), reads.ask(BEN), return_exceptions=True))

    refused, answered = ends(steps)
    assert isinstance(refused, NoPlace)
    assert answered == 1


def test_documents_are_kept_up_to_a_number_of_bytes() -> None:
    kept = KeptDocuments(10)
    kept.put("a", "1", b"12345")
    kept.put("b", "1", b"12345")
    assert kept.get("a") == ("1", b"12345")
    kept.put("c", "1", b"1")
    assert (kept.get("b"), kept.get("a")) == (None, ("1", b"12345"))
    kept.put("d", "1", bytes(11))
    assert [kept.get(name) for name in "abcd"] == [None] * 4


def test_fault_374_a_document_that_is_kept_is_not_shown_to_who_may_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = RestWorld(tmp_path, monkeypatch)
    rest.world.go_all()
    assert rest.get().status_code == 200
    assert [rest.get(user=user).status_code for user in ("stranger", None)] == [403, 401]
    assert [rest.get(user=user).json()["can_act"] for user in ("admin", "viewer")] == [True, False]


# --- bodies ----------------------------------------------------------------------------------------------------------


class Bodies:
    """An application with one route, whose dependency refuses whoever is not ann."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.app.dependency_overrides[get_user] = lambda: SimpleNamespace(get_name=lambda: "ann")
        self.is_allowed = True

        def allowed() -> None:
            if not self.is_allowed:
                raise HTTPException(403)

        async def read(body: Annotated[Any, Depends(BODY)]) -> int:
            return len(body)

        self.app.add_api_route("/", read, methods=["POST"], dependencies=[Depends(allowed)])

    def send(self, *parts: bytes | asyncio.Event) -> tuple[int, int]:
        """The status of the answer, and how many parts were taken. What is no bytes is waited for."""
        taken, status = 0, 0
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}

        async def receive() -> dict[str, Any]:
            nonlocal taken
            part = parts[taken]
            taken += 1
            if isinstance(part, asyncio.Event):
                await part.wait()
                part = b""
            return {"type": "http.request", "body": part, "more_body": taken < len(parts)}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)

        ends(lambda: self.app(scope, receive, send))  # type: ignore[arg-type]
        return status, taken


def test_a_body_is_read_and_looked_at() -> None:
    app = Bodies()
    assert [app.send(*parts) for parts in ([b'{"a"', b": 1}"], [b'{"a": "x"}'], [b"{"], [b""], [b"[" * 100_000])] == [
        (200, 2),
        (422, 1),
        (422, 1),
        (422, 1),
        (422, 1),
    ]


def test_fault_370_nothing_is_read_of_the_body_of_who_may_not_ask() -> None:
    app = Bodies()
    app.is_allowed = False
    assert app.send(b"{}", b"") == (403, 0)


def test_fault_370_a_body_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BYTES", 10)
    assert Bodies().send(*[b" " * 4] * 100) == (413, 3)
    monkeypatch.setattr(bodies, "MAX_BYTES", 1000)
    monkeypatch.setattr(bodies, "MAX_BYTES_OF_A_USER", 10)
    assert Bodies().send(*[b" " * 4] * 100) == (503, 3)
    assert not bodies._arriving


def test_fault_370_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_S", 0.01)
    assert Bodies().send(b"{", asyncio.Event()) == (408, 2)
    assert not bodies._arriving


def test_fault_370_control_a_declared_body_is_read_before_anybody_is_asked_who_he_is() -> None:
    app = Bodies()
    app.is_allowed = False

    async def read(body: dict[str, int]) -> int:
        return len(body)

    dependencies = app.app.routes[-1].dependencies  # type: ignore[attr-defined]
    app.app.router.routes.pop()
    app.app.add_api_route("/", read, methods=["POST"], dependencies=dependencies)
    assert app.send(b"{}", b"") == (403, 2)


# --- a store that is silent ------------------------------------------------------------------------------------------


ELSEWHERE = "s3://elsewhere/place"
WRITES_ELSEWHERE = PlanRecord(
    "jobs:elsewhere",
    (RegionPlan("load", ("load",), ("load",), (), True, "code", fixed=(("load", ELSEWHERE),)),),
)


class TimesOut:
    """A user's own location, whose store gives no answer."""

    base_uri = ELSEWHERE

    def __getattr__(self, name: str) -> Any:
        raise StoreTimeout(f"Could not list {ELSEWHERE}: no complete answer.")


@pytest.fixture
def fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    """A run with a result at a user's own location, which its store does not answer for."""
    rest = RestWorld(tmp_path, monkeypatch)
    journal = rest.world.journal()
    journal.put_plan(WRITES_ELSEWHERE)
    journal.claim(Claim("load", 1, "test", plan_hash(WRITES_ELSEWHERE), (), "run", 1, "ti", "tag", AT))
    made = PartitionManifest("load", ELSEWHERE, (ResultObject("part-0", 10, "etag"),), 3, managed=False)
    journal.finish(Outcome("load", 1, AttemptState.FINISHED, "test", AT, "code", (), outputs=(made,)))
    opened = rest.stores.open_location
    monkeypatch.setattr(
        rest.stores, "open_location", lambda location: TimesOut() if location == ELSEWHERE else opened(location)
    )
    return rest


def test_fault_372_a_time_out_of_one_runs_location_closes_no_other_page(fixed: RestWorld) -> None:
    assert fixed.post("plan", {}).status_code == 503
    assert fixed.get().status_code == 200
    again = fixed.post("plan", {})
    assert (again.status_code, again.json()["code"]) == (503, "no_answer")
    assert again.json()["detail"].startswith("The store s3://elsewhere does not answer, and is asked again in")
    assert int(again.headers["Retry-After"]) > 0


def test_fault_372_control_with_one_silence_for_all_stores_it_closes_them(
    fixed: RestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, begin = Silence.check, Silence.begin
    monkeypatch.setattr(Silence, "check", lambda self, bucket: check(self, "all"))
    monkeypatch.setattr(Silence, "begin", lambda self, bucket: begin(self, "all"))
    assert fixed.post("plan", {}).status_code == 503
    assert fixed.get().status_code == 503
