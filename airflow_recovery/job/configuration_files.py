"""Which files of configuration Spark and Hadoop load on this machine, and what in them may change rows.

Java's class path begins with the folders of configuration. From each of them Java takes the first file of a name.

- A property of a ``*-site.xml`` counts as the setting ``spark.hadoop.<name>``, which would replace it.
- Any other file counts by its content, but for those in `FILES_THAT_DO_NOT_CHANGE_ROWS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from string import Template
from xml.etree import ElementTree

FILES_THAT_DO_NOT_CHANGE_ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Logs and measurements",
        ("*log4j*", "logback*", "logging.properties", "metrics.properties", "hadoop-metrics*", "jmx*"),
    ),
    (
        "When tasks and applications are scheduled",
        ("*scheduler.xml", "mapred-queues.xml", "container-executor.cfg", "resource-types.xml", "node-resources.xml"),
    ),
    (
        "Rights, keys and encryption of connections",
        (
            "hadoop-policy.xml",
            "kms-*",
            "httpfs-*",
            "ssl-*",
            "krb5.conf",
            "jaas*",
            "*.keytab",
            "*.jks",
            "*.p12",
            "*.pem",
        ),
    ),
    (
        "Environment variables, which do not count. Exception: the folders of configuration in `spark-env.sh`",
        ("*.sh", "*.cmd"),
    ),
    (
        "Lists of machines, and notes",
        ("workers", "slaves", "masters", "topology*", "*hosts*", "__*__", "*.md", "README*"),
    ),
    (
        "Copies that no program loads, and archives: Java does not open archives in a folder of its class path",
        (
            *("*.template", "*.example", "*.bak", "*.orig", "*.rpmnew", "*.rpmsave", "*~", ".*", "*.xsl"),
            *("*.jar", "*.zip", "*.egg", "*.whl"),
        ),
    ),
    ("Its settings count one by one", ("spark-defaults.conf",)),
)
"""Reason, and patterns of the names of files."""

_SITES = ("core-site.xml", "hdfs-site.xml", "mapred-site.xml", "yarn-site.xml", "hive-site.xml")
"""In the order in which Hadoop loads most of them. ``hdfs-site.xml`` comes when HDFS is used first."""
_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_OF_HIVE = "HIVE_CONF_DIR"
_ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?((?:HADOOP|YARN|HIVE)_(?:CONF_DIR|HOME))=([^\n#;]*)", re.MULTILINE)
_DEFAULT = re.compile(r"\$\{(\w+):?-([^{}]*(?:\$\{\w+\}[^{}]*)*)\}")
_INCLUDE = "{http://www.w3.org/2001/XInclude}include"
_MOST_INCLUDED = 8


def configuration_folders(spark: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the folders of configuration on Java's class path, in order. ``spark`` is Spark's own.

    Its ``spark-env.sh`` may set the others. The name of a folder that only a shell can tell contains a ``$``.
    """
    known = _with_assigned(spark / "spark-env.sh", env)
    return [spark, *(Path(known[name]) for name in _FOLDERS if known.get(name))]


def site_files(spark: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the paths of the ``*-site.xml`` that Hadoop loads, in its order, and those that it would load."""
    found: dict[str, Path] = {}
    folders = configuration_folders(spark, env)
    hive = _with_assigned(spark / "spark-env.sh", env).get(_OF_HIVE)
    for folder in (*folders, *([Path(hive)] if hive else [])):
        sites = [one.name for one in _listed(folder) if one.name.endswith("-site.xml")]
        for name in sites if folder in folders else ["hive-site.xml"]:
            if name not in found and (folder / name).is_file():
                found[name] = folder / name
    missing = {name: folders[0] / name for name in _SITES if name not in found}
    order = [*_SITES, *sorted(found.keys() - {*_SITES})]
    return [(found | missing)[name] for name in order]


def site_settings(files: Iterable[Path]) -> tuple[dict[str, str], list[Path]]:
    """Return the properties of ``*-site.xml`` files as settings of Spark, and the files that can't be read.

    A property with several values has all of them: which file Hadoop loads last, depends on the application.
    """
    read = {path: _site(path) for path in files}
    found: dict[str, dict[str, None]] = {}
    for properties in read.values():
        for name, value in (properties or {}).items():
            found.setdefault(name, {})[value] = None
    unread = [path for path, properties in read.items() if properties is None]
    return {name: " | ".join(values) for name, values in found.items()}, unread


def _site(path: Path) -> dict[str, str] | None:
    """`None` if it can't be read. There is nothing in a file that does not exist."""
    try:
        return {f"spark.hadoop.{name}": value for name, value in _properties(path)}
    except FileNotFoundError:
        return None if path.exists() else {}  # a file that it includes
    except (OSError, ElementTree.ParseError, RecursionError):
        return None


def other_files(folders: Sequence[Path]) -> list[Path]:
    """Return the files that count by their content. A folder that can't be listed is returned itself."""
    found: dict[str, Path] = {}
    for folder in folders:
        if _is_unknown(folder):
            found[str(folder)] = folder
        for one in _listed(folder):
            if not one.name.endswith("-site.xml") and _may_change_rows(one.name):
                found.setdefault(one.name, one)
    return list(found.values())


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.is_file())
    except OSError:
        return []


def _is_unknown(folder: Path) -> bool:
    """Whether only a shell can tell its name, or this process may not list it."""
    if any(sign in str(folder) for sign in "$`"):
        return True
    return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)


def _may_change_rows(name: str) -> bool:
    return not any(fnmatchcase(name, each) for _, names in FILES_THAT_DO_NOT_CHANGE_ROWS for each in names)


def _properties(path: Path, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The names and values in a file of Hadoop's form, and in the files that it includes."""
    if depth > _MOST_INCLUDED:
        raise RecursionError(f"{path} is included by itself")
    for element in ElementTree.parse(path).getroot():
        if element.tag == "property":
            name, value = element.findtext("name", "").strip(), element.findtext("value")
            if name and value is not None:
                yield name, value.strip()
        elif element.tag == _INCLUDE:
            yield from _properties(path.parent / element.get("href", "").removeprefix("file://"), depth + 1)


def _with_assigned(script: Path, env: Mapping[str, str]) -> dict[str, str]:
    """``env`` with what a script of a shell sets of the folders. What it computes keeps its ``$``."""
    known = dict(env)
    with_text = script.is_file() and os.access(script, os.R_OK)
    for name, text in _ASSIGNED.findall(script.read_text(errors="replace") if with_text else ""):
        plain = text.strip().replace('"', "").replace("'", "")
        plain = _DEFAULT.sub(lambda match: known.get(match[1]) or match[2], plain)
        known[name] = Template(plain).safe_substitute(known)
    return known
