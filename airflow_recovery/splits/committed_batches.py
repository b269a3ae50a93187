"""What a region that commits split by split has committed so far, and what a later attempt may take over. Pure.

A batch is kept only as a whole, and from one attempt. What a later attempt takes over is said in one place, the *base*
in its claim: whoever looks for what is still to be read, and whoever puts the result together, looks there. If both
listed the batches themselves, a batch that a zombie commits between the two listings would count twice.

    base of a claim   that of the newest attempt above the reset watermark that was made of the same (its
                      ``reading``), and that attempt's own batches, as many as were listed; less what can't be used
                      any more
    finish            the batches of the base and the own ones: each split of the assignment in exactly one of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_recovery.errors import ManifestInvalid, SplitsNotCovered
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.mode import AttemptWork
from airflow_recovery.model.records import Claim, CommittedBatch
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import names
from airflow_recovery.splits.mode import AdoptedBatches, CommittedBatchRef, LostSplit, SplitClaim

MAX_NAMED = 5


def adoptable(state: RegionState, claims: Mapping[int, Claim], reading: str) -> tuple[AdoptedBatches, ...]:
    """What the next claim may take over of what ``claims`` (by attempt) have left, by number, unread.

    Nothing of attempts up to the reset watermark, and nothing that was released or purged. ``reading``: digest of the
    code and the side inputs; only batches that were made with the same are adopted.
    """
    same = [
        n
        for n, claim in claims.items()
        if n > state.invalid_up_to and SplitClaim.of(claim).reading == reading and n in state.attempts
    ]
    if not same:
        return ()
    newest = max(same)
    logs = (*SplitClaim.of(claims[newest]).base, AdoptedBatches(newest, state.attempts[newest].batches))
    return tuple(
        log for log in logs if log.numbers and log.attempt > state.invalid_up_to and not state.may_be_gone(log.attempt)
    )


def numbers_of(base: Iterable[AdoptedBatches]) -> list[tuple[int, int]]:
    """(attempt, number) of every batch that is adopted, in order."""
    return [(batches.attempt, number) for batches in base for number in batches.numbers]


def usable(
    base: Sequence[AdoptedBatches],
    batches: Iterable[CommittedBatch],
    assigned: Collection[str],
    gone: Collection[tuple[int, int]] = (),
    *,
    is_own: Callable[[CommittedBatch], bool] = lambda batch: True,
) -> tuple[AdoptedBatches, ...]:
    """``base`` without what can't be used; ``batches`` are those that it names, those in ``gone`` lack their objects.

    A batch goes as a whole: where one of its splits is not among ``assigned`` any more (it vanished, or its content is
    another), is in an earlier batch already, or was given back since it was read (``is_own``).
    """
    wanted = set(assigned)
    covered: set[str] = set()
    dropped: dict[int, set[int]] = {}
    for committed in batches:
        splits = set(committed.splits)
        if (
            (committed.attempt, committed.number) in gone
            or not splits <= wanted
            or splits & covered
            or not is_own(committed)
        ):
            dropped.setdefault(committed.attempt, set()).add(committed.number)
        else:
            covered |= splits
    without_dropped = (
        replace(batches, dropped=tuple(sorted({*batches.dropped, *dropped[batches.attempt]})))
        if batches.attempt in dropped
        else batches
        for batches in base
    )
    return tuple(batches for batches in without_dropped if batches.numbers)


@dataclass(frozen=True)
class SplitWork(AttemptWork):
    """What an attempt that commits split by split has to read, and what it takes over, in the order of its numbers.

    ``is_pulled``: which of ``assigned`` it reads is decided while it runs, so that nobody knows before.
    """

    assigned: tuple[Split, ...]
    base: tuple[AdoptedBatches, ...] = ()
    adopted: tuple[CommittedBatch, ...] = ()
    reading: str = ""
    is_pulled: bool = False

    @property
    def todo(self) -> tuple[Split, ...]:
        """What is still to be read."""
        return to_read(self.assigned, self.adopted)

    @property
    def is_done(self) -> bool:
        """Nothing is left to be read, and something was: it can be finished as it is."""
        return not self.is_pulled and not self.todo and any(batch.outputs for batch in self.adopted)

    @property
    def in_claim(self) -> SplitClaim:
        """What it takes over, and what that was made of."""
        return SplitClaim(self.base, self.reading)

    @property
    def taken_over(self) -> str:
        """How many splits are kept."""
        return self.text() if self.adopted else ""

    def text(self) -> str:
        """For people."""
        kept = sum(len(batch.splits) for batch in self.adopted)
        return f"{kept} splits kept" if self.is_pulled else f"{kept} of {len(self.assigned)} splits kept"


def folder_of(batches: Iterable[CommittedBatch]) -> str:
    """The folder of the region of these batches: the results of one lie at ``<attempt>/<result>/<number>`` there.

    Raises `ManifestInvalid` where none of them has a result.
    """
    for batch in batches:
        for output in batch.outputs:
            return output.location.rsplit("/", 3)[0]
    raise ManifestInvalid("expected a batch with results, found none: restart the region, which reads everything anew")


def taken(base: Iterable[AdoptedBatches], batches: Iterable[CommittedBatch]) -> tuple[CommittedBatch, ...]:
    """Of ``batches``, those that ``base`` adopts."""
    adopted = set(numbers_of(base))
    return tuple(batch for batch in batches if (batch.attempt, batch.number) in adopted)


@dataclass(frozen=True)
class Cover:
    """How batches cover an assignment, by content key: in no batch, in several, and in one although not assigned."""

    missing: tuple[str, ...]
    twice: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Each split once, and no other."""
        return not (self.missing or self.twice or self.foreign)


