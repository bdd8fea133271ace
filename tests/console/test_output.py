"""What all commands have in common: JSON, plain columns in a pipe, hints for typing errors."""

import json
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from congreve.console.main import COMMANDS
from congreve.console.report import show
from tests.console.conftest import congreve

SERVERS = {"run", "namesrv", "broker", "console", "lake follow", "demo"}
"""They print lines as long as they run."""


def subcommands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, sub_command in command.commands.items():
        yield from subcommands(sub_command, f"{name} {word}")


def test_every_command_prints_json() -> None:
    without = set()
    for name, (path, _) in COMMANDS.items():
        module, attribute = path.split(":")
        for whole_name, command in subcommands(getattr(import_module(module), attribute), name):
            if "output" not in {option.name for option in command.params}:
                without.add(whole_name)
    assert without == SERVERS


def test_a_pipe_gets_columns_without_boxes_that_are_never_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "x" * 300
    rows = [
        {"read_queues": 4, "addresses": ["a:1", "b:2"], "of": long, "lag_ms": 1_500, "note": None},
        {"read_queues": 16, "addresses": [], "of": "y", "lag_ms": 0, "note": None},
    ]
    show(rows, "table", shown={"lag_ms": lambda ms: f"{ms}ms"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["read_queues", "addresses", "of", "lag_ms", "note"]
    assert lines[1].split() == ["4", "a:1,", "b:2", long, "1500ms", "-"]
    assert lines[2].split() == ["16", "-", "y", "0ms", "-"]
    show(rows, "json")
    assert json.loads(capsys.readouterr().out) == rows


def test_a_typing_error_has_a_hint() -> None:
    for arguments, hint in ((("tpoic",), "'topic'"), (("topic", "lits"), "'list'")):
        refused = congreve(*arguments)
        assert (refused.returncode, hint in refused.stderr) == (2, True)


def test_system_topics_and_groups_are_shown_when_asked_for(namesrv: str) -> None:
    congreve("topic", "create", "mine", namesrv=namesrv)

    def names(*arguments: str) -> set[str]:
        run = congreve(*arguments, "--output", "json", namesrv=namesrv)
        return {value for row in json.loads(run.stdout) for value in row.values()}

    assert names("topic", "list") == {"mine"}
    assert {"mine", "TBW102", "DefaultCluster"} <= names("topic", "list", "--system")
    congreve("cat", "-t", "mine", "-e", namesrv=namesrv)
    assert names("group", "list") == set()
    assert {"TOOLS_CONSUMER", "CONGREVE_CLI"} <= names("group", "list", "--system")
