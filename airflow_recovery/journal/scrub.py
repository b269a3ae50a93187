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
    r"(?:password|passwd|passphrase|secret|(?:sas\.fixed\.)?token(?:(?<=sas\.fixed\.token)(?:\.[\w-]{1,63}){1,2})?|"
    r"(?:secret|access|account|api|private|encryption|signing|storage|shared|fernet|master|session|consumer|ssh|hmac|"
    r"subscription)[._ -]?key(?:[._-]?id)?|azure\.sas|"
    r"(?<![a-z])(?:pwd|sig|signature)|_pwd|x-amz-(?:signature|credential|security-token))"
    # Of one Azure account.
    r"(?:(?:\.[\w-]{1,63}){1,6}\.windows\.net)?"
)
_HINTS = ("pass", "secret", "token", "key", "pwd", "sig", "x-amz-", "azure.sas")
# As it is, escaped in JSON within JSON, and in HTML; three at once in Python and TOML.
_MARK = r"(?:\"\\*\"\\*\"|'''|[\"'`]|u002[27]|&quot;|&#3[49];|%2[27])"
_QUOTE = rf"\\*{_MARK}"
_QUOTED = (
    # Up to the quote that ends it, or to the end of what was cut off. SQL and CSV double a quote within.
    rf"(?P<quote>\\*{_MARK})(?:(?P=quote)(?P=quote)|(?!(?P=quote))(?:\\.|[^\\\n]|\\(?=\n|\Z)))*(?P<end>(?P=quote)|$|(?=\n))"
)
_VALUE = rf"{_QUOTED}|[^\s\"',;&}}\])<]+"
# What stands around a value: Some(x), b'x', [x], $'x', YAML's tags, anchors and blocks.
_AROUND = (
    r"(?:(?:some|(?:secret)?str|secret|password)\(|\[\s*|[({<$](?!/)|[bfru]{1,2}(?=\\*[\"'])|&\w{1,64}\s+|!{1,2}\w{1,64}\s+|"
    r"[|>][+-]?[ \t]*\n\s*|string\(\d{1,9}\)\s*){0,3}"
)
# A word is in small letters; what is encoded has a digit, or a capital after a small letter.
_ENCODED = r"(?=[^\s\"',;|)\]]{0,200}(?:[0-9]|[a-z][A-Z]))[^\s\"',;&}\])<|]{6,}"
# The type of a column, what MySQL logs, and no value at all.
_SAYS_NOTHING = re.compile(
    r"(?i)null|none|nil|undefined|true|false|yes|no|(?:string|varchar|char|str|text|binary|u?int|integer|bigint|long|double)"
    r"(?:type\(.*)?"
)
_CELL = r"[ \t]*(?:[|\u2502\u2503]|\\+u250[23])[ \t]*"


def _named(match: re.Match[str]) -> str:
    value = match["value"]
    if value.startswith(MASK) or value.strip("\\\"'") == "" or value.startswith("arn:"):
        return match[0]
    if _SAYS_NOTHING.fullmatch(value):
        return match[0]
    if match["name"].lower().endswith("pwd") and value.startswith("/"):
        return match[0]  # the working folder
    quote = match["quote"] or ""
    if quote and value[len(quote) :].startswith(MASK):
        return match[0]
    return f"{match['name']}{match['between']}{quote}{MASK}{match['end'] or ''}"


def _form(name: str, between: str, value: str = _VALUE, after: str = "") -> re.Pattern[str]:
    quoted = "" if "(?P<quote>" in value else "(?P<quote>(?!))?(?P<end>(?!))?"
    return re.compile(rf"(?i)(?P<name>{name})(?P<between>{between})(?P<value>{value}){quoted}{after}", re.MULTILINE)


def _encoded_form(name: str, between: str) -> re.Pattern[str]:
    """A form whose value must look encoded (`_ENCODED`). The value is matched case-sensitively, the name is not."""
    value = f"(?-i:{_ENCODED})"
    return _form(name, between, value)


Replacement = str | Callable[[re.Match[str]], str]

FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], Replacement], ...] = (
    (
        ("private key-",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        MASK,
    ),
    # scheme://user:password@host, and without a user. A slash in the password must not be one after a port.
    (("://",), re.compile(r"(?<=://)[^/\s@\"']{0,128}:(?!\d+/)[^\s\"'?]{1,256}(?=@)"), MASK),
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
    # The address of a webhook is its secret.
    (
        ("hooks.slack.com", "/webhook"),
        re.compile(r"(?<=hooks\.slack\.com/services/)[\w/-]{8,}|(?<=/webhooks/)\d{8,}/[\w-]{8,}"),
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
    # Authorization: in a header whatever follows the scheme, also a word
    (
        ("authorization",),
        re.compile(
            rf"(?i)(\bauthorization(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?(?:basic|bearer)\s+)(?!\*\*\*)[^\s\"',;]+"
        ),
        rf"\1{MASK}",
    ),
    # Authorization: with another scheme, or without
    (
        ("authorization",),
        _encoded_form(
            "authorization", rf"(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?(?:(?:token|key|apikey|digest|negotiate)\s+)?"
        ),
        _named,
    ),
    # val name: String = "x" of Scala, name: str = "x" of Python
    (_HINTS, _form(_NAME, rf"\s*:\s*[A-Za-z][\w.\[\]]{{0,60}}\s*=(?![=>])\s*{_AROUND}"), _named),
    # name=x, name: x, name -> x of Scala, name => x, conf["name"] = x, names: [x], name%3Dx
    (
        _HINTS,
        _form(
            rf"{_NAME}(?:(?<=password)s(?=\W{{1,4}}\[)|(?<=secret)s(?=\W{{1,4}}\[))?",
            rf"(?:{_QUOTE}|`)?\]?\s*(?:=>|->|\u2192|\u21d2|\\+u(?:2192|21d2)|\\?:=|==?=?|\\?[=:]|%3[AD])\s*{_AROUND}",
        ),
        _named,
    ),
    # {"name": "DB_PASSWORD", "value": "x"}, key= and value=, of JSON, YAML, XML and Row(...)
    (
        ("value",),
        _form(
            rf"\b(?:parameter)?(?:name|key)(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?[\w.-]{{0,80}}{_NAME}",
            rf"(?:{_QUOTE})?[,;\s]+(?:{_QUOTE})?(?:parameter)?value(?:{_QUOTE})?\s*[:=]\s*",
        ),
        _named,
    ),
    (
        ("value",),
        re.compile(
            rf"(?i)(value\\*[\"']\s*:\s*\\*[\"'])(?!\*\*\*)[^\"'\\\n]{{1,512}}"
            rf"(?=\\*[\"']\s*,\s*\\*[\"'](?:name|key)\\*[\"']\s*:\s*\\*[\"'][\w.-]{{0,80}}{_NAME}\\*[\"'])"
        ),
        rf"\1{MASK}",
    ),
    # key | name, and value | x below it: a row of show(vertical=True)
    (
        ("value",),
        _form(rf"^[ \t]*(?:name|key){_CELL}[\w.-]{{0,80}}{_NAME}", rf"[ \t]*\n[ \t]*value{_CELL}", r"[^\n]+"),
        _named,
    ),
    # A pair: (name,x) of Scala, ('name', 'x') of Python, option("name", "x"), setPassword("x")
    (
        _HINTS,
        _form(
            rf"[(\[]\s*(?:{_QUOTE})?[\w.-]{{0,80}}{_NAME}",
            rf"(?:{_QUOTE})?\s*,\s*",
            rf"{_QUOTED}|[^\s\"',;)\]]+",
            r"(?=\s*[)\]])",
        ),
        _named,
    ),
    (_HINTS, _form(_NAME, r"\(\s*", _QUOTED), _named),
    # "name" to "x" of Kotlin
    (_HINTS, _form(_NAME, rf"(?:{_QUOTE})\s+to\s+", _QUOTED), _named),
    # auth=("ann", "x"), BasicAuth("ann", "x"), AWSCredentials("id", "x")
    (
        ("auth", "credential"),
        _form(r"(?:\bauth\s*=\s*|basicauth|credentials?)", r"\(\s*\\*[\"'][^\"'\n]{0,256}\\*[\"']\s*,\s*", _QUOTED),
        _named,
    ),
    # 'name', 'x' within more; name 'x' of SQL; name is 'x'
    (_HINTS, _encoded_form(_NAME, rf"(?:{_QUOTE})\s*,\s*(?:{_QUOTE})"), _named),
    (_HINTS, _form(_NAME, rf"(?:{_QUOTE})?\s+(?:(?:is|was|set\s+to)\s+)?", _QUOTED), _named),
    # Columns: name x, name | x, name ... x, name,x. Without a quote the value must look encoded.
    (
        _HINTS,
        _encoded_form(
            _NAME,
            rf"(?:{_QUOTE})?(?:{_CELL}|[ \t]*\.{{2,80}}[ \t]*|,|;(?![^\s;]*=)|\(|"
            r"(?:[ \t]|\\+t)+(?:(?:is|was|set to)[ \t]+)?)",
        ),
        _named,
    ),
    (_HINTS, _form(rf"[._-]\w{{0,20}}{_NAME}", r"(?:[ ]{2}|\t)[ \t]*", r"\S+", r"(?=[ \t]*$)"), _named),
    (_HINTS, _form(rf"^{_CELL}[\w.-]{{0,80}}{_NAME}", _CELL, r"[^\s|\u2502\u2503]+", rf"(?={_CELL}$)"), _named),
    # IDENTIFIED BY 'x', SET PASSWORD FOR ann = 'x'
    (("identified",), _form("identified", r"\s+(?:with\s+\S+\s+)?by\s+(?:password\s+)?"), _named),
    (("password for",), _form(r"password\s+for", r"\s+\S+\s*=\s*(?:password\()?"), _named),
    # What psql and ssh ask: Password for user ann: x
    (("password for",), _encoded_form(r"password\s+for", r"(?:\s+\S{1,128}){1,2}?:\s*"), _named),
    # --password x, also quoted and in a list; setenv and ENV
    (("-",), _form(rf"(?<![\w-])--?[\w-]{{0,64}}{_NAME}", rf"(?:{_QUOTE}\s*,)?\s+(?!-)|{_QUOTE},(?=[\"'])"), _named),
    (("env", "set "), _form(rf"\b(?:setenv|env|set\s+-\w+)\s+\w{{0,64}}{_NAME}", r"\s+"), _named),
    # curl -u user:x, sshpass -p x, mysql -px
    (("-u", "--user"), _form(r"(?<![\w-])(?:-u|--user)", r"[\s=]+(?!\d+:\d+)[^\s:\"'/]{1,128}:"), _named),
    # A line of .netrc
    (("login",), _form(r"\blogin", r"\s+\S{1,128}\s+password\s+", r"\S+"), _named),
    (("sshpass",), _form("sshpass", r"\s+-p\s*"), _named),
    (("mysql", "mariadb"), _form(r"\b(?:mysql|mariadb)", r"[^\n|;]{0,200}?\s-p", r"[^\s-]\S*"), _named),
    # XML: <password>x</password>, <entry key="password">x</entry>, and Hadoop's
    (_HINTS, _form(_NAME, rf"(?:{_QUOTE})?>(?!\s*<)", r"[^<]+", "(?=</)"), _named),
    (("</name>",), re.compile(rf"(?i)({_NAME}</name>\s*<value>)(?!\*\*\*)[^<]+"), rf"\1{MASK}"),
)
"""What a secret looks like, and what is put in its place. First, in lower case, what one of that form has in it: most
texts have none of it, and are not looked at any closer."""


_OF_A_COLUMN = re.compile(rf"(?i)[\w.-]*{_NAME}")
_RULE = re.compile(r"[-+|:=\s\u2500-\u257f]*[-=\u2500\u2501][-+|:=\s\u2500-\u257f]*")
_BAR = re.compile(r"[|\u2502\u2503]")


def _columns(text: str) -> str:
    """Mask the columns named like a secret (``password``) in tables with vertical bars, such as those of ``show()``."""
    lines, hidden = text.split("\n"), frozenset[int]()
    for at, line in enumerate(lines):
        cells = _BAR.split(line)
        if len(cells) < 3:
            hidden = hidden if not line.strip(" \t+-=") else frozenset()
        elif not hidden:
            if not _RULE.fullmatch(lines[at + 1] if at + 1 < len(lines) else ""):
                continue
            hidden = frozenset(n for n, cell in enumerate(cells) if _OF_A_COLUMN.fullmatch(cell.strip()))
        else:
            bars = _BAR.findall(line)
            masked = [
                MASK if n in hidden and cell.strip(" -:") and len(cells) - 1 > n > 0 else cell
                for n, cell in enumerate(cells)
            ]
            lines[at] = "".join(part for pair in zip(masked, [*bars, ""], strict=True) for part in pair)
    return "\n".join(lines)


_COLOUR = re.compile(r"(?:\x1b|\\+(?:u001b|x1b|033))\[[0-9;]{0,20}m")


def scrubbed(text: str) -> str:
    """``text`` with everything of a secret's form replaced; the same text where there is none.

    A text with a secret loses the colours of a terminal, which may stand between a name and its value.
    """
    plain = _COLOUR.sub("", text) if "1b[" in text or "\x1b" in text or "033[" in text else text
    if plain != text:
        masked = _scrubbed(plain)
        return text if masked == plain else masked
    return _scrubbed(text)


def _scrubbed(text: str) -> str:
    lower = text.lower()
    for hints, pattern, replacement in FORMS:
        if any(hint in lower for hint in hints):
            text = pattern.sub(replacement, text)
    if "\n" in text and _BAR.search(text) and any(hint in lower for hint in _HINTS):
        text = _columns(text)
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
