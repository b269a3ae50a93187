"""I1, I2 and I10: one finish an attempt, attempts that only grow, one commit an attempt."""

from __future__ import annotations

from airflow_recovery.verify.commits import wrong_commits
from airflow_recovery.verify.finding import Answer, Finding, answer
from airflow_recovery.verify.history import Attempt, History, Region
from airflow_recovery.verify.records import Named
from airflow_recovery.verify.registered import is_in_a_store

_REPAIR = "Restart the region: `airflow recovery plan DAG RUN --restart REGION --apply`."


def one_finish(history: History) -> Answer:
    """I1. The claimer finishes, and nobody else; no second object says that it is the finish of the same attempt."""
    findings = []
    finished = 0
    for attempt, outcome in history.finished():
        finished += 1
        if attempt.claim is not None and attempt.claim.writer != outcome.writer:
            findings.append(
                Finding(
                    (attempt.entries["outcome"].key, attempt.entries["claim"].key),
                    f"{attempt.of.text} finished by process {attempt.claim.writer}, which claimed it",
                    f"a finish by process {outcome.writer}",
                    f"Two processes took the attempt for theirs; what lies there may be of either. {_REPAIR}",
                )
            )
    for key, (of, kind) in history.misplaced.items():
        if kind == "finish":
            findings.append(
                Finding(
                    (key,),
                    f"one finish of {of.text}, at its own key",
                    "another object that says that it is the finish of this attempt",
                    "It was copied there: delete the copy.",
                )
            )
    return answer(1, f"{finished} finished attempts", findings)


def growing(history: History) -> Answer:
    """I2. A region's attempts have no holes, only the latest is open, and no publish goes back to an older attempt.

    What was withdrawn had finished.
    """
    findings = [finding for region in history.regions.values() for finding in _growing(region)]
    before: dict[str, int] = {}
    for number in sorted(history.publishes):
        for region, attempt in history.publishes[number].attempts().items():
            if attempt < before.get(region, 0):
                findings.append(
                    Finding(
                        (f"publish/{number:08d}",),
                        f"{region} at attempt {before[region]} or later, as in an earlier publish",
                        f"{region}@{attempt}",
                        "Readers went back to older data. Clear the task that publishes.",
                    )
                )
            before[region] = max(attempt, before.get(region, 0))
    count = sum(len(region.claimed) for region in history.regions.values())
    return answer(2, f"{count} attempts of {len(history.regions)} regions", findings)


def _growing(region: Region) -> list[Finding]:
    findings = []
    expected = list(range(region.purged + 1, region.latest_attempt + 1))
    holes = [number for number in expected if number not in region.claimed]
    if holes:
        findings.append(
            Finding(
                tuple(Named(region.name, number).text for number in holes),
                f"claims of {region.name} from {region.purged + 1} to {region.latest_attempt} without a hole",
                f"no claim of {', '.join(map(str, holes))}",
                "Somebody deleted journal objects. Restore them from a version of the bucket, or restart the region.",
            )
        )
    for number, attempt in region.attempts.items():
        # A reset of attempt 0 stands for "before any attempt".
        if number > region.latest_attempt and number:
            findings.append(
                Finding(
                    tuple(entry.key for entry in attempt.entries.values()),
                    f"{', '.join(attempt.entries)} of {attempt.of.text} after its claim",
                    f"no such claim; the highest is {region.latest_attempt}",
                    "Somebody deleted the claim, or made the object by hand: restore or delete it.",
                )
            )
        findings += _withdrawn(attempt)
        if attempt.is_open and number < region.latest_attempt:
            findings.append(
                Finding(
                    (attempt.entries["claim"].key,),
                    f"an outcome of {attempt.of.text} before {region.name}@{region.latest_attempt} began",
                    "none: two attempts are open, or one was never fenced",
                    f"Its process may still write. {_REPAIR}",
                )
            )
    return findings


def _withdrawn(attempt: Attempt) -> list[Finding]:
    """A withdrawal is about a finish, and its turns have no hole."""
    turns = sorted(kind for kind in attempt.entries if kind.startswith("withdrawn-"))
    if not turns or (attempt.is_finished and turns == [f"withdrawn-{turn:04d}" for turn in range(1, len(turns) + 1)]):
        return []
    return [
        Finding(
            tuple(attempt.entries[kind].key for kind in turns),
            f"withdrawals of {attempt.of.text} that follow a finish, numbered from 1 without a hole",
            f"{', '.join(turns)}, and {'a' if attempt.is_finished else 'no'} finish",
            "Somebody deleted or made journal objects by hand. Restore them from a version of the bucket.",
        )
    ]


def one_commit(history: History, *, ended: bool) -> Answer:
    """I10. A manifest sink commits by its finish: each result once, and below a prefix that no other attempt has.

    Any other sink commits after it (`airflow_recovery.verify.commits`). ``ended``: the run has ended in success.
    """
    findings = []
    owners: dict[str, Attempt] = {}
    results = 0
    for attempt, outcome in history.finished():
        names = [output.result for output in outcome.outputs]
        results += len(names)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            findings.append(
                Finding(
                    (attempt.entries["outcome"].key,),
                    f"each result of {attempt.of.text} once",
                    f"{', '.join(twice)} more than once",
                    _REPAIR,
                )
            )
        for output in outcome.outputs:
            if not output.managed or outcome.shared is not None or not is_in_a_store(output.location):
                continue
            if outcome.batches:
                continue  # of several attempts: I14
            other = owners.setdefault(output.location, attempt)
            if other is not attempt:
                findings.append(
                    Finding(
                        (output.location,),
                        f"a location of its own for {attempt.of.text}",
                        f"that of {other.of.text}: one may have overwritten the other",
                        _REPAIR,
                    )
                )
    commits = sum(attempt.committed is not None and attempt.committed.is_done for attempt in history.attempts())
    return answer(
        10, f"{results} results, {commits} commits to sinks", [*findings, *wrong_commits(history, ended=ended)]
    )
