"""Failure enrichers, as in Flink (FLIP-304): a user's own labels on a failure.

::

    class CostCentre:
        output_keys = frozenset({"team"})

        def process_failure(self, failure):
            return {"team": "routes" if failure.vertex == "by_route" else "base"}

    [recovery]
    failure_enrichers = my_company.failures.CostCentre

The labels land in the journal (the attempt's outcome) and in its event. Nothing is decided by them, and one that fails
is logged and left out: an enricher never makes a failure worse.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Protocol

from airflow_recovery.driver.failure_class import CLASS_LABEL, MEMORY_LABEL, RECOVERABLE_LABEL, labelled
from airflow_recovery.errors import ConfigurationError, Failure

RESERVED = frozenset({CLASS_LABEL, RECOVERABLE_LABEL, MEMORY_LABEL})
MAX_LABEL_CHARACTERS = 200


class FailureEnricher(Protocol):
    """A user's own class that labels failures. ``output_keys``: the only keys that it may give."""

    output_keys: frozenset[str]

    def process_failure(self, failure: Failure) -> Mapping[str, str]:
        """Labels for one failure, which has our labels already. Called in the task's process; should be quick."""
        ...


def load_enrichers(names: Iterable[str]) -> tuple[FailureEnricher, ...]:
    """Enrichers by the dotted names of their classes.

    Raises `ConfigurationError` where one can't be imported or made, gives no ``output_keys``, or gives a key that is
    ours or that another one gives.
    """
    enrichers: list[FailureEnricher] = []
    taken = dict.fromkeys(RESERVED, "airflow-recovery")
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            enricher: FailureEnricher = getattr(import_module(module), attribute)()
            keys = frozenset(enricher.output_keys)
            enricher.process_failure  # noqa: B018 - is it there?
        except Exception as error:
            raise ConfigurationError(
                f"[recovery] failure_enrichers: expected the dotted name of a class with output_keys and "
                f"process_failure, found {name!r}: {error!r}.",
                code="failure-enricher-unfit",
            ) from error
        for key in sorted(keys & taken.keys()):
            raise ConfigurationError(
                f"[recovery] failure_enrichers: {name} gives {key!r}, which is {taken[key]}'s.",
                code="failure-enricher-key-taken",
            )
        taken.update(dict.fromkeys(keys, name))
        enrichers.append(enricher)
    return tuple(enrichers)


def enrich(failure: Failure, enrichers: Sequence[FailureEnricher], log: logging.Logger) -> Failure:
    """``failure`` with the built-in labels and those of ``enrichers``. Raises nothing: a failing enricher is logged."""
    labelled_failure = labelled(failure)
    labels = dict(labelled_failure.labels)
    for enricher in enrichers:
        name = type(enricher).__name__
        try:
            enriched = {
                str(key): str(value)[:MAX_LABEL_CHARACTERS]
                for key, value in enricher.process_failure(labelled_failure).items()
            }
        except Exception:
            log.exception("Failure enricher %s failed; the failure is recorded without its labels.", name)
            continue
        foreign = sorted(enriched.keys() - enricher.output_keys)
        if foreign:
            log.warning("Failure enricher %s gave %s, which is not among its output_keys: left out.", name, foreign)
        labels |= {key: value for key, value in enriched.items() if key in enricher.output_keys}
    return replace(labelled_failure, labels=tuple(sorted(labels.items())))
