"""The ``congreve`` command, which imports only the modules of the command that runs.

Help and errors must be quick, so a command's module is imported only when it runs; the table below
has the texts of the help page.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from congreve import __version__
from congreve.errors import CongreveError

COMMANDS = {
    "run": ("congreve.console.serve:run", "Name server and broker in one process."),
    "namesrv": ("congreve.console.serve:namesrv", "A name server."),
    "broker": ("congreve.console.serve:broker", "A broker, set up by a broker.conf."),
    "topic": ("congreve.console.topic:topic", "List, create, delete and look into topics."),
    "send": ("congreve.console.messages:send", "Send lines of stdin, or one message."),
    "cat": ("congreve.console.messages:cat", "Print a topic's messages, or send stdin to it."),
    "tune": ("congreve.console.tune:tune", "Measure a store's disk, choose how to write to it."),
    "store": ("congreve.console.store:store", "Look into a store's files, offline."),
    "demo": ("congreve.console.demo:demo", "The main job: real messages in, read back, counted."),
}


class LazyGroup(click.Group):
    """A click group that imports the module of a command when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="congreve")
def cli() -> None:
    """Congreve: a message broker that RocketMQ 4.9 clients and tools talk to unchanged."""


def main() -> None:
    """Run the command; an expected failure is one line on stderr and exit code 1."""
    _fill_standard_descriptors()
    try:
        cli(prog_name="congreve")
    except CongreveError as error:
        click.echo(f"congreve: {error}", err=True)
        sys.exit(1)


def _fill_standard_descriptors() -> None:
    # A socket would get a closed number 0 to 2 (`>&-`), and libuv does not close such sockets.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
