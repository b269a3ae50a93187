"""A plot of a few lines on two logarithmic axes, as SVG. Nothing to install."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 420, 70, 40, 220, 50
COLOURS = ("#1b6ca8", "#c0392b", "#27864b", "#8e44ad", "#b9770e", "#34495e")


def log_log_svg(title: str, x_title: str, y_title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw ``lines`` of (x, y), all above zero. Both axes are marked at powers of ten."""
    xs = [log10(x) for points in lines.values() for x, _ in points]
    ys = [log10(y) for points in lines.values() for _, y in points]
    x_low, x_high, y_low, y_high = floor(min(xs)), ceil(max(xs)), floor(min(ys)), ceil(max(ys))

    def at(x: float, y: float) -> tuple[float, float]:
        """Where the powers x and y of ten are."""
        across = (x - x_low) / max(1, x_high - x_low) * (WIDTH - LEFT - RIGHT)
        up = (y - y_low) / max(1, y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, size=14),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_title, anchor="middle"),
        _text(8, TOP - 8, y_title),
    ]
    for power in range(x_low, x_high + 1):
        x, bottom = at(power, y_low)
        parts += [_line(x, bottom, x, TOP), _text(x, bottom + 16, _number(power), anchor="middle")]
    for power in range(y_low, y_high + 1):
        left, y = at(x_low, power)
        parts += [_line(left, y, WIDTH - RIGHT, y), _text(left - 6, y + 4, _number(power), anchor="end")]
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [at(log10(x), log10(y)) for x, y in points]
        path = " ".join(f"{x},{y}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(WIDTH - RIGHT + 12, TOP + 18 * number, name, colour=colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _number(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "black") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
