"""What readers outside a run may read: results that the newest publish names, and that are still valid.

Such a reader has no job code, so "valid" is asked of the journal: every attempt on the way down is still the current
one of its region, as the publish names it. Not as it was read: a result that was kept on equal rows was made of an
earlier attempt than the one that counts, and the task that published has looked at that.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import JobDefinitionError, NotPublished, ObjectMissing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.inputs import InputGroupRef, InputRef, Inputs
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.model.result_type import kept_by

CLEAR_WHAT_WAS_PURGED = (
    "To have it again, clear the tasks of its DAG run, if nobody has since: they make all of it anew, and publish."
)


@dataclass(frozen=True)
class PublishedResult:
    """One result as the newest publish names it: a manifest for each subtask of the vertex.

    ``attempt`` is that of the region, of a parallel one the highest of its subtasks.
    """

    publish: int
    region: str
    attempt: int
    manifests: tuple[PartitionManifest, ...]
    read: tuple[InputRef, ...] = ()
    """The attempt of each region that has made a part of it."""
    is_one_folder: bool = True
    """The folder of its manifest holds its files and no others: it may be handed out as a folder."""

    def external(self, vertex: str, uri: str) -> ExternalObject:
        """The result as an external input, ``uri`` of ``vertex``.

        Its identity are the digests of its rows, if all its parts have one. Its size, which equal rows may differ in,
        is 0 then. Else it is its files, which each attempt writes anew.
        """
        digests = [manifest.digest for manifest in self.manifests]
        if None not in digests:
            return ExternalObject(vertex, uri, 0, (digests[0] if len(digests) == 1 else None) or digest_of(digests))
        parts = [[part.location, [[o.path, o.size, o.etag] for o in part.objects]] for part in self.manifests]
        return ExternalObject(vertex, uri, sum(manifest.size for manifest in self.manifests), digest_of(parts))


def _why_not_valid(what: str, name: str, region: RegionState, expected: int, accept_failed: bool) -> str | None:
    """Why ``what``, which rests on attempt ``expected`` of a region, can't be read; `None` if that attempt counts."""
    current = region.current
    if current is None and expected <= region.closed_at:
        return (
            f"{what} needs {name}@{expected}, and this run was purged. `gc` deletes its data, or has deleted it. "
            f"{CLEAR_WHAT_WAS_PURGED}"
        )
    if current is None or current.number != expected:
        now = f"now {f'@{current.number}' if current else 'reset'}"
    elif region.outdated_since is not None and not (accept_failed and region.open_attempt is None):
        now = f"which was not valid any more when attempt {region.outdated_since} of it began"
    else:
        return None
    rests = f"it rests on {name}@{expected}, {now}"
    return f"{what} is no longer valid: {rests}. Clear the tasks of that run: they repair the result and publish again."


def published_result(journal: Journal, result: str, *, accept_failed: bool = False) -> PublishedResult:
    """The registered result named ``result`` of the journal's newest publish.

    ``accept_failed``: also one that a newer attempt was to replace, if that has failed.

    Raises `NotPublished`, with the reason, where there is no publish, it does not name the result, or the result, or
    what it rests on, has been superseded or withdrawn since; `JobDefinitionError` for a cached one, which is its run's
    alone. Raises the store's errors where the journal can't be read. Does not look at the data itself.
    """
    where = f"{journal.identity.dag_id} / {journal.identity.run_key} / {journal.identity.group_id}"
    listed = journal.list(()).state
    number = listed.newest_publish
    if not number and listed.is_closed:
        raise NotPublished(
            f"{where}: this run was purged, and nothing is published since. {CLEAR_WHAT_WAS_PURGED}",
            code="published-purged",
        )
    if not number:
        raise NotPublished(
            f"{where}: nothing is published yet; expected a publish that names {result!r}.",
            code="nothing-published",
            where=where,
        )
    publish = journal.read_publish(number)
    regions = [region for region in publish.regions if result in region.results]
    if not regions:
        named = sorted({name for region in publish.regions for name in region.results})
        raise NotPublished(
            f"{where}: publish {number} does not name {result!r}. It names {', '.join(named) or 'nothing'}.",
            code="publish-does-not-name",
            found=result,
        )
    state = journal.load(journal.list(region.region for region in publish.regions))
    named_attempts = {region.region: region.attempt for region in publish.regions}
    todo, seen = [InputRef(region.region, region.attempt) for region in regions], set()
    seen_groups: set[InputGroupRef] = set()
    while todo:
        ref = todo.pop()
        if ref in seen:
            continue
        seen.add(ref)
        current, expected = state.of(ref.region).current, named_attempts.get(ref.region, ref.attempt)
        why = _why_not_valid(
            f"{result!r} of publish {number}", ref.region, state.of(ref.region), expected, accept_failed
        )
        if why is not None:
            now = None if current is None else current.number
            raise NotPublished(
                f"{where}: {why}", code="published-outdated", rests_on=f"{ref.region}@{expected}", now=now
            )
        if current is None or current.outcome is None:
            raise AssertionError(f"{ref.region}@{expected} counts, and is not finished")
        _check_given(journal, ref.region, current, f"{where}: {result!r} of publish {number}")
        todo += Inputs.of(current.outcome.inputs).unseen(seen_groups)
    manifests, is_one_folder = [], len(regions) == 1
    for region in regions:
        named_attempt = state.of(region.region).attempts[region.attempt]
        if named_attempt.is_released:
            raise NotPublished(
                f"{where}: the data of {result!r} (publish {number}) was released: it was kept for as long as the "
                "job's retention says. Declare it as a sink where others read it, or restart its region.",
                code="publish-released",
            )
        outcome = named_attempt.outcome
        outputs = [output for output in outcome.outputs if output.result == result] if outcome is not None else []
        if not outputs:
            raise ObjectMissing(
                f"{where}: the outcome of {region.region}@{region.attempt} has no result {result!r}.",
                code="outcome-without-result",
                found=result,
            )
        if any(kept_by(output.location) for output in outputs):
            raise JobDefinitionError(
                f"{where}: {result!r} is kept at {outputs[0].location}, for its own run; expected a result in files. "
                "Declare it with result=BLOCKING, or as a sink, where others read it."
            )
        manifests += outputs
        is_one_folder = is_one_folder and outcome is not None and not outcome.mode.attempts
    # Of `by_month[2013-01]` the region is `by_month`.
    name, attempt = regions[0].region.partition("[")[0], max(region.attempt for region in regions)
    read = tuple(InputRef(region.region, region.attempt) for region in regions)
    return PublishedResult(number, name, attempt, tuple(manifests), read, is_one_folder)


def _check_given(journal: Journal, region: str, attempt: Attempt, what: str) -> None:
    """Raise `NotPublished` if a person has withdrawn the attempt on which ``what`` rests."""
    if attempt.is_withdrawn:
        withdrawal = journal.read_withdrawal(region, attempt.number, attempt.withdrawn_turn)
        raise NotPublished(
            f"{what} was withdrawn: {withdrawal.text()}. Expected a publish that names a newer attempt: correct the "
            "cause, and clear the run.",
            code="publish-withdrawn",
        )
