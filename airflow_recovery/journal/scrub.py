"""Taking what looks like a secret out of text: by its form, so that nobody has to know the secret.

The second net behind Airflow's own masker (`airflow_recovery.journal.masking`), and the only one where Airflow is not:
in a Spark driver, and for what leaves the deployment. `FORMS` is the one table; each form has its rows in the tests, as
have the texts that look alike and stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MASK = "***"

# A name may have any prefix (`PGPASSWORD`, `spark.hadoop.fs.s3a.secret.key`): it is found where it ends, so that long
# text is read once. `key` alone is a column, not a secret; `ExpiredToken: ...` says what is wrong.
_NAME = (
    r"(?<!expired)(?<!invalid)(?<!invalid )(?<!unexpected )(?<!unrecognized )"
    r"(?:password|passwd|passphrase|secret|token|"
    r"(?:secret|access|account|api|private|encryption|signing|storage|shared)[._-]?key(?:[._-]?id)?|"
    r"(?<![a-z])(?:pwd|sig|signature)|_pwd|x-amz-(?:signature|credential|security-token))"
    # Of one Azure account.
    r"(?:(?:\.[\w-]{1,63}){1,6}\.windows\.net)?"
)
_HINTS = ("pass", "secret", "token", "key", "pwd", "sig", "x-amz-")
_QUOTE = r"\\*[\"']"
_VALUE = (
    # Quoted: up to the quote that ends it, or to the end of what was cut off.
    r"(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|[^\\\n]|\\(?=\n|\Z)))*(?P<end>(?P=quote)|$|(?=\n))|"
    r"[^\s\"',;&}\])<]+"
)


def _named(match: re.Match[str]) -> str:
    value = match["value"]
    if value.startswith(MASK) or value.strip("\\\"'") == "" or value.startswith("arn:"):
        return match[0]
    if match["name"].lower().endswith("pwd") and value.startswith("/"):
        return match[0]  # the working folder
    quote = match["quote"] or ""
    if quote and value[len(quote) :].startswith(MASK):
        return match[0]
    return f"{match['name']}{match['between']}{quote}{MASK}{match['end'] or ''}"


Replacement = str | Callable[[re.Match[str]], str]

FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], Replacement], ...] = (
    (
        ("private key-",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        MASK,
    ),
    # scheme://user:password@host, and without a user
    (("://",), re.compile(r"(?<=://)[^/\s@\"']*:[^/\s\"']+(?=@)"), MASK),
    # jdbc:oracle:thin:user/password@host
    ((":thin:",), re.compile(r"(?<=:thin:)[^/\s@\"']{1,128}/[^\s@\"']{1,128}(?=@)"), MASK),
    (("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), MASK),
    # A JSON web token
    (("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?"), MASK),
    # GitHub, GitLab, Slack, Databricks, Google, Vault
    (
        ("gh", "glpat-", "xox", "dapi", "aiza", "ya29", "hvs.", "hvb.", "github_pat_"),
        re.compile(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|"
            r"dapi[0-9a-f]{32}(?:-\d)?|AIza[\w-]{30,}|ya29\.[\w-]{16,}|hv[sb]\.[\w-]{16,})"
        ),
        MASK,
    ),
    # A word is lower case; what is encoded has a digit, a capital, a sign of base 64 or a dot inside.
    (
        ("bearer",),
        re.compile(r"\b((?i:bearer))\s+(?=[\w.~+/-]*(?:[0-9=]|[a-z][A-Z]|\w[._~+/]\w))[\w.~+/=-]{8,}"),
        rf"\1 {MASK}",
    ),
    (("basic",), re.compile(r"\b((?i:basic))\s+(?=[\w+/]*(?:[0-9=]|[a-z][A-Z]))[\w+/=]{8,}"), rf"\1 {MASK}"),
    (("cookie",), re.compile(r"(?i)\b((?:set-)?cookie\s*:\s*)(?!\*\*\*)\S.*"), rf"\1{MASK}"),
    (
        _HINTS,
        re.compile(rf"(?i)(?P<name>{_NAME})(?P<between>(?:{_QUOTE})?\s*(?:=>|[=:])\s*)(?P<value>{_VALUE})"),
        _named,
    ),
    # --password of a command line, and Hadoop's XML
    (("--",), re.compile(rf"(?i)((?<![\w-])--[\w-]*{_NAME}\s+)(?!-|\*\*\*)[^\s\"']+"), rf"\1{MASK}"),
    (("</name>",), re.compile(rf"(?i)({_NAME}</name>\s*<value>)(?!\*\*\*)[^<]+"), rf"\1{MASK}"),
)
"""What a secret looks like, and what is put in its place. First, in lower case, what one of that form has in it: most
texts have none of it, and are not looked at any closer."""


def scrubbed(text: str) -> str:
    """``text`` with everything of a secret's form replaced; the same text where there is none."""
    lower = text.lower()
    for hints, pattern, replacement in FORMS:
        if any(hint in lower for hint in hints):
            text = pattern.sub(replacement, text)
    return text


def scrubbed_json(value: Any) -> Any:
    """The same for every string in a JSON value. Names of fields stay, and so do numbers."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, list):
        return [scrubbed_json(item) for item in value]
    if isinstance(value, dict):
        return {name: scrubbed_json(item) for name, item in value.items()}
    return value
