"""Dataclasses to JSON values and back, by the annotations of their fields; JSON in one form. Imports nothing of ours.

    str, bool, int, float   as they are; an int is at least 0, and a float may be a whole number
    Any                     any JSON value, as it is
    an enum                 the member's value
    tuple[X, ...]           a list
    Sequence[X]             a list, read as a tuple
    tuple[X, Y]             a list of exactly two
    Mapping[str, X]         an object with whatever keys
    X | None                X, or null
    a dataclass             an object with a key for each field; inside another one, what its own ``to_json`` says

What a type does not say, its annotation or its field adds:

    Annotated[X, ROW]       the dataclass X as a list: the values of its fields, but for those that came `later`
    Annotated[X, Tagged]    the dataclass X or one derived from it, whose name is among the keys
    Annotated[X, Key(name)] a field whose key is another one than its name
    Annotated[X, Form]      X as two functions write and read it
    Annotated[X, Check]     what must hold of the value besides (`Id`, `Positive`, `PathBelow`)
    later(default)          a field that is not written while it has its default
    needed(default)         a field that must be there on reading, although it has a default
    flat(default, choose)   a field whose own fields stand among the keys of the record that holds it

Reading is strict. It raises `Unlike`, a `ValueError`, which says where in the record, what was expected, and what was
found. A key that no field has is passed over, and a field without a key has its default: so older and newer versions
read each other. With ``exact`` neither may be, but for fields that came `later`.

The annotations of a class are read once, when its first value is written or read, and must have their names at run
time: none under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Read = Callable[[Any], Any]
_Write = Callable[[Any], Any]
Choose = Callable[[type[Any], Collection[str]], type[Any]]
"""The class of a `flat` field's value, by the class of the record that holds it and the keys of its JSON object."""

_NEVER = object()
_ELSE_UPGRADE = "(where a newer version wrote it, upgrade airflow-recovery here)"


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> str:
    """JSON with one form for equal values: sorted keys, no spaces, ASCII.

    Raises `ValueError` for NaN, for infinities and for what holds itself, `TypeError` for what is no JSON value.
    """
    return _CANONICAL.encode(value)


def digest_of(value: Any) -> str:
    """The SHA-256 of the canonical JSON of ``value``: 64 hexadecimal digits. Raises as `canonical_json`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


class Unlike(ValueError):
    """A JSON value is not what a field, or a record, is read from. Its text says where, and what was expected."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text
        self._path = ""

    def at(self, place: str) -> Unlike:
        """This very error, with ``place`` (``.field``, ``[3]``) put before the path of the value that it is about."""
        self._path = place + self._path
        return self

    def __str__(self) -> str:
        return f"{self._path}: {self._text}" if self._path else self._text

    __repr__ = __str__


def _unlike(expected: str, found: object) -> Unlike:
    text = repr(found)
    return Unlike(f"expected {expected}, found {text if len(text) <= 200 else text[:200] + '...'}")


@dataclass(frozen=True)
class Check:
    """What must hold of a value besides its type. ``expected`` says it in an error."""

    expected: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Form:
    """How a value is written and read that has a JSON form of its own. ``read`` raises `Unlike` for anything else."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


ROW = object()
"""Marks a dataclass that is written as a list of its fields' values."""


@dataclass(frozen=True)
class Key:
    """The key of a field in the JSON object, where it is not the field's name."""

    name: str


@dataclass(frozen=True)
class Tagged:
    """Values of several classes, each with its own value of the class attribute ``key``, which is written as well.

    ``choose`` finds the class by it, and raises `KeyError` where there is none.
    """

    key: str
    choose: Callable[[str], type[Any]]

    def to_json(self, value: Any) -> dict[str, Any]:
        """The JSON object of a value of any of the classes."""
        return {self.key: getattr(value, self.key), **to_json(value)}

    def from_json(self, value: Any, *, exact: bool = False) -> Any:
        """Inverse of `to_json`. Raises `Unlike` for anything else."""
        tag = value.get(self.key) if type(value) is dict else None
        if type(tag) is not str:
            raise _unlike(f"an object with a {self.key}", value)
        try:
            kind: Any = self.choose(tag)
        except KeyError:
            raise _unlike(f"a {self.key} that this version knows {_ELSE_UPGRADE}", tag) from None
        return _reader(kind, exact)({key: content for key, content in value.items() if key != self.key})


def _is_id(text: str) -> bool:
    # Half a character (a lone surrogate) has no bytes, and so no key.
    return text != "" and (text.isascii() or text.encode(errors="replace").decode() == text)


def _is_path_below(text: str) -> bool:
    return "\0" not in text and not {"", ".", ".."} & set(text.split("/"))


