"""A schedule whose beginning is written down: who goes on, until where. After that the seed decides."""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.testing.simulation.schedule import Schedule
from airflow_recovery.testing.simulation.settings import Settings
from airflow_recovery.testing.simulation.strands import Strand

Until = Callable[[str], bool]
"""Asked with the next request of the process: does it stop there?"""


class Scripted(Schedule):
    """``script``: a task that Airflow starts, a process with where it stops, or something that happens."""

    def __init__(
        self, settings: Settings, *script: str | tuple[str, Until] | Callable[[Schedule], object], seed: int = 0
    ) -> None:
        super().__init__(seed, settings)
        self._script = list(script)

    def _choose(self, last: Strand | None) -> Strand | None:
        while self._script:
            step = self._script[0]
            if isinstance(step, str):
                self._starts(step)
            elif callable(step):
                step(self)
            else:
                strand = self._of(step[0])
                if strand is not None and not step[1](strand.process.strands[0].request):
                    return self._goes_on(strand)
            self._script.pop(0)
        return super()._choose(last)

    def _of(self, name: str) -> Strand | None:
        self._tidy()
        strands = [strand for process in self._processes if process.name == name for strand in process.strands]
        return next((strand for strand in strands if strand.can_go_on), None)


def to_its_end(request: str) -> bool:
    return False


def before_a_listing(request: str) -> bool:
    return request.startswith("LIST")
