"""Decides which store a location names, and whether the deployment's credentials may be used there.

`decide` is the one function for that. Every process calls it before it makes a client: tasks, drivers, the triggerer,
the API server and the commands (docs/security.md). It looks at texts only: no request, no name server, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from airflow_recovery.errors import ConfigurationError, LocationNotAllowed
from airflow_recovery.locations import DELTA, HIVE, ICEBERG, expected, scheme_at, schemes

OPTION = "[recovery] allowed_locations"


class Source(str, Enum):
    """Where a location was read."""

    SETTING = "a setting of the deployment"
    COMMAND = "an argument of a command"
    DAG_FILE = "the DAG file"
    CATALOG = "the answer of a catalog"
    RUN = "a template over conf, params or XComs"
    RECORD = "a record"
    REDIRECT = "a redirect"


TRUSTED = frozenset({Source.SETTING, Source.COMMAND, Source.DAG_FILE, Source.CATALOG})
"""Only the owner of the deployment, or the author of a DAG file, chooses such a location: any bucket is allowed."""


@dataclass(frozen=True)
class Place:
    """A location in parts. ``root`` names the bucket, the container, the web server or the catalog.

    ``kind``: the scheme of an object store, ``web`` or ``catalog``; empty for a location that needs no credentials of
    ours. ``host``: of Azure and of a web server. ``path``: the names between the slashes.
    """

    kind: str
    root: str
    host: str = ""
    path: tuple[str, ...] = ()

    def is_below(self, other: Place) -> bool:
        """Whether ``other`` is this place, or a folder above it. Whole names are compared."""
        return (self.kind, self.root) == (other.kind, other.root) and self.path[: len(other.path)] == other.path


@dataclass(frozen=True)
class Reach:
    """The endpoint, the buckets and the hosts that the connection to the store names.

    A host that begins with a dot stands for all hosts whose names end with it.
    """

    endpoint_url: str | None = None
    buckets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limits:
    """Where credentials may go besides the locations that only the deployment chooses.

    ``own``: locations whose buckets are the deployment's own. ``allowed``: ``[recovery] allowed_locations``.
    ``written``: returns the roots that the DAG file names (`Place.root`); asked only if nothing else allows a location.
    """

    own: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    written: Callable[[], Collection[str]] = tuple


NO_LIMITS, NO_REACH = Limits(), Reach()


def decide(location: str, source: Source, limits: Limits = NO_LIMITS, reach: Reach = NO_REACH) -> Place:
    """Return the place that ``location`` names. The credentials behind ``reach`` may be used there.

    For a location that needs no credentials (a folder of this machine, for example), the place has no ``kind``.

    Raises `LocationNotAllowed` if the host is neither the cloud's nor the connection's, or if the location is
    malformed. Also if ``source`` is not in `TRUSTED`, and neither ``limits`` nor ``reach`` allow the bucket.
    """
    try:
        place = place_of(location)
        check_endpoint(reach.endpoint_url)
        _check_host(place, reach)
    except ValueError as error:
        raise LocationNotAllowed(
            f"Expected {expected()}, to which the credentials may be sent; found {_shown(location)}, which comes from "
            f"{source.value}: {error}. Nothing was sent.",
            code="location-not-understood",
        ) from None
    if place.kind and source not in TRUSTED and not _is_allowed(place, limits, reach):
        raise LocationNotAllowed(
            f"Expected a location in {OPTION}, in a bucket that the DAG file or the connection names, or in the bucket "
            f"of the journal or of the results; found {_shown(location)}, which comes from {source.value}. Nothing was "
            f"sent. Add {place.root.replace(_CATALOG, ICEBERG)} or a folder of it to {OPTION}, if every user who can "
            "trigger this DAG may choose it (docs/security.md).",
            code="location-not-allowed-here",
        )
    return place


def place_of(location: str) -> Place:
    """The parts of ``location``. Raises `ValueError` for a text that two programs might read in different ways."""
    text = location.removeprefix(DELTA)
    if text.startswith((ICEBERG, HIVE)):
        # Both are Airflow connections of that name.
        return Place("catalog", f"{_CATALOG}{_matched(_NAME, text.partition('://')[2].partition('/')[0], 'catalog')}")
    scheme, separator, rest = text.partition("://")
    store = scheme_at(text)
    is_web = bool(separator) and scheme in _PORTS
    if store is None and (not is_web or text != location):
        if (separator and scheme.lower() in _read_by_others()) or (
            text != location and not text.startswith(("/", "file:"))
        ):
            known = ", ".join(dict.fromkeys(each.name for each in schemes().values()))
            raise ValueError(f"{scheme!r} is no scheme that is read here: write {known}, http or https")
        return Place("", text)
    authority, _, path = rest.partition("/")
    if store is None:
        kind = "web"
        authority, _, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
        host, root = _web(scheme, authority)
    else:
        kind = store.name
        bucket, at, host = authority.partition("@") if store.has_host else (authority, "", "")
        host = _host(host) if store.has_host else ""
        root = f"{kind}://{_matched(store.bucket, bucket, store.bucket_word)}{at}{host}"
    if not text.isprintable():
        raise ValueError("it has invisible characters")
    path = path.rstrip("/")
    return Place(kind, root, host, tuple(path.split("/")) if path else ())


def check_endpoint(url: str | None) -> None:
    """Raise `ValueError` if the endpoint is not the address of a server, or if its host must never get credentials."""
    if url:
        _endpoint_host(url)


def is_never(host: str) -> bool:
    """Whether ``host`` hands out a machine's own credentials, or is link-local. ``host``: a name or an IP address."""
    try:
        address: IPv4Address | IPv6Address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.lower().rstrip(".") in _METADATA_NAMES
    addresses = [address]
    if isinstance(address, IPv6Address):
        carried = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()))
        addresses += [inner for inner in carried if inner is not None]
        if any(address in network for network in _IPV4_IN_IPV6):
            addresses.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return any(each in network for each in addresses for network in _NEVER if each.version == network.version)