Id = Annotated[str, Check("an id", _is_id)]
"""A name that is part of a store's keys: neither empty, nor with a lone surrogate (which has no bytes)."""
Positive = Annotated[int, Check("a number of at least 1", lambda number: number >= 1)]
OrMinusOne = Annotated[int, Check("a number of at least -1", lambda number: number >= -1)]
PathBelow = Annotated[str, Check("a key that stays where it begins", _is_path_below)]
"""A key below a prefix: what is read, and one day deleted, is what it says (docs/faults.md, fault 86)."""


def _is_attempt_folder(text: str) -> bool:
    return re.fullmatch("[0-9]{8}-[0-9a-f]{8}", text) is not None


AttemptFolder = Annotated[str, Check("the number of an attempt and eight hex digits", _is_attempt_folder)]
"""The name of the folder that one attempt writes to: ``00000001-5f2c9a01``."""


def later(default: Any, *, compare: bool = True) -> Any:
    """A field that its format did not have at first. It is not written while it has its ``default``.

    So what says the same has the same bytes, and a plan the same hash, whichever version wrote it. Without ``compare``
    two values are equal whatever they have in this field.
    """
    return field(default=default, compare=compare, metadata={"later": True})


def needed(default: Any = MISSING, *, factory: Any = MISSING) -> Any:
    """A field whose ``default`` is for code that makes a value. On reading, a record without its key is refused."""
    made: Any = field(default=default, default_factory=factory, metadata={"needed": True})
    return made


def flat(default: Any, choose: Choose) -> Any:
    """A field whose own fields are written among the keys of its record. ``choose`` names its class on reading."""
    return field(default=default, metadata={"flat": choose})


def to_json(value: Any) -> dict[str, Any]:
    """The JSON object of a dataclass's value; `from_json` is the inverse."""
    kind: Any = type(value)
    document: dict[str, Any] = _writer(kind)(value)
    return document


def from_json(kind: type[T], value: Any, *, exact: bool = False) -> T:
    """The ``kind`` that `to_json` made ``value`` of. Raises `Unlike` for anything else."""
    key: Any = kind
    try:
        record: T = _reader(key, exact)(value)
        return record
    except Unlike as error:
        raise error.at(kind.__name__) from error.__cause__


def list_from_json(values: Any, choose: Callable[[Any], type[Any]]) -> tuple[Any, ...]:
    """The values of a list whose items are of several dataclasses: ``choose`` tells an item's. Raises `Unlike`."""
    return tuple(_list_reader(lambda item: _of_kind(choose(item))(item))(values))


def _of_kind(kind: Any) -> _Read:
    return _reader(kind, False)


def _key(name: str, hint: Any) -> str:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark.name for mark in marks if isinstance(mark, Key)), name)


# Writing.


