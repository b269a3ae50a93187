"""Where an application's code lies: the places that spark-submit, a service or an operator's fields name.

Looks at names only: nothing is read here, and nothing is a file until `airflow_recovery.task.application_code` has
read it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_recovery.locations import scheme_of, schemes

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

APPLICATION = "application"
PROPERTIES_FILE = "properties file"
GLUE = "glue:"
"""What the name of a job that Glue keeps begins with."""
HADOOP = ("hdfs", "webhdfs", "swebhdfs")
DATABRICKS = "databricks_conn_id"
ON_DATABRICKS = ("/Workspace/", "/Repos/", "/Users/", "/Shared/", "/Volumes/")


class PlaceKind(str, Enum):
    """What a place names."""

    FILE = "file"
    IMAGE = "image"
    PACKAGE = "package"
    """A coordinate of Maven, or a requirement."""
    ELSEWHERE = "elsewhere"
    """A service's own definition of the job, which has no version that is named here."""


class Place(NamedTuple):
    """One name of code. ``role`` is the argument that it was given as; ``uri`` may be a glob, or end with an alias."""

    role: str
    uri: str
    kind: PlaceKind = PlaceKind.FILE


SETTINGS = {
    "spark.jars": "jars",
    "spark.files": "files",
    "spark.archives": "archives",
    "spark.submit.pyFiles": "py_files",
    "spark.yarn.dist.jars": "jars",
    "spark.yarn.dist.files": "files",
    "spark.yarn.dist.archives": "archives",
    "spark.yarn.dist.pyFiles": "py_files",
    "spark.yarn.jars": "jars",
    "spark.yarn.archive": "archives",
    "spark.sql.hive.metastore.jars.path": "jars",
    "spark.jars.ivySettings": "ivy settings",
    "spark.kubernetes.driver.podTemplateFile": "pod template",
    "spark.kubernetes.executor.podTemplateFile": "pod template",
}
"""Settings of Spark that name files, by the option of spark-submit that each stands for."""
CLASS_PATHS = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
IMAGES = (
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.container.image",
    "spark.kubernetes.executor.container.image",
)
PACKAGES = "spark.jars.packages"

_OPTIONS = {
    "--py-files": "py_files",
    "--jars": "jars",
    "--files": "files",
    "--archives": "archives",
    "--properties-file": "file",  # nobody reads its settings, so all of it counts
}
_FLAGS = ("--verbose", "-v", "--supervise", "--version", "--help", "-h", "--usage-error")
_FIELDS_OF_SERVICES = {
    "file": APPLICATION,
    "entrypoint": APPLICATION,
    "applicationfile": APPLICATION,
    "pipelinespec": APPLICATION,
    "jar": "jars",
    "files": "files",
    "requirements": "files",
    "archives": "archives",
}
"""Names that mean code in fields of providers' operators. Elsewhere they may name data, also data that is written."""
_FIELDS = {
    # Livy, Databricks, EMR, EMR Serverless, Dataproc, the Spark operator of Kubernetes, Glue: names without case and
    # signs.
    "mainapplicationfile": APPLICATION,
    "mainpythonfileuri": APPLICATION,
    "mainrfileuri": APPLICATION,
    "mainjarfileuri": APPLICATION,
    "queryfileuri": APPLICATION,
    "initqueryfile": APPLICATION,
    "pythonfile": APPLICATION,
    "notebookpath": APPLICATION,
    "scriptlocation": APPLICATION,
    "pyfiles": "py_files",
    "pythonfileuris": "py_files",
    "extrapyfiles": "py_files",
    "additionalpythonmodules": "py_files",
    "egg": "py_files",
    "whl": "py_files",
    "jars": "jars",
    "jaruris": "jars",
    "jarfileuris": "jars",
    "extrajars": "jars",
    "fileuris": "files",
    "extrafiles": "files",
    "archiveuris": "archives",
}
ELSEWHERE_FIELDS = (
    "alert_id",
    "dashboard_id",
    "job_definition",
    "job_id",
    "pipeline_id",
    "pipeline_task",
    "project_directory",
    "query_id",
    "run_job_task",
    "task_definition",
    "template_id",
)
"""Names of what a service keeps by itself: Databricks, Dataproc, Batch, ECS. Signs and case of letters don't count."""
_ELSEWHERE = frozenset(name.replace("_", "") for name in ELSEWHERE_FIELDS)
_IMAGE_FIELDS = ("image", "containerimage", "imageuri", "sparkimage")
_COMMAND_FIELDS = ("sparksubmitparameters",)
_SIGNS = re.compile(r"[^a-z0-9]")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_OTHER_STORES = ("dbfs", "hdfs", "http", "https", "local")
_CODE = re.compile(r"\.(?:py|pyz|jar|egg|whl|sql|hql|ipynb|scala|sh|r)$", re.IGNORECASE)
_PROGRAM = re.compile(r"(?<![^\s'\"=])/[^\s'\";|&<>()]+\.(?:py|pyz|sh|jar|R|sql|hql|scala)(?![^\s'\";|&)])")
"""A program of this machine in a command."""
_OF_JAVA = re.compile(r"-(?:javaagent|agentpath):([^\s=]+)|-D[\w.]+=(\S+\.(?:conf|properties|xml|ya?ml|json|jar))")
_JAVA_OPTIONS = tuple(
    f"spark.{process}.{name}"
    for process in ("driver", "executor")
    for name in ("extraJavaOptions", "defaultJavaOptions")
)
_SUBMIT = re.compile(r"(?:^|[\s/])spark-submit\s")
_NOT_HERE = frozenset({"livy", "emr", "dataproc", "databricks", "glue", "kubernetes", "eks", "ecs", "pipelines"})
"""In the names of providers' modules: what such an operator starts does not run on this machine, but for pipelines."""
_DATA = ("inputs", "outputs")
_NAMED_CODE = ("image", "script_location", "jars", "files", "py_files", "init_containers", "full_pod_spec")
"""Attributes that name code, also of operators that don't template them."""


