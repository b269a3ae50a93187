"""What tells a finished write of a folder from an unfinished one (docs/finished-writes.md).

A writer that was ended leaves work beside the data: a committer's folder, a file that is renamed at the end, a commit
that was started, an upload. A finished one has removed that, and may have left a ``_SUCCESS``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from airflow_recovery.store.object_store import ObjectInfo, Upload

SUCCESS = "_SUCCESS"
"""What committers of Hadoop and Spark write into a folder when they have finished."""
CLOCK_MARGIN_S = 900.0
"""So far two clocks may be apart. S3 refuses the requests of a machine whose clock is further off."""

_WORK = (
    (re.compile(r"_temporary"), "a file output committer or the manifest committer of Hadoop"),
    (re.compile(r"__magic(?:_job-.+)?"), "S3A's magic committer"),
    (re.compile(r"\.spark-staging-.+"), "Spark, when it overwrites partitions or writes to partitions elsewhere"),
    (re.compile(r"\.hive-staging.*"), "an INSERT of Hive or of Spark into a Hive table"),
)
"""Folders in which committers work, and whose they are."""
_DATA = r"\.(?:parquet|orc|avro|csv|tsv|txt|jsonl?|ndjson|xml|gz|bz2|zst|zip)"
_PARTS = (
    (re.compile(r".+\._COPYING_"), "`hadoop fs -put` or `-cp`"),
    (re.compile(r"\.distcp\.tmp\..+"), "distcp"),
    (re.compile(r".+-RenamePending\.json"), "a rename of a folder in Azure's blob storage"),
    (re.compile(r"\..+\.inprogress\..+"), "Flink's file sink"),
    (re.compile(rf".+{_DATA}\.(?=[0-9]*[A-Fa-f])[0-9A-Fa-f]{{8}}"), "a download by boto3 or `aws s3 cp`"),
    (re.compile(r".+_\.gstmp"), "a download by `gsutil` or `gcloud storage`"),
    (re.compile(r".+\.partial"), "`rclone`"),
    (
        re.compile(rf".+{_DATA}\.(?:tmp|temp|part|filepart|crdownload|download|incomplete|aria2)"),
        "a writer that renames its files at the end",
    ),
    (re.compile(r"\.azDownload-.+"), "a download by `azcopy`"),
    (re.compile(rf"\..+{_DATA}\.[A-Za-z0-9]{{6}}"), "`rsync`"),
)
"""Files that their writer renames or deletes at the end, and who that is."""
_STARTED = re.compile(r"_started_(?P<id>.+)")
_DATABRICKS = "Databricks' transactional commit, which was not finished by a `_committed_` of the same id"
_UPLOAD = "an upload that was neither completed nor aborted"
_SPARK_FILE = re.compile(
    r"part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?P<dash>[-.])c\d{3,}"
    r"(?:\.\w+)*\.(?:parquet|orc|csv|json|txt|avro|xml)(?:\.\w+)?"
)
"""How Spark's file formats name what they write by a commit protocol. The dash: it is not the file of a partition."""
DECIDES_ON_SUCCESS = re.compile(
    r"marksuccessfuljobs|commitProtocolClass|output\.?committer\.?class|partitionOverwriteMode", re.IGNORECASE
)
"""The names of settings on which it depends whether a write by Spark ends with a ``_SUCCESS``."""
_MARKS = "marksuccessfuljobs"
_MARKING = (
    "static",
    "HadoopMapReduceCommitProtocol",
    "PathOutputCommitProtocol",
    "ParquetOutputCommitter",
    ".FileOutputCommitter",
)
"""What the other settings name, if it leaves one."""


class OnUnfinished(str, Enum):
    """What happens if a job has ended well, and the work of an unfinished write lies in what it has written."""

    STOP = "stop"
    ACCEPT = "accept"


@dataclass(frozen=True)
class Earlier:
    """What was in a folder before an attempt began. Empty for a managed folder, which is new for each attempt.

    ``objects`` and ``uploads``: as listed before the job. ``claimed_s``: set if another process has started the job, so
    that there is no such listing. Then only times decide: an object older than the claim (seconds since the epoch) is
    an earlier one.
    """

    objects: Mapping[str, ObjectInfo] = field(default_factory=dict)
    uploads: Collection[str] = ()
    claimed_s: float | None = None

    def has(self, info: ObjectInfo, *, margin_s: float = 0.0) -> bool:
        """Whether the object lay there before. By time: not if its clock may have been ``margin_s`` behind."""
        if self.claimed_s is not None:
            return info.modified_s is not None and info.modified_s < self.claimed_s - margin_s
        return self.objects.get(info.key) == info

    def new_among(self, listed: Iterable[ObjectInfo], paths: Collection[str]) -> list[str]:
        """Those of ``paths`` that the attempt has written, by the listing that they come from."""
        old = {info.key for info in listed if self.has(info)}
        return [path for path in paths if path not in old]

    def has_upload(self, upload: Upload) -> bool:
        """Whether the upload was begun before."""
        if self.claimed_s is not None:
            return upload.initiated_s < self.claimed_s - CLOCK_MARGIN_S
        return upload.upload_id in self.uploads