@cache
def _writer(kind: type[Any]) -> _Write:
    """How a value of a dataclass becomes a JSON object."""
    hints = get_type_hints(kind, include_extras=True)
    plain, nested = [], []
    for field_ in fields(kind):
        if "flat" in field_.metadata:
            nested.append(field_.name)
        else:
            omitted = field_.default if field_.metadata.get("later") else _NEVER
            hint = hints[field_.name]
            plain.append((field_.name, _key(field_.name, hint), _write_of(hint), omitted))

    def write(value: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, key, write_field, omitted in plain:
            content = getattr(value, name)
            if omitted is _NEVER or content != omitted:
                document[key] = content if write_field is None else write_field(content)
        for name in nested:
            document.update(to_json(getattr(value, name)))
        return document

    return write


@cache
def _write_of(hint: Any) -> _Write | None:
    """How a value with this annotation is written; `None`: as it is."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        form = next((arg for arg in args if isinstance(arg, Form)), None)
        if form is not None:
            return form.write
        tagged = next((arg for arg in args if isinstance(arg, Tagged)), None)
        return tagged.to_json if tagged is not None else _row_writer(args[0]) if ROW in args else _write_of(args[0])
    if origin in (Union, UnionType):
        return _optional_writer(_write_of(_only(hint)))
    if origin is Sequence:
        return _list_writer(_write_of(args[0]))
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return _list_writer(_write_of(args[0]))
        return _pair_writer(tuple(map(_write_of, args)))
    if origin is not None and issubclass(origin, Mapping):
        return _object_writer(_write_of(args[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda member: member.value
    if is_dataclass(hint):
        # By the class of the value: it may be one that is derived.
        return (lambda value: value.to_json()) if hasattr(hint, "to_json") else to_json
    return None


def _optional_writer(write: _Write | None) -> _Write | None:
    return None if write is None else lambda value: None if value is None else write(value)


def _list_writer(write: _Write | None) -> _Write:
    return list if write is None else lambda values: [write(value) for value in values]


def _pair_writer(writers: tuple[_Write | None, ...]) -> _Write:
    if not any(writers):
        return list
    return lambda values: [
        value if write is None else write(value) for write, value in zip(writers, values, strict=True)
    ]


def _object_writer(write: _Write | None) -> _Write:
    return dict if write is None else lambda mapping: {key: write(value) for key, value in mapping.items()}


def _row_fields(kind: type[Any]) -> list[Field[Any]]:
    return [field_ for field_ in fields(kind) if not field_.metadata.get("later")]


def _row_writer(kind: type[Any]) -> _Write:
    hints = get_type_hints(kind, include_extras=True)
    writers = [(field_.name, _write_of(hints[field_.name])) for field_ in _row_fields(kind)]
    return lambda value: [
        getattr(value, name) if write is None else write(getattr(value, name)) for name, write in writers
    ]


# Reading.


@cache
def _reader(kind: type[Any], exact: bool) -> _Read:
    """How a JSON object becomes a value of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    flat_fields = {
        field_.name: (field_.metadata["flat"], field_.default) for field_ in fields(kind) if "flat" in field_.metadata
    }
    bare = {type(default) for _, default in flat_fields.values() if is_dataclass(default) and not fields(default)}
    own = [field_ for field_ in fields(kind) if field_.init and field_.name not in flat_fields]
    keys = {field_.name: _key(field_.name, hints[field_.name]) for field_ in own}
    readers = {key: (name, _read_of(hints[name], exact)) for name, key in keys.items()}
    required = {
        keys[field_.name] for field_ in own if not field_.metadata.get("later") and (exact or _is_needed(field_))
    }

    make = _maker(kind)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _unlike(f"an object with {', '.join(readers)}", value)
        if not required <= value.keys():
            raise _unlike(f"an object with {', '.join(readers)}", f"none of {', '.join(required - value.keys())}")
        if exact and not flat_fields and not value.keys() <= readers.keys():
            raise _unlike(f"an object with exactly {', '.join(readers)} {_ELSE_UPGRADE}", sorted(value))
        contents = {}
        key = ""
        try:
            for key, content in value.items():
                if key in readers:
                    name, read_field = readers[key]
                    contents[name] = read_field(content)
        except Unlike as error:
            raise error.at(f".{key}") from error.__cause__
        for name, (choose, default) in flat_fields.items():
            chosen = choose(kind, value.keys())
            contents[name] = default if chosen in bare else _reader(chosen, False)(value)
        return make(contents)

    return read


def _maker(kind: type[Any]) -> Callable[[dict[str, Any]], Any]:
    """What makes a value of a dataclass of its fields by name. It raises `Unlike` for what the class itself refuses."""

    def made(contents: dict[str, Any]) -> Any:
        try:
            return kind(**contents)
        except ValueError as error:
            raise Unlike(str(error)) from error

    def filled(contents: dict[str, Any]) -> Any:
        value = object.__new__(kind)
        object.__setattr__(value, "__dict__", {**defaults, **contents})
        return value

    # The constructor of a frozen class sets each field by a call: where it does nothing else, this is a third of it.
    defaults = {field_.name: field_.default for field_ in fields(kind) if field_.default is not MISSING}
    has_factories = any(field_.default_factory is not MISSING for field_ in fields(kind))
    return made if has_factories or hasattr(kind, "__post_init__") or hasattr(kind, "__slots__") else filled


def _is_needed(field_: Field[Any]) -> bool:
    return bool(field_.metadata.get("needed")) or (field_.default is MISSING and field_.default_factory is MISSING)


@cache
def _read_of(hint: Any, exact: bool) -> _Read:
    """How a value with this annotation is read."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Annotated:
        return _annotated_reader(args[0], args[1:], exact)
    if origin in (Union, UnionType):
        return _optional_reader(_read_of(_only(hint), exact))
    if origin is Sequence:
        return _texts if args[0] is str else _list_reader(_read_of(args[0], exact))
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return _texts if args[0] is str else _list_reader(_read_of(args[0], exact))
        return _fixed_reader(tuple(_read_of(arg, exact) for arg in args), tuple)
    if origin is not None and issubclass(origin, Mapping):
        return _object_reader(_read_of(args[1], exact))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member_reader(hint)
    if hasattr(hint, "from_json"):
        return _own_reader(hint)
    if is_dataclass(hint):
        return _nested_reader(hint, exact)
    raise TypeError(f"expected an annotation that has a JSON form (see {__name__}), found {hint!r}")


def _only(hint: Any) -> Any:
    """The other type of a union with None."""
    others = [arg for arg in get_args(hint) if arg is not NoneType]
    if len(others) != 1 or len(get_args(hint)) != 2:
        raise TypeError(f"expected one type, or one type or None, found {hint}")
    return others[0]


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise _unlike("a text", value)
    return value


def _truth(value: Any) -> Any:
    if type(value) is not bool:
        raise _unlike("true or false", value)
    return value


def _natural(value: Any) -> Any:
    if type(value) is not int or value < 0:  # a bool is no number here
        raise _unlike("a number of at least 0", value)
    return value


def _number(value: Any) -> Any:
    if type(value) is not float and type(value) is not int:
        raise _unlike("a number", value)
    return value


_SCALARS: dict[Any, _Read] = {str: _text, bool: _truth, int: _natural, float: _number, Any: lambda value: value}


def _texts(values: Any) -> tuple[str, ...]:
    if type(values) is not list or not all(type(value) is str for value in values):
        raise _unlike("a list of texts", values)
    return tuple(values)


def _optional_reader(read: _Read) -> _Read:
    return lambda value: None if value is None else read(value)


def _list_reader(read: _Read) -> _Read:
    def read_all(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise _unlike("a list", values)
        try:
            return tuple(map(read, values))
        except Unlike:
            for number, value in enumerate(values):
                _read_at(read, value, f"[{number}]")
            raise

    return read_all


def _fixed_reader(readers: tuple[_Read, ...], make: Callable[[list[Any]], Any]) -> _Read:
    length = len(readers)

    def read_each(values: Any) -> Any:
        if type(values) is not list or len(values) != length:
            raise _unlike(f"a list of {length}", values)
        try:
            return make([read(value) for read, value in zip(readers, values)])  # noqa: B905 - as long as each other
        except Unlike:
            for number, (read, value) in enumerate(zip(readers, values, strict=True)):
                _read_at(read, value, f"[{number}]")
            raise

    return read_each


def _object_reader(read: _Read) -> _Read:
    def read_object(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _unlike("an object", value)
        return {key: _read_at(read, content, f"[{key!r}]") for key, content in value.items()}

    return read_object


def _member_reader(kind: type[Enum]) -> _Read:
    members = {member.value: member for member in kind}
    expected = f"a {kind.__name__}, one of {', '.join(map(repr, members))} {_ELSE_UPGRADE}"

    def read(value: Any) -> Any:
        member = members.get(value) if type(value) is str else None
        if member is None:
            raise _unlike(expected, value)
        return member

    return read


def _annotated_reader(hint: Any, marks: tuple[Any, ...], exact: bool) -> _Read:
    if ROW in marks:
        hints = get_type_hints(hint, include_extras=True)
        names = [field_.name for field_ in _row_fields(hint)]
        make = _maker(hint)
        return _fixed_reader(
            tuple(_read_of(hints[name], exact) for name in names),
            lambda values: make(dict(zip(names, values))),  # noqa: B905 - as long as each other
        )
    form = next((mark for mark in marks if isinstance(mark, Form)), None)
    if form is not None:
        return form.read
    tagged = next((mark for mark in marks if isinstance(mark, Tagged)), None)
    if tagged is not None:
        return partial(tagged.from_json, exact=exact)
    check = next((mark for mark in marks if isinstance(mark, Check)), None)
    if check is None:
        return _read_of(hint, exact)
    return _scalar_reader(hint, check) if hint in (str, int) else _checked_reader(_read_of(hint, exact), check)


def _scalar_reader(kind: type[Any], check: Check) -> _Read:
    holds = check.holds

    def read(value: Any) -> Any:
        if type(value) is kind and holds(value):
            return value
        raise _unlike(check.expected, value)

    return read


def _nested_reader(kind: Any, exact: bool) -> _Read:
    # The reader is made when it is needed, not before: a class may hold values of its own.
    return lambda value: _reader(kind, exact)(value)


def _own_reader(hint: Any) -> _Read:
    def read_own(value: Any) -> Any:
        try:
            return hint.from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unlike(f"{hint.__name__}: {error!r}") from error

    return read_own


def _checked_reader(read: _Read, check: Check) -> _Read:
    def read_checked(value: Any) -> Any:
        content = read(value)
        if not check.holds(content):
            raise _unlike(check.expected, value)
        return content

    return read_checked


def _read_at(read: _Read, value: Any, place: str) -> Any:
    try:
        return read(value)
    except Unlike as error:
        raise error.at(place) from error.__cause__
