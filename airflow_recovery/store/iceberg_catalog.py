"""Opens a catalog of Iceberg tables with pyiceberg. Only the catalog decides how the files of its tables are opened.

Pyiceberg opens a table's files with the properties of the catalog, overlaid with the properties of the table. So the
metadata file of a table would choose the server that gets the credentials (``s3.endpoint``), and the class that
pyiceberg imports to read files (``py-io-impl``). A user who may only write the table's files may change that file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Return the catalog ``name``. Raises what pyiceberg raises.

    ``properties``: pyiceberg's. What is missing in them, pyiceberg's own configuration has.
    """
    from pyiceberg.catalog import load_catalog

    catalog: Any = load_catalog(name, **properties)
    if hasattr(catalog, "_response_to_table"):
        # A REST catalog lends credentials in its answer. They are not properties of the table, so they stay.
        catalog._response_to_table = _without_properties(catalog._response_to_table)
        catalog._response_to_staged_table = _without_properties(catalog._response_to_staged_table)
    else:
        load = catalog._load_file_io
        catalog._load_file_io = lambda properties=None, location=None: load(location=location)
    found: Catalog = catalog
    return found


def _without_properties(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``make`` a table of an answer whose metadata has no properties meanwhile."""

    def made(identifier: Any, answer: Any) -> Any:
        properties = answer.metadata.properties
        kept = dict(properties)
        properties.clear()
        try:
            return make(identifier, answer)
        finally:
            properties.update(kept)

    return made
