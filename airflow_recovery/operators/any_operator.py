"""Any operator that starts a job and waits for it, as one recoverable vertex: ``recoverable(LivyOperator)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow.sdk import BaseOperator, SkipMixin

from airflow_recovery.checks import check_arguments, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.operators.drop_in import DropInOperator
from airflow_recovery.operators.recovering import RecoveringOperator
from airflow_recovery.operators.resumable import SubmitsThenAsks
from airflow_recovery.task.code_places import Place, places_of_operator
from airflow_recovery.task.left_in_airflow import SUMMARY_KEY
from airflow_recovery.task.references import PathStyle
from airflow_recovery.task.run_context import refuse_expand

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.attempt.region_task import RegionResult
    from airflow_recovery.task.application_code import ApplicationCode
    from airflow_recovery.task.drop_in import DropInApplication
    from airflow_recovery.task.open_run import OpenRun
    from airflow_recovery.task.subtask_batch import BatchResult

_PROVIDER = "airflow.providers.apache.spark.operators"
_OWN_CLASSES = {
    f"{_PROVIDER}.spark_submit.SparkSubmitOperator": (
        "airflow_recovery.operators.spark_submit.RecoverableSparkSubmitOperator"
    ),
    f"{_PROVIDER}.spark_jdbc.SparkJDBCOperator": "airflow_recovery.operators.spark_jdbc.RecoverableSparkJDBCOperator",
    f"{_PROVIDER}.spark_pipelines.SparkPipelinesOperator": (
        "airflow_recovery.operators.spark_pipelines.RecoverableSparkPipelinesOperator"
    ),
}
"""Operators that need a class of their own."""
_AMAZON, _GOOGLE = "airflow.providers.amazon.aws.operators.emr", "airflow.providers.google.cloud.operators.dataproc"
_RESUMABLE = {
    f"{_AMAZON}.EmrAddStepsOperator": "airflow_recovery.operators.emr.ResumableEmrAddStepsOperator",
    f"{_AMAZON}.EmrServerlessStartJobOperator": "airflow_recovery.operators.emr.ResumableEmrServerlessStartJobOperator",
    f"{_GOOGLE}.DataprocSubmitJobOperator": "airflow_recovery.operators.dataproc.ResumableDataprocSubmitJobOperator",
    f"{_GOOGLE}.DataprocCreateBatchOperator": (
        "airflow_recovery.operators.dataproc.ResumableDataprocCreateBatchOperator"
    ),
}
"""Operators whose jobs outlive a lost worker, and which have no ``ResumableJobMixin``: the same with one."""
_WAITS = {"wait_for_completion": True, "wait_for_termination": True, "asynchronous": False}
"""Attributes by which operators of the common providers say whether they wait for their job, and what waits."""
_POLLS = ("_polling_interval",)
"""Attributes with which they wait where they are above 0 (Livy)."""


def recoverable(
    operator: type[BaseOperator] | Callable[..., Any],
    fields: Sequence[str] | None = None,
    paths: PathStyle = "spark",
) -> Any:
    """A class like ``operator`` whose job is one vertex, with ``outputs=`` and the others of `DropInOperator`.

    ::

        clean = recoverable(LivyOperator)(
            task_id="clean", file="s3://code/clean.py", polling_interval=10, outputs=["cleaned"],
            args=["--day", "{{ ds }}", "--out", "{output:cleaned}"],
        )

    The operator must wait for its job in the worker: one that only starts it, or defers, is refused. It is run as it
    is, with its placeholders filled, once the attempt is claimed, and ended by its own `on_kill`. Where it waits by
    Airflow's ``ResumableJobMixin``, its job outlives a lost worker, and the next try waits for it.

    Of a task's decorator (``recoverable(task.pyspark)``), the same decorator, to be called with its options.

    :param operator: the class of an operator, or one of Airflow's decorators.
    :param fields: the templated fields that belong to the job: placeholders are filled in them, and as Airflow has
        rendered them they make the fingerprint. All of the operator's, where nothing is said.
    :param paths: how a place is written there. ``"spark"``: as Hadoop's file systems name it (``s3a://``).
        ``"plain"``: ``s3://``, as on EMR and in a shell; a folder by its path alone.

    What such an operator can't have is in docs/operators.md. Raises `JobDefinitionError` for what is no operator, or
    one without such fields.
    """
    check_arguments(recoverable, {"fields": fields, "paths": paths}, "recoverable")
    if inspect.isclass(operator) and issubclass(operator, BaseOperator):
        return _recoverable_class(operator, None if fields is None else tuple(fields), paths)
    if not callable(operator) or inspect.isclass(operator):
        raise JobDefinitionError(
            "recoverable: expected the class of an operator, or a decorator like task.pyspark, found "
            f"{shown(operator)}: write recoverable(LivyOperator)(task_id=..., outputs=...)",
            code="recoverable-no-operator",
        )

    def with_options(*functions: object, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        if functions:
            raise JobDefinitionError(
                f"recoverable: expected the decorator's options, found {shown(functions[0])}: write "
                "@recoverable(task.pyspark)(outputs=[...]) above the function",
                code="recoverable-no-options",
            )

        def decorate(function: Callable[..., Any]) -> Any:
            decorated = cast("Any", operator)(function)
            decorated.operator_class = recoverable(decorated.operator_class, fields, paths)
            # The decorator passes this to its operator by itself: as given, or as the function's annotation says.
            decorated.multiple_outputs = options.get("multiple_outputs", decorated.multiple_outputs)
            decorated.kwargs.update({name: value for name, value in options.items() if name != "multiple_outputs"})
            decorated.__class__ = _never_mapped(cast("Any", type(decorated)))
            return decorated

        return decorate

    return with_options


class RecoverableOperator(DropInOperator):
    """Base of what `recoverable` returns, beside the user's operator."""

    operator_class: type[BaseOperator]
    """What an attempt is run as: the user's operator, or what finds its jobs again."""
    declared_class: type[BaseOperator] | None = None
    """What the user has named, where that is another one."""
    paths: PathStyle
    fingerprint_fields: Sequence[str] = ()
    """The attributes that make the fingerprint; none: those in which placeholders are filled."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._check_waits()

    def computes(self, code: ApplicationCode | None = None) -> dict[str, Any]:
        """See `operator_document`."""
        from airflow_recovery.task.drop_in_operator import operator_document

        return operator_document(
            self,
            self.declared_class or self.operator_class,
            self.fingerprint_fields or self.placeholder_fields,
            self.drop_in,
            code,
        )

    def code_places(self) -> list[Place]:
        """As `DropInOperator.code_places`."""
        fields = self.fingerprint_fields or self.placeholder_fields
        return places_of_operator(self, self.declared_class or self.operator_class, fields)

    def check_rendered(self) -> None:
        """As `DropInOperator.check_rendered`, and whether the operator waits."""
        super().check_rendered()
        self._check_waits()

    def leave_in_airflow(self, context: Context, result: RegionResult | BatchResult) -> Any:
        """As `DropInOperator.leave_in_airflow`. Returns what the operator itself has returned.

        What recovery did is an XCom of its own.
        """
        summary = super().leave_in_airflow(context, result)
        if self.do_xcom_push:
            context["ti"].xcom_push(key=SUMMARY_KEY, value=summary)
        return self._job.returned if self._job is not None else None

    def new_application(self, opened: OpenRun, context: Context) -> DropInApplication:
        """Copies of this operator, without its recovery."""
        from airflow_recovery.task.drop_in_operator import DropInOperatorJob

        return DropInOperatorJob(
            self.drop_in,
            opened,
            self,
            self.operator_class,
            fields=self.placeholder_fields,
            paths=self.paths,
            context=context,
            is_killed=lambda: self.is_killed,
        )

    def _check_waits(self) -> None:
        """Its outputs are registered when it has ended: a job that goes on would still write."""
        attributes = vars(self)
        name = (self.declared_class or self.operator_class).__name__
        if attributes.get("deferrable") is True:
            raise JobDefinitionError(
                f"{self.task_id}: expected deferrable=False of a recoverable {name}, found True: a task that waits in "
                "the triggerer is another process when it comes back, and its attempt would have ended. Say "
                "deferrable=False, also where [operators] default_deferrable is on: it waits in the worker.",
                code="operator-defers",
            )
        for attribute, waits in _WAITS.items():
            if isinstance(attributes.get(attribute), bool) and attributes[attribute] is not waits:
                raise JobDefinitionError(
                    f"{self.task_id}: expected a {name} that waits for its job, found {attribute}={not waits}: its "
                    f"outputs would be registered while the job still writes them. Say {attribute}={waits}.",
                    code="operator-does-not-wait",
                )
        for attribute in _POLLS:
            value = attributes.get(attribute)
            if isinstance(value, (int, float)) and value <= 0:
                raise JobDefinitionError(
                    f"{self.task_id}: expected a {name} that waits for its job, found {attribute.strip('_')}={value}: "
                    "its outputs would be registered while the job still writes them. Say how many seconds are between "
                    "two questions.",
                    code="operator-never-polls",
                )
        named = self.names_its_job() if isinstance(self, SubmitsThenAsks) else None
        if named is not None:
            raise JobDefinitionError(
                f"{self.task_id}: expected a {name} that leaves its job's name to the service, found {named}: a second "
                "attempt would be refused, or given the first one's job. Leave it out."
            )


@cache
def _never_mapped(decorator: type) -> type:
    """The class of a decorated function whose ``.expand(...)`` is refused, also of its ``.override(...)``."""

    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        refuse_expand(self.operator_class.__name__, self.kwargs.get("task_id"), ".expand(...)")

    return type(decorator.__name__, (decorator,), {"expand": refuse, "expand_kwargs": refuse})


@cache
def _recoverable_class(operator: type[BaseOperator], fields: tuple[str, ...] | None, paths: PathStyle) -> type:
    name = operator.__name__
    if issubclass(operator, RecoveringOperator):
        raise JobDefinitionError(
            f"recoverable: expected an operator without recovery, found {name}: use it as it is",
            code="recoverable-already",
        )
    if issubclass(operator, SkipMixin):
        raise JobDefinitionError(
            f"recoverable: expected an operator that runs a job, found {name}, which skips other tasks: a try that "
            "keeps its result would skip nobody. Let an operator without recovery decide, by what the recoverable one "
            "has made",
            code="recoverable-skips-others",
        )
    path = f"{operator.__module__}.{name}"
    own = _OWN_CLASSES.get(path)
    if own is not None:
        if fields is not None or paths != "spark":
            raise JobDefinitionError(
                f"recoverable: expected {name} without fields= and paths=, found them: it has a recoverable class of "
                "its own, which says where placeholders stand. Leave them out"
            )
        return _imported(own)
    templated = tuple(operator.template_fields)
    unfit = [field for field in fields or () if field not in templated]
    if unfit or not (templated if fields is None else fields):
        raise JobDefinitionError(
            f"recoverable: expected fields of {name} that Airflow renders ({', '.join(templated) or 'it has none'}), "
            f"found {unfit[0] if unfit else 'none'!r}: a placeholder can stand in no other.",
            code="recoverable-fields-not-rendered",
        )
    taken = [ours for ours in _taken_names() if ours in inspect.signature(inspect.unwrap(operator.__init__)).parameters]
    if taken:
        raise JobDefinitionError(
            f"recoverable: {name} has an argument {taken[0]}= of its own, which would mean two things: make a subclass "
            "of it that takes it by another name",
            code="recoverable-argument-taken",
        )
    run_as = _imported(_RESUMABLE[path]) if path in _RESUMABLE else operator
    links = operator.operator_extra_links
    members: dict[str, Any] = {
        "__module__": operator.__module__,
        "__doc__": f"`{name}` as one recoverable vertex: see `airflow_recovery.operators.any_operator`.",
        "operator_class": run_as,
        "declared_class": None if run_as is operator else operator,
        "paths": paths,
        "template_fields": (*templated, "inputs", "outputs"),
        "placeholder_fields": templated if fields is None else fields,
    }
    if not isinstance(links, property):  # else the operator's own, whatever they are for its arguments
        members["operator_extra_links"] = (*RecoveringOperator.operator_extra_links, *links)
    metaclass: Any = type(operator)
    return cast("type", metaclass(f"Recoverable{name}", (RecoverableOperator, run_as), members))


def _imported(path: str) -> type:
    module, _, name = path.rpartition(".")
    return cast("type", getattr(import_module(module), name))


def _taken_names() -> set[str]:
    """The arguments that are ours alone; ``retries`` and the like are Airflow's as well."""
    ours: set[str] = set()
    for base in (DropInOperator, RecoveringOperator):
        ours |= set(inspect.signature(inspect.unwrap(base.__init__)).parameters)
    return ours - set(inspect.signature(inspect.unwrap(BaseOperator.__init__)).parameters) - {"self", "kwargs"}
