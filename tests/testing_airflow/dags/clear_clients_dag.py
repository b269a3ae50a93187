"""DAGs whose tasks use the clear clients as a region task does, and note what they saw (folder CLEAR_CLIENTS_OUT)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from airflow_recovery.model.codec import to_json

CONSUMERS = 4
RETRY: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(0)}


def folder(run_id: str) -> Path:
    path = Path(os.environ["CLEAR_CLIENTS_OUT"]) / run_id
    path.mkdir(parents=True, exist_ok=True)
    return path


def note(run_id: str, name: str, value: Any = True) -> None:
    path = folder(run_id) / f"{name}.json"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(value))
    partial.replace(path)


def wait_for(claim: Callable[[], bool]) -> None:
    while not claim():
        time.sleep(0.05)


def noted(run_id: str, name: str) -> bool:
    return (folder(run_id) / f"{name}.json").exists()


def read(run_id: str, name: str) -> Any:
    return json.loads((folder(run_id) / f"{name}.json").read_text())


def what_came(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "accepted"


def clear_client_of(context: Any) -> Any:
    from airflow_recovery.hooks.clear_clients import OwnTaskInstance, RestClient, StateStoreClient, open_clear_client
    from airflow_recovery.hooks.recovery_api import RecoveryApiHook

    kind = context["dag_run"].conf["clear_client"]
    if kind == "open":
        return open_clear_client(context, context["dag_run"].conf.get("api_conn_id"))
    own = OwnTaskInstance(context)
    return StateStoreClient(own) if kind == "store" else RestClient(own, RecoveryApiHook())


def has_succeeded(clear_client: Any, task_id: str, try_number: int) -> bool:
    task_try = clear_client.observe().tries[task_id]
    return (task_try.try_number, task_try.state) == (try_number, "success")


def clear_without_compare(context: Any) -> None:
    """The negative control: Airflow's own Clear, by whoever calls it."""
    from airflow_recovery.hooks.recovery_api import RecoveryApiHook

    hook = RecoveryApiHook()
    run_id = context["dag_run"].run_id
    body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": ["A"]}
    hook._send(
        "POST", "/api/v2/dags/clear_producer/clearTaskInstances", body, token=hook._get_token()
    ).raise_for_status()


#   A --> B0, B1, B2, B3      A's first result is lost for all of them
with DAG("clear_producer", schedule=None, catchup=False):

    @task(task_id="A", **RETRY)
    def make() -> None:
        context = get_current_context()
        run_id, number = context["dag_run"].run_id, context["ti"].try_number
        note(run_id, f"A-ran-{number}")
        note(run_id, "A", number)

    @task(**RETRY)
    def consume(index: int) -> None:
        from airflow_recovery.attempt.task_instances import ClearRequest

        context = get_current_context()
        run_id = context["dag_run"].run_id
        if read(run_id, "A") > 1:
            return
        clear_client = clear_client_of(context)
        observation = clear_client.observe()
        note(run_id, f"observed-{index}", observation.to_json())
        wait_for(lambda: all(noted(run_id, f"observed-{number}") for number in range(CONSUMERS)))
        if context["dag_run"].conf.get("compare", True):
            if index == CONSUMERS - 1:  # this one decides late, on what it observed before A ran again
                wait_for(lambda: read(run_id, "A") > 1)
            result = clear_client.clear(ClearRequest(producers={"A": observation.tries["A"].ti_id}))
            note(run_id, f"cleared-{index}", [*result.cleared])
        else:  # all decide late, one after the other: whom Airflow clears while it runs, it need not run once more
            # A file: a clear client that is asked all the time is slow.
            wait_for(lambda: noted(run_id, f"A-ran-{index + 1}"))
            wait_for(lambda: has_succeeded(clear_client, "A", index + 1))
            clear_without_compare(context)
        raise RuntimeError("input lost")

    made = make()
    for number in range(CONSUMERS):
        made >> consume.override(task_id=f"B{number}")(number)


#   S clears C (running), D (finished), E (observed under another id), and asks for itself
with DAG("clear_consumers", schedule=None, catchup=False):

    @task(task_id="C", **RETRY)
    def running() -> None:
        context = get_current_context()
        run_id = context["dag_run"].run_id
        note(run_id, f"C-ran-{context['ti'].try_number}")
        if context["ti"].try_number == 1:
            wait_for(lambda: noted(run_id, "cleared"))

    @task(task_id="D", **RETRY)
    def finished() -> None:
        context = get_current_context()
        note(context["dag_run"].run_id, f"D-ran-{context['ti'].try_number}")

    @task(task_id="E", **RETRY)
    def other() -> None:
        context = get_current_context()
        note(context["dag_run"].run_id, f"E-ran-{context['ti'].try_number}")

    @task(task_id="S", **RETRY)
    def final_check() -> None:
        from airflow_recovery.attempt.task_instances import ClearRequest

        context = get_current_context()
        run_id = context["dag_run"].run_id
        note(run_id, f"S-ran-{context['ti'].try_number}")
        clear_client = clear_client_of(context)
        wait_for(lambda: all(noted(run_id, f"{each}-ran-1") for each in "CDE"))
        wait_for(lambda: all(clear_client.observe().tries[each].state == "success" for each in "DE"))
        tries = clear_client.observe().tries
        consumers = {each: tries[each].ti_id for each in "CDES"} | {"E": tries["D"].ti_id, "gone": "x"}
        clear_client.live_check()
        note(run_id, "cleared", to_json(clear_client.clear(ClearRequest(consumers=consumers))))

    running(), finished(), other(), final_check()


