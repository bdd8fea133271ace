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
from congreve.base.version import __version__

COMMANDS = {
    "run": ("congreve.console.daemon.serve:run", "Run a name server and a broker in one process."),
    "namesrv": ("congreve.console.daemon.serve:namesrv", "Run a name server."),
    "broker": ("congreve.console.daemon.serve:broker", "Run a broker with a broker.conf."),
    "topic": ("congreve.console.topic:topic", "List, create, delete and inspect topics."),
    "group": ("congreve.console.group:group", "List groups, show lag, reset offsets."),
    "dlq": ("congreve.console.dlq:dlq", "List, count and resend dead letters."),
    "timers": ("congreve.console.timers:timers", "List and take back delayed messages."),
    "user": ("congreve.console.accounts:user", "List, add and delete a broker's accounts."),
    "acl": ("congreve.console.accounts:acl", "Show and change what accounts may do."),
    "replicas": (
        "congreve.console.replication.replicas:replicas",
        "Show masters and slaves: lag in bytes and ms, in-sync set.",
    ),
    "election": (
        "congreve.console.replication.election:election",
        "Show a group that elects its master, and choose one.",
    ),
    "quota": ("congreve.console.quota:quota", "List and change what names may use a second."),
    "send": ("congreve.console.messages:send", "Send one message, or the lines of stdin."),
    "cat": ("congreve.console.messages:cat", "Print a topic's messages, or send stdin to it."),
    "console": (
        "congreve.console.web.serving.command:console",
        "Serve a web page about the brokers of a name server.",
    ),
    "top": ("congreve.console.top:top", "Show a broker's rates, lag and disk, live."),
    "bench": ("congreve.console.bench:bench", "Measure a broker with many sends or pulls."),
    "tune": (
        "congreve.console.tune.command:tune",
        "Measure a disk and choose the log's I/O backend.",
    ),
    "doctor": ("congreve.console.doctor:doctor", "Look at a machine and its settings."),
    "store": ("congreve.console.store:store", "Inspect and verify a store's files, offline."),
    "lake": ("congreve.console.lake:lake", "Copy topics into Iceberg tables."),
    "demo": ("congreve.console.demo:demo", "Send real messages, read them back, count them."),
}
"""Each command's name, its object as ``module:attribute``, and its line on the help page."""


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
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="congreve")
def cli() -> None:
    """Congreve: a message broker that RocketMQ 4.9 clients and tools talk to unchanged."""


def main() -> None:
    """Run the command line; a CongreveError becomes one line on stderr and exit code 1."""
    _fill_standard_descriptors()
    try:
        cli(prog_name="congreve")
    except CongreveError as error:
        click.echo(f"congreve: {error}", err=True)
        sys.exit(1)


def _fill_standard_descriptors() -> None:
    # A socket would take the number of a closed standard stream (`>&-`), and libuv never closes
    # descriptors 0 to 2.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
