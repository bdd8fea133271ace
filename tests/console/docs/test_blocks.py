"""The blocks of README.md, docs/ and deploy/: commands, settings and programs that exist.

Other tests run them: test_shell.py those of shell, and those of a page the tests of its matter
(client.md, embedding.md, spark.md, testing.md, moving.md).
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from congreve.base.properties import values
from congreve.broker.config import all_settings
from congreve.broker.foreign_keys import FOREIGN_KEYS
from congreve.console.main import cli

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "deploy" / "README.md"]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
ENDS = {"|", "||", "&&", ";", "&", ">", "2>", ">>", "<"}
"""What ends the arguments of a command in a shell."""


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    """The blocks in these languages, with the page and line of each."""
    for page in PAGES:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            if found[2] in languages:
                line = text.count("\n", 0, found.start()) + 1
                yield f"{page.relative_to(ROOT)}:{line}", textwrap.dedent(found[3])


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each call of `congreve` in a shell's text."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if word in ENDS:
                if command and command[0].rpartition("/")[2] == "congreve":
                    yield command[1:]
                command = []
            elif command or not re.fullmatch(r"\w+=.*|sudo|exec|\(", word):
                command.append(word)


def check(command: click.Command, name: str, arguments: list[str]) -> None:
    """Raises click's errors for a command or an option that does not exist."""
    with click.Context(command, info_name=name) as context:
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if isinstance(command, click.Group) and rest:
            found, below, further = command.resolve_command(context, rest)
            assert below is not None and found is not None
            check(below, found, further)


def test_every_command_and_its_options_exist() -> None:
    seen = 0
    for place, text in blocks("sh", "bash", "console"):
        for arguments in commands(text):
            seen += 1
            try:
                check(cli, "congreve", arguments)
            except click.UsageError as error:
                pytest.fail(f"{place}: congreve {shlex.join(arguments)}: {error.format_message()}")
    assert seen > 60


def test_every_setting_exists() -> None:
    seen = 0
    for place, text in blocks("properties"):
        for key in values(text):
            if key.startswith(("tls.", "rocketmq.")):
                continue
            seen += 1
            assert key in all_settings() or key in FOREIGN_KEYS, f"{place}: {key}"
    assert seen > 10


def test_every_block_of_data_can_be_read() -> None:
    for place, text in blocks("json", "yaml", "yml"):
        try:
            list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            pytest.fail(f"{place}: {error}")


def test_every_program_compiles_and_its_imports_exist() -> None:
    for place, text in blocks("python"):
        tree = compile(text, place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("congreve"):
                module = importlib.import_module(str(node.module))
                for name in node.names:
                    assert hasattr(module, name.name), f"{place}: {node.module}.{name.name}"
