"""The pages of the Recovery tab: files, the same for everybody. What they show they ask the REST API for.

They hold no data, so nobody has to be logged in for them; nothing but this Airflow is ever asked for anything.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, HTTPException, Response

router = APIRouter(include_in_schema=False)

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS = {
    # No script and no style but our files; nothing from elsewhere; only Airflow's own pages may frame it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "worker-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A new version of the provider is a new page at once.
    "Cache-Control": "no-cache",
}


@router.get("/ui/{name}")
def get_file(name: str) -> Response:
    """One file of the Recovery tab: HTML, JavaScript or CSS. 404 for any other name."""
    content = _pages().get(name)
    if content is None:
        raise HTTPException(404, "The Recovery tab has no such file.")
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)


@cache
def _pages() -> dict[str, bytes]:
    """All of them, by name: a name that is asked for never becomes a path."""
    folder = files("airflow_recovery.api_server") / "static"
    return {
        path.name: path.read_bytes()
        for path in (*folder.iterdir(), *(folder / "vendor").iterdir())
        if path.is_file() and path.name.rpartition(".")[2] in _TYPES
    }
