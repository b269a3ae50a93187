"""Pictures as SVG, in light and dark: what the charts of `benchmarks` and of the soak are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 820

STYLE = """\
<style>
  .ground { fill: #ffffff; }
  text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f;
         paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
  .title { font-size: 16px; font-weight: 600; }
  .head { font-weight: 600; }
  .quiet { fill: #6e7781; }
  .ours { fill: #0b6bcb; }
  .others { fill: #b6bec8; }
  .bad { fill: #c9431f; }
  .line { fill: none; stroke: #0b6bcb; stroke-width: 1.5; }
  .strong { font-weight: 600; }
  .rule { stroke: #d0d7de; stroke-width: 1; }
  .mark { stroke: #6e7781; stroke-width: 1; stroke-dasharray: 3 3; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #16191f; }
    text { fill: #e6edf3; stroke: #16191f; }
    .quiet { fill: #9199a3; }
    .ours { fill: #58a6ff; }
    .others { fill: #4d5661; }
    .bad { fill: #ff7b54; }
    .line { stroke: #58a6ff; }
    .rule { stroke: #343b44; }
    .mark { stroke: #9199a3; }
  }
</style>"""


def svg(title: str, height: float, marks: Sequence[str]) -> str:
    """A picture of `WIDTH` with its title and these marks."""
    size = f"0 0 {WIDTH} {height:.0f}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-labelledby="title">'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height:.0f}" rx="6"/>'
    named = f'<title id="title">{escape(title)}</title>'
    return "\n".join([head, named, STYLE, ground, text(20, 28, title, "title"), *marks, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> str:
    """One line of text."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