def read_allowed(text: str, option: str = OPTION) -> tuple[str, ...]:
    """The locations of a setting, separated by commas or white space. Raises `ConfigurationError` for other texts."""
    entries = tuple(entry for entry in re.split(r"[,\s]+", text or "") if entry)
    for entry in entries:
        try:
            place = place_of(entry)
            if not place.kind:
                raise ValueError("it names no bucket, container, catalog or web server")
            if name := _odd_name(place):
                raise ValueError(f"the name {name!r} in it may lead to another folder")
        except ValueError as error:  # noqa: PERF203
            raise ConfigurationError(
                f"Expected locations such as s3://bucket/folder in {option}, separated by commas, found {entry!r}: "
                f"{error}. Correct it.",
                code="allowed-locations-unfit",
            ) from None
    return entries


def _is_allowed(place: Place, limits: Limits, reach: Reach) -> bool:
    if any(place.is_below(Place(own.kind, own.root)) for own in _places(limits.own)):
        return True
    if any(place.is_below(each) and not (each.path and _odd_name(place)) for each in _places(limits.allowed)):
        return True
    if place.kind in schemes() and place.root.partition("://")[2] in reach.buckets:
        return True
    if place.kind == "web" and _is_named(place.host, reach.hosts):
        return True
    return place.root in limits.written()


def _places(locations: Iterable[str]) -> Iterable[Place]:
    return (place for place in map(place_of, locations) if place.kind)


def _is_named(host: str, names: Iterable[str]) -> bool:
    """Whether ``host`` is one of ``names``, or ends with one that begins with a dot."""
    return any(host == name.lower() or (name.startswith(".") and host.endswith(name.lower())) for name in names)