#   X --> Y --> Z      X fails for good, so Y and Z are upstream_failed; then X alone is cleared
with DAG("clear_unblocks", schedule=None, catchup=False):

    @task(task_id="X")
    def fail_once() -> None:
        from airflow_recovery.attempt.task_instances import ClearRequest

        context = get_current_context()
        if context["ti"].try_number == 1:
            raise RuntimeError("broken")
        request = ClearRequest(unblock=bool(context["dag_run"].conf["unblock"]))
        note(context["dag_run"].run_id, "unblocked", to_json(clear_client_of(context).clear(request)))

    @task(task_id="Y")
    def middle() -> None:
        """Runs when X has."""

    @task(task_id="Z")
    def last() -> None:
        """Runs when Y has."""

    fail_once() >> middle() >> last()


#   Z is cleared while it runs; its first process goes on as a zombie
with DAG("clear_by_zombie", schedule=None, catchup=False):

    @task(task_id="Z", **RETRY)
    def zombie() -> None:
        from airflow_recovery.attempt.task_instances import ClearRequest

        context = get_current_context()
        run_id = context["dag_run"].run_id
        if context["ti"].try_number > 1:
            return
        # Its supervisor notices the clear as well, and would silence it.
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        clear_client = clear_client_of(context)
        tries = clear_client.observe().tries
        note(run_id, "started", tries["Z"].ti_id)
        wait_for(lambda: noted(run_id, "was-cleared"))
        victim = ClearRequest(consumers={"other": tries["other"].ti_id})
        said = {
            "live_check": what_came(clear_client.live_check),
            "clear": what_came(lambda: clear_client.clear(victim)),
        }
        note(run_id, "zombie-said", said)

    @task(task_id="other", **RETRY)
    def untouched() -> None:
        """Would be cleared by the zombie."""

    untouched() >> zombie()


#   one task that asks the clear client it is given, and says what came of it
with DAG("clear_choice", schedule=None, catchup=False):

    @task(task_id="ask")
    def ask() -> None:
        from airflow_recovery.attempt.task_instances import ClearRequest

        context = get_current_context()
        run_id = context["dag_run"].run_id
        clear_client = clear_client_of(context)
        clear_client.live_check()
        said: dict[str, Any] = {"states": dict(clear_client.states(["ask"]))}
        try:
            observation = clear_client.observe()
            said["tries"] = None if observation is None else sorted(observation.tries)
            if observation is None:
                clear_client.clear(ClearRequest(producers={"ask": "id"}))
        except Exception as error:
            said["error"] = f"{type(error).__name__}: {error}"
        note(run_id, "said", said)

    ask()


#   start --> P --> stop      C reads P, and finds its result gone once the cluster that held it was stopped
#             '---> C
def cluster_dag(dag_id: str, *, is_setup: bool) -> DAG:
    with DAG(dag_id, schedule=None, catchup=False) as made:

        @task(**RETRY)
        def ran() -> None:
            context = get_current_context()
            note(context["dag_run"].run_id, f"{context['ti'].task_id}-ran-{context['ti'].try_number}")

        @task(task_id="C", **RETRY)
        def reader() -> None:
            from airflow_recovery.attempt.task_instances import ClearRequest

            context = get_current_context()
            run_id = context["dag_run"].run_id
            if context["ti"].try_number > 1:
                return
            clear_client = clear_client_of(context)
            wait_for(lambda: clear_client.observe().tries["stop"].state == "success")
            result = clear_client.clear(ClearRequest(producers={"P": clear_client.observe().tries["P"].ti_id}))
            note(run_id, "cleared", sorted(result.cleared))
            raise RuntimeError("input lost")

        start, made_by, stop = (ran.override(task_id=name)() for name in ("start", "P", "stop"))
        if is_setup:
            start.as_setup()
            stop.as_teardown(setups=start)
        start >> made_by >> stop
        made_by >> reader()
    return made


#   start --+--> P ---+--> stop      C clears P while L works on the cluster that start has made
#           |    '---> C             (C alone does not: it is the one who clears)
#           +--> L ---+
with DAG("clear_setup_in_use", schedule=None, catchup=False) as in_use:

    @task(**RETRY)
    def count() -> None:
        context = get_current_context()
        note(context["dag_run"].run_id, f"{context['ti'].task_id}-ran-{context['ti'].try_number}")

    @task(task_id="L")
    def works_long() -> None:
        run_id = get_current_context()["dag_run"].run_id
        wait_for(lambda: noted(run_id, "P-ran-2"))

    @task(task_id="C", **RETRY)
    def clears() -> None:
        from airflow_recovery.attempt.task_instances import ClearRequest

        context = get_current_context()
        run_id = context["dag_run"].run_id
        if context["ti"].try_number > 1:
            return
        clear_client = clear_client_of(context)
        wait_for(lambda: clear_client.observe().tries["L"].state == "running")
        result = clear_client.clear(ClearRequest(producers={"P": clear_client.observe().tries["P"].ti_id}))
        note(run_id, "cleared", sorted(result.cleared))
        raise RuntimeError("input lost")

    start, made_by, stop = (count.override(task_id=name)() for name in ("start", "P", "stop"))
    start.as_setup()
    stop.as_teardown(setups=start)
    start >> [made_by, works_long()] >> stop
    made_by >> clears()


with_setup = cluster_dag("clear_setup", is_setup=True)
without_setup = cluster_dag("clear_no_setup", is_setup=False)
