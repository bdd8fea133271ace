"""The parts of tests/proof/results.md, beside docs/proof.md, that programs write."""

from __future__ import annotations

import time
from pathlib import Path

PAGE = Path(__file__).resolve().with_name("results.md")
END = "<!-- end -->\n"


def write(program: str, lines: list[str]) -> None:
    """Replace what `python -m PROGRAM` wrote last."""
    begin = f"<!-- written by python -m {program} -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found:
        raise ValueError(f"{PAGE} has no line {begin.strip()}")
    _, _, after = rest.partition(END)
    PAGE.write_text(before + begin + "\n".join(lines) + "\n" + END + after)


def today() -> str:
    """The date of a run."""
    return time.strftime("%Y-%m-%d", time.gmtime())