def listed(names: Any) -> list[str]:
    """Return the pieces of a list as spark-submit takes it: separated by commas, or a sequence already."""
    pieces = names.split(",") if isinstance(names, str) else names or ()
    return [piece for each in pieces if (piece := str(each).strip())]


def places_of_submit(options: Mapping[str, Any], conf: Mapping[str, Any], arguments: Sequence[Any] = ()) -> list[Place]:
    """Return the places that spark-submit would load. ``options`` are named as the arguments of the operator.

    ``arguments``: of the application. The URI of a file with an ending of code counts.
    """
    found = [Place(APPLICATION, str(options.get("application") or ""))]
    for role in ("py_files", "jars", "files", "archives"):
        found += [Place(role, uri) for uri in listed(options.get(role))]
    found += [Place("packages", name, PlaceKind.PACKAGE) for name in listed(options.get("packages"))]
    found += _class_path(options.get("driver_class_path"))
    if options.get("properties_file"):
        found.append(Place(PROPERTIES_FILE, str(options["properties_file"])))
    found += places_of_fields({"application_args": list(map(str, arguments))}, of_service=False)
    return [*found, *places_of_settings(conf)]


def places_of_settings(conf: Mapping[str, Any]) -> list[Place]:
    """Return the places that settings of Spark name."""
    found: list[Place] = []
    for key, value in conf.items():
        if key in SETTINGS:
            found += [Place(SETTINGS[key], uri) for uri in listed(value)]
        elif key in CLASS_PATHS:
            found += _class_path(value)
        elif key in _JAVA_OPTIONS:
            found += [Place("java option", agent or file) for agent, file in _OF_JAVA.findall(str(value))]
        elif key in IMAGES:
            found.append(Place("image", str(value), PlaceKind.IMAGE))
        elif key == PACKAGES:
            found += [Place("packages", name, PlaceKind.PACKAGE) for name in listed(value)]
    return found


def _class_path(value: Any) -> list[Place]:
    """Java's class path: files and folders; ``folder/*`` stands for the jars in it."""
    pieces = str(value or "").split(":")
    return [Place("class path", f"{one}.jar" if one.endswith("/*") else one) for one in pieces if one]


def places_of_fields(fields: Mapping[str, Any], *, of_service: bool = True) -> list[Place]:
    """Return the places that an operator's fields name, as they are rendered.

    A field or a key that is known to name code counts, in whatever depth; so does a command of spark-submit, as text
    or as a list, and any text that is the URI of a file with an ending of code. ``of_service``: the operator is a
    provider's, so that also ``file`` and the like name code.
    """
    return list(dict.fromkeys(_walk(fields, "", _FIELDS | _FIELDS_OF_SERVICES if of_service else _FIELDS)))


