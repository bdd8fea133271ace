"""Writes the tables of requests into docs/compatibility.md, from broker/accounts/requests.py.

PYTHONPATH=tests python -m tidy.request_page
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from congreve.broker.accounts.requests import NAME_SERVER_REQUESTS, REQUESTS, Request

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
MARK = "<!-- tests/tidy/request_page.py writes this from broker/accounts/requests.py -->\n"
BLOCK = re.compile(re.escape(MARK) + r"\n(?:\|.*\n)*", re.MULTILINE)


def table(rows: Sequence[Request], server: str) -> str:
    """One line for each right, with the requests of a server that need it."""
    requests: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row.code):
        requests.setdefault(str(row.rule), []).append(f"{row.code.value} {row.code.name}")
    lines = [f"| with accounts it needs | request of a {server} |", "|---|---|"]
    lines += [f"| {rule} | {', '.join(named)} |" for rule, named in requests.items()]
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """The page with the tables after their marks. Raises ValueError if it has not two of them."""
    tables = [table(REQUESTS, "broker"), table(NAME_SERVER_REQUESTS, "name server")]
    if len(BLOCK.findall(page)) != len(tables):
        raise ValueError(f"the page needs the line {MARK!r} before each of {len(tables)} tables")
    return BLOCK.sub(lambda _: f"{MARK}\n{tables.pop(0)}", page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
