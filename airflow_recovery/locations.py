"""How places in stores are written: the one table of the schemes of object stores.

``s3://bucket/prefix`` (or ``s3a://``), ``gs://bucket/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``
(or ``abfs://``), ``file:///folder``, or an absolute path. URIs are literal: a ``%`` or a space means itself.
"""

from __future__ import annotations

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfss": "abfss", "abfs": "abfss"}
"""The schemes of object stores as they may be written, and the spelling that stands for each."""

EXPECTED = (
    "s3://<bucket>/<prefix>, gs://<bucket>/<prefix>, abfss://<container>@<account>.dfs.core.windows.net/<prefix>, "
    "file:///<folder> or an absolute path"
)
"""For messages."""


def scheme_of(uri: str) -> str | None:
    """``s3``, ``gs`` or ``abfss`` for a place in an object store; `None` for every other text."""
    scheme, separator, _ = uri.partition("://")
    return SCHEMES.get(scheme) if separator else None


def split_uri(uri: str) -> tuple[str, str]:
    """The root of an object store's ``uri`` in its one spelling, as ``gs://bucket``, and what is behind its slash."""
    bucket, _, path = uri.partition("://")[2].partition("/")
    return f"{scheme_of(uri)}://{bucket}", path


def comparable(uri: str) -> str:
    """``uri`` with one spelling of each scheme: ``file:///x`` and ``/x`` are ``file:/x``, ``s3a://`` is ``s3://``."""
    scheme = scheme_of(uri)
    if scheme is not None:
        return f"{scheme}://{uri.partition('://')[2]}"
    if uri.startswith("/"):
        return "file:" + uri
    if uri.startswith("file:///"):
        return "file:" + uri[len("file://") :]
    return uri
