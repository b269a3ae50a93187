"""Memory and open files over time, as one SVG: a row a component, a line a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripts.soak.growth import Sample
from scripts.svg import WIDTH, svg, text

LEFT, GAP, HEIGHT = 130, 30, 56
MOST_POINTS = 240


def plotted(samples: Sequence[Sample]) -> str:
    """The picture of all samples."""
    components = sorted({sample.component for sample in samples})
    ends = max((sample.at for sample in samples), default=1.0)
    wide = (WIDTH - LEFT - GAP - 20) / 2
    marks = [
        text(LEFT, 52, "memory, MB", "quiet"),
        text(LEFT + wide + GAP, 52, "open files", "quiet"),
    ]
    y = 66.0
    for component in components:
        own = [sample for sample in samples if sample.component == component]
        marks.append(text(20, y + HEIGHT / 2 + 4, component, "strong"))
        marks += _panel(own, LEFT, y, wide, ends, lambda sample: sample.megabytes)
        marks += _panel(own, LEFT + wide + GAP, y, wide, ends, lambda sample: float(sample.files))
        y += HEIGHT + 14
    marks.append(text(LEFT, y + 6, f"0 to {ends / 60:.0f} minutes", "quiet"))
    return svg("Airflow's components during the soak", y + 24, marks)


def _panel(
    samples: Sequence[Sample], x: float, y: float, wide: float, ends: float, value: Callable[[Sample], float]
) -> list[str]:
    most = max((value(sample) for sample in samples), default=1.0) or 1.0
    marks = [f'<line class="rule" x1="{x}" y1="{y + HEIGHT}" x2="{x + wide:.1f}" y2="{y + HEIGHT}"/>']
    for pid in sorted({sample.pid for sample in samples}):
        of_one = [sample for sample in samples if sample.pid == pid]
        of_one = of_one[:: max(1, len(of_one) // MOST_POINTS)]
        points = " ".join(
            f"{x + sample.at / ends * wide:.1f},{y + HEIGHT * (1 - value(sample) / most):.1f}" for sample in of_one
        )
        marks.append(f'<polyline class="line" points="{points}"/>')
    marks.append(text(x + wide + 2, y + 10, f"{most:.0f}", "quiet", anchor="end"))
    return marks
