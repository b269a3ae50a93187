"""Taking what looks like a secret out of what leaves the deployment.

Free text was masked with what Airflow knows before it reached the journal (`airflow_recovery.journal.masking`). This is
the second net, for what no masker knew: it goes by form, in every string, so a name of such a form is masked as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MASK = "***"
_NAMES = (
    r"password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?access[_-]?key|"
    r"session[_-]?token|private[_-]?key|x-amz-(?:signature|credential|security-token)|signature|sig"
)
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
    (re.compile(r"(?<=://)[^/\s@\"']+:[^/\s\"']*(?=@)"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), MASK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    (
        re.compile(
            rf"(?i)(?<![a-z])((?:[\w.-]*[_.-])?(?:{_NAMES}))([\"']?\s*[=:]\s*[\"']?)(?!\s|\*\*\*)[^\s\"',;&}}\])]+"
        ),
        lambda found: f"{found[1]}{found[2]}{MASK}",
    ),
)


def scrubbed(text: str) -> str:
    """``text`` with everything of a secret's form replaced; the same text where there is none."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def scrubbed_json(value: Any) -> Any:
    """The same for every string in a JSON value. Names of fields stay, and so do numbers."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, list):
        return [scrubbed_json(each) for each in value]
    if isinstance(value, dict):
        return {name: scrubbed_json(each) for name, each in value.items()}
    return value
