"""A plan for people: a table, a tree of causes, and one line for a log. Subtasks of one region are folded.

region            action                attempt  why
raw               keep                  @1       attempt 1 is valid, 12 files are as registered
by_month[0..11]   keep 11, run 1        @1       [3] result is missing (attempt 1: ...)
busiest           run                   @1       input was made again (read by_month[3]@1, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from airflow_recovery.planning.plan import NOT_KEPT, Action, Plan, PlannedRegion

MAX_CELL = 160
MAX_TREE_LINE = 400
MAX_TREE_LINES = 60
MAX_BRIEF = 1000
_LEGEND = {
    Action.RUN: "run",
    Action.WAIT: "wait (run only where the rows made again differ)",
    Action.REFUSED: "refused (a restart budget has ended: repair the cause, then clear the task)",
    Action.BLOCKED: "blocked (behind a refused one)",
    Action.COMMIT: "commit (to its sink, without Spark)",
    Action.KEEP: "keep",
    Action.RELEASE: "release (kept; its data may go)",
}


def plan_text(plan: Plan) -> str:
    """The request, the table, the count, what the mode says besides, and why what runs does run."""
    parts = [f"Asked: {plan.request.text()}", plan_table(plan), count_text(plan)]
    tree = plan_tree(plan)
    more = [text for text in (plan.mode.text(), f"Why:\n{tree}" if tree else "") if text]
    return "\n\n".join([*parts, *more])


def count_text(plan: Plan) -> str:
    """How many regions run, wait, are kept and may be released."""
    counts = {action: len(plan.names(action)) for action in Action}
    counted = [f"{counts[action]} {label}" for action, label in _LEGEND.items() if counts[action]]
    return f"{len(plan.regions)} regions: {', '.join(counted)}."


def plan_line(plan: Plan, regions: int) -> str:
    """What runs and what waits of so many regions, in one line for a task's log."""
    actions = [
        f"{action.value} {', '.join(folded(plan.names(action), plan))}" for action in NOT_KEPT if plan.names(action)
    ]
    left = regions - len(plan.names(*NOT_KEPT))
    return "; ".join([*actions, f"leave {left} of {regions} as they are"])


def brief(plan: Plan) -> tuple[tuple[str, str], ...]:
    """What runs or waits, as (region, reason), for a record: the first `MAX_BRIEF` of them."""
    regions = [region for region in plan.regions if region.action in NOT_KEPT]
    reasons = [
        (region.name, f"waits: {region.told}" if region.action is Action.WAIT else region.told) for region in regions
    ]
    more = [("...", f"{len(reasons) - MAX_BRIEF} more")] if len(reasons) > MAX_BRIEF else []
    return (*reasons[:MAX_BRIEF], *more)


def plan_table(plan: Plan) -> str:
    """One row a region, or a family of subtasks."""
    rows = [_row(members) for members in families(plan.regions)]
    return table(("region", "action", "attempt", "why"), rows)


def plan_tree(plan: Plan) -> str:
    """What runs or waits, each below the region whose reason lies behind its own; root causes first."""
    members = {family[0].name: family for family in families(plan.regions)}
    head = {region.name: name for name, regions in members.items() for region in regions}
    below: dict[str | None, list[str]] = {}
    for name, regions in members.items():
        affected = [region for region in regions if region.action in NOT_KEPT]
        if affected:
            cause = affected[0].cause
            parent = head.get(cause) if cause is not None else None
            below.setdefault(parent if parent != name else None, []).append(name)
    lines: list[str] = []
    todo: list[tuple[str, str, str]] = [(name, "", "") for name in reversed(below.get(None, []))]
    while todo:
        name, first, rest = todo.pop()
        lines.append(first + _tree_line(members[name]))
        children = below.get(name, [])
        if not first:
            lines += [f"{'│' if children else ' '}   asked {evidence}" for evidence in _asked(members[name])]
        todo += [
            (child, rest + ("└── " if at == 0 else "├── "), rest + ("    " if at == 0 else "│   "))
            for at, child in enumerate(reversed(children))
        ]
    if len(lines) > MAX_TREE_LINES:
        lines = [*lines[:MAX_TREE_LINES], f"... {len(lines) - MAX_TREE_LINES} more"]
    return "\n".join(lines)


