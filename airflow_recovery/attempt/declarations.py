"""Whether an operator's result was made by what today's DAG declares of the operator (docs/protocol.md#declarations).

The arguments of an operator are rendered by its own task only, which compares its fingerprint. Other tasks read the
same DAG file, and see the operator's class, its arguments as they are written, and the local files that they name. If a
digest of these is not the one of the attempt that counts, the consumer asks (a `Declared` record) and clears the
operator's task. That task runs, or finds its result valid and answers.

A digest that differs each time the file is read (a time or a random number in an argument) is no change of code. Two
checks keep it from clearing tasks for ever: the file is read a second time, and if an operator's own task has found
another digest than the one that was asked for, no task asks again about that operator in this run.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.records import Declared, Outcome
from airflow_recovery.planning.reason import Reason, Why


def is_as_declared(run: Run, region: str, outcome: Outcome) -> bool:
    """Whether today's DAG certainly declares the operator of ``outcome``, and all operators above it, as before.

    Reads nothing. The outcome has one digest of all of them, but only if its operator has a digest of its own. If not,
    the answer is `True` only if no operator above has a digest today either.
    """
    if run.declared is None:
        return True
    now = run.declaration(region)
    if now is not None and outcome.declared is not None:
        return outcome.declared == now
    return all(run.declared.own(name) is None for name in run.above(region))


def declared_otherwise(run: Run, state: RunState, regions: Iterable[str]) -> dict[str, Reason]:
    """Which of ``regions`` today's DAG declares otherwise than the attempt that counts has it, and why.

    Reads no object, and no file a second time, unless a digest differs. Needs the outcomes in ``state``.
    """
    if run.declared is None:
        return {}
    reasons: dict[str, Reason] = {}
    for name in regions:
        current = state.of(name).current
        if current is None or not _differs(run, name, current):
            continue
        if run.declared.own(name) != run.declared.own_again(name):
            run.log.warning(
                "What the DAG file declares of %s is other each time the file is read: is there a time, a random "
                "number or an order of a set among its arguments? Whether its code has changed since attempt %d only "
                "its own task can see.",
                name,
                current.number,
            )
        elif _was_answered_otherwise(run, name, state.of(name), current):
            run.log.warning(
                "The task of %s has found another declaration than the task that asked about it: two workers read "
                "different files, or there was a deploy between the two. Whether its code has changed since attempt %d "
                "only its own task can see.",
                name,
                current.number,
            )
        else:
            reasons[name] = Reason(name, Why.DECLARED_OTHERWISE, f"since attempt {current.number}")
    return reasons


def ask_declared(run: Run, caller: str, attempt: Attempt) -> None:
    """Record the digest that ``caller`` has of the operator of ``attempt``, before its task is cleared."""
    region = _region_of(attempt)
    own = None if run.declared is None else run.declared.own(region)
    looks = _looks(run, attempt)
    if own is None or (looks and (looks[-1].own, looks[-1].is_answer) == (own, False)):
        return
    try:
        run.journal.compare_declared(Declared(region, attempt.number, len(looks) + 1, caller, own))
    except AttemptLost:
        run.log.info("Another task has asked about %s@%d at the same time.", region, attempt.number)


def answer_declared(run: Run, kept: Attempt) -> bool:
    """Before the operator's own task succeeds with ``kept``: record under which digest it has found that valid.

    Writes nothing if nothing differs, and no task has asked. `False`: another task has asked at the same time.
    """
    region = _region_of(kept)
    if run.declared is None or not (kept.declared_turn or _differs(run, region, kept)):
        return True
    own, looks = run.declared.own(region), _looks(run, kept)
    is_asked = bool(looks) and not looks[-1].is_answer
    if own is None or not (is_asked or (_differs(run, region, kept) and own == run.declared.own_again(region))):
        return True
    try:
        run.journal.compare_declared(Declared(region, kept.number, len(looks) + 1, region, own))
    except AttemptLost:
        return False
    return True


def _differs(run: Run, region: str, attempt: Attempt) -> bool:
    """Whether neither the claim of ``attempt`` nor its operator's own task since has today's digest."""
    made_by = attempt.outcome.declared if attempt.outcome is not None else None
    own = None if run.declared is None or made_by is None else run.declared.own(region)
    if made_by is None or own is None or made_by.own == own:
        return False
    return all(look.own != own for look in _looks(run, attempt) if look.is_answer)


def _was_answered_otherwise(run: Run, region: str, state: RegionState, current: Attempt) -> bool:
    """Whether the first look of the operator's own task after the newest question had another digest than that."""
    asked = max((n for n, each in state.attempts.items() if each.declared_turn and n <= current.number), default=None)
    if asked is None:
        return False
    looks = _looks(run, state.attempts[asked])
    questions = [at for at, look in enumerate(looks) if not look.is_answer]
    if not questions:
        return False
    found = [look.own for look in looks[questions[-1] :] if look.is_answer]
    found += [
        each.outcome.declared.own
        for n, each in sorted(state.attempts.items())
        if n > asked and each.is_finished and each.outcome is not None and each.outcome.declared is not None
    ]
    return bool(found) and found[0] != looks[questions[-1]].own


def _looks(run: Run, attempt: Attempt) -> tuple[Declared, ...]:
    """The questions and answers about ``attempt``, in their order. No request if there are none."""
    return run.journal.read_declared(_region_of(attempt), attempt.number, attempt.declared_turn)


def _region_of(attempt: Attempt) -> str:
    assert attempt.outcome is not None, f"attempt {attempt.number} has no outcome, or it was not read"
    return attempt.outcome.region
