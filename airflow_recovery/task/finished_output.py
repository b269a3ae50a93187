"""Whether a job that has ended well has finished its writes to the folders that are its outputs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery.errors import RegionFailed, StoreError, UserCodeError
from airflow_recovery.job.row_settings import configuration_folders, declared_settings
from airflow_recovery.job.seen_settings import may_set
from airflow_recovery.locations import is_table
from airflow_recovery.results.finished_write import (
    DECIDES_ON_SUCCESS,
    SUCCESS,
    Earlier,
    OnUnfinished,
    leftovers,
    without_success,
    writes_success,
)
from airflow_recovery.store.object_store import FolderStore, ObjectInfo, ObjectStore, Upload, UploadStore

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.model.records import Claim
    from airflow_recovery.task.references import DropIn

_MOST_NAMED = 3
_CURE = (
    "Find out why the job ended with exit code 0 anyway. Common reasons: the code swallows an exception or calls "
    "os._exit, or a shell runs without `set -o pipefail`. The next try writes again. docs/finished-writes.md lists the "
    "signs of an unfinished write, and explains when on_unfinished='accept' is right."
)


class FinishedOutputs:
    """The folders that a job writes, before it begins and when it has ended.

    ``writes_success``: whether the writer of these files, in a managed folder or not, is known to end with a
    ``_SUCCESS``.
    """

    def __init__(
        self,
        drop_in: DropIn,
        stores: Stores,
        writes_success: Callable[[Collection[str], bool], bool],
        log: logging.Logger,
    ) -> None:
        self._drop_in = drop_in
        self._stores = stores
        self._writes_success = writes_success
        self._log = log
        self._earlier: dict[str, Earlier] = {}

    def look_before(self) -> None:
        """Remember what lies at the fixed outputs: the job has not begun. A managed folder is new."""
        for name, uri in self._drop_in.outputs.items() if self._drop_in.recovers else ():
            if uri is not None and not is_table(uri):
                store = self._stores.open_external(uri)
                objects = {info.key: info for info in all_in(store)}
                self._earlier[name] = Earlier(objects, {upload.upload_id for upload in self._uploads(name, store)})

    def check(self, claim: Claim, name: str, location: str, listed: Sequence[ObjectInfo], paths: Sequence[str]) -> None:
        """Raise `RegionFailed` if output ``name`` is not a finished write, or if nothing was written.

        ``listed``: all that lies there. ``paths``: the data among it. `UserCodeError` if one file was written in place
        of a folder.
        """
        managed = self._drop_in.outputs[name] is None
        earlier = self._earlier.get(name) or Earlier(claimed_s=None if managed else _seconds(claim.claimed_at))
        ended = f"{claim.region}@{claim.attempt}: the application ended without an error"
        unfinished = f"{ended}, and its write to output {name!r} at {location} is not finished"
        found = leftovers(listed, self._uploads(name, self._stores.open_external(location)), earlier)
        work = "; ".join(
            f"{at} ({whose}), as in {key}" for at, (key, whose) in [*found.unfinished.items()][:_MOST_NAMED]
        )
        if work and self._drop_in.on_unfinished is OnUnfinished.STOP:
            raise RegionFailed(
                f"{unfinished}: expected no temporary files of a writer there, found {work}. Nothing was registered. "
                f"{_CURE}",
                code="output-has-temporary-files",
            )
        if work:
            self._log.warning("Output %s: found %s. Registered anyway (on_unfinished='accept').", name, work)
        for at, (_, whose) in found.passed_over.items():
            self._log.warning(
                "Output %s: %s/%s was there before attempt %d, left by %s. It is passed over; delete it.",
                name,
                location,
                at,
                claim.attempt,
                whose,
            )
        if not paths and all(info.key.rpartition("/")[2] != SUCCESS for info in listed):
            raise self._nothing(ended, name, location)
        new = earlier.new_among(listed, paths)
        uncovered = without_success(listed, new, earlier)
        required = self._drop_in.require_success_file
        if uncovered is not None and (self._writes_success(new, managed) if required is None else required):
            place = "" if uncovered == SUCCESS else f" beside {uncovered}, or in a folder above it"
            raise RegionFailed(
                f"{unfinished}: expected a {SUCCESS} of this attempt{place}, found none. Nothing was registered. "
                f"{_CURE} If the job leaves no such file when it has finished, give the operator "
                "require_success_file=False.",
                code="output-without-success-file",
            )

    def _uploads(self, name: str, store: ObjectStore) -> list[Upload]:
        """The unfinished uploads; none if the store has none, or does not let this process list them."""
        try:
            return list(store.uploads()) if isinstance(store, UploadStore) else []
        except StoreError as error:
            self._log.info("Output %s: unfinished uploads are not looked at (docs/finished-writes.md): %s", name, error)
            return []

    def _nothing(self, ended: str, name: str, location: str) -> RegionFailed:
        if _is_object(self._stores, location):
            return UserCodeError(
                f"{ended}, and wrote one file at {location}: expected a folder as output {name!r}. Let it write the "
                f"file into that folder, for example to {{output:{name}}}/rows.parquet: consumers are given the folder."
            )
        return RegionFailed(
            f"{ended} and wrote nothing to output {name!r} at {location}. Does it write to the location that it is "
            "given?",
            code="output-not-written",
            output=name,
        )


def spark_writes_success(
    operator: SparkSubmitOperator, paths: Collection[str], managed: bool, *, is_driver_here: bool
) -> bool:
    """As `writes_success`, for an application by spark-submit.

    If the driver is on another machine, its configuration is not seen.
    """
    known = partial(writes_success, declared_settings(operator), paths, managed=managed)
    if not known(sees_all=True):
        return False
    program = Path(re.sub("^file:(//)?(?=/)", "", str(operator.application)))
    return known(sees_all=is_driver_here and not may_set(DECIDES_ON_SUCCESS, program, configuration_folders(operator)))


def _seconds(moment: str) -> float:
    """Seconds since the epoch. Python 3.10 reads no ``Z``."""
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def _is_object(stores: Stores, location: str) -> bool:
    """Whether one object lies at the place of a folder."""
    above, _, name = location.rstrip("/").rpartition("/")
    is_root = not above or above.rstrip("/").endswith(":")
    return not is_root and any(info.key == name for info in stores.opener_of(location)(above).list(name))


def all_in(store: ObjectStore) -> list[ObjectInfo]:
    """All objects, and the folders that hold none, if the store has such."""
    return [*store.list(), *(store.empty_folders() if isinstance(store, FolderStore) else ())]
