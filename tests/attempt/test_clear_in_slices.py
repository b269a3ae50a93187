"""A clear of very many tasks is asked for in parts, each of which Airflow can answer before its client gives up."""

from __future__ import annotations

from airflow_recovery.attempt.task_instances import CLEAR_AT_ONCE, ClearRequest, ClearResult, clear_in_slices


class Server:
    """Clears what it is asked for, but for ``unmoved``; remembers the requests."""

    def __init__(self, *unmoved: str) -> None:
        self.requests: list[ClearRequest] = []
        self._unmoved = unmoved

    def clear(self, request: ClearRequest) -> ClearResult:
        self.requests.append(request)
        named = [*request.producers, *request.consumers]
        gone = {producer: (2, "running") for producer in named if producer in self._unmoved}
        return ClearResult(tuple(producer for producer in named if producer not in gone), gone)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(len(request.producers), len(request.consumers)) for request in self.requests]


def tasks(name: str, number: int) -> dict[str, str]:
    return {f"{name}|{at}": f"id-{at}" for at in range(number)}


def test_what_can_be_answered_at_once_is_one_request() -> None:
    server = Server()
    request = ClearRequest(tasks("p", 1), tasks("c", CLEAR_AT_ONCE - 1), unblock=True)
    assert len(clear_in_slices(server.clear, request).cleared) == CLEAR_AT_ONCE
    assert server.requests == [request]


def test_more_are_asked_for_one_part_after_the_other() -> None:
    server = Server("p|3", "c|1")
    clear = clear_in_slices(server.clear, ClearRequest(tasks("p", 5), tasks("c", 6), unblock=True), at_once=4)
    assert server.sizes == [(4, 0), (1, 0), (0, 4), (0, 2)]
    assert all(request.unblock for request in server.requests)
    assert (len(clear.cleared), set(clear.unmoved)) == (9, {"p|3", "c|1"})


def test_where_no_producer_moved_no_consumer_is_asked_for() -> None:
    server = Server("p|0")
    clear = clear_in_slices(server.clear, ClearRequest(tasks("p", 1), tasks("c", 9)), at_once=4)
    assert (server.sizes, clear.cleared, set(clear.unmoved)) == ([(1, 0)], (), {"p|0"})


def test_consumers_alone_are_cleared_as_they_are() -> None:
    server = Server()
    assert len(clear_in_slices(server.clear, ClearRequest(consumers=tasks("c", 9)), at_once=4).cleared) == 9
    assert server.sizes == [(0, 4), (0, 4), (0, 1)]