def _check_host(place: Place, reach: Reach) -> None:
    """Raise `ValueError` if a location's host is not the cloud's, or does not fit the connection's endpoint."""
    store = schemes().get(place.kind)
    if store is not None and store.has_host:
        store.check_host(place.host, _endpoint_host(reach.endpoint_url) if reach.endpoint_url else "")


def _odd_name(place: Place) -> str:
    """Return a name in the path that may lead out of an allowed folder, since some programs decode it; else empty."""
    for name in place.path:
        decoded = name
        while (once := _ENCODED.sub(lambda code: chr(int(code[1], 16)), decoded)) != decoded:
            decoded = once
        if decoded in (".", "..") or (decoded != name and "/" in decoded) or "\\" in decoded:
            return name
    return ""


def _endpoint_host(url: str) -> str:
    """Return the host of an endpoint. Its name may end with a dot, so that the resolver tries no search path."""
    scheme, _, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    return _web(scheme.lower(), re.sub(r"\.(?=:[0-9]+$|$)", "", authority))[0]


def _web(scheme: str, authority: str) -> tuple[str, str]:
    """Host and root of a web address. A default port is left out. Raises `ValueError`."""
    if scheme not in _PORTS:
        raise ValueError(f"expected an address that begins with http:// or https://, found {scheme!r}")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("expected a host with or without a port, and no user")
    host, port = _host(match["host"]), match["port"] or ""
    if port and not 0 < int(port) < 65536:
        raise ValueError(f"{port} is no port")
    shown = f"[{host}]" if ":" in host else host
    return host, f"{scheme}://{shown}" + (f":{int(port)}" if port and int(port) != _PORTS[scheme] else "")


def _host(host: str) -> str:
    """``host`` in lower case. Raises `ValueError` for one with more than one reading."""
    name = host.lower()
    if name.startswith("[") or ":" in name:
        try:
            name = str(IPv6Address(name.strip("[]")))
        except ValueError:
            raise ValueError(f"{host!r} is no address") from None
    elif not _HOST.fullmatch(name) or not host.isascii():
        raise ValueError(f"{host!r} is not written like a host's name")
    elif _NUMERIC.fullmatch(name.rpartition(".")[2]):
        # 2852039166, 0xa9fea9fe, 0251.254.169.254: a resolver reads each as an IP address.
        try:
            name = str(IPv4Address(name))
        except ValueError:
            raise ValueError(f"expected an IP address as four numbers, found {host!r}") from None
    if is_never(name):
        raise ValueError(f"{host} is link-local, or hands out the credentials of a machine: it is never used")
    return name


def _read_by_others() -> set[str]:
    """Schemes of clouds that delta-rs and pyiceberg know, in small letters."""
    return {*schemes(), *_PORTS, *(name for store in schemes().values() for name in store.foreign_names)}


def _matched(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text) or ".." in text:
        raise ValueError(f"{text!r} is not written like the name of a {what}")
    return text


def _shown(location: str) -> str:
    """Without the query of a signed address, and without a password."""
    plain = re.split("[?#]", location, maxsplit=1)[0] if "://" in location else location
    return repr(re.sub(r"//[^/@]*:[^/@]*@", "//...@", plain)[:300])


_CATALOG = "catalog:"
_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[\w-]+", re.ASCII)
_HOST = re.compile(r"(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\\%\s]+)(?::(?P<port>[0-9]{1,5}))?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_METADATA_NAMES = frozenset(
    (
        *("metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"),
        *("metadata.azure.internal", "metadata.azure.com", "metadata.packet.net", "metadata.tencentyun.com"),
    )
)
_NEVER = tuple(
    ip_network(each)
    for each in (
        *("169.254.0.0/16", "fe80::/10"),
        *("fd00:ec2::/32", "fd20:ce::/32"),  # AWS, Google
        *("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"),  # Azure, Alibaba, Oracle
    )
)
_IPV4_IN_IPV6 = tuple(map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")))