def _walk(value: Any, key: str, names: Mapping[str, str]) -> Iterator[Place]:
    if isinstance(value, Mapping):
        yield from _of_mapping(value, names)
    elif isinstance(value, (list, tuple)):
        at = next((i for i, one in enumerate(value) if str(one).rpartition("/")[2] == "spark-submit"), None)
        if at is not None:
            yield from _of_command([str(word) for word in value[at + 1 :]])
        else:
            for item in value:
                yield from _walk(item, key, names)
    elif isinstance(value, str):
        yield from _of_text(value, key, names)
    elif hasattr(value, "image") and isinstance(value.image, str):  # a container of Kubernetes' client
        yield Place("image", value.image, PlaceKind.IMAGE)
    elif hasattr(value, "openapi_types"):  # another of its objects
        yield from _walk(value.to_dict(), key, names)


def _of_mapping(value: Mapping[Any, Any], names: Mapping[str, str]) -> Iterator[Place]:
    if value.get("git_url") and not value.get("git_commit"):
        at = value.get("git_tag") or value.get("git_branch")
        yield Place("git source", f"{value['git_url']}@{at}", PlaceKind.ELSEWHERE)
    if isinstance(value.get("file"), Mapping) and isinstance(value["file"].get("path"), str):  # a query of Databricks
        yield Place(APPLICATION, value["file"]["path"])
    yield from _of_databricks(value)
    settings = {str(name): item for name, item in value.items() if str(name).startswith("spark.")}
    yield from places_of_settings(settings)
    for name, item in value.items():
        if _SIGNS.sub("", str(name).lower()) in _ELSEWHERE and item:
            yield Place(str(name), str(item), PlaceKind.ELSEWHERE)
        elif str(name) not in settings:
            yield from _walk(item, str(name), names)


def _of_databricks(value: Mapping[Any, Any]) -> Iterator[Place]:
    """What a cluster and its libraries are made of, if its name stands for other code tomorrow."""
    for name, key in (("pypi", "package"), ("cran", "package"), ("maven", "coordinates")):
        item = value.get(name)
        if isinstance(item, Mapping) and isinstance(item.get(key), str):
            package = Place("packages", item[key], PlaceKind.PACKAGE)
            if not (is_fixed(package) or "==" in item[key]):
                yield package
    for name in ("workspace", "volumes"):  # where an init script lies
        item = value.get(name)
        if isinstance(item, Mapping) and isinstance(item.get("destination"), str):
            yield Place("file", item["destination"])
    image = value.get("docker_image")
    if isinstance(image, Mapping) and isinstance(image.get("url"), str):
        yield Place("image", image["url"], PlaceKind.IMAGE)


def value_in(argument: str) -> str:
    """Return the value of ``--name=value``; any other argument itself."""
    return argument.partition("=")[2] if argument.startswith("-") and "=" in argument else argument


def _of_text(text: str, key: str, names: Mapping[str, str]) -> Iterator[Place]:
    name = _SIGNS.sub("", key.lower())
    if name in _IMAGE_FIELDS and text.strip():
        yield Place("image", text, PlaceKind.IMAGE)
    elif name in _COMMAND_FIELDS:
        yield from _of_command(_words(text), has_application=False)
    elif _SUBMIT.search(f"{text} "):
        found = [place for command in _SUBMIT.split(f"{text} ")[1:] for place in _of_command(_words(command))]
        yield from found
        yield from (each for each in _named_in(text) if each.uri not in {place.uri for place in found})
    elif "mainApplicationFile" in text:
        yield from _walk(_yaml(text), "", names)
    elif name in names:
        pieces = [text] if names[name] == APPLICATION else listed(text)
        yield from (Place(names[name], one) for one in pieces if _URI.match(one) or one.startswith("/"))
    elif _is_stored(value_in(text)) and _CODE.search(text.partition("?")[0]):
        yield Place("file", value_in(text))
    elif " " in text:
        yield from _named_in(text)


