"""``congreve settings``: what the keys of a broker.conf mean."""

from __future__ import annotations

import re
import textwrap
from fnmatch import fnmatchcase

import click

from congreve.base.errors import CongreveError
from congreve.base.settings import Row
from congreve.console.report import output_option, print_json, show

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_WIDTH = 90


@click.command(
    help="List the settings of broker.conf, or explain those with a word or pattern in their key."
)
@click.argument("key", required=False)
@output_option
def settings(key: str | None, output: str) -> None:
    """Print a row for each setting, or all that the reference says about some."""
    from congreve.broker.broker_conf import without_effect
    from congreve.broker.config import setting_rows

    rows = setting_rows()
    if key is not None:
        rows = [row for row in rows if key == row.key] or [
            row for row in rows if fnmatchcase(row.key.lower(), f"*{key.lower()}*")
        ]
    if not rows:
        raise CongreveError(without_effect(str(key)))
    if output == "json":
        print_json([_details(row) for row in rows])
    elif key is None:
        show([_line(row) for row in rows], output)
    else:
        click.echo("\n\n".join(_block(row) for row in rows))


def _line(row: Row) -> dict[str, str]:
    return {"key": row.key, "default": _default(row), "meaning": _plain(row.text)}


def _details(row: Row) -> dict[str, str]:
    changes = (
        "in broker.conf" if row.change is None else f"also over the network, {row.change.value}"
    )
    return {**_line(row), "type": row.type, "changes": changes}


def _block(row: Row) -> str:
    details = _details(row)
    meaning = textwrap.indent(textwrap.fill(details["meaning"], _WIDTH), "  ")
    default = details["default"] or "none"
    return (
        f"{row.key}\n{meaning}\n  type: {row.type}; default: {default}; "
        f"changes: {details['changes']}"
    )


def _default(row: Row) -> str:
    return row.default.strip("`")


def _plain(text: str) -> str:
    """The text without Markdown: a link becomes its words and its page."""
    return _LINK.sub(r"\1 (docs/\2)", text).replace("`", "")
