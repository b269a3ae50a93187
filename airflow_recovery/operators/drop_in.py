"""What an operator has that is one vertex of the user's own: outputs, inputs, and where they are put in."""

from __future__ import annotations

import copy
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import TriggerRule

from airflow_recovery.attempt.region_task import Decision, RegionResult, RegionTask
from airflow_recovery.checks import check_arguments, check_no_address
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.locations import is_stated, is_table
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.components import (
    Component,
    UnseenCode,
    UnseenCodeLike,
    bundle_version,
    fingerprint_of,
    unseen_in,
)
from airflow_recovery.model.determinism import Determinism, DeterminismLike
from airflow_recovery.operators.recovering import RecoveringOperator
from airflow_recovery.results.finished_write import OnUnfinished
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.results.stored_rows import ReadLimits
from airflow_recovery.sinks.declaration import check_sinks_apart
from airflow_recovery.task.code_places import Place, unseen_by_name
from airflow_recovery.task.committed_output import checked_commit
from airflow_recovery.task.references import (
    DropIn,
    OutputReference,
    as_written,
    assets_in,
    check_placeholders,
    check_read_and_written,
    check_settings,
    check_targets,
    checked_inputs,
    checked_outputs,
    may_become_table,
    outputs_of,
    over_other_runs,
    placeholders,
    sinks_of,
    without_folder,
    written_by,
)
from airflow_recovery.task.run_context import die_with_supervisor, recompute_epoch, refuse_mapped, refuse_mapped_group

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

    from airflow_recovery.airflow_compat import AssetRef
    from airflow_recovery.sinks.declaration import CommittingSink
    from airflow_recovery.task.application_code import ApplicationCode
    from airflow_recovery.task.drop_in import DropInApplication
    from airflow_recovery.task.open_run import OpenRun
    from airflow_recovery.task.subtask_batch import BatchResult

log = logging.getLogger(__name__)

_Choice = TypeVar("_Choice", OnAltered, OnUnfinished)
_UNSEEN = (
    "a change of this code can't be seen: {}. With unseen_code='run-on-clear' the task runs once after you clear it "
    "(docs/fingerprint.md#code-that-cant-be-seen)."
)
VERIFY_MAX_BYTES = 10 * 1024**3
VERIFY_TIMEOUT_S = 300.0
RUNS_AFTER_SKIPS = frozenset(
    {
        "all_done",
        "all_done_min_one_success",
        "all_done_setup_success",
        "all_skipped",
        "always",
        "none_failed",
        "none_failed_min_one_success",
        "one_done",
        "one_failed",
        "one_success",
    }
)
"""Airflow's trigger rules that start a task although one of its upstream tasks was skipped."""
UNASKED_LIMITS = ReadLimits(max_bytes=64 * 1024**2, timeout_s=10.0, in_order=True)
"""Where nothing is said: so little is read that nobody notices, and what readers may depend on is the same."""


