"""Whether the registered objects of a result are there: asked of the stores, once per result of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from enum import Enum

from airflow_recovery.errors import CacheUnreachable, ConfigurationError, OutputAltered, RecordInvalid, StoreError
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.locations import is_stated, is_table
from airflow_recovery.model.location import listing_prefix
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.result_type import kept_by
from airflow_recovery.planning.evaluation import AskedResult
from airflow_recovery.planning.reason import Evidence, Reason, Why
from airflow_recovery.results.availability import (
    Availability,
    AvailabilityState,
    in_pages,
    list_together,
    probe_manifest,
)
from airflow_recovery.results.keeper import ResultKeeper, keeper_of
from airflow_recovery.results.places import Asker, Look, ResultPlaces
from airflow_recovery.results.tables import TableLost
from airflow_recovery.store.lifecycle import rule_text, rules_over
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

CONNECTIONS = 64
MANY = 8
"""From so many regions on, their data is looked for in threads at once."""

MAX_EVIDENCE = 10
"""The most objects of one result that a reason names one by one."""


class OnAltered(str, Enum):
    """What happens when objects at a user's own output location are not those that were registered there."""

    STOP = "stop"
    """Stop and say so: newer data is never overwritten by itself."""

    RECOMPUTE = "recompute"
    """Treat it as lost: the producer runs again and overwrites what is there."""


