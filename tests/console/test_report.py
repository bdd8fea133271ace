"""Tables that commands print, and the numbers that their options take."""

from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from congreve.console.main import COMMANDS, cli
from congreve.console.option_types import Time
from congreve.console.report import show
from tests.console.conftest import congreve

LETTER = {
    "broker": "broker-a",
    "offset": 12,
    "topic": "parcels",
    "died": "2026-01-31 12:00:00",
    "retries": 16,
    "resent": False,
    "keys": "k1",
    "body": "a body of sixty characters, which is too long for one line..",
}


def float_options(command: click.Command, name: str) -> Iterator[tuple[str, click.Parameter]]:
    """All options of a command, and of its subcommands, that take a number with a fraction."""
    for option in command.params:
        if isinstance(option.type, (click.FloatRange, type(click.FLOAT))):
            yield f"{name} {option.name}", option
    if isinstance(command, click.Group):
        for sub_name, sub_command in command.commands.items():
            yield from float_options(sub_command, f"{name} {sub_name}")


def all_float_options() -> list[tuple[str, click.Parameter]]:
    found: list[tuple[str, click.Parameter]] = []
    for name, (path, _) in COMMANDS.items():
        module, attribute = path.split(":")
        found.extend(float_options(getattr(import_module(module), attribute), name))
    return found


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_no_option_takes_a_number_that_is_not_finite(text: str) -> None:
    options = all_float_options()
    assert "bench seconds" in dict(options)
    for name, option in options:
        with pytest.raises(click.BadParameter):
            pytest.fail(f"{name}: {option.type.convert(text, option, click.Context(cli))}")


@pytest.fixture
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("narrow_terminal")
def test_wide_rows_are_blocks_of_lines_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show([LETTER, LETTER], "table", expand=True)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines.count("topic    parcels") == 2
    assert f"body     {LETTER['body']}" in lines


@pytest.mark.usefixtures("narrow_terminal")
def test_rows_that_fit_are_lines_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"topic": "parcels", "count": 3}], "table", expand=True)
    assert "│ parcels │ 3     │" in capsys.readouterr().out


def test_cells_are_neither_markup_nor_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show([{"body": "[/b] [red]x :smile:", "keys": "a\x1b[2J\nb"}], "table")
    shown = capsys.readouterr().out
    assert "[/b] [red]x :smile:" in shown
    assert r"a\x1b[2J\nb" in shown


def test_a_batch_of_the_load_is_a_message_at_most() -> None:
    run = congreve("bench", "--size", "4194304", "--batch", "10000", "--inflight", "65536")
    assert run.returncode == 2
    assert "use 4194304 at most" in run.stderr


def test_a_time_beyond_a_long_is_none() -> None:
    with pytest.raises(click.BadParameter, match="use ms since 1970"):
        Time().convert(str(1 << 63), None, None)
