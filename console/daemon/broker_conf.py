"""The options of commands that read a broker.conf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from congreve.broker.config import BrokerConfig

F = TypeVar("F", bound=Callable[..., Any])


def config_options(command: F) -> F:
    """Add `-c`, `-n` and `-o`: the command gets `config_file`, `namesrv_addr` and `settings`."""
    for option in (
        click.option(
            "-o",
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A further setting, as in broker.conf. Overrides the file.",
        ),
        click.option(
            "-n",
            "--namesrv",
            "namesrv_addr",
            envvar="NAMESRV_ADDR",
            help="Name servers, host:port;host:port. Overrides the file.",
        ),
        click.option(
            "-c",
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            help="RocketMQ broker.conf, read as it is.",
        ),
    ):
        command = option(command)
    return command


def read_config(
    config_file: Path | None, namesrv_addr: str | None, settings: tuple[str, ...]
) -> BrokerConfig:
    """The settings of the file and the options; keys without effect are printed.

    Raises ConfigError, click.BadParameter.
    """
    from congreve.broker.broker_conf import load_config, without_effect

    overrides = dict(parse_setting(text) for text in settings)
    if namesrv_addr:
        overrides["namesrvAddr"] = namesrv_addr
    loaded = load_config(config_file, overrides)
    for line, key in loaded.unknown:
        where = f"{config_file}:{line}: " if line else ""
        click.echo(f"congreve: {where}{without_effect(key)}", err=True)
    return loaded.config


def parse_setting(text: str) -> tuple[str, str]:
    """The key and the value of KEY=VALUE. Raises click.BadParameter."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key.strip(), value
