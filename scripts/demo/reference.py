"""The demo's results once more, without Spark and without our code: pandas, straight from the CSV files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]

from scripts.demo.rows import Rows, rows_of


def reference_rows(lake: Path) -> dict[str, Rows]:
    """The rows that every sink must have, by the sink's name."""
    flights = pd.read_csv(lake / "flights.csv")
    return {
        "carrier_delays": _carrier_delays(flights, lake),
        "route_delays": _route_delays(flights),
        "weather_delays": _weather_delays(flights, lake),
    }


def reference_report(lake: Path) -> Rows:
    """The rows of the report that the two existing applications make."""
    flights = pd.read_csv(lake / "flights.csv")
    departed = flights[flights["dep_time"].notna()]
    return rows_of({"origin": origin, "count": len(group)} for origin, group in departed.groupby("origin"))


def _carrier_delays(flights: pd.DataFrame, lake: Path) -> Rows:
    names = pd.read_csv(lake / "airlines.csv").set_index("carrier")["name"].str.strip().to_dict()
    return rows_of(
        {
            "carrier": carrier,
            "name": names.get(carrier),
            "flights": len(group),
            "cancelled": _cancelled(group),
            "mean_arr_delay": _mean(group["arr_delay"]),
        }
        for carrier, group in flights.groupby("carrier")
    )


def _route_delays(flights: pd.DataFrame) -> Rows:
    return rows_of(
        {"origin": origin, "dest": dest, "flights": len(group), "mean_arr_delay": _mean(group["arr_delay"])}
        for (origin, dest), group in flights.groupby(["origin", "dest"])
    )


def _weather_delays(flights: pd.DataFrame, lake: Path) -> Rows:
    hours = pd.read_csv(lake / "weather.csv").groupby(["origin", "time_hour"])[["visib", "precip", "wind_speed"]]
    hourly = hours.agg({"visib": "min", "precip": "max", "wind_speed": "max"}).reset_index()
    hourly["weather"] = _first_true(
        hourly,
        [
            ("low visibility", lambda hour: hour["visib"] < 2),
            ("rain or snow", lambda hour: hour["precip"] > 0),
            ("strong wind", lambda hour: hour["wind_speed"] >= 20),
        ],
        "fair",
    )
    planes = pd.read_csv(lake / "planes.csv")
    planes["plane"] = _first_true(planes, [("small", lambda plane: plane["seats"] < 100)], "large")
    known = flights.merge(hourly[["origin", "time_hour", "weather"]], on=["origin", "time_hour"], how="left")
    known = known.merge(planes[["tailnum", "plane"]], on="tailnum", how="left")
    known = known.fillna({"weather": "unknown", "plane": "unknown"})
    usual = {route: _usual_hundredths(group["arr_delay"]) for route, group in flights.groupby(["origin", "dest"])}
    return rows_of(
        {
            "weather": weather,
            "plane": plane,
            "flights": len(group),
            "cancelled": _cancelled(group),
            "mean_arr_delay": _mean(group["arr_delay"]),
            "usual_arr_delay": _usual_mean(group, usual),
        }
        for (weather, plane), group in known.groupby(["weather", "plane"])
    )


def _usual_mean(group: pd.DataFrame, usual: dict[tuple[str, str], int | None]) -> float | None:
    arrived = group[group["arr_delay"].notna()]
    hundredths = [usual[route] or 0 for route in zip(arrived["origin"], arrived["dest"], strict=True)]
    return sum(hundredths) / (len(hundredths) * 100) if hundredths else None


def _usual_hundredths(delays: pd.Series[float]) -> int | None:
    return math.floor(int(delays.sum()) * 100 / int(delays.count())) if delays.count() else None


def _cancelled(group: pd.DataFrame) -> int:
    return int(group["dep_time"].isna().sum())


def _mean(delays: pd.Series[float]) -> float | None:
    return int(delays.sum()) / int(delays.count()) if delays.count() else None


def _first_true(
    frame: pd.DataFrame, cases: list[tuple[str, Callable[[pd.DataFrame], pd.Series[bool]]]], otherwise: str
) -> pd.Series[str]:
    named = pd.Series(otherwise, index=frame.index)
    for name, holds in reversed(cases):
        named[holds(frame)] = name
    return named