class ResultProber:
    """Answers `Available` for one evaluation after another. Nothing is kept between two evaluations.

    One listing of its location answers for all objects of a result; no object is asked for by itself.

    ``open_location`` opens the store that holds a location. ``on_altered`` holds the policy of the regions that write
    to a user's own location; below our own prefixes, altered is lost, and so is a result with a file that is not in its
    manifest: an operator is given the folder, and would read it. At a user's own location it is lost too where a later
    attempt was claimed: what lies there may be its unfinished work, and nothing newer.

    ``places`` says which locations are opened at all, and how much of them is shown; without it, every one and all.

    ``ask_cached`` asks the Spark Connect server that keeps a cached result: `None` where it does, else why it is lost.

    ``ask_table`` asks a table whether a snapshot that is a result still counts: `None` where it does, else why not.

    Raises the store's errors: "denied" and "timed out" are no answers. Raises `CacheUnreachable` where the server gives
    none, or where nobody here knows how to ask it. Raises `OutputAltered` by policy, and as ``places``.
    """

    def __init__(
        self,
        open_location: Callable[[str], ObjectStore],
        on_altered: Mapping[str, OnAltered] | None = None,
        ask_cached: Callable[[PartitionManifest], str | None] | None = None,
        *,
        places: ResultPlaces | None = None,
        ask_table: Callable[[PartitionManifest], TableLost | None] | None = None,
    ) -> None:
        self._open = open_location
        self._ask_table = ask_table or _no_table_to_ask
        self._places = places
        self._ask_cached = ask_cached or _nobody_to_ask
        self._on_altered = on_altered or {}
        self._ahead: dict[tuple[str, int, str], Future[Reason | None]] = {}
        self._listed: dict[str, list[ObjectInfo]] = {}

    def look_ahead(self, asked: Collection[AskedResult]) -> None:
        """Look for these results at once, where they are many; where they are very many, many of them by one listing.

        Each answer, an error too, serves the next question about it.
        """
        if len(asked) < MANY:
            return
        self._ahead, self._listed = {}, {}
        with ThreadPoolExecutor(min(CONNECTIONS, len(asked)), thread_name_prefix="recovery-probe") as pool:
            if len(asked) > CONNECTIONS:
                self._list_together(asked, pool)
            for region, attempt, result in asked:
                # Keepers are asked one question after another: a Spark server has one session for all.
                manifests = _manifests(attempt, result)
                if all(manifest.location in self._listed for manifest in manifests):
                    continue
                if not any(kept_by(manifest.location) for manifest in manifests):
                    self._ahead[region, attempt.number, result] = pool.submit(self._look, region, attempt, manifests)

    def _list_together(self, asked: Iterable[AskedResult], pool: ThreadPoolExecutor) -> None:
        """List the locations of managed results, neighbours together.

        What gives no answer is asked for alone, and what seems to lack an object: a server may list in another order
        than S3 does, so only a listing of its own location says that a result is gone.
        """
        by_store: dict[int, tuple[ObjectStore, dict[str, PartitionManifest]]] = {}
        for _, attempt, result in asked:
            for manifest in _manifests(attempt, result):
                if manifest.managed and not kept_by(manifest.location):
                    with suppress(RecordInvalid):  # it is raised where it is asked for
                        if self._places is None or self._places.look_at(manifest) is Look.OPEN:
                            store = self._open(manifest.location)
                            prefix = listing_prefix(store.base_uri, manifest.location)
                            by_store.setdefault(id(store), (store, {}))[1][prefix] = manifest
        for store, manifests in by_store.values():
            pages = in_pages({prefix: len(manifest.objects) for prefix, manifest in manifests.items()})
            for future in [pool.submit(list_together, store, page) for page in pages]:
                with suppress(StoreError):
                    for prefix, infos in future.result().items():
                        if len(infos) >= len(manifests[prefix].objects):
                            self._listed[manifests[prefix].location] = infos

    def __call__(self, region: str, attempt: Attempt, result: str) -> Reason | None:
        """`None` where every registered object of ``result`` is there as registered, else why not."""
        known = self._ahead.pop((region, attempt.number, result), None)
        return known.result() if known is not None else self._look(region, attempt, _manifests(attempt, result))

    def why_gone(self, region: str, attempt: Attempt) -> Reason | None:
        """`None` where every result of ``attempt`` is there as registered, else why not."""
        outputs = attempt.outcome.outputs if attempt.outcome is not None else ()
        return self._look(region, attempt, outputs)

    def _look(self, region: str, attempt: Attempt, manifests: Sequence[PartitionManifest]) -> Reason | None:
        for manifest in manifests:
            keeper = keeper_of(manifest.location)
            if keeper is not None:
                lost = self._why_kept_is_lost(region, attempt, manifest, keeper)
                if lost is not None:
                    return lost
                continue
            look = Look.OPEN if self._places is None else self._places.look_at(manifest)
            if look is Look.TAKEN_TO_BE_THERE:
                continue
            if look is Look.NOT_DECLARED:
                where = f"registered at {manifest.location}, which today's code does not declare"
                return Reason(region, Why.OUTPUT_MISSING, f"attempt {attempt.number}: {where}")
            if is_table(manifest.location):
                lost = self._why_table_is_lost(region, attempt, manifest, look)
                if lost is not None:
                    return lost
                continue
            store = self._open(manifest.location)
            availability = probe_manifest(store, manifest, self._listed.pop(manifest.location, None))
            if availability.is_available and not availability.added:
                continue
            evidence = availability.evidence[0] + (
                f" and {len(availability.evidence) - 1} more" if len(availability.evidence) > 1 else ""
            )
            if look is Look.OPEN_AND_TELL_NOTHING:
                evidence = f"{manifest.location} is not as it was registered; `airflow recovery plan` names the objects"
                availability = replace(availability, evidence=())
            detail = f"attempt {attempt.number}: {evidence}"
            if not manifest.managed and not attempt.is_followed:
                self._decide_own(region, manifest, availability, detail)
            is_gone = availability.state is AvailabilityState.MISSING
            is_missing = is_gone or availability.state is AvailabilityState.ARCHIVED
            listing = f"a listing of {manifest.location}"
            proofs = tuple(Evidence(listing, text) for text in availability.evidence[:MAX_EVIDENCE])
            rules = rules_over(store, manifest.location) if is_missing and look is Look.OPEN else ()
            for rule in map(rule_text, [rule for rule in rules if bool(rule.archive) is not is_gone][:1]):
                detail += f"; {rule}"
                proofs += (Evidence("the bucket's lifecycle rules", rule),)
            return Reason(region, Why.OUTPUT_MISSING if is_missing else Why.OUTPUT_ALTERED, detail, evidence=proofs)
        return None

    def _why_kept_is_lost(
        self, region: str, attempt: Attempt, manifest: PartitionManifest, keeper: ResultKeeper
    ) -> Reason | None:
        why = keeper.why_lost(manifest, self._ask_cached)
        if why is not None:
            evidence = (Evidence(f"the keeper of {manifest.location}", why),)
            return Reason(region, Why.OUTPUT_MISSING, f"attempt {attempt.number}: {why}", evidence=evidence)
        if not keeper.is_made_again or (self._places is not None and self._places.asker is Asker.API_SERVER):
            return None  # in the API server, no plan says which folders a source reads
        # Spark makes an evicted block again of these files: of other rows, if one was overwritten. One that is gone
        # fails by itself.
        for folder, files in _folders(attempt).items():
            if self._places is not None and not self._places.is_opened(folder):
                continue
            read = replace(manifest, location=folder, objects=tuple(files))
            altered = probe_manifest(self._open(folder), read).altered
            if altered:
                why = f"{folder}/{altered[0]}, of which {manifest.result} is made, was altered since"
                detail = f"attempt {attempt.number}: {why}: what is evicted would be made of other rows"
                return Reason(region, Why.OUTPUT_ALTERED, detail, evidence=(Evidence(f"a listing of {folder}", why),))
        return None

    def _why_table_is_lost(
        self, region: str, attempt: Attempt, manifest: PartitionManifest, look: Look
    ) -> Reason | None:
        lost = self._ask_table(manifest)
        if lost is None:
            return None
        detail = f"attempt {attempt.number}: {lost.text}"
        if lost.is_moved and not attempt.is_followed:
            self._decide_altered(region, manifest, detail)
        evidence = (Evidence(f"the table {manifest.location}", lost.text),)
        why = Why.OUTPUT_ALTERED if lost.is_moved else Why.OUTPUT_MISSING
        return Reason(region, why, detail, evidence=evidence)

    def _decide_altered(self, region: str, manifest: PartitionManifest, detail: str) -> None:
        if self._on_altered.get(region, OnAltered.STOP) is OnAltered.STOP:
            raise OutputAltered(
                f"{region}: {manifest.location} is not as it was registered ({detail}). It may hold newer data, so it "
                f"is neither read nor overwritten. {cure_of_altered(manifest.location)}",
                code="output-altered-outside",
                region=region,
            )

    def _decide_own(self, region: str, manifest: PartitionManifest, found: Availability, detail: str) -> None:
        """What lies at a user's own location is never overwritten because it was altered or archived."""
        if found.altered or found.added:
            self._decide_altered(region, manifest, detail)
        elif found.archived and self._on_altered.get(region, OnAltered.STOP) is OnAltered.STOP:
            raise OutputAltered(
                f"{region}: {manifest.location} can't be read ({detail}). Restore its objects (aws s3api "
                "restore-object), and clear this task when that is done. Or move them away and clear this task: then "
                "the result is made again. A lifecycle rule that archives results should leave out those that are "
                "still read.",
                code="output-archived",
            )