@dataclass(frozen=True)
class Leftovers:
    """Work of unfinished writes: path of a folder or file -> (key of one object in it, description of the writer).

    ``unfinished``: of this attempt. ``passed_over``: of an earlier one, in a folder in which this attempt has written.
    """

    unfinished: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    passed_over: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def leftovers(listed: Sequence[ObjectInfo], uploads: Iterable[Upload], earlier: Earlier) -> Leftovers:
    """Find in the listing of an output the work of writes that were not finished.

    Work beside a later ``_SUCCESS`` of this attempt is none: cleaning up may be switched off, or a task that was given
    up has written a last file. Earlier work does not count if this attempt has written anything. If it has
    not, the data there may be what the unfinished write has left.
    """
    successes = _successes(listed, earlier)
    found: dict[str, tuple[str, str]] = {}
    passed_over: dict[str, tuple[str, str]] = {}
    for info, folder, name, writer in _work(listed):
        at = _joined(folder, name)
        if earlier.has(info, margin_s=CLOCK_MARGIN_S):
            passed_over.setdefault(at, (info.key, writer))
        elif writer is _DATABRICKS or not _is_before(info, successes.get(folder)):
            found.setdefault(at, (info.key, writer))
    keys = {info.key for info in listed}
    for upload in uploads:
        covered = [successes[folder] for folder in _folders_above(upload.key) if folder in successes]
        if upload.key in keys or _work_at(upload.key) or any(upload.initiated_s <= at for at in covered):
            continue
        where = passed_over if earlier.has_upload(upload) else found
        where.setdefault(upload.key, (upload.key, _UPLOAD))
    if passed_over and all(earlier.has(info, margin_s=CLOCK_MARGIN_S) for info in listed):
        return Leftovers({**passed_over, **found})
    return Leftovers(found, passed_over)


def without_success(listed: Sequence[ObjectInfo], new: Iterable[str], earlier: Earlier) -> str | None:
    """Return a file among the ``new`` ones that no ``_SUCCESS`` of this attempt covers; `None`: all are covered.

    A ``_SUCCESS`` covers all files below its folder. Without any new file there must be one all the same: the name of
    the marker is returned then.
    """
    successes = _successes(listed, earlier)
    uncovered = next((path for path in new if not any(one in successes for one in _folders_above(path))), None)
    return uncovered if successes or uncovered is not None else SUCCESS


def writes_success(settings: Mapping[str, object], paths: Collection[str], *, managed: bool, sees_all: bool) -> bool:
    """Whether the writer of ``paths`` is known to end with a ``_SUCCESS`` in the output or in a folder of it.

    True if all names are those of Spark's file formats, and no setting can switch the marker off.

    ``settings``: the job's settings that are known. ``sees_all``: no unknown setting can decide; not needed if
    ``settings`` switch the marker on. ``managed``: if False, a partitioned write may leave its marker above the output.
    """
    deciding = {name: str(value).strip() for name, value in settings.items() if DECIDES_ON_SUCCESS.search(name)}
    marks = [value.lower() == "true" for name, value in deciding.items() if name.endswith(_MARKS)]
    others = [value for name, value in deciding.items() if not name.endswith(_MARKS)]
    if not (all(marks) if marks else sees_all) or not all(value.endswith(_MARKING) for value in others):
        return False
    named = [_SPARK_FILE.fullmatch(path.rpartition("/")[2]) for path in paths]
    return bool(named) and all(
        match is not None and (match["dash"] == "-" or (managed and sees_all)) for match in named
    )


def _successes(listed: Iterable[ObjectInfo], earlier: Earlier) -> dict[str, float]:
    """When this attempt has marked which folders."""
    found = {}
    for info in listed:
        folder, _, name = info.key.rpartition("/")
        if name == SUCCESS and not earlier.has(info):
            found[folder] = float("inf") if info.modified_s is None else info.modified_s
    return found


def _work(listed: Sequence[ObjectInfo]) -> Iterator[tuple[ObjectInfo, str, str, str]]:
    """Objects that are work, with the folder that is written, the work's name there, and who leaves such."""
    keys = {info.key for info in listed}
    for info in listed:
        at = _work_at(info.key)
        if at is not None:
            yield info, *at
            continue
        folder, _, name = info.key.rpartition("/")
        started = _STARTED.fullmatch(name)
        if started is not None and _joined(folder, f"_committed_{started['id']}") not in keys:
            yield info, folder, name, _DATABRICKS


def _work_at(key: str) -> tuple[str, str, str] | None:
    *above, name = key.split("/")
    for depth, segment in enumerate(above):
        for pattern, writer in _WORK:
            if pattern.fullmatch(segment):
                return "/".join(above[:depth]), f"{segment}/", writer
    writers = [writer for pattern, writer in _PARTS if pattern.fullmatch(name)]
    return ("/".join(above), name, writers[0]) if writers else None


def _is_before(info: ObjectInfo, success_s: float | None) -> bool:
    """Whether the work is older than the marker of its write. A marker of an empty folder decides nothing."""
    if success_s is None:
        return False
    return info.key.endswith("/") or info.modified_s is None or info.modified_s <= success_s


def _folders_above(key: str) -> list[str]:
    *above, _ = key.split("/")
    return ["/".join(above[:depth]) for depth in range(len(above) + 1)]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