class DropInOperator(RecoveringOperator):
    """An operator whose job is one vertex with registered outputs. All of those in a DAG form one job.

    **Managed outputs** (a name alone) get a location of their own for every attempt, put in for ``{output:name}`` after
    the attempt is claimed; consumers find the registered one at ``{input:name}``. The output is what lies there when
    the job has ended: its objects with size and etag, whatever format they are in. A dead attempt's files are never
    read. Reading another operator's output makes it upstream.

    **Checkpoints**: what a stream that writes to a managed output keeps goes to ``{checkpoint:name}``, a folder of the
    same attempt, which is deleted with it. A fixed output has a checkpoint at a fixed location, and goes on with it.

    **Fixed outputs** (``outputs={"report": "s3://lake/report/"}``) stay at your own URI. What lies there when the
    job ends is registered as found. Promise 1 is *not* given there: a second job may write to the same
    place, and a reader may see half a write. Found altered later: stop and say so (``on_altered="stop"``); newer data
    is never overwritten by itself. ``on_altered="recompute"`` makes it again instead.

    **Tables** (``outputs={"flights": "iceberg://lake/db.flights"}``, ``"delta+s3://lake/flights"``): the result is the
    snapshot that the attempt has committed there, found by the ``{token:flights}`` that its commit carries. Readers get
    the table at ``{input:flights}`` and the snapshot at ``{version:flights}``; an input may be such a URI as well.
    What is in docs/tables.md.

    **Committed outputs** (``commit=PostgresTable(...)``, `airflow_recovery.sinks`): what the job writes to the
    operator's one managed output is only prepared. After the finish the task commits it to the target, once; a task
    that died in between is rolled forward by its next try, without the job. Nobody else reads such an output. A sink
    that reads rows wants Parquet files beside each other, without ``partitionBy``.

    Does not look into the job: it can't be cut into smaller regions, and its rows are not counted, but for
    ``deterministic="verify"``.

    :param outputs: names of managed outputs, or a mapping from name to URI (`None`: managed). URIs are templated.
    :param inputs: by name: another operator's ``result(name)``, or a URI whose objects belong to the trace (templated),
        or another DAG's result, ``published("dag", "task.output")``; or what no file shows: a text that stands for its
        state, ``Version("{{ ... }}")``, an asset of Airflow, or a table of a Hive metastore,
        ``"hive://catalog/database.table"``.
    :param commit: where the output is committed, such as ``PostgresTable(conn_id=..., table=...)``.
    :param on_altered: ``"stop"`` or ``"recompute"``, for fixed outputs.
    :param require_success_file: whether a folder without a ``_SUCCESS`` of this attempt counts as an unfinished write.
        `None`: if its writer is known to leave one (docs/finished-writes.md).
    :param on_unfinished: what happens if the job has ended well and the work of an unfinished write (``_temporary``,
        for example) lies in an output. ``"stop"``: the attempt has failed. ``"accept"``: a warning is logged.
    :param deterministic: what becomes of operators that have read an output, if it is made again. ``"verify"``: they
        keep their results where its rows are the same, in whatever order and files; the task reads them after the
        job has ended. ``"always"``: they run again. ``"assume"``: any finish of this job will do. Not
        said: they keep their results where its rows are the same, in the same order and files; outputs above 64 MiB
        are not read for that: they are the same where the store's checksums say that of each file.
    :param verify_max_bytes: for ``"verify"``: an output with larger files than this is not read; its files alone are
        compared. 10 GiB where nothing is said.
    :param verify_timeout: for ``"verify"``: after so long (a `timedelta`, or seconds) the task stops to read an output.
        Five minutes where nothing is said.
    :param idempotent: whether a second run after one that died half-way leaves what a single one would have left.
    :param allow_duplicates: accept a job that is not idempotent; its rows may be there twice.
    :param unseen_code: what happens if code of the job can't be seen, for example ``local:///opt/clean.py``.
        ``"run-on-clear"``: the task runs once after you clear it. ``"keep"``: it keeps its result. ``"run"``: it also
        runs after a clear by recovery or by a backfill. Default: ``[recovery] unseen_code``.
    :param ignore_changes_in: patterns of absolute paths, such as ``"/var/log/clean/*"``. A file of the worker that an
        argument or the application names does not count if a pattern matches it. Name files that the job writes and
        that are no output.

    Raises `JobDefinitionError` where the declaration can't be run; Airflow shows it as an import error of the DAG.
    """

    placeholder_fields: Sequence[str]
    """The attributes in which placeholders are filled."""
    marks_commits: bool = False
    """The job's commits to tables carry the attempt's token without being told."""
    writes_elsewhere: bool = False
    """What the job makes may lie where it can't be registered: it needs no outputs."""

    def __init__(  # noqa: PLR0913 - an operator's options
        self,
        *,
        outputs: Sequence[str] | Mapping[str, str | None],
        inputs: Mapping[str, OutputReference | Asset | AssetRef | str] | None = None,
        commit: CommittingSink | None = None,
        on_altered: str = "stop",
        require_success_file: bool | None = None,
        on_unfinished: str = "stop",
        deterministic: DeterminismLike | None = None,
        verify_max_bytes: int | None = None,
        verify_timeout: timedelta | float | None = None,
        idempotent: bool | None = None,
        allow_duplicates: bool = False,
        unseen_code: UnseenCodeLike | None = None,
        ignore_changes_in: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        of_types: dict[str, object] = {
            "idempotent": idempotent,
            "allow_duplicates": allow_duplicates,
            "require_success_file": require_success_file,
            "verify_max_bytes": verify_max_bytes,
            "verify_timeout": verify_timeout,
            "unseen_code": unseen_code,
            "ignore_changes_in": ignore_changes_in,
        }
        check_arguments(DropInOperator.__init__, of_types, where)
        refuse_mapped_group(kwargs.get("task_group"), where)
        super().__init__(**kwargs)
        self.ignore_changes_in = tuple(ignore_changes_in)
        self._job: DropInApplication | None = None
        self._unseen = ""
        self._as_written: dict[str, Any] = {}
        self.outputs = checked_outputs(self.task_id, outputs, may_be_none=self.writes_elsewhere)
        # Airflow renders `outputs` in the operator's own task alone. What another task returns is its template.
        self.declared_outputs = {name: None if uri is None else str(uri) for name, uri in self.outputs.items()}
        check_targets(self.task_id, self.outputs, outputs_of(self.get_dag(), self.task_id))
        self.commit = checked_commit(self.task_id, commit, self.outputs)
        self._check_sinks()
        self.inputs = checked_inputs(self.task_id, inputs)
        self.add_inlets(assets_in(inputs))
        self.on_altered = _one_of(OnAltered, on_altered, self.task_id, "on_altered")
        self.on_unfinished = _one_of(OnUnfinished, on_unfinished, self.task_id, "on_unfinished")
        self.require_success_file = require_success_file
        self.determinism = _checked_determinism(self.task_id, deterministic)
        self.read_limits = _checked_limits(self.task_id, deterministic, verify_max_bytes, verify_timeout)
        self.allow_duplicates = allow_duplicates
        self.unseen_code = None if unseen_code is None else UnseenCode(unseen_code)
        self.idempotent = idempotent
        if not allow_duplicates:
            self._check_idempotent(idempotent)
        self._check_placeholders()
        self._check_settings()
        self._check_read_and_written()
        for name, reference in self.drop_in.references.items():
            producer = self._producer(name, reference)
            if producer.recovers is not self.recovers:
                raise JobDefinitionError(
                    f"{self.task_id}: reads {reference.task_id!r}, and recovery is on for one of them and off for the "
                    "other: neither would find what the other has made. Give all operators of a DAG the same "
                    "job_recovery=.",
                    code="recovery-on-and-off",
                    producer=reference.task_id,
                )
            if producer.commit is not None:
                raise JobDefinitionError(
                    f"{self.task_id}: expected input {name!r} to be an output that is not committed, found that of "
                    f"{reference.task_id!r}, which has commit=: its rows are the target's then. Have them written by "
                    "an operator without commit=, and read that one from both.",
                    code="input-is-committed",
                    task=self.task_id,
                    input=name,
                    producer=reference.task_id,
                )
            self.set_upstream(producer)
        self._order_by_places()

    def result(self, name: str, *, optional: bool = False) -> OutputReference:
        """This operator's output ``name``, to be given as another operator's input. Raises `JobDefinitionError`.

        ``optional``: the reader runs without it where this operator was skipped in the DAG run, or has failed, and the
        reader's trigger rule (such as ``none_failed_min_one_success``) starts it all the same. ``{input:...}`` is then
        an empty text.
        """
        if name not in self.outputs:
            raise JobDefinitionError(
                f"{self.task_id} has no output {name!r}; it has {', '.join(self.outputs)}.",
                code="output-unknown",
                task=self.task_id,
                output=name,
            )
        return OutputReference(self.task_id, name, optional)

    def resolve_template_files(self) -> None:
        """As Airflow's, which calls it once the whole DAG is known: so what depends on other tasks is checked here."""
        super().resolve_template_files()
        self._check_trigger_rule()
        if self.recovers:
            self._warn_of_unseen()
        self._as_written = {name: getattr(self, name, None) for name in self.template_fields}

    def _check_trigger_rule(self) -> None:
        """Raise `JobDefinitionError` where a branch may skip an input, and this task would be started without it."""
        references, rule = self.drop_in.references, TriggerRule(self.trigger_rule).value
        if rule not in RUNS_AFTER_SKIPS or any(each.optional for each in references.values()):
            return
        for name, reference in references.items():
            before = self._producer(name, reference).get_flat_relatives(upstream=True)
            branches = [task for task in before if task.inherits_from_skipmixin]
            if branches:
                raise JobDefinitionError(
                    f"{self.task_id}: input {name!r} is made by {reference.task_id}, which {branches[0].task_id} may "
                    f"skip, and by the trigger rule {rule!r} Airflow starts {self.task_id} all the "
                    f"same. Say .result({reference.name!r}, optional=True) where it can do without, or leave the "
                    "trigger rule out: then it is skipped as well.",
                    code="input-may-be-skipped",
                    task=self.task_id,
                    input=name,
                    producer=reference.task_id,
                )

    @property
    def drop_in(self) -> DropIn:
        """What is declared, as it is rendered by now."""
        return DropIn(
            task_id=self.task_id,
            outputs=self.outputs,
            inputs=self.inputs,
            declared_outputs=self.declared_outputs,
            commit=self.commit,
            on_altered=self.on_altered,
            require_success_file=self.require_success_file,
            on_unfinished=self.on_unfinished,
            determinism=self.determinism,
            read_limits=self.read_limits,
            allow_duplicates=self.allow_duplicates,
            recovers=self.recovers,
            told=placeholders([getattr(self, name, None) for name in self.placeholder_fields]),
            pushes_return_value=self.do_xcom_push,
        )

    @abstractmethod
    def computes(self, code: ApplicationCode | None = None) -> dict[str, Any]:
        """What the job computes, as far as it can be told, as JSON values. As the operator is rendered by now.

        ``code`` reads the job's files; without it only files of this machine are read.
        """

    def _warn_of_unseen(self) -> None:
        try:
            names = unseen_by_name(self, self.code_places())
        except Exception as error:  # a field that only Airflow renders, such as an XComArg in place of a list
            log.debug("What code %s names is not known before it is rendered: %s", self.task_id, error)
        else:
            warn_of_unseen(self.dag_id, self.task_id, names)

    def code_places(self) -> list[Place]:
        """Where the job's code lies, by its fields as they are by now. Nothing is read."""
        return []

    def declared(self, root: str) -> str | None:
        """32 hex digits for what the job `computes`, before Airflow renders it; `None` if that can't be told.

        Another task of the DAG gets the same digits from the same DAG file and local files. ``root``: the folder of the
        DAG bundle, which other workers and versions have elsewhere.
        """
        written = copy.copy(self)
        vars(written).update({name: as_written(value) for name, value in self._as_written.items()})
        try:
            document = {"class": f"{type(self).__module__}.{type(self).__qualname__}", **written.computes()}
            return digest_of(without_folder(document, root))[:32]
        except Exception as error:  # whatever a user's own operator raises that is not rendered
            log.debug("What %s declares has no digest: %s", self.task_id, error)
            return None

    def fingerprint(self) -> str:
        """32 hex digits for what the job `computes`, once Airflow has rendered it."""
        return self.fingerprint_of(self.computes())

    @staticmethod
    def fingerprint_of(document: dict[str, Any]) -> str:
        """32 hex digits for what a job `computes`."""
        return fingerprint_of(DropInOperator.components_of(document))

    @staticmethod
    def components_of(document: dict[str, Any]) -> tuple[Component, ...]:
        """The components of the fingerprint of what a job `computes`."""
        from airflow_recovery.task.operator_components import components_of_document

        return components_of_document(document)

    def computes_in(self, context: Context, code: ApplicationCode | None = None) -> dict[str, Any]:
        """What the job `computes`, with the values that its function takes from Airflow's context by name."""
        from airflow_recovery.task.drop_in_operator import context_of

        taken = context_of(self, context, code)
        return {**self.computes(code), **({"context": taken} if taken else {})}

    @abstractmethod
    def new_application(self, opened: OpenRun, context: Context) -> DropInApplication:
        """What runs the attempts of this try."""

    def execute_region(self, context: Context) -> RegionResult:
        """One try: plan the DAG's operators, open the run, and go through the protocol. Raises our own errors."""
        from airflow_recovery.attempt.release import release_consumed
        from airflow_recovery.hooks.tables import tables_of
        from airflow_recovery.model.keys import OPERATORS_GROUP
        from airflow_recovery.task.application_code import ApplicationCode
        from airflow_recovery.task.dag_operators import on_altered_of, plan_of_dag, publish_tasks_of
        from airflow_recovery.task.dag_read_again import declared_now, declared_operators
        from airflow_recovery.task.open_run import RunPlace, open_run
        from airflow_recovery.task.written_places import check_settings

        self.check_rendered()
        refuse_mapped(context)
        die_with_supervisor()
        dag = self.get_dag()
        place = RunPlace.of(context, OPERATORS_GROUP, self.job_recovery, dag=dag)
        check_settings(self, place.stores.check)
        code = ApplicationCode(self, place.stores if self.recovers else None)
        computes = self.computes_in(context, code)
        self._log_other_runs(dag)
        components = (*self.components_of(computes), *bundle_version(place.code_version))
        fingerprints = {self.task_id: fingerprint_of(components)}
        self._unseen = ", ".join(component.name for component in unseen_in(components))
        if self._unseen:
            log.warning("%s: %s", self.task_id, _UNSEEN.format(self._unseen))
        rendered = {name: value for name, value in computes.items() if name != "fields"} | computes.get("fields", {})
        plan = plan_of_dag(dag)
        task_keys = {region.name: region.name for region in plan.regions}
        with open_run(
            context,
            place,
            plan,
            task_keys,
            log,
            on_altered=on_altered_of(dag),
            publish_keys=publish_tasks_of(dag),
            fingerprints=fingerprints,
            fields={self.task_id: rendered},
            components_of=lambda region: components if region == self.task_id else (),
            declared=declared_operators(dag),
            xcoms_counted=self.xcoms_counted,
        ) as opened:
            self._application = self._job = application = self.new_application(opened, context)
            if self.recovers:
                application.code = code
                application.declared_now = partial(declared_now, dag, self.task_id)
            task = RegionTask(
                opened.run,
                self.task_id,
                application,
                epoch=recompute_epoch(context),
                prepare_journal=opened.prepare_journal,
                restarts=self.restarts(opened.run, self.task_id),
                label=self.labeller(),
                unseen_code=self.unseen_code or opened.settings.unseen_code,
            )
            result = self._with_what_others_judge(task.execute())
            self.remember_lineage(opened.run, result)
            tables = tables_of(opened.stores)
            release_consumed(opened.run, self.task_id, opened.stores.results, opened.settings.retention, tables)
            return result

    def _log_other_runs(self, dag: Any) -> None:
        """``dag`` has the templates; this task is rendered."""
        declared = dag.task_dict.get(self.task_id) if dag is not None else None
        for field in self.placeholder_fields if self.recovers else ():
            names = over_other_runs(getattr(declared, field, None))
            if names:
                log.info(
                    "%s: %s is a template over the states of other runs (%s): the task runs again if they change.",
                    self.task_id,
                    field,
                    ", ".join(names),
                )

    def more_to_note(self) -> str | None:
        """Code of the job that can't be seen, and files that the job seems to write."""
        unseen = f"can't be seen: {self._unseen}" if self._unseen else ""
        return "; ".join(filter(None, (unseen, self._job.made if self._job is not None else ""))) or None

    def _with_what_others_judge(self, result: RegionResult) -> RegionResult:
        """``result``, whose note says what this task can't see of the operators that it reads, unless it ran first."""
        producers = ", ".join(dict.fromkeys(reference.task_id for reference in self.drop_in.references.values()))
        if not producers or (result.decision is Decision.RAN and result.attempt == 1):
            return result
        unseen = f"only its own try can judge the rendered arguments of {producers}, and code behind a URI"
        return replace(result, why=f"{result.why}; {unseen}")

    def leave_in_airflow(self, context: Context, result: RegionResult | BatchResult) -> Any:
        """As `RecoveringOperator.leave_in_airflow`; a kept try also leaves what the kept attempt has left."""
        if self._job is not None and result.decision is Decision.KEPT:
            self._job.leave_again()
        return super().leave_in_airflow(context, result)

    def check_rendered(self) -> None:
        """What was declared, once more: templates have been rendered since. Raises `JobDefinitionError`."""
        for field, places in (("inputs", self.inputs), ("outputs", self.outputs)):
            check_no_address([uri for uri in places.values() if isinstance(uri, str)], f"{self.task_id}, {field}")
        self.outputs = checked_outputs(self.task_id, self.outputs, may_be_none=self.writes_elsewhere)
        self.inputs = checked_inputs(self.task_id, self.inputs)
        self._check_placeholders(is_rendered=True)
        self._check_settings()
        self._check_read_and_written(is_rendered=True)

    def how_it_appends(self) -> str | None:
        """What in the job's code would write a second time, where its code can be seen."""
        return None

    def application_file(self) -> Path | None:
        """The job's Python file, where it is one of this machine."""
        return None

    def _check_settings(self) -> None:
        """What is seen of the job's settings must go with its outputs, unless the user knows better."""
        if self.idempotent is not True:
            names = (name for name in self.template_fields if name not in ("inputs", "outputs"))
            fields = {name: getattr(self, name, None) for name in names}
            check_settings(self.task_id, fields, self.declared_outputs, self.application_file())

    def _check_idempotent(self, idempotent: bool | None) -> None:
        """What is appended to a user's own location by an attempt that died stays there (fault 80)."""
        fixed = [name for name, uri in self.outputs.items() if uri is not None]
        seen = self.how_it_appends() if idempotent is None and (fixed or not self.outputs) else None
        if idempotent is False or seen is not None:
            where = f" for output {fixed[0]!r} at a location of its own" if fixed else ""
            raise JobDefinitionError(
                f"{self.task_id}: expected an application that can run again{where}, found "
                f"{seen or 'idempotent=False'}: an attempt that dies after it has written is run again, and writes "
                "once more. Overwrite a place that no other date writes to (.../day={{ ds }}); or name the output "
                "without a URI, so that each attempt has a place of its own; or say idempotent=True where a second "
                "time changes nothing, or allow_duplicates=True where its readers can live with both.",
                code="application-cannot-run-again",
                task=self.task_id,
            )

    def _check_placeholders(self, *, is_rendered: bool = False) -> None:
        fields = {name: getattr(self, name, None) for name in self.placeholder_fields}
        uris = self._uris_read()
        check_placeholders(
            self.task_id,
            fields,
            self.outputs,
            self.inputs,
            is_rendered=is_rendered,
            template_files=self.template_ext,
            tables_read=[name for name, uri in uris.items() if is_table(uri)],
            perhaps_read=[name for name, uri in uris.items() if may_become_table(uri) or is_stated(uri)],
            marks_commits=self.marks_commits,
        )

    def _check_read_and_written(self, *, is_rendered: bool = False) -> None:
        """What another operator makes is where it declares that, or, once it has run, where it was registered."""
        references = {name: read for name, read in self.inputs.items() if isinstance(read, OutputReference)}
        made_at = {
            name: self._producer(name, read).declared_outputs.get(read.name) for name, read in references.items()
        }
        check_read_and_written(self.task_id, self.inputs, self.outputs, self.commit, made_at, is_rendered=is_rendered)

    def _uris_read(self) -> dict[str, str | None]:
        """Where the inputs are, as far as that is known by now: of another operator's output, as it is declared."""
        return {
            name: self._producer(name, declared).declared_outputs.get(declared.name)
            if isinstance(declared, OutputReference)
            else declared
            for name, declared in self.inputs.items()
        }

    def _order_by_places(self) -> None:
        """Run after the tasks that write where this one reads by URI, and before those that read so what it writes."""
        dag = self.get_dag()
        others = {
            task.task_id: task
            for task in (dag.task_dict.values() if dag is not None else ())
            if isinstance(task, DropInOperator) and task.task_id != self.task_id
        }
        behind = written_by(self.inputs, {name: task._places() for name, task in others.items()})
        for task_id in sorted(behind - self.upstream_task_ids):
            self.set_upstream(others[task_id])
        for other in others.values():
            if written_by(other.inputs, {self.task_id: self._places()}):
                self.set_downstream(other)

    def _places(self) -> list[str]:
        """The places where the job writes, or where its output is committed."""
        written = [uri for uri in self.outputs.values() if isinstance(uri, str)]
        target = getattr(self.commit, "uri", None)
        return [*written, *([target] if isinstance(target, str) else [])]

    def _check_sinks(self) -> None:
        """Against the sinks of the DAG, and its fixed outputs, which are tables of the same kind."""
        dag = self.get_dag()
        others = [] if dag is None else [(where, sink) for where, sink in sinks_of(dag) if where != self.task_id]
        tables = {where: {"commit=": sink.place} for where, sink in others if is_table(sink.place)}
        check_targets(self.task_id, self.outputs, tables)
        if self.commit is not None:
            own = self.commit.place
            check_targets(self.task_id, {"commit=": own if is_table(own) else None}, outputs_of(dag, self.task_id))
            check_sinks_apart([*others, (self.task_id, self.commit)])

    def _producer(self, name: str, reference: OutputReference) -> DropInOperator:
        dag = self.get_dag()
        producer = dag.task_dict.get(reference.task_id) if dag is not None else None
        if not isinstance(producer, DropInOperator) or reference.name not in producer.outputs:
            raise JobDefinitionError(
                f"{self.task_id}: input {name!r} is output {reference.name!r} of {reference.task_id!r}, which is no "
                "recoverable operator with that output in this DAG. A result of another DAG is declared with "
                "published('dag', 'task.output').",
                code="input-of-no-operator",
            )
        return producer


@cache
def warn_of_unseen(dag_id: str, task_id: str, names: tuple[str, ...]) -> None:
    """Log the names of code that can't be seen, once in a process: a DAG file may be read again."""
    if names:
        log.warning("%s.%s: %s", dag_id, task_id, _UNSEEN.format(", ".join(names)))


def _one_of(choice: type[_Choice], given: object, task_id: str, option: str) -> _Choice:
    try:
        return choice(given)
    except ValueError as error:
        expected = " or ".join(repr(each.value) for each in choice)
        raise JobDefinitionError(
            f"{task_id}: expected {option} to be {expected}, found {given!r}.", code="option-unfit", option=option
        ) from error


def _checked_determinism(task_id: str, value: object) -> Determinism:
    try:
        return Determinism.VERIFY if value is None else Determinism(value)
    except ValueError as error:
        raise JobDefinitionError(
            f"{task_id}: expected deterministic to be 'always', 'verify' or 'assume', found {value!r}.",
            code="deterministic-unfit",
        ) from error


def _checked_limits(
    task_id: str, deterministic: object, max_bytes: int | None, timeout: timedelta | float | None
) -> ReadLimits | None:
    limits = {"verify_max_bytes": max_bytes, "verify_timeout": timeout}
    if deterministic != Determinism.VERIFY:
        useless = [name for name, value in limits.items() if value is not None]
        if useless:
            raise JobDefinitionError(
                f"{task_id}: expected {useless[0]}= with deterministic='verify' alone, found it with "
                f"deterministic={deterministic!r}: no rows are read then. Say 'verify', or leave it out.",
                code="verify-option-useless",
            )
        return UNASKED_LIMITS if deterministic is None else None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    for name, value in (("verify_max_bytes", max_bytes), ("verify_timeout", seconds)):
        if value is not None and value <= 0:
            raise JobDefinitionError(
                f"{task_id}: expected {name} above 0, found {limits[name]!r}: leave out deterministic='verify' if no "
                "rows are to be read.",
                code="verify-limit-not-above-0",
            )
    return ReadLimits(
        VERIFY_MAX_BYTES if max_bytes is None else max_bytes, VERIFY_TIMEOUT_S if seconds is None else float(seconds)
    )
