"""I13: what readers outside the run are told to read fits together, and is what was finished."""

from __future__ import annotations

from airflow_recovery.verify.causes import rests_on
from airflow_recovery.verify.closure import plan_in_use
from airflow_recovery.verify.finding import Answer, Finding, answer, not_applicable
from airflow_recovery.verify.history import History
from airflow_recovery.verify.records import Plan, Publish
from airflow_recovery.verify.registered import Registered
from airflow_recovery.verify.rows import rows_in

_NEXT = "Clear the task that publishes, with the regions named here."


def published_is_coherent(history: History, registered: Registered, *, ended: bool, deep: bool) -> Answer:
    """I13. ``ended``: the run has ended in success, so the newest publish names what counts. ``deep``: count the rows.

    Without the undisturbed output to compare with, equality means: every result is the one that its attempt finished,
    on the inputs that the same publish names.
    """
    plan = plan_in_use(history)
    findings = _left_open(history, plan) if ended else []
    number = history.newest_publish
    publish = history.publishes.get(number)
    if publish is None:
        if findings:
            return answer(13, "the end of the run", findings)
        return not_applicable(13, "nothing is published")
    where = f"publish/{number:08d}"
    findings += _of_cut(history, plan, publish, where)
    findings += _of_finals(history, publish, where)
    if ended:
        findings += _behind(history, plan, publish, where)
    rows = 0
    if deep:
        rows, wrong = _of_rows(history, registered, publish)
        findings += wrong
    counted = f", {rows} rows counted" if deep else ""
    return answer(13, f"publish {number} of {len(publish.regions)} regions{counted}", findings)


def _of_cut(history: History, plan: Plan | None, publish: Publish, where: str) -> list[Finding]:
    findings = []
    attempts = publish.attempts()
    for region in publish.regions:
        attempt = history.attempt(region.of)
        if attempt is None or attempt.outcome is None or not attempt.is_finished:
            continue  # I3 says so
        outputs = {output.result for output in attempt.outcome.outputs}
        missing = sorted(set(region.results) - outputs)
        if missing:
            expected = f"{', '.join(missing)} among the results of {region.of.text}, as it is published"
            findings.append(Finding((where,), expected, f"it has {', '.join(sorted(outputs)) or 'none'}", _NEXT))
        for ref in attempt.outcome.inputs:
            if ref.of.region not in attempts and not history.is_purged(ref.of):
                expected = f"{ref.of.text} beside {region.of.text}, which has read it"
                findings.append(Finding((where,), expected, f"no {ref.of.region}", _NEXT))
        for read, published in rests_on(history, plan, attempt, attempts):
            expected = f"{read.text} beside {region.of.text}, which has read it"
            findings.append(Finding((where,), expected, published.text, _NEXT))
    return findings


def _of_finals(history: History, publish: Publish, where: str) -> list[Finding]:
    """All final regions of one of the plans: which one it was published by is not recorded."""
    named = {*publish.attempts(), *publish.skipped}
    finals = [[region.name for region in plan.regions if region.final] for plan in history.plans.values()]
    missing: list[list[str]] = [sorted(set(final) - named) for final in finals]
    if not missing or not all(missing):
        return []
    lacks = ", ".join(sorted(missing, key=len)[0])
    return [Finding((where,), "every final result, published or named as skipped", f"no word of {lacks}", _NEXT)]


def _left_open(history: History, plan: Plan | None) -> list[Finding]:
    findings = [
        Finding(
            (open_attempt.entries["claim"].key,),
            f"{open_attempt.of.text} to have ended with its run",
            "it is open",
            "A process that nobody waits for may still write; the region's next try fences it. Clear its task.",
        )
        for open_attempt in history.open_attempts
    ]
    publish = history.publishes.get(history.newest_publish)
    skipped = publish.skipped if publish is not None else ()
    for region in plan.regions if plan is not None else ():
        known = history.regions.get(region.name)
        if region.final and region.name not in skipped and (known is None or known.current is None):
            expected, text = f"a finish of {region.name} that counts: its run has ended", "none"
            findings.append(Finding((), expected, text, f"Its success is not true. Clear the task of {region.name}."))
    return findings


def _behind(history: History, plan: Plan | None, publish: Publish, where: str) -> list[Finding]:
    in_use = {region.name for region in plan.regions} if plan is not None else set()
    findings = []
    for name, attempt in publish.attempts().items():
        if name in in_use and history.counts.get(name, attempt) != attempt:
            expected = f"{name}@{history.counts[name]}, which counts, in what is published"
            findings.append(Finding((where,), expected, f"{name}@{attempt}, which it has superseded", _NEXT))
    return findings


def _of_rows(history: History, registered: Registered, publish: Publish) -> tuple[int, list[Finding]]:
    total, findings = 0, []
    for region in publish.regions:
        attempt = history.attempt(region.of)
        for manifest in attempt.outcome.outputs if attempt is not None and attempt.outcome is not None else ():
            files = [path for path in manifest.objects if path.endswith(".parquet")]
            if manifest.rows is None or len(files) != len(manifest.objects) or not registered.is_looked_at(manifest):
                continue
            if attempt is None or attempt.has("released") or registered.wrong(manifest):
                continue  # I4 says so
            rows = sum(rows_in(registered.read(manifest, path), path) for path in files)
            total += rows
            if rows != manifest.rows:
                expected = f"{manifest.rows} rows in {manifest.result} of {region.of.text}"
                findings.append(Finding((manifest.location,), expected, f"{rows} in its files", _NEXT))
    return total, findings
