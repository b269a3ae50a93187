"""What the commands end with, for scripts."""

from __future__ import annotations

from enum import IntEnum

from airflow_recovery.errors import ConfigurationError, JobDefinitionError, Kind, RecoveryError


class ExitCode(IntEnum):
    """Documented: the numbers never change their meaning. 2 is argparse's own, for a command line it can't read."""

    DONE = 0
    DIFFERENT = 1
    USAGE = 2
    NOT_FOUND = 3
    OUTDATED = 4
    NO_ANSWER = 5
    CLEAR_BY_HAND = 6
    VIOLATED = 7
    REFUSED = 8
    UNFIT = 9
    OVER_LIMIT = 10
    INCOMPLETE = 11

    @property
    def meaning(self) -> str:
        """What the code says, in one line, for ``--help``."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.DIFFERENT: "--diff found a difference",
    ExitCode.USAGE: "the command line or the configuration is wrong",
    ExitCode.NOT_FOUND: "no such DAG, run, group, region or result, or nothing is recorded",
    ExitCode.OUTDATED: "the plan is outdated, nothing was changed",
    ExitCode.NO_ANSWER: "a store gave no answer, or the journal holds what this version can't read",
    ExitCode.CLEAR_BY_HAND: "applied, and the named tasks have to be cleared by hand",
    ExitCode.VIOLATED: "verify found an invariant violated",
    ExitCode.REFUSED: "refused: somebody counts on it, or it is too late; nothing was changed",
    ExitCode.UNFIT: "doctor found something that will not work",
    ExitCode.OVER_LIMIT: "impact: more may run again than --max-seconds",
    ExitCode.INCOMPLETE: "impact: there is no answer for the DAGs, files or runs that it names",
}
EXIT_CODES = tuple(ExitCode)
_BY_KIND = {Kind.NOT_FOUND: ExitCode.NOT_FOUND, Kind.OUTDATED: ExitCode.OUTDATED, Kind.REFUSED: ExitCode.REFUSED}


def exit_code_of(error: RecoveryError) -> ExitCode:
    """The exit code that stands for an error."""
    is_usage = isinstance(error, (ConfigurationError, JobDefinitionError))
    return ExitCode.USAGE if is_usage else _BY_KIND.get(error.kind, ExitCode.NO_ANSWER)
