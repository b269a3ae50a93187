"""Writes docs/configuration.md from the provider's own YAML: `python -m scripts.configuration_reference`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from airflow_recovery.get_provider_info import get_provider_info

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
HEAD = """# Configuration

Made from `airflow_recovery/provider.yaml` by `python -m scripts.configuration_reference`: change it there. Each option
is read from `airflow.cfg` or from an environment variable, in every component. Only the journal
is needed.
"""


def page() -> str:
    """The page as Markdown: every option of provider.yaml, then the connection types."""
    sections: dict[str, Any] = get_provider_info()["config"]
    return "\n".join([HEAD, *(_section(name, section) for name, section in sections.items()), _connections()])


def _section(name: str, section: dict[str, Any]) -> str:
    options = "\n".join(_option(name, option, declared) for option, declared in section["options"].items())
    return f"## [{name}]\n\n{_text(section['description'])}\n\n{options}"


def _option(section: str, name: str, option: dict[str, Any]) -> str:
    default = option["default"]
    text = "none, it is needed" if default is None else f"`{default}`" if default != "" else "empty"
    facts = [
        f"| default | {text} |",
        f"| variable | `AIRFLOW__{section.upper()}__{name.upper()}` |",
        f"| type | {option['type']} |",
        f"| since | {option['version_added']} |",
    ]
    if option["example"]:
        facts.append(f"| example | `{option['example']}` |")
    table = "\n".join(["| | |", "| --- | --- |", *facts])
    return f"### {name}\n\n{_text(option['description'])}\n\n{table}\n"


def _connections() -> str:
    parts = ["## Connections\n"]
    for kind in get_provider_info()["connection-types"]:
        behaviour = kind["ui-field-behaviour"]
        rows = [f"| {label} | `{field}` |" for field, label in behaviour["relabeling"].items()]
        rows += [
            f"| {field['label']} | extra `{name}`: {field['description']} |"
            for name, field in kind["conn-fields"].items()
        ]
        parts.append(f"### {kind['connection-type']}\n\n{kind['hook-name']}.\n\n| field | in Airflow |\n| --- | --- |")
        parts[-1] += "\n" + "\n".join(rows) + "\n"
    return "\n".join(parts)


def _text(description: str) -> str:
    """reStructuredText's double back quotes are Markdown's single ones."""
    return re.sub(r"``(.+?)``", r"`\1`", description).strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
