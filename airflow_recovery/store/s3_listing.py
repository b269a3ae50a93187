"""Reads the pages of a listing in a fortieth of the SDK's time: a large run has a hundred of them.

The SDK lets a handler read parts of an answer before it does (its event ``before-parse``). This one reads the listed
objects; the rest of the page is left to the SDK, and so are all of a page whose objects are not alike.

Of an object that is read it reads the date, which is a twentieth of the SDK's time for one: a resume reads thousands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from airflow_recovery.store.object_store import ObjectInfo

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LISTED = "Listed"
"""Under this key an answer has what was read here, in place of ``Contents``."""
_OBJECTS = re.compile(rb"<Contents>.*</Contents>", re.DOTALL)
_TEXTS = {
    "Key": "([^<]+)",
    "Size": "([0-9]+)",
    "ETag": '(?:&quot;|")?([^<&"]+)(?:&quot;|")?',
    "LastModified": "([^<]+)",
}
_CLASS = "StorageClass"
ARCHIVED = frozenset({"DEEP_ARCHIVE", "GLACIER"})
"""The storage classes whose objects can't be read before they are restored. A listing does not show which objects of
INTELLIGENT_TIERING are in one of its archive tiers."""
_DATE = "last-modified"
_OTHER_REFERENCES = {"&quot;": '"', "&apos;": "'"}


def read_answers_fast(client: S3Client) -> None:
    """Let ``client`` read the objects of its listings, and the dates of objects, by this module."""
    # With this wildcard it is called before the SDK's own handler, which parses all of a page to look for an error.
    client.meta.events.register("before-parse.*.ListObjectsV2", _read_objects)
    client.meta.events.register("before-parse.*.GetObject", _read_date)


def listed_objects(page: Mapping[str, Any], prefix: str) -> Iterator[ObjectInfo] | None:
    """The objects of a page, keys without ``prefix``; `None` where they were left to the SDK."""
    listed = page.get(LISTED)
    if listed is None:
        return None
    keys, sizes, etags, moments, classes = listed
    if page.get("EncodingType") == "url":
        keys = map(unquote_plus, keys)  # AWS writes a blank as a plus sign, and a plus sign as %2B
    below = (key[len(prefix) :] for key in keys)
    if ARCHIVED.isdisjoint(classes):
        return map(ObjectInfo, below, map(int, sizes), etags, map(_moment_s, moments))
    archived = (name if name in ARCHIVED else "" for name in classes)
    return map(ObjectInfo, below, map(int, sizes), etags, map(_moment_s, moments), archived)


def _read_objects(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **of: Any) -> None:
    """Take the objects out of an answer's body, and hand them out. What it can't read is left to the SDK."""
    body: bytes = response_dict["body"]
    objects = _OBJECTS.search(body)
    if objects is None or response_dict["status_code"] != 200:
        return
    try:
        customized_response_dict[LISTED] = _columns(objects[0].decode())
    except (ElementTree.ParseError, ValueError):
        return
    response_dict["body"] = body[: objects.start()] + body[objects.end() :]


def _read_date(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **of: Any) -> None:
    """Take the date out of an object's headers, and hand it out. What it can't read is left to the SDK."""
    headers = response_dict["headers"]
    text = headers.get(_DATE)
    if text is None or response_dict["status_code"] >= 300:
        return
    with suppress(ValueError):
        customized_response_dict["LastModified"] = _date(text)
        del headers[_DATE]


@lru_cache(maxsize=1024)
def _date(text: str) -> datetime:
    """A moment as HTTP writes it. Raises `ValueError` for anything else, and for one without its time zone."""
    moment = parsedate_to_datetime(text)
    if moment.tzinfo is None:
        raise ValueError(f"expected a time zone, found {text!r}")
    return moment


def _columns(text: str) -> tuple[list[str], ...]:
    """Keys, sizes, etags, moments and storage classes of all objects, as texts.

    Raises `ValueError` where they are not all alike.
    """
    text = text.replace("&#34;", "&quot;")
    if "&#" in text or "\r" in text:
        raise ValueError("expected no other character by its number")
    first = ElementTree.fromstring(text[: text.index("</Contents>")] + "</Contents>")
    parts = _pattern(_shape(first)).split(text)
    order = [field.tag for field in first if field.tag in _TEXTS or field.tag == _CLASS]
    width = 1 + len(order)
    if any(parts[::width]):
        raise ValueError("expected nothing between objects that are alike")
    keys, sizes, etags, moments = (parts[1 + order.index(name) :: width] for name in _TEXTS)
    classes = parts[1 + order.index(_CLASS) :: width] if _CLASS in order else []
    if "&" in "".join(keys):
        keys = [unescape(key, _OTHER_REFERENCES) for key in keys]
    for moment in set(moments):
        _moment_s(moment)
    return keys, sizes, etags, moments, classes


Shape = tuple[str, tuple["Shape", ...]]
"""The tag of an element, and the shapes of those in it."""


def _shape(element: ElementTree.Element) -> Shape:
    return element.tag, tuple(map(_shape, element))


@lru_cache(maxsize=16)
def _pattern(contents: Shape) -> re.Pattern[str]:
    """An object with these fields in their order; those that nobody asks for may be missing.

    It matches in one way at most, so that a long page which it does not fit costs no more than one that it fits.
    Raises `ValueError` where a field that is needed is missing, or there twice.
    """
    fields = contents[1]
    if sorted(name for name, _ in fields if name in _TEXTS) != sorted(_TEXTS):
        raise ValueError(f"expected each of {', '.join(_TEXTS)} once, found {', '.join(name for name, _ in fields)}")
    if sum(name == _CLASS for name, _ in fields) > 1:
        raise ValueError(f"expected {_CLASS} once")
    texts = (_field(name, *of) for name, *of in fields)
    return re.compile(f"<Contents>{''.join(texts)}</Contents>")


def _field(name: str, inside: tuple[Shape, ...]) -> str:
    if name in _TEXTS:
        return f"<{name}>{_TEXTS[name]}</{name}>"
    return "(?:<StorageClass>([^<]*)</StorageClass>)?" if name == _CLASS else _passed_over(name, inside)


def _passed_over(tag: str, inside: tuple[Shape, ...]) -> str:
    """A field that may be missing, or empty."""
    name = re.escape(tag)
    text = "".join(_passed_over(*field) for field in inside) if inside else "[^<]*"
    return f"(?:<{name}>{text}</{name}>|<{name} ?/>)?"


@lru_cache(maxsize=1024)
def _moment_s(text: str) -> float:
    """Seconds since the epoch. Of whole seconds, so that many objects of a run have the same."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
