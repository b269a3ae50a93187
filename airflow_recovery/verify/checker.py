"""All invariants of one run, from one reading of its journal and its results."""

from __future__ import annotations

from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.verify.attempts import growing, one_commit, one_finish
from airflow_recovery.verify.causes import everything_has_a_cause
from airflow_recovery.verify.channels import Channels, every_record_once, within_budget
from airflow_recovery.verify.closure import restart_sets_are_closed
from airflow_recovery.verify.data import nothing_deleted_that_is_read, objects_there
from airflow_recovery.verify.inputs import accepted_inputs
from airflow_recovery.verify.output import published_is_coherent
from airflow_recovery.verify.reading import RunName, etags_now, read_history
from airflow_recovery.verify.registered import OpenLocation, Registered
from airflow_recovery.verify.replay import prefixes_are_valid, same_twice
from airflow_recovery.verify.report import Report
from airflow_recovery.verify.shared import Shared
from airflow_recovery.verify.splits import every_split_once
from airflow_recovery.verify.topologies import plans_are_partitions


def verify_run(
    journal: ObjectStore,
    open_location: OpenLocation,
    *,
    dag_id: str,
    run_key: str,
    group_id: str,
    ended: bool = False,
    deep: bool = False,
    results: ObjectStore | None = None,
) -> Report:
    """Check I1 to I15 of one run. ``open_location`` opens a store that holds a result's location.

    ``ended`` says that the run has ended in success, so that nothing may be left to do: without it, what is under way
    is no contradiction. ``deep`` also counts the rows in the published Parquet files. ``results`` is the base of the
    deployment's results, where channels lie; without it they are not looked at. Raises the stores' errors, since
    "denied" and "timed out" are no answers.
    """
    run = RunName(dag_id, run_key, group_id)
    history = read_history(journal, run)
    shared = Shared(journal, run, history)
    registered = Registered(open_location, (output for _, outcome in history.finished() for output in outcome.outputs))
    channels = Channels(history, run, results)
    answers = (
        one_finish(history),
        growing(history),
        accepted_inputs(history),
        objects_there(history, registered, shared),
        everything_has_a_cause(history, registered, shared),
        plans_are_partitions(history),
        restart_sets_are_closed(history, ended=ended),
        nothing_deleted_that_is_read(history, registered, shared),
        within_budget(channels, history),
        one_commit(history, ended=ended),
        same_twice(history, etags_now(journal, run)),
        prefixes_are_valid(history),
        published_is_coherent(history, registered, ended=ended, deep=deep),
        every_split_once(history),
        every_record_once(channels, history, ended=ended, deep=deep),
    )
    return Report(dag_id, run_key, group_id, history.where, answers)
