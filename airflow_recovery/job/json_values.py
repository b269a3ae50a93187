"""Parameters travel as JSON, so only values that come back from JSON as they went in are parameters."""

from __future__ import annotations

import json
from typing import Any

from airflow_recovery.errors import JobDefinitionError


def plain_json(value: Any, *, where: str) -> Any:
    """Return the value from JSON. Raises `JobDefinitionError` where it cannot be written or comes back changed.

    NaN and infinity are not JSON; a tuple would come back as a list, and a number as a key as a text.
    """
    try:
        returned = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise JobDefinitionError(
            f"{where}: expected a value that can be written as JSON, found {value!r} ({error}): "
            "use texts, numbers, booleans, None, lists and dicts, and build anything else inside the function"
        ) from error
    if returned != value:
        raise JobDefinitionError(
            f"{where}: expected a value that JSON gives back unchanged, found {value!r}, which comes back as "
            f"{returned!r}: write it like that (lists for tuples, texts for keys)"
        )
    return returned
