"""Results that outlive a run: what their own journals say of the attempts that this run holds."""

from __future__ import annotations

from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.verify.history import Attempt, History
from airflow_recovery.verify.reading import RunName, read_history
from airflow_recovery.verify.records import Named


class Shared:
    """The journals of the shared results that ``history`` names. Reads nothing where it names none."""

    def __init__(self, store: ObjectStore, run: RunName, history: History) -> None:
        self._owner = (run.dag_id, run.run_key, run.group_id)
        keys = {outcome.shared[0] for _, outcome in history.finished() if outcome.shared is not None}
        self._histories = {key: read_history(store, RunName.shared(key)) for key in sorted(keys)}

    def attempt(self, shared: tuple[str, Named]) -> Attempt | None:
        """The attempt that made it, in its own journal."""
        return self._histories[shared[0]].attempt(shared[1])

    def may_be_gone(self, shared: tuple[str, Named]) -> bool:
        """Whether the shared attempt was released, or purged with its journal: its data may be gone."""
        made = self.attempt(shared)
        return made is None or made.has("released") or self._histories[shared[0]].is_purged(shared[1])

    def readers(self, shared: tuple[str, Named]) -> list[Attempt]:
        """This run's open claims in the shared journal. While there is one, the run holds the result."""
        return [
            open_attempt
            for open_attempt in self._histories[shared[0]].open_attempts
            if open_attempt.claim is not None
            and open_attempt.claim.owner == self._owner
            and any(ref.of == shared[1] for ref in open_attempt.claim.inputs)
        ]
