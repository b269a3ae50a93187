"""axe-core: is a page accessible, as far as a program can tell?"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from browser import Browser

FILE = Path(__file__).parent / "vendor" / "axe.min.js"
"""As npm has it (`scripts/vendor.sh`), with its licences beside it."""


@cache
def _source() -> str:
    return FILE.read_text(encoding="utf-8")


def serious_findings(browser: Browser) -> list[str]:
    """What axe calls serious or critical, each with the first element that it is about."""
    browser.script(f"{_source()}; window.axe = axe")
    found = browser.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {iframes: false}).then((each) => done(each.violations), "
        "(error) => done([{impact: 'critical', id: String(error), nodes: [{html: ''}]}]))"
    )
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in ("serious", "critical")
    ]
