"""The answers of one run, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_recovery.escaping import one_line
from airflow_recovery.verify.finding import INVARIANTS, Answer, Verdict


@dataclass(frozen=True)
class Report:
    """The answers to I1 to I15 of one run. ``where`` is the URI of its journal."""

    dag_id: str
    run_key: str
    group_id: str
    where: str
    answers: tuple[Answer, ...]

    @property
    def violated(self) -> tuple[int, ...]:
        """The numbers of the invariants that something contradicts."""
        return tuple(answer.invariant for answer in self.answers if answer.verdict is Verdict.VIOLATED)

    def text(self) -> str:
        """A table, and below it everything that was found."""
        rows = [
            (f"I{answer.invariant}", answer.verdict.value, INVARIANTS[answer.invariant], one_line(answer.said))
            for answer in self.answers
        ]
        widths = [max(len(row[at]) for row in rows) for at in range(3)]
        lines = [f"DAG {self.dag_id}, run {self.run_key}, group {self.group_id}", self.where, ""]
        lines += [
            "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]])
            for row in rows
        ]
        for answer in self.answers:
            for finding in answer.findings:
                lines += [
                    "",
                    one_line(f"I{answer.invariant} is violated: {', '.join(finding.objects) or 'the run'}"),
                    f"  expected  {one_line(finding.expected)}",
                    f"  found     {one_line(finding.found)}",
                    f"  next      {one_line(finding.next_step)}",
                ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, which ``airflow recovery verify --json`` prints."""
        return {
            "dag_id": self.dag_id,
            "run_key": self.run_key,
            "group_id": self.group_id,
            "violated": list(self.violated),
            "invariants": [
                {
                    "invariant": answer.invariant,
                    "claim": INVARIANTS[answer.invariant],
                    "verdict": answer.verdict.value,
                    "said": answer.said,
                    "findings": [
                        {
                            "objects": list(finding.objects),
                            "expected": finding.expected,
                            "found": finding.found,
                            "next": finding.next_step,
                        }
                        for finding in answer.findings
                    ],
                }
                for answer in self.answers
            ],
        }
