"""The pages of the reference, made from the code: settings, commands, requests, the Python API.

It needs Congreve alone, no MkDocs, so that the tests can run it anywhere.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import click

from congreve.base.settings import Change, Row, rows
from congreve.broker.accounts.requests import NAME_SERVER_REQUESTS, REQUESTS, Request
from congreve.broker.config import setting_rows
from congreve.console.main import cli
from congreve.namesrv.config import NamesrvConfig

ROOT = Path(__file__).resolve().parents[2]

CHANGES = {Change.NOW: "yes, at once", Change.AFTER_RESTART: "yes, counts after a restart"}

TITLES = {
    "broker": "Broker",
    "store": "Store",
    "replication": "Replication",
    "election": "Election",
    "tls": "Encryption",
    "console": "Web console",
    "lake": "Topics as tables",
    "pops": "POP",
    "limits": "Limits",
}
"""The heading of each part of broker.conf, in the order of the page."""

INTRODUCTION = """\
A broker reads its settings from a broker.conf (`congreve broker -c broker.conf`), with RocketMQ's
keys, and from `-o KEY=VALUE`. The column *network* says whether `mqadmin updateBrokerConfig` may
change a key while the broker runs, and when the change counts. The broker names keys that it does
not know when it starts; they have no effect. This page is made from the code's own tables."""

#: The public API: page, title, modules whose `__all__` is shown, further objects.
API: tuple[tuple[str, str, list[str], list[str]], ...] = (
    ("congreve", "congreve", ["congreve"], []),
    (
        "client",
        "congreve.client",
        ["congreve.client"],
        ["congreve.client.errors", "congreve.client.consumer.rebalance"],
    ),
    (
        "engine",
        "Engine and records",
        [],
        [
            "congreve.engine.store.MessageStore",
            "congreve.engine.log.commit_log.CommitLog",
            "congreve.engine.queue.consume_queue.ConsumeQueue",
            "congreve.engine.store_files.files",
            "congreve.records.message.message",
            "congreve.records.record",
            "congreve.records.columns.builder",
        ],
    ),
)


def settings_page() -> str:
    """Every key of broker.conf and of the name server."""
    tables = [
        (title, [row for row in setting_rows() if row.owner == owner])
        for owner, title in TITLES.items()
    ]
    return "\n\n".join(
        [
            "---\nhide: [toc]\n---",  # the table needs the room
            "# Settings",
            INTRODUCTION,
            *(part for title, shown in tables for part in (f"## {title}", _settings_table(shown))),
            "## Name server",
            "`mqadmin updateNamesrvConfig` changes these; the name server keeps them in "
            "`namesrv.properties` in its data folder.",
            _settings_table(rows(NamesrvConfig, "namesrv")),
            "",
        ]
    )


def _settings_table(shown: Iterable[Row]) -> str:
    lines = ["| key | meaning | type | default | network |", "|---|---|---|---|---|"]
    for row in shown:
        text = re.sub(r"\]\((\w+\.md)", r"](../\1", row.text)
        network = CHANGES[row.change] if row.change else "no"
        lines.append(f"| `{row.key}` | {text} | {row.type} | {row.default} | {network} |")
    return "\n".join(lines)


def commands_page() -> str:
    """The help of the `congreve` command and of all below it."""
    parts = ["# Commands", "This page is made from the commands' own help."]
    for name, text in _commands(cli, "congreve", None):
        parts += [f"## {name}", f"```text\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def _commands(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    shown = name.rpartition(" ")[2]
    options = command.context_settings
    with click.Context(command, info_name=shown, parent=parent, **options) as context:
        yield name, command.get_help(context)
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                if found is not None:
                    yield from _commands(found, f"{name} {below}", context)


def requests_page() -> str:
    """The requests that brokers and name servers answer, by the permission that they need."""
    return "\n\n".join(
        [
            "# Requests",
            "The codes are RocketMQ's; those from 9000 to 9018 are Congreve's own. `b` is the "
            "topic where a header has short names.",
            _requests_table(REQUESTS, "broker"),
            _requests_table(NAME_SERVER_REQUESTS, "name server"),
            "",
        ]
    )


def _requests_table(known: Sequence[Request], server: str) -> str:
    requests: dict[str, list[str]] = {}
    for row in sorted(known, key=lambda row: row.code):
        requests.setdefault(str(row.rule), []).append(f"{row.code.value} {row.code.name}")
    lines = [f"| with accounts it needs | request of a {server} |", "|---|---|"]
    lines += [f"| {rule} | {', '.join(named)} |" for rule, named in requests.items()]
    return "\n".join(lines)


def packages_page() -> str:
    """What is in each sub-package: the first paragraphs of their docstrings."""
    lines = ["| sub-package | what is in it |", "|---|---|"]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for folder in sorted(set(settings["package-dir"].values())):
        for init in sorted((ROOT / folder).rglob("*/__init__.py")):
            text = (ast.get_docstring(ast.parse(init.read_text())) or "").partition("\n\n")[0]
            lines.append(f"| `{init.parent.relative_to(ROOT)}` | {' '.join(text.split())} |")
    return "\n\n".join(["# Sub-packages", "\n".join(lines), ""])


def api_pages() -> dict[str, str]:
    """By page name: the objects that mkdocstrings shall show, in its own notation."""
    return {page: _api_page(title, modules, others) for page, title, modules, others in API}


def _api_page(title: str, modules: list[str], others: list[str]) -> str:
    names = [
        f"{module}.{name}"
        for module in modules
        for name in getattr(import_module(module), "__all__", [])
    ]
    return "\n\n".join([f"# {title}", *(f"::: {name}" for name in names + others)]) + "\n"


def pages() -> dict[str, str]:
    """By file name: the pages that need no MkDocs."""
    return {
        "settings.md": settings_page(),
        "commands.md": commands_page(),
        "requests.md": requests_page(),
        "packages.md": packages_page(),
    }


def write_pages(folder: Path) -> None:
    """Write the pages that need no MkDocs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages().items():
        (folder / name).write_text(page)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