def families(regions: Iterable[PlannedRegion]) -> list[list[PlannedRegion]]:
    """Regions as they are shown: the subtasks of one region together, by index; every other one by itself."""
    by_name: dict[str, list[PlannedRegion]] = {}
    for region in regions:
        by_name.setdefault(region.name if region.subtask is None else f"{region.subtask[0]}[]", []).append(region)
    return [
        sorted(family, key=lambda region: region.subtask[1] if region.subtask else 0) for family in by_name.values()
    ]


def folded(names: Iterable[str], plan: Plan) -> list[str]:
    """Names with the subtasks of one region as ``by_month[0..3,7]``."""
    wanted = set(names)
    return [_label(members) for members in families(region for region in plan.regions if region.name in wanted)]


def ranges(indexes: Sequence[int]) -> str:
    """``0..3,7`` for 0, 1, 2, 3 and 7."""
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(first) if first == last else f"{first}..{last}" for first, last in spans)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as what is in them, the last one up to `MAX_CELL` characters."""
    cells = [[cut(name) for name in row] for row in (columns, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * min(width, 40) for width in widths), *lines[1:]])


def cut(text: str, most: int = MAX_CELL) -> str:
    """One line of at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _row(members: list[PlannedRegion]) -> tuple[str, str, str, str]:
    actions: dict[str, int] = {}
    for member in members:
        actions[member.action.value] = actions.get(member.action.value, 0) + 1
    action = next(iter(actions)) if len(members) == 1 else ", ".join(f"{name} {n}" for name, n in actions.items())
    attempts = sorted({member.attempt for member in members})
    shown = f"@{attempts[0]}" if len(attempts) == 1 else f"@{attempts[0]}..{attempts[-1]}"
    return _label(members), action, shown if attempts[-1] else "-", _why(members, lambda region: region.told)


def _why(members: list[PlannedRegion], text_of: Callable[[PlannedRegion], str]) -> str:
    if len(members) == 1:
        return text_of(members[0])
    # What is kept needs no words beside what is not.
    affected = [member for member in members if member.action in NOT_KEPT]
    by_reason: dict[tuple[object, ...], list[PlannedRegion]] = {}
    for member in affected or members:
        by_reason.setdefault((member.action, member.why, member.detail if member.why is None else ""), []).append(
            member
        )
    reasons = [f"[{ranges(_indexes(same))}] {text_of(same[0])}" for same in by_reason.values()]
    return "; ".join(reasons[:3]) + (f"; and {len(reasons) - 3} more reasons" if len(reasons) > 3 else "")


def _tree_line(members: list[PlannedRegion]) -> str:
    affected = [member for member in members if member.action in NOT_KEPT]
    waits = " waits" if all(member.action is Action.WAIT for member in affected) else ""
    return f"{_label(affected)}{waits}: {cut(_why(affected, lambda region: region.told), MAX_TREE_LINE)}"


def _asked(members: list[PlannedRegion]) -> list[str]:
    """The first things that a root cause rests on."""
    affected = [member for member in members if member.action in NOT_KEPT]
    return [cut(f"{evidence.asked}: {evidence.said}", MAX_TREE_LINE) for evidence in affected[0].evidence[:2]]


def _label(members: list[PlannedRegion]) -> str:
    subtask = members[0].subtask
    if subtask is None:
        return members[0].name
    return f"{subtask[0]}[{ranges(_indexes(members))}]"


def _indexes(members: Iterable[PlannedRegion]) -> list[int]:
    return [member.subtask[1] for member in members if member.subtask is not None]
