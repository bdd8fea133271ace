"""The options of commands that read a broker.conf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from congreve.console.option_types import KeyValue, Pairs

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
            type=KeyValue(),
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
    config_file: Path | None, namesrv_addr: str | None, settings: Pairs
) -> BrokerConfig:
    """The settings of the file and the options; keys without effect are printed.

    As with RocketMQ, name servers from the environment do not override the file.

    Raises ConfigError, click.BadParameter.
    """
    from congreve.broker.broker_conf import load_config, without_effect

    overrides = dict(settings)
    context = click.get_current_context()
    is_option = context.get_parameter_source("namesrv_addr") is ParameterSource.COMMANDLINE
    if namesrv_addr and is_option:
        overrides["namesrvAddr"] = namesrv_addr
    loaded = load_config(config_file, overrides)
    if namesrv_addr and not loaded.config.namesrv_addr:
        loaded = load_config(config_file, {**overrides, "namesrvAddr": namesrv_addr})
    for line, key in loaded.unknown:
        where = f"{config_file}:{line}: " if line else ""
        click.echo(f"congreve: {where}{without_effect(key)}", err=True)
    return loaded.config
