"""IAM policies held against the requests that are really made: nothing less is enough, nothing more is written down."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.s3_proxy import Answer, S3Request

_ARN = "arn:aws:s3:::"
_DOCUMENTED = re.compile(r"<!-- policy: ([\w-]+) -->\n```json\n(.*?)```", re.DOTALL)
_CONDITION = "StringLikeIfExists"


@dataclass(frozen=True)
class Statement:
    """One ``Allow``. ``resources`` are ``bucket`` or ``bucket/key`` patterns.

    ``prefixes`` are those that a listing may ask for; it holds for no request that names none.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    prefixes: tuple[str, ...] | None = None

    def allows(self, action: str, resource: str, prefix: str | None) -> bool:
        """Whether IAM would allow it by this statement. ``prefix`` is `None` where the request names none."""
        return (
            action in self.actions
            and _fits(resource, self.resources)
            and (self.prefixes is None or prefix is None or _fits(prefix, self.prefixes))
        )


def documented(text: str) -> dict[str, tuple[Statement, ...]]:
    """The policies of a page of documentation, by name: JSON blocks below ``<!-- policy: NAME -->``."""
    return {name: statements(json.loads(document)) for name, document in _DOCUMENTED.findall(text)}


def statements(document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """The statements of a policy document.

    Of IAM's language only what our documents use: ``Allow``, lists of S3 actions without wildcards and of ARNs, and the
    condition ``StringLikeIfExists`` on ``s3:prefix``. Raises `ValueError` for anything else.
    """
    statements = []
    for statement in document["Statement"]:
        condition = statement.get("Condition", {_CONDITION: {"s3:prefix": None}})
        if (
            statement.keys() - {"Effect", "Action", "Resource", "Condition"}
            or statement["Effect"] != "Allow"
            or any("*" in action for action in statement["Action"])
            or list(condition) != [_CONDITION]
            or list(condition[_CONDITION]) != ["s3:prefix"]
        ):
            raise ValueError(
                f"expected an Allow of plain actions, with {_CONDITION} on s3:prefix at most, found {statement}"
            )
        prefixes = condition[_CONDITION]["s3:prefix"]
        resources = tuple(resource.removeprefix(_ARN) for resource in statement["Resource"])
        statements.append(
            Statement(tuple(statement["Action"]), resources, None if prefixes is None else tuple(prefixes))
        )
    return tuple(statements)


class Enforced:
    """A rule for `scripts.s3_proxy.S3Proxy`: who signs with which access key may do what.

    Requests of other access keys are not checked. ``denied`` has what was refused, as text.
    """

    def __init__(self, allowed: Mapping[str, Iterable[Statement]]) -> None:
        self._allowed = {access_key: tuple(statements) for access_key, statements in allowed.items()}
        self._used: dict[str, set[tuple[Statement, str]]] = {access_key: set() for access_key in self._allowed}
        self._lock = threading.Lock()
        self.denied: list[str] = []

    def __call__(self, request: S3Request) -> Answer | None:
        """403 unless each of the request's actions is allowed."""
        who = request.access_key
        if who not in self._allowed:
            return None
        with self._lock:
            for action, resource in request.actions():
                prefix = request.query.get("prefix", "") if not request.key else None
                by = next(
                    (statement for statement in self._allowed[who] if statement.allows(action, resource, prefix)), None
                )
                if by is None:
                    self.denied.append(f"{who}: {action} on {resource} (prefix {prefix!r})")
                    return Answer(403, "AccessDenied", f"not allowed: {action} on {resource}")
                self._used[who].add((by, action))
        return None

    def unused(self, access_key: str) -> set[tuple[str, str]]:
        """What is allowed and nobody has needed: pairs of an action and the first resource of its statement."""
        everything = {(statement, action) for statement in self._allowed[access_key] for action in statement.actions}
        return {(action, statement.resources[0]) for statement, action in everything - self._used[access_key]}


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    """As IAM: ``*`` and ``?`` are the wildcards; everything else means itself."""
    return any(
        re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL)
        for pattern in patterns
    )
