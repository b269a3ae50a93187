"""Durations as Flink's options write them: ``10 s``, ``1 min``, ``500 ms``."""

from __future__ import annotations

import re

from airflow_recovery.errors import ConfigurationError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_NAMES_OF = {
    0.001: ("ms", "milli", "millis", "millisecond", "milliseconds"),
    1.0: ("", "s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
_SECONDS_OF = {name: seconds for seconds, names in _NAMES_OF.items() for name in names}


def flink_duration_s(key: str, value: object) -> float:
    """``value`` of the option ``key`` in seconds; a bare number is seconds here (in Flink: milliseconds).

    Raises `ConfigurationError` for anything else. Knows no bounds: what may be zero or infinite is the option's matter.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(str(value).strip().lower())
    if match is None or match[2] not in _SECONDS_OF:
        raise ConfigurationError(
            f"Expected a duration such as 10 s, 1 min or 500 ms in {key}, found {value!r}.",
            code="duration-unfit",
            key=key,
        )
    return float(match[1]) * _SECONDS_OF[match[2]]
