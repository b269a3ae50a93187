"""A sink made of two functions of yours: one applies what was prepared, the other says whether that was done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_recovery.errors import JobDefinitionError, RecoveryError, SinkUnavailable
from airflow_recovery.model.committing import CommitKind
from airflow_recovery.sinks.committer import Committable, CommitToken, Probe, SinkResources
from airflow_recovery.sinks.declaration import CommittingSink, imported


@dataclass(frozen=True, kw_only=True)
class ProbedSink(CommittingSink):
    """``apply(committable, resources)`` does it and may return a name for it; ``is_applied(token, resources)`` asks.

    Both are functions at the top of an importable module, or their names as ``module:name``. They run in the task's
    process. `apply` is called by one process at a time; it may be called for an attempt of which `is_applied` says no.
    A kept task asks `is_applied` again. If it says no then, mode ``replace`` calls `apply` once more, and mode
    ``append`` fails, since nobody knows which rows are gone. Let `is_applied` raise `SinkRefused` if the target holds
    what somebody else has written since.

    Both must tell attempts apart by ``token.writer`` as well as by the number: another journal (this one was lost, or
    there are two) counts its attempts from 1, too. The writer is `None` where it is not known, for a run that was
    purged: then any writer counts. Where it is certain that it did nothing, `apply` raises `SinkNotApplied`; after any
    other error nobody tries again before a person has confirmed that the process is dead.
    """

    apply: Callable[..., Any] | str
    is_applied: Callable[..., Any] | str
    kind: ClassVar[CommitKind] = CommitKind.PROBE_ONLY
    reads_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("apply", "is_applied"):
            object.__setattr__(self, name, _reference(name, getattr(self, name)))

    def open(self, resources: SinkResources) -> _ProbedCommitter:
        """Import both functions. Raises `ConfigurationError` where they are not there."""
        return _ProbedCommitter(imported(str(self.apply)), imported(str(self.is_applied)), resources)


class _ProbedCommitter:
    def __init__(self, apply: Callable[..., Any], is_applied: Callable[..., Any], resources: SinkResources) -> None:
        self._apply = apply
        self._is_applied = is_applied
        self._resources = resources

    def commit(self, committable: Committable) -> str:
        try:
            return str(self._apply(committable, self._resources) or committable.token.text)
        except RecoveryError:
            raise
        except Exception as error:
            raise SinkUnavailable(
                f"{committable.token.text}: the sink's own apply() raised {error!r}; whether anything was applied is "
                "not known. The next try asks is_applied().",
                code="apply-raised",
            ) from error

    def probe(self, token: CommitToken) -> Probe:
        try:
            return Probe.APPLIED if self._is_applied(token, self._resources) else Probe.NOT_APPLIED
        except RecoveryError:
            raise
        except Exception as error:
            raise SinkUnavailable(
                f"{token.text}: the sink's own is_applied() raised {error!r}.", code="is-applied-raised"
            ) from error


def _reference(name: str, function: object) -> str:
    if isinstance(function, str) and function.count(":") == 1:
        return function
    if inspect.isfunction(function) and function.__qualname__ == function.__name__ and function.__name__ != "<lambda>":
        return f"{function.__module__}:{function.__name__}"
    raise JobDefinitionError(
        f"ProbedSink: expected {name}= as a function at the top of a module, or as 'package.module:name', found "
        f"{function!r}: a process that comes later has to find it by its name",
        code="function-not-at-top",
    )