def cover(assigned: Iterable[str], batches: Iterable[CommittedBatch]) -> Cover:
    """Compare the splits of ``batches`` with the content keys that were assigned."""
    counts = Counter(key for batch in batches for key in batch.splits)
    wanted = dict.fromkeys(assigned)
    return Cover(
        missing=tuple(key for key in wanted if key not in counts),
        twice=tuple(key for key, count in counts.items() if count > 1),
        foreign=tuple(key for key in counts if key not in wanted),
    )


def check_cover(assigned: Iterable[Split], batches: Iterable[CommittedBatch]) -> None:
    """The last check before a finish. Raises `SplitsNotCovered` unless ``batches`` are exactly what was to be read."""
    by_key = {split.key: split for split in assigned}
    coverage = cover(by_key, batches)
    if coverage.is_exact:
        return
    wrong = {
        "not read": _named(coverage.missing, by_key),
        "read twice": _named(coverage.twice, by_key),
        "not assigned": _named(coverage.foreign, by_key),
    }
    raise SplitsNotCovered(
        f"expected each of {len(by_key)} splits in exactly one batch, found "
        f"{'; '.join(f'{what}: {which}' for what, which in wrong.items() if which)}. Nothing was finished. Restart the "
        "region (`airflow recovery plan DAG RUN --restart REGION --apply`), which reads all of them anew, and report "
        "this.",
        code="splits-not-in-one-batch",
    )


def to_read(assigned: Iterable[Split], batches: Iterable[CommittedBatch]) -> tuple[Split, ...]:
    """Of ``assigned``, what is in none of ``batches``, in the order given."""
    done = {key for batch in batches for key in batch.splits}
    return tuple(split for split in assigned if split.key not in done)


def refs_of(batches: Iterable[CommittedBatch]) -> tuple[CommittedBatchRef, ...]:
    """``batches`` as a finish names them."""
    return tuple(CommittedBatchRef(batch.attempt, batch.number, batch.splits) for batch in batches)


def accumulated(batches: Iterable[CommittedBatch]) -> tuple[tuple[str, float], ...]:
    """The sums of the accumulators over all batches, by name. They are in the batches, so that a failure loses none."""
    sums: dict[str, float] = {}
    for batch in batches:
        for name, amount in batch.accumulators:
            sums[name] = sums.get(name, 0) + amount
    return tuple(sorted(sums.items()))


