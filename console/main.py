"""The ``congreve`` command and the table of its subcommands.

A subcommand's module is imported only when it runs, which keeps help and errors quick; the texts of
the help page are therefore in the table.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from congreve.base.errors import CongreveError
from congreve.base.extras import MissingPackageError, missing_package
from congreve.base.version import __version__

SECTIONS = {
    "Servers on this machine": {
        "run": (
            "congreve.console.daemon.serve:run",
            "Run a name server and a broker together.",
        ),
        "namesrv": ("congreve.console.daemon.serve:namesrv", "Run a name server."),
        "broker": ("congreve.console.daemon.serve:broker", "Run a broker with a broker.conf."),
        "console": (
            "congreve.console.web.serving.command:console",
            "Serve a web page about the brokers of a name server.",
        ),
        "demo": ("congreve.console.demo:demo", "Send real messages, read them back, count them."),
    },
    "A cluster, over the network": {
        "context": ("congreve.console.contexts:context", "Name clusters, and choose one."),
        "send": ("congreve.console.cluster.send:send", "Send one message, or lines of stdin."),
        "cat": (
            "congreve.console.cluster.cat:cat",
            "Print a topic's messages, or send stdin to it.",
        ),
        "find": ("congreve.console.cluster.find:find", "Find messages by key, id or time."),
        "topic": (
            "congreve.console.cluster.topic:topic",
            "List, create, delete, inspect and lock topics.",
        ),
        "group": (
            "congreve.console.cluster.group:group",
            "List and create groups, show lag, reset offsets.",
        ),
        "why": ("congreve.console.cluster.why:why", "Say why a group is behind."),
        "dlq": ("congreve.console.cluster.dlq:dlq", "List, count and resend dead letters."),
        "timers": (
            "congreve.console.cluster.timers:timers",
            "List and take back delayed messages.",
        ),
        "undeliverable": (
            "congreve.console.cluster.undeliverable:undeliverable",
            "Show delayed messages that were set aside, send them again.",
        ),
        "cluster": (
            "congreve.console.cluster.cluster:cluster",
            "Show all brokers; drain, roll, remove them, spread topics.",
        ),
        "config": (
            "congreve.console.cluster.brokers:config",
            "Show and change settings of running brokers.",
        ),
        "replicas": (
            "congreve.console.replication.replicas:replicas",
            "Show masters and slaves: lag in bytes and ms, in-sync set.",
        ),
        "election": (
            "congreve.console.replication.election:election",
            "Show a group that elects its master, and choose one.",
        ),
        "top": ("congreve.console.top.command:top", "Show a broker's rates, lag and disk, live."),
        "bench": ("congreve.console.bench:bench", "Measure a broker with many sends or pulls."),
    },
    "Files and disks of this machine": {
        "store": ("congreve.console.store:store", "Inspect, verify, back up and restore a store."),
        "bundle": (
            "congreve.console.bundle:bundle",
            "Collect what a bug report needs in one file, without secrets.",
        ),
        "lake": ("congreve.console.lake:lake", "Copy topics into Iceberg tables."),
        "user": (
            "congreve.console.accounts:user",
            "List, add and delete a broker's accounts, in its files.",
        ),
        "acl": (
            "congreve.console.accounts:acl",
            "Show and change what accounts may do, in these files.",
        ),
        "quota": (
            "congreve.console.quota:quota",
            "List and change what names may use a second, in a broker's file.",
        ),
        "tune": (
            "congreve.console.tune.command:tune",
            "Measure a disk and choose the log's I/O backend.",
        ),
        "doctor": ("congreve.console.doctor:doctor", "Look at a machine and its settings."),
        "settings": (
            "congreve.console.settings:settings",
            "List and explain the settings of broker.conf.",
        ),
    },
}
"""The sections of the help page: each command's name, its object as ``module:attribute``, and its
line."""

COMMANDS = {name: row for rows in SECTIONS.values() for name, row in rows.items()}


class LazyGroup(click.Group):
    """A click group that imports a command's module when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, without an import."""
        width = max(map(len, COMMANDS))
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in rows.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of these arguments; an error names those that are spelled alike."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            alike = " or ".join(map(repr, get_close_matches(name, COMMANDS)))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {alike}?" if alike else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="congreve")
def cli() -> None:
    """Congreve: a message broker that RocketMQ 4.9 clients and tools talk to unchanged."""


def main() -> None:
    """Run the command line; a CongreveError becomes one line on stderr and exit code 1, or 2 if
    packages of an extra are missing."""
    _fill_standard_descriptors()
    try:
        cli(prog_name="congreve")
    except MissingPackageError as error:
        _end(error, 2)
    except CongreveError as error:
        _end(error, 1)
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        _end(missing, 2)


def _end(error: CongreveError, code: int) -> None:
    click.echo(f"congreve: {error}", err=True)
    sys.exit(code)


def _fill_standard_descriptors() -> None:
    # A socket would take the number of a closed standard stream (`>&-`), and libuv never closes
    # descriptors 0 to 2.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