@lru_cache(maxsize=4)
def _stored(stores: frozenset[str], rest: str) -> re.Pattern[str]:
    """A URI in one of ``stores``, or where else code may lie. ``rest``: a pattern of what is behind the slash."""
    names = "|".join(sorted({*stores, *_OTHER_STORES}, key=len, reverse=True))
    return re.compile(rf"(?<![\w.+-])(?:{names})://?{rest}", re.IGNORECASE)


def _is_stored(text: str) -> bool:
    """Whether ``text`` is a URI."""
    return _stored(frozenset(schemes()), r"\S+").fullmatch(text) is not None


def _uris_in(text: str) -> list[str]:
    """The URIs in a command."""
    return _stored(frozenset(schemes()), r"[^\s'\";|&<>()]+").findall(text)


def _named_in(text: str) -> Iterator[Place]:
    """The files of code that a command names, but for the arguments of spark-submit."""
    stored = (uri for uri in _uris_in(text) if _CODE.search(uri.partition("?")[0]))
    yield from (Place("file", uri) for uri in (*stored, *_PROGRAM.findall(text)))


def _of_command(words: Sequence[str], *, has_application: bool = True) -> Iterator[Place]:
    """What stands behind ``spark-submit``. What follows the application is its own."""
    conf: dict[str, str] = {}
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-"):
            if has_application:
                yield Place(APPLICATION, word)
            break
        if word in _FLAGS:
            continue
        option, has_value, value = word.partition("=")
        value = value if has_value and option.startswith("--") else next(waiting, "")
        if option in ("--conf", "-c"):
            conf.update([value.partition("=")[::2]])
        elif option in _OPTIONS:
            yield from (Place(_OPTIONS[option], uri) for uri in listed(value))
        elif option == "--driver-class-path":
            yield from _class_path(value)
        elif option == "--packages":
            yield from (Place("packages", uri, PlaceKind.PACKAGE) for uri in listed(value))
    yield from places_of_settings(conf)


def places_of_shell(command: str, folder: str | None, env: Mapping[str, str]) -> list[Place]:
    """Return what a command of a shell runs by a relative path, a variable or PATH, as a module, or without an ending.

    ``folder``: in which it runs; `None` for one that is made for it. What can't be found is unseen.
    """
    found: list[Place] = []
    for part in re.split(r"&&|\|\||[;|\n]", command):
        words = [Template(word).safe_substitute(env) for word in _words(part)]
        while words and (_ASSIGNS.match(words[0]) or words[0] in _BEFORE_PROGRAM):
            del words[0]
        if words[:1] == ["cd"]:
            folder = os.path.join(folder or "", words[1]) if len(words) > 1 else None
            continue
        for at, word in enumerate(words):
            if "{" in word or _URI.match(word):
                continue
            if word == "-m" and at and _PYTHON.fullmatch(words[at - 1].rpartition("/")[2]) and words[at + 1 :]:
                found += _of_module(words[at + 1], [folder or "", *env.get("PYTHONPATH", "").split(os.pathsep)])
            if at == 0 and "/" not in word:
                word = _in_path(word, env) or word
            is_program = at == 0 and "/" in word and not _OF_SYSTEM.match(word)
            if not is_program and not _CODE.search(word):
                continue
            path = os.path.join(folder or "", word)
            if "$" in path:
                found.append(Place("file", word, PlaceKind.ELSEWHERE))
            elif os.path.isabs(path) and os.path.isfile(path):
                found.append(Place("file", path))
            elif folder is not None and not os.path.isabs(word):
                found.append(Place("file", word, PlaceKind.ELSEWHERE))
    return list(dict.fromkeys(found))


