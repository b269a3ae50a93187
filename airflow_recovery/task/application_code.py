"""What an application's code is, as components of its fingerprint, and whether it is still that code when it has run.

`ApplicationCode` reads each file once, when a try begins: one request a file. A try that runs its application looks a
second time, at versions and not at contents. So the rows of a bad deploy never count, also if it was rolled back. The
same holds for files that an argument names, and for files that settings are read from.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_recovery.errors import CodeReplaced
from airflow_recovery.hooks.code_sources import (
    CodeFile,
    CodeSource,
    CodeUnseen,
    DatabricksFiles,
    GlueJobs,
    HadoopFiles,
    LocalFiles,
    StoredFiles,
    WebFiles,
    hashed,
    local_path,
)
from airflow_recovery.job.application_modules import files_beside, included_files
from airflow_recovery.job.fingerprint import FilesFound
from airflow_recovery.job.package_files import FileIdentity, identity_of
from airflow_recovery.model.components import Component
from airflow_recovery.store.allowed import Source
from airflow_recovery.store.schemes import scheme_for
from airflow_recovery.task.code_places import (
    APPLICATION,
    DATABRICKS,
    GLUE,
    HADOOP,
    ON_DATABRICKS,
    Place,
    PlaceKind,
    has_code_elsewhere,
    is_fixed,
    is_glob,
    places_of_fields,
    split_alias,
)
from airflow_recovery.task.inventory import list_objects

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.store.object_store import ObjectStore

T = TypeVar("T")
_Version = FileIdentity

log = logging.getLogger(__name__)

_AT_ONCE = 16
_MOST_NAMED_BYTES = 256 * 1024**2
"""A larger file that an argument names is taken for data, and not read in every try."""
_LOADED = (".py", ".so", ".sql", ".hql", ".j2", ".jinja", ".jinja2")
"""Files beside a program that it loads, and does not write."""
_SPARK_PROVIDER = "airflow.providers.apache.spark."


class ApplicationCode:
    """The code of one operator in one try.

    ``stores`` reach code in object stores; without them only files of this machine are read. ``operator`` has the
    connections that are tried first.
    """

    def __init__(self, operator: Any = None, stores: Stores | None = None) -> None:
        self._operator = operator
        self._stores = stores
        self._read: dict[str, CodeFile] = {}
        self._answered: set[str] = set()
        """The files that the definition of a Glue job names."""
        self._guarded: dict[str, bool] = {}
        """The files whose versions are looked at again, and whether each is loaded when it is needed."""
        self._watched: dict[str, _Version | None] = {}
        """Files of this machine that are looked at again and are no code, or code of this process: their versions.

        `None`: the file did not exist.
        """
        self._lists: dict[str, tuple[list[str], Callable[[], list[str]]]] = {}
        """By a glob or a folder, the files of code that were found there, and what finds them again."""
        self.found = FilesFound()
        """The files of the operator's functions and values."""
        self._data: list[tuple[list[str], Callable[[], list[str]]]] = []
        """The files of data that an application reads from its own folder, and what finds them again."""
        self._settings: tuple[frozenset[str], Callable[[], Any], Any] = (frozenset(), lambda: None, None)
        """The watched files of settings, what reads these, and what they were."""
        self._named: set[str] = set()
        """The watched files that an argument or the application names. The job may write them."""

    # what it is

    def components(self, places: Iterable[Place]) -> list[Component]:
        """Return a component for each file that ``places`` name, in their order, with the modules beside the program.

        A file of this machine is named without its folder, for a deployment may move it. What can't be read is
        unseen: its value is its name.
        """
        expanded = [one for place in places if place.uri for one in self._expanded(place)]
        files = self._guard(place for place in expanded if place.kind is PlaceKind.FILE)
        beside = [self._beside(place) if place.kind is PlaceKind.FILE else {} for place in expanded]
        found: list[Component] = []
        for place, others in zip(expanded, beside, strict=True):
            if place.kind is PlaceKind.FILE:
                found.append(self._component(place, files[split_alias(place.uri)[0]]))
                contents = [f"{name}\0{self._content(file)}\n".encode() for name, file in sorted(others.items())]
                program = local_path(split_alias(place.uri)[0]).name
                found += [Component(f"files beside {program}", hashed(*contents))] if contents else []
            else:
                found.append(Component(f"{place.role} {place.uri}", place.uri, seen=is_fixed(place)))
        return list(_with_own_names(found))

    def file_digest(self, path: str) -> str:
        """Return what stands for the file of this machine at ``path``; ``path`` itself if there is none.

        It is looked at again later. A file does not count if it lies in a declared output, or if ``ignore_changes_in=``
        names it. A large file is not read: its size and time stand for its content.
        """
        plain, alias = split_alias(path)
        if self._is_left_out(local_path(plain)):
            return path
        version = self._watch_named(local_path(plain))
        if version is not None and version[2] > _MOST_NAMED_BYTES:
            return f"size:{version[2]} time:{version[3]}"
        file = self._files([plain])[plain] if os.path.isfile(local_path(plain)) else None
        return f"{file.content}{alias or '#'}" if isinstance(file, CodeFile) else path

    def watch_settings(self, paths: Iterable[Path], read: Callable[[], Any]) -> None:
        """Look again later at the files of this machine from which ``read`` reads settings.

        When the job has ended, only other settings than before are a change. So a job survives another time-out.
        """
        new = [str(path) for path in paths]
        self._watched = {**{path: _version_of(Path(path)) for path in new}, **self._watched}
        self._settings = frozenset(new), read, read()

    def watch_found(self) -> list[str]:
        """Look again later at the files that were `found`. Returns the digests of those that values name.

        A module that this process has loaded is passed over, unless the function runs on Spark, whose workers load it
        once more.
        """
        is_of_spark = any(each.__module__.startswith(_SPARK_PROVIDER) for each in type(self._operator).__mro__)
        has_workers = is_of_spark and callable(getattr(self._operator, "python_callable", None))
        modules = () if has_workers else list(sys.modules.values())
        loaded = {getattr(module, "__file__", None) for module in modules}
        self._watched |= {path: version for path, version in self.found.read.items() if path not in loaded}
        return [digest for path in sorted(self.found.named) if (digest := self.file_digest(path)) != path]

    def _watch_named(self, path: Path) -> _Version | None:
        self._named.add(str(path))
        return self._watched.setdefault(str(path), _version_of(path))

    def _is_left_out(self, path: Path) -> bool:
        """Whether a file is no input: it lies in a declared output, or the user has named it."""
        outputs = getattr(self._operator, "outputs", None)
        places = outputs.values() if isinstance(outputs, Mapping) else ()
        folders = [local_path(uri).absolute() for uri in map(str, filter(None, places)) if is_local(uri)]
        ignored = getattr(self._operator, "ignore_changes_in", ())
        if not (folders or ignored):
            return False
        full = path.absolute()
        return any(map(full.is_relative_to, folders)) or any(fnmatchcase(str(full), each) for each in ignored)

    def _expanded(self, place: Place) -> list[Place]:
        """``place``, or a place for each file that its glob names, or that Glue's definition of the job names."""
        if place.uri.startswith(GLUE):
            return self._of_glue(place)
        if place.kind is not PlaceKind.FILE or not is_glob(place.uri):
            return [place]
        plain, alias = split_alias(place.uri)
        matches = self._matches(plain)
        self._lists[plain] = matches, partial(self._matches, plain)
        return [place._replace(uri=f"{uri}{alias}") for uri in matches] or [place]

    def _matches(self, pattern: str) -> list[str]:
        if not is_local(pattern):
            return self._listed(pattern)
        path = local_path(pattern)
        return [str(one) for one in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))]

    def _of_glue(self, place: Place) -> list[Place]:
        """The job's definition, and the script and the files that it names."""
        if isinstance(self._files([place.uri])[place.uri], CodeUnseen):
            return [place]
        answered = places_of_fields(self._glue.definitions[place.uri])
        self._answered |= {split_alias(each.uri)[0] for each in answered}
        return [place, *answered]

    def _listed(self, pattern: str) -> list[str]:
        for open_at in self._openers(pattern):
            with suppress(Exception):  # as a file that can't be read, the glob is unseen then
                return [one.uri for one in list_objects(pattern, vertex=APPLICATION, open_location=open_at)]
        return []

    def _guard(self, places: Iterable[Place]) -> dict[str, CodeFile | CodeUnseen]:
        """Each file by its URI. Its version is looked at again later."""
        roles = {split_alias(place.uri)[0]: place.role for place in places}
        for uri, role in roles.items():
            # spark-submit fetches the application before it starts. Java reads a jar of this machine as it needs it.
            is_lazy = role != APPLICATION or (is_local(uri) and not uri.endswith(".py"))
            self._guarded[uri] = self._guarded.get(uri, False) or is_lazy
        return self._files(list(roles))

    def _files(self, uris: Sequence[str]) -> dict[str, CodeFile | CodeUnseen]:
        """Each file by its URI, read once a try."""

        def read(uri: str) -> CodeFile | CodeUnseen:
            known = self._read.get(uri)
            return self._seen(uri, lambda source: source.read(uri)) if known is None else known

        found = self._each(read, uris)
        self._read |= {uri: file for uri, file in found.items() if isinstance(file, CodeFile)}
        return found

    def _component(self, place: Place, file: CodeFile | CodeUnseen) -> Component:
        plain, alias = split_alias(place.uri)
        if isinstance(file, CodeUnseen):
            log.warning("The code at %s can't be seen, so a change of it is not noticed: %s", _shown(plain), file)
            return Component(f"{place.role} {_shown(plain)}{alias}", f"{_shown(plain)}{alias}", seen=False)
        if not is_local(plain):
            return Component(f"{place.role} {_shown(plain)}{alias}", self._content(file))
        name = place.role if place.role == APPLICATION else f"{place.role} {local_path(plain).name}"
        return Component(f"{name}{alias}", self._content(file), seen=self._runs_here)

    def _content(self, file: CodeFile | str) -> str:
        """What stands for a file. Comments and layout of Python count only if some code of it may read them."""
        if isinstance(file, str):
            return file
        is_verbatim = any(one.reads_source for one in self._read.values())
        return file.content if is_verbatim or not file.syntax else file.syntax

    def _beside(self, place: Place) -> dict[str, CodeFile | str]:
        """What a program of this machine loads from its folder: modules, data, or the files that a pipeline includes.

        By their names below the folder. Of data, what stands for the content.
        """
        plain, _ = split_alias(place.uri)
        path = local_path(plain)
        if not is_local(plain) or place.role not in (APPLICATION, "file"):
            return {}
        version, find = _version_of(path), self._modules if plain.endswith(".py") else included_files
        beside = find(path)
        loaded, data = _loaded_of(beside), self._data_of(beside)
        # A program that was replaced after it was loaded does not show what the loaded one loads.
        self._lists[plain] = loaded, lambda: _loaded_of(find(path)) if _version_of(path) == version else loaded
        self._data.append((data, lambda: self._data_of(find(path))))
        read = self._guard(Place("module", str(one)) for one in beside if one.suffix in _LOADED)
        found: dict[str, CodeFile | str] = {uri: file for uri, file in read.items() if isinstance(file, CodeFile)}
        found |= {uri: self.file_digest(uri) for uri in data}
        return {_name_beside(Path(uri), path): content for uri, content in found.items()}

    def _data_of(self, beside: Iterable[Path]) -> list[str]:
        return [str(one) for one in beside if one.suffix not in _LOADED and not self._is_left_out(one)]

    def _modules(self, path: Path) -> list[Path]:
        env = getattr(self._operator, "env_vars", None)
        text = (env if isinstance(env, Mapping) else {}).get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
        return files_beside(path, [Path(folder) for folder in str(text).split(os.pathsep) if folder])

    # whether it still is

    def check_same(
        self, attempt: str, known: Sequence[str] = (), *, lazy: bool = False, cause: Exception | None = None
    ) -> None:
        """Raise `CodeReplaced` if a file of the code was replaced since it was read, or can't be looked at.

        The same for a file that an argument names. ``known`` are files that were found replaced already. ``lazy``: of
        the others, look only at files that are fetched when they are needed. One request a file. ``cause``: what the
        attempt has failed with.
        """
        replaced = known or self.replaced(lazy=lazy)
        code = [uri for uri in replaced if uri not in self._named]
        if code:
            raise CodeReplaced(
                f"{attempt}: expected its code to stay as it was when this try began, found that "
                f"{', '.join(map(_shown, code))} was replaced since, or can't be read any more. It is not known "
                "which code has made the rows, so they don't count. The next try runs with the code as it is then. To "
                "leave running tasks alone, deploy new code under a new name.",
                code="code-replaced",
                attempt=attempt,
            ) from cause
        if replaced:
            raise CodeReplaced(
                f"{attempt}: expected each file that an argument or the application names to stay as it was when this "
                f"try began, found that {', '.join(replaced)} was changed since, or removed. It is not known what the "
                "job has read, so its rows don't count. The next try runs with the file as it is then. If the job "
                f"itself writes the file, {_declared(replaced)}.",
                code="named-file-changed",
                attempt=attempt,
            ) from cause

    def replaced(self, *, lazy: bool = False) -> list[str]:
        """Return the URIs of the files whose version differs from the one that was read, or can't be read now.

        A glob or a folder is named if other files of code are found there.
        """
        changed = [uri for uri, version in self._now(lazy=lazy).items() if version != self._read[uri].version]
        lists = [name for name, (before, find) in self._lists.items() if find() != before]
        files, read, before_it = self._settings
        here = self._changed_here()
        unchanged = files if not files.isdisjoint(here) and read() == before_it else ()
        return list(dict.fromkeys([*changed, *(path for path in here if path not in unchanged), *lists]))

    def _changed_here(self) -> list[str]:
        """The watched files that differ. One that an argument names and that did not exist is not among them."""
        return [
            path
            for path, before in self._watched.items()
            if _version_of(Path(path)) != before and (before is not None or path not in self._named)
        ]

    def made_meanwhile(self) -> str:
        """Name the files that an argument or the application names and that are newer than the fingerprint.

        With what to declare.
        """
        made = [path for path in sorted(self._named) if self._watched[path] is None and os.path.isfile(path)]
        made += sorted({path for before, find in self._data for path in set(find()) - set(before)} - {*made})
        if not made:
            return ""
        return (
            f"an argument or the application names {', '.join(made)}, which did not exist before: in later tries its "
            "content counts, and must not change while the job runs. If the job itself writes the file, "
            f"{_declared(made)}"
        )

    def look_early(self) -> tuple[list[str], bool]:
        """Return the URIs of the files that were surely replaced, and whether every file was looked at.

        A store that gives no answer ends no job that runs.
        """
        now = self._now()
        seen = {uri: version for uri, version in now.items() if not isinstance(version, CodeUnseen)}
        replaced = [uri for uri, version in seen.items() if version != self._read[uri].version]
        return list(dict.fromkeys([*replaced, *self._changed_here()])), len(seen) == len(now)

    def _now(self, *, lazy: bool = False) -> dict[str, tuple[Any, ...] | CodeUnseen]:
        uris = [uri for uri, is_lazy in self._guarded.items() if uri in self._read and (is_lazy or not lazy)]
        return self._each(lambda uri: self._seen(uri, lambda source: source.version(uri)), uris)

    @property
    def unread(self) -> list[str]:
        """The URIs of files that were not tried to be read, since no stores are at hand."""
        return sorted(uri for uri in self._guarded if self._stores is None and not is_local(uri))

    @property
    def remote_versions(self) -> list[list[Any]]:
        """The versions of the files that are not on this machine. Those of this machine differ on another worker."""
        return [[uri, *file.version] for uri, file in sorted(self._read.items()) if not is_local(uri)]

    # how it is reached

    def _each(self, ask: Callable[[str], T], uris: Sequence[str]) -> dict[str, T]:
        remote = [uri for uri in uris if not is_local(uri)]
        if len(remote) < 2:
            return {uri: ask(uri) for uri in uris}
        with ThreadPoolExecutor(min(_AT_ONCE, len(uris)), thread_name_prefix="recovery-code") as pool:
            return dict(zip(uris, pool.map(ask, uris), strict=True))

    def _seen(self, uri: str, ask: Callable[[CodeSource], T]) -> T | CodeUnseen:
        """What the first source that reaches the file answers, else why none does. Never raises."""
        why = "no client here reads it"
        try:
            for source in self._sources(uri):
                try:
                    return ask(source)
                except Exception as error:  # noqa: PERF203 - whatever a client raises, this file was not read
                    why = f"{type(error).__name__}: {error}"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        return CodeUnseen(why)

    def _sources(self, uri: str) -> Iterator[CodeSource]:
        scheme = uri.partition(":")[0] if ":" in uri.partition("/")[0] else ""
        if self._databricks is not None and (scheme == "dbfs" or uri.startswith(ON_DATABRICKS)):
            yield self._databricks
        elif is_local(uri):
            yield LocalFiles()
        elif self._stores is None:
            return
        elif uri.startswith(GLUE):
            yield self._glue
        elif scheme in ("http", "https"):
            self._stores.check(uri)
            yield WebFiles(self._stores.may_open)
        elif scheme in HADOOP:
            yield self._hadoop
        else:
            yield from (StoredFiles(open_at) for open_at in self._openers(uri))

    def _openers(self, uri: str) -> Iterator[Callable[[str], ObjectStore]]:
        """The operator's own connection comes first, then that of the results."""
        scheme, stores = scheme_for(uri), self._stores
        if scheme is None or scheme.is_folder or stores is None:
            return
        source = Source.CATALOG if uri in self._answered else Source.RUN
        own = getattr(self._operator, scheme.operator_conn, None)
        if isinstance(own, str) and own:
            yield lambda folder: stores.opener_of(uri, own, source)(folder)
        yield lambda folder: stores.opener_of(uri, source=source)(folder)

    @cached_property
    def _runs_here(self) -> bool:
        return not has_code_elsewhere(self._operator) or hasattr(self._operator, "pipeline_spec")

    @cached_property
    def _hadoop(self) -> CodeSource:
        return HadoopFiles()

    @cached_property
    def _glue(self) -> GlueJobs:
        operator = self._operator
        return GlueJobs(getattr(operator, "aws_conn_id", None), getattr(operator, "region_name", None))

    @cached_property
    def _databricks(self) -> CodeSource | None:
        conn_id = getattr(self._operator, DATABRICKS, None)
        return DatabricksFiles(conn_id) if isinstance(conn_id, str) and self._stores is not None else None


