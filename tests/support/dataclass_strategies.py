"""Any value of a dataclass that has a JSON form, by the annotations that `airflow_recovery.model.codec` goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import reduce
from operator import or_
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from airflow_recovery.model.codec import Check, to_json
from airflow_recovery.model.mode import BATCH, RegionMode
from airflow_recovery.splits import mode as split_mode
from airflow_recovery.streaming import mode as streaming_mode
from airflow_recovery.streaming.mode import StreamingClaim

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(0, 2**53)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SCALARS = {
    str: TEXTS,
    int: NUMBERS,
    bool: st.booleans(),
    float: FLOATS | st.integers(),
    NoneType: st.none(),
    Any: JSON_VALUES,
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values with this annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin is Annotated:
        checks = [arg for arg in args[1:] if isinstance(arg, Check)]
        return reduce(lambda values, check: values.filter(check.holds), checks, values_of(args[0]))
    if origin is Sequence or (origin is tuple and args[-1] is ...):
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3)
    if origin is not None:  # a union
        return reduce(or_, map(values_of, args))
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    assert is_dataclass(hint), hint
    kind: Any = hint
    return st.deferred(lambda: _records_of(kind))


def _records_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    values = {field_.name: values_of(hints[field_.name]) for field_ in fields(kind) if "flat" not in field_.metadata}
    if len(values) == len(fields(kind)):
        return st.builds(kind, **values)
    modes = [each.IN_RECORDS[kind] for each in (split_mode, streaming_mode) if kind in each.IN_RECORDS]
    return st.builds(kind, **values, mode=st.just(BATCH) | st.one_of(*map(values_of, modes)).map(_as_read_back))


def _as_read_back(mode: RegionMode) -> RegionMode:
    """The same, as its JSON tells it: a mode that writes nothing is batch, and streaming always writes its channels."""
    is_read_back = not isinstance(mode, StreamingClaim) or mode.channels or mode.after
    return mode if to_json(mode) and is_read_back else BATCH