def files_of_shell(command: str, folder: str | None, env: Mapping[str, str]) -> list[str]:
    """Return the paths of files of this machine that the programs of a shell's command are given, also as a value.

    Without code (`places_of_shell`), what the shell or a program such as ``tee`` writes, and places of the system.
    ``folder`` and ``env`` as for `places_of_shell`.
    """
    found: list[str] = [path for inner in _INNER.findall(command) for path in files_of_shell(inner, folder, env)]
    for part in re.split(r"&&|\|\||[;|\n]", command):
        words = [Template(word).safe_substitute(env) for word in _words_read(part)]
        if words[:1] == ["cd"]:
            folder = os.path.join(folder or "", words[1]) if len(words) > 1 else None
            continue
        before = list(takewhile(lambda word: word in _BEFORE_PROGRAM or _ASSIGNS.match(word), words))
        program = "".join(words[len(before) : len(before) + 1]).rpartition("/")[2]
        arguments = words[len(before) + 1 : -1 if program in _COPIERS else None]
        for word in (*before, *(() if program in _WRITERS else arguments)):
            if _CODE.search(word):
                continue
            word = _OPTION_OF_FILE.sub("", word.partition("=")[2] if _WITH_VALUE.match(word) else word)
            path = os.path.join(folder or "", word)
            is_plain = path == os.path.normpath(path) and not any(sign in path for sign in "{$*?\n")
            if os.path.isabs(path) and is_plain and len(path) <= _MOST_PATH and not _NO_DATA.match(path):
                found.append(path)
    return list(dict.fromkeys(found))


_MOST_PATH = 1024
_WRITERS = frozenset(("echo", "mkdir", "printf", "rm", "rmdir", "tee", "test", "touch", "["))
"""Programs that read no content of the files that they are given."""
_COPIERS = frozenset(("cp", "install", "ln", "mv", "rsync"))
"""Programs that write to the last place that they are given."""
_INNER = re.compile(r"\$\(([^()]*)\)")
"""A command whose output is a part of another command."""
_OPTION_OF_FILE = re.compile(r"^(?:-\w)?@(?=[/\w.])")
"""``@file`` and ``-d@file``, as programs such as curl take it."""
_ASSIGNS = re.compile(r"\w+=")
_WITH_VALUE = re.compile(r"-[^=]*=|\w+=")
_NO_DATA = re.compile(r"/(?:bin|dev|lib\w*|proc|sbin|sys|usr)/|.*/(?:python[\d.]*|java|spark-submit|(?:ba)?sh)$")
_BEFORE_PROGRAM = (
    "exec",
    "nohup",
    "time",
    "env",
    "sudo",
    "command",
    "!",
    "then",
    "do",
    "else",
    "if",
    "while",
    "until",
    "(",
    "{",
)
_PYTHON = re.compile(r"python[\d.]*|pyspark")
_OF_SYSTEM = re.compile(r"/(?:usr/)?s?bin/|.*/(?:python[\d.]*|java|spark-submit|(?:ba)?sh)$")


def folders_of_shell(command: str, folder: str | None, env: Mapping[str, str]) -> list[str]:
    """Return the folders of this machine whose files the programs of a shell's command read, and nothing shows which.

    That is a folder that a program is given, and one in which a tool such as ``make`` or ``dbt`` runs. ``folder`` and
    ``env`` as for `places_of_shell`.
    """
    given = files_of_shell(command, folder, env)
    found = [path for path in given if path not in _SHARED_FOLDERS and os.path.isdir(path)]
    for part in re.split(r"&&|\|\||[;|\n]", command):
        words = [Template(word).safe_substitute(env) for word in _words_read(part)]
        if words[:1] == ["cd"]:
            folder = os.path.join(folder or "", words[1]) if len(words) > 1 else None
            continue
        program = next((word for word in words if word not in _BEFORE_PROGRAM and not _ASSIGNS.match(word)), "")
        if program.rpartition("/")[2] in _OF_PROJECTS and folder is not None and os.path.isdir(folder):
            found.append(folder)
    return list(dict.fromkeys(found))


_OF_PROJECTS = frozenset(
    ("dbt", "dvc", "gradle", "kedro", "make", "meltano", "mvn", "nextflow", "npm", "sbt", "snakemake", "sqlmesh")
)
"""Programs that read the files of the folder in which they run."""
_SHARED_FOLDERS = ("/", "/home", "/root", "/tmp", "/var", "/var/tmp")


def _in_path(program: str, env: Mapping[str, str]) -> str | None:
    """Where PATH finds a program. Not if its folder has a Python as well: there pip has installed the program."""
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    return None if found is None or os.path.exists(os.path.join(os.path.dirname(found), "python")) else found


def _of_module(name: str, folders: Sequence[str]) -> list[Place]:
    """What ``python -m`` runs: the files of a package, or of a module, that was not installed."""
    for folder in filter(None, folders):
        package = Path(folder, name.partition(".")[0])
        files = sorted(package.rglob("*.py")) if package.is_dir() else [package.with_suffix(".py")]
        if files and files[0].is_file():
            return [Place("file", str(one)) for one in files]
    return [Place("module", name, PlaceKind.ELSEWHERE)]