def is_local(uri: str) -> bool:
    """Whether a URI or a path names a file of this machine."""
    return uri.startswith("file:") or ":" not in uri.partition("/")[0]


def _version_of(path: Path) -> _Version | None:
    try:
        return identity_of(path.stat()) if path.is_file() else None
    except OSError:
        return None


def _name_beside(file: Path, program: Path) -> str:
    """Its path from the program's folder on, also if a link such as ``current`` leads to this folder."""
    folders = (program.parent, program.resolve().parent)
    folder = next((one for one in folders if file.is_relative_to(one)), None)
    return str(file.relative_to(folder)) if folder else os.path.relpath(file.resolve(), folders[1])


def _loaded_of(files: Iterable[Path]) -> list[str]:
    return [str(one) for one in files if one.suffix in _LOADED]


def _declared(files: Sequence[str]) -> str:
    """What to declare if the job itself writes ``files``."""
    return (
        "declare it as an output and write {output:name} in the argument; if no row depends on its content, say "
        f"ignore_changes_in={list(files)!r}"
    )


def _shown(uri: str) -> str:
    """A URI without what may be a secret: the query of a signed address, a password."""
    plain = uri.partition("?")[0]
    scheme, separator, rest = plain.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if scheme in ("http", "https") else plain


def _with_own_names(components: Iterable[Component]) -> Iterator[Component]:
    """A name is there once: a second component of the name gets a number."""
    names: dict[str, int] = {}
    for one in components:
        names[one.name] = number = names.get(one.name, 0) + 1
        yield one if number == 1 else Component(f"{one.name} ({number})", one.value, one.seen, one.decides)