def cure_of_altered(location: str) -> str:
    """What may be done where an output at a location of the user's own was altered, and what would go with it."""
    if is_table(location):
        return (
            "Bring the registered snapshot back into the table's branch, and look first which commits of other dates "
            "and tasks that takes back; or declare on_altered='recompute' to have it made again whenever it was "
            "altered, if the job replaces no rows of other dates."
        )
    return (
        "Restore it. If no other date or task writes there, you may also move the data away and clear this task, or "
        "declare on_altered='recompute' to have it made again whenever it was altered. If other dates write there, "
        "either would take their data along: give each date a folder of its own as output "
        "(.../day={{ ds }}), and move only this date's data there. Compact files in another place; a Delta table that "
        "is declared as delta+... may be compacted in place."
    )


class NullProber(ResultProber):
    """The prober of a job that does not recover: it takes everything to be there, and asks no store."""

    def __init__(self) -> None:
        super().__init__(_opens_nothing)

    def _look(self, region: str, attempt: Attempt, manifests: Sequence[PartitionManifest]) -> Reason | None:
        return None


def _manifests(attempt: Attempt, result: str) -> tuple[PartitionManifest, ...]:
    """Those of ``result``; of a region of which no plan names the results (an empty name), all that it has made."""
    outputs = attempt.outcome.outputs if attempt.outcome is not None else ()
    return tuple(output for output in outputs if not result or output.result == result)


def _folders(attempt: Attempt) -> dict[str, list[ResultObject]]:
    """The external files that the attempt read, by the folder that they are in."""
    folders: dict[str, list[ResultObject]] = {}
    for external in attempt.outcome.externals if attempt.outcome is not None else ():
        if is_stated(external.uri):
            continue
        folder, _, name = external.uri.rpartition("/")
        folders.setdefault(folder, []).append(ResultObject(name, external.size, external.etag))
    return folders


def _nobody_to_ask(manifest: PartitionManifest) -> str | None:
    raise CacheUnreachable(
        f"expected a Spark Connect server to ask whether {manifest.result!r} is still cached at {manifest.location}, "
        "found none that is known here: name it, on the command line with --connect sc://host:port",
        code="connect-server-unknown",
        result=manifest.result,
    )


def _no_table_to_ask(manifest: PartitionManifest) -> TableLost | None:
    raise ConfigurationError(
        f"Expected a way to ask {manifest.location} for the snapshot of {manifest.result!r}, found none."
    )


def _opens_nothing(location: str) -> ObjectStore:
    raise AssertionError(f"nobody asks for {location} where the job does not recover")