def _words(text: str) -> list[str]:
    """The words of one command of a shell, up to a sign that ends it."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if not word.strip("();<>|&"):
                break
            words.append(word)
    except ValueError:  # a quote that is not closed
        return text.split()
    return words


def _words_read(text: str) -> list[str]:
    """The words of one command of a shell, without the targets of ``>``."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        return text.split()
    is_target = [False, *(">" in word and not word.strip("();<>|&") for word in words)]
    return [word for word, skip in zip(words, is_target, strict=False) if not skip and word.strip("();<>|&")]


def _yaml(text: str) -> Any:
    import yaml

    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return None


def places_of_operator(
    operator: BaseOperator, operator_class: type[BaseOperator], fields: Sequence[str]
) -> list[Place]:
    """Where the operator's code lies: what its templated fields name, and what a service keeps under a name."""
    names = dict.fromkeys((*operator.template_fields, *fields, *_NAMED_CODE))
    named = {name: getattr(operator, name, None) for name in names if name not in _DATA}
    places = places_of_fields(named, of_service=has_code_elsewhere(operator))
    job_name = getattr(operator, "job_name", None)
    if not job_name:
        return places
    if "glue" in operator_class.__module__.split(".") and not getattr(operator, "script_location", None):
        places.append(Place("glue job", f"{GLUE}{job_name}"))
    elif operator_class.__name__.startswith("DatabricksRunNow"):
        places.append(Place("job_name", str(job_name), PlaceKind.ELSEWHERE))
    return places


def unseen_by_name(operator: Any, places: Sequence[Place]) -> tuple[str, ...]:
    """Return the names of the code that no task will be able to read, as far as the names alone tell.

    A name with a template in it is not known yet, and passed over. An image only counts if the program is in it.
    """
    programs = [place.uri for place in places if place.role == APPLICATION and place.uri]
    is_outside = any(not uri.startswith("local:") for uri in programs)
    found = [
        f"{place.role} {place.uri}"
        for place in places
        if place.uri
        and "{{" not in place.uri
        and not (place.kind is PlaceKind.IMAGE and is_outside)
        and (_is_out_of_sight(operator, place.uri) if place.kind is PlaceKind.FILE else not is_fixed(place))
    ]
    return tuple(dict.fromkeys(found))


def _is_out_of_sight(operator: Any, uri: str) -> bool:
    scheme = uri.partition(":")[0] if ":" in uri.partition("/")[0] else ""
    if scheme == "dbfs" or uri.startswith(ON_DATABRICKS):
        return "/Volumes/" in uri or not getattr(operator, DATABRICKS, None)
    if scheme in ("", "file"):
        return has_code_elsewhere(operator) and not hasattr(operator, "pipeline_spec")
    return scheme not in (*HADOOP, "http", "https", GLUE.rstrip(":")) and scheme_of(uri) is None


def has_code_elsewhere(operator: Any) -> bool:
    """Whether ``operator`` is one of a provider that starts jobs on other machines, or runs a pipeline's files."""
    modules = {parent.__module__ for parent in type(operator).__mro__}
    return any(
        module.startswith("airflow.providers.") and not _NOT_HERE.isdisjoint(re.split(r"[._]", module))
        for module in modules
    )


def is_fixed(place: Place) -> bool:
    """Whether what is behind an image's or a package's name can't change."""
    if place.kind is not PlaceKind.PACKAGE:
        return place.kind is PlaceKind.IMAGE and "@sha256:" in place.uri
    version = place.uri.rpartition(":")[2] if ":" in place.uri else ""
    return bool(version) and not re.search(r"SNAPSHOT|latest|[\[\](),+]", version)


def is_glob(uri: str) -> bool:
    """Whether spark-submit would expand it."""
    return re.search(r"[*?\[{]", uri.partition("#")[0]) is not None and not uri.startswith(("http:", "https:"))


def split_alias(uri: str) -> tuple[str, str]:
    """Return the URI, and the name behind its ``#`` that the file gets where the application runs."""
    plain, sign, alias = uri.partition("#")
    return plain, f"{sign}{alias}"
