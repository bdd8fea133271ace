"""The pages of the reference, made from the code: settings, commands, the Python API.

It needs Congreve alone, no MkDocs, so that the tests can run it anywhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import msgspec

from congreve.base import settings
from congreve.base.settings import Change, Setting
from congreve.broker.config import BrokerConfig
from congreve.console.main import cli
from congreve.engine.config import StoreConfig
from congreve.namesrv.config import NamesrvConfig

MEANINGS = Path(__file__).with_name("settings.toml")

#: Defaults that are made when a broker starts.
MADE_DEFAULTS = {
    "brokerIP1": "this machine's address",
    "brokerIP2": "this machine's address",
    "brokerName": "this machine's host name",
    "networkThreads": "a quarter of the cores, 1 to 8",
    "storePathRootDir": "`~/store`",
}
TYPES = {bool: "true or false", int: "whole number", str: "text"}
CHANGES = {Change.NOW: "yes, at once", Change.AFTER_RESTART: "yes, counts after a restart"}

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
            "congreve.engine.offline.files",
            "congreve.records.message.message",
            "congreve.records.record",
            "congreve.records.columns.builder",
        ],
    ),
)


def meanings() -> dict[str, dict[str, str]]:
    """One sentence for each setting, by table and key."""
    return tomllib.loads(MEANINGS.read_text())


def settings_page() -> str:
    """Every key of broker.conf and of the name server."""
    texts = meanings()
    return "\n\n".join(
        [
            "---\nhide: [toc]\n---",  # the table needs the room
            "# Settings",
            INTRODUCTION,
            "## Broker",
            _settings_table(BrokerConfig, texts["broker"]),
            "## Store",
            _settings_table(StoreConfig, texts["store"]),
            "## Name server",
            "`mqadmin updateNamesrvConfig` changes these; the name server keeps them in "
            "`namesrv.properties` in its data folder.",
            _settings_table(NamesrvConfig, texts["namesrv"]),
            "",
        ]
    )


def _settings_table(struct: type[msgspec.Struct], texts: dict[str, str]) -> str:
    defaults = {
        field.encode_name: field.default
        for field in msgspec.structs.fields(struct)
        if field.default is not msgspec.NODEFAULT
    }
    lines = ["| key | meaning | type | default | network |", "|---|---|---|---|---|"]
    for key, setting in settings.table_of(struct).items():
        cells = (
            f"`{key}`",
            texts.get(key, ""),
            _type(setting),
            MADE_DEFAULTS.get(key) or _default(defaults[key]),
            CHANGES[setting.change] if setting.change else "no",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _type(setting: Setting) -> str:
    name = TYPES[setting.type]
    return f"{name}, {setting.range.low} to {setting.range.high}" if setting.range else name


def _default(value: object) -> str:
    return f"`{settings.as_text(value)}`" if value != "" else ""


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
