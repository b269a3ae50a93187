"""What a bucket does by itself: it deletes or archives objects by age (fault 29), and keeps deleted ones (fault 383).

The first is an ordinary loss, with a cause that a user can remove. The second is a deletion that deletes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import StoreError
from airflow_recovery.store.object_store import ObjectStore


@dataclass(frozen=True)
class ExpiryRule:
    """A rule of the bucket that deletes objects below ``prefix`` (of the bucket) when they are ``days`` old.

    ``archive``: the storage class to which it moves them in place of that, in which they can't be read.
    """

    name: str
    prefix: str
    days: int
    archive: str = ""


def rules_over(store: ObjectStore, location: str) -> tuple[ExpiryRule, ...]:
    """The bucket's rules that delete or archive objects at ``location`` by age, the shortest first.

    Best effort: () where the store has none, or does not say. It is an explanation, and decides nothing.
    """
    expiry_rules = getattr(store, "expiry_rules", None)
    if expiry_rules is None:
        return ()
    path = location.partition("://")[2].partition("/")[2]
    try:
        rules = [rule for rule in expiry_rules() if path.startswith(rule.prefix)]
    except StoreError:
        return ()
    return tuple(sorted(rules, key=lambda rule: rule.days))


def rule_text(rule: ExpiryRule) -> str:
    """The rule as a clause of a message: its name, the age in days, and its prefix if it has one."""
    where = f" below {rule.prefix!r}" if rule.prefix else ""
    to = f" to {rule.archive}" if rule.archive else ""
    does = "moves" if rule.archive else "deletes"
    return f"the bucket's lifecycle rule {rule.name!r} {does} what is older than {rule.days} days{where}{to}"


def kept_after_deletion(store: ObjectStore) -> str:
    """Return why objects that are deleted in ``store`` stay readable, or may; empty if they are gone.

    One request to a bucket at most. Does not fail: if the bucket gives no answer, the text says so.
    """
    keeps_deleted = getattr(store, "keeps_deleted", None)
    return keeps_deleted() if keeps_deleted is not None else ""