def lost_splits_of(batches: Iterable[CommittedBatch], assigned: Iterable[Split]) -> tuple[LostSplit, ...]:
    """The splits that ``batches`` name as lost, within the loss budget, each with its failure."""
    by_key = {split.key: split for split in assigned}
    return tuple(
        LostSplit(key, by_key[key].uri if key in by_key else "", f"{batch.lost.type}: {batch.lost.message}")
        for batch in batches
        if batch.lost is not None
        for key in batch.splits
    )


def union_of(location: str, results: Iterable[str], batches: Iterable[CommittedBatch]) -> tuple[PartitionManifest, ...]:
    """One manifest for each of ``results``, of the objects of all ``batches``; they lie under several attempts.

    ``location`` is the folder of the region, which holds those of all its attempts. Raises `ManifestInvalid` where a
    batch lacks a result, lies elsewhere, or has other columns than the others.
    """
    made = [batch for batch in batches if batch.lost is None]
    return tuple(_union(location, result, made) for result in results)


def _union(location: str, result: str, batches: list[CommittedBatch]) -> PartitionManifest:
    objects: list[ResultObject] = []
    manifests: list[PartitionManifest] = []
    for batch in batches:
        own = [output for output in batch.outputs if output.result == result]
        where = f"batch {batch.number} of {batch.region}@{batch.attempt}"
        if len(own) != 1:
            raise ManifestInvalid(
                f"{where}: expected one manifest of {result!r}, found {len(own)}: restart the region, and report this",
                code="batch-without-manifest",
            )
        if not own[0].location.startswith(f"{location}/"):
            raise ManifestInvalid(
                f"{where}: expected {result!r} below {location}, found it at {own[0].location}: the base of the "
                "results was changed; restart the region",
                code="batch-elsewhere",
            )
        if manifests and own[0].schema != manifests[0].schema:
            raise ManifestInvalid(
                f"{where}: expected the columns of the batches before it in {result!r}, {manifests[0].schema}, found "
                f"{own[0].schema}: have the source say its columns and types, instead of taking them from each batch "
                "of files; then restart the region",
                code="batch-columns-differ",
            )
        below = own[0].location[len(location) + 1 :]
        objects += [replace(file, path=f"{below}/{file.path}") for file in own[0].objects]
        manifests.append(own[0])
    rows = [manifest.rows for manifest in manifests if manifest.rows is not None]
    digests = [manifest.digest for manifest in manifests if manifest.digest is not None]
    return PartitionManifest(
        result=result,
        location=location,
        objects=tuple(objects),
        rows=sum(rows) if len(rows) == len(manifests) else None,
        schema=manifests[0].schema if manifests else None,
        digest=_sum_of_digests(digests) if digests and len(digests) == len(manifests) else None,
    )


def _sum_of_digests(digests: Sequence[str]) -> str:
    """The digest of all rows together (`airflow_recovery.driver.digest`): schema, number of rows, and sums."""
    kinds = {digest.partition("-")[0] for digest in digests}
    if len(kinds) != 1:
        raise ManifestInvalid(
            f"expected digests of the same columns, found {sorted(kinds)}: restart the region",
            code="batch-digests-differ",
        )
    numbers = zip(*([int(word, 16) for word in digest.split("-")[1:]] for digest in digests), strict=True)
    return "-".join([*kinds, *(f"{sum(number):x}" for number in numbers)])


def _named(keys: Collection[str], by_key: Mapping[str, Split]) -> str:
    known = [by_key[key] for key in keys if key in by_key]
    unknown = [key for key in keys if key not in by_key]
    more = len(unknown) - MAX_NAMED
    return ", ".join(
        name for name in (names(known), ", ".join(unknown[:MAX_NAMED]), f"{more} more" if more > 0 else "") if name
    )
