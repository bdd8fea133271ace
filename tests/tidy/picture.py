"""Draws the packages and their arrows into README.md and docs/architecture.md, from ladder.py.

PYTHONPATH=tests python -m tidy.picture
"""

from __future__ import annotations

import re
from pathlib import Path

from .ladder import ARROWS, JOBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/architecture.md")
GROUND = "base"
MARK = "<!-- tests/tidy/picture.py draws this from tests/tidy/ladder.py -->\n"
BLOCK = re.compile(re.escape(MARK) + r"```mermaid\n.*?```\n", re.DOTALL)


def drawn() -> str:
    """The picture, in Mermaid. Every package imports the ground: those arrows are left out."""
    lines, leaves = [], []
    for name, job in reversed(JOBS.items()):
        shown = [target for target in ARROWS[name] if target != GROUND]
        if shown:
            lines.append(f"  {name}[{name}: {job}] --> {' & '.join(shown)}")
        else:
            leaves.append(f"{name}[{name}: {job}]")
    lines.append(f"  {'; '.join(leaves)}")
    return "\n".join(["```mermaid", "graph LR", *lines, "```", ""])


def with_picture(page: str) -> str:
    """A page with the picture after its mark. Raises ValueError if it has none."""
    text, count = BLOCK.subn(lambda _: MARK + drawn(), page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the picture: use one mark")
    return text


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(with_picture(path.read_text()))
