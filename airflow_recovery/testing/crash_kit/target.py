"""The target of every committing sink in a crash test: objects in a store, in place of the user's table.

<root>/target/<lineage>/<attempt>          a token sink: applied once
                       /<attempt>.<n>      a probe-only sink: as often as somebody applied it
"""

from __future__ import annotations

import uuid

from airflow_recovery.errors import ObjectExists
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.sinks.committer import Committable, CommitToken, Held, Probe, refused
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.testing.crash_kit.crasher import Crasher
from airflow_recovery.testing.crash_kit.points import Step


class StandInTarget:
    """The `airflow_recovery.sinks.Committer` of one process, with points around what it applies."""

    def __init__(self, store: ObjectStore, spec: CommitSpec, crasher: Crasher) -> None:
        self._store = store
        self._spec = spec
        self._crasher = crasher

    def commit(self, committable: Committable) -> str:
        """As `airflow_recovery.sinks.committer.Committer` says, into a folder."""
        token = committable.token
        key = f"{token.lineage}/{token.attempt:08d}"
        if self._spec.kind is CommitKind.PROBE_ONLY:
            key += f".{uuid.uuid4().hex}"
        else:
            held = self._held(token)
            if token.attempt in held:
                return token.text
            newest = max(held, default=0)
            if newest > (token.attempt if self._spec.mode is CommitMode.REPLACE else 0):
                raise refused(token, self._store.base_uri, Held(newest), self._spec.mode)
        with self._crasher.around(Step.COMMIT):
            try:
                self._store.put_if_absent(key, b"")
            except ObjectExists:
                return token.text  # another process of the same attempt
        return token.text

    def probe(self, token: CommitToken) -> Probe:
        """As `airflow_recovery.sinks.committer.Committer` says, into a folder."""
        return Probe.APPLIED if token.attempt in self._held(token) else Probe.NOT_APPLIED

    def _held(self, token: CommitToken) -> list[int]:
        return applied(self._store, token.lineage)


def applied(store: ObjectStore, lineage: str) -> list[int]:
    """The attempts that were applied, each as often as it was."""
    prefix = f"{lineage}/"
    return [int(info.key.removeprefix(prefix)[:8]) for info in store.list(prefix)]
