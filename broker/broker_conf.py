"""Reads broker.conf, and the same settings that a program passes as keywords."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from congreve.base import settings
from congreve.broker import java_properties
from congreve.broker.config import BrokerConfig, all_settings
from congreve.broker.errors import ConfigError


def keyword_texts(keywords: Mapping[str, object]) -> dict[str, str]:
    """The texts of settings that a program passes as keywords, named as in broker.conf.

    Raises ConfigError for a key that has no effect.
    """
    for key in keywords:
        if key not in all_settings():
            like = get_close_matches(key, all_settings(), 1)
            hint = f": did you mean {like[0]}?" if like else ": use a key of broker.conf"
            raise ConfigError(f"{key} is not a broker setting{hint}")
    return {key: settings.as_text(value) for key, value in keywords.items()}


class LoadedConfig(NamedTuple):
    """The result of load_config(); `unknown` has (line, key) of each key without effect."""

    config: BrokerConfig
    unknown: list[tuple[int, str]]


def load_config(path: str | Path, overrides: Mapping[str, str] | None = None) -> LoadedConfig:
    """Read a broker.conf; `overrides` have the same keys and take precedence over the file.

    Raises ConfigError with the line for a file or value that cannot be used.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return parse_config(text, path, overrides)


def parse_config(
    text: str, path: str | Path, overrides: Mapping[str, str] | None = None
) -> LoadedConfig:
    """load_config() of a text that is, or will be, in the file `path`."""
    try:
        entries = java_properties.parse(text)
    except ConfigError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    lines = {entry.key: entry.first_line for entry in entries}
    values = {entry.key: entry.value for entry in entries} | dict(overrides or {})
    config = BrokerConfig()
    try:
        unknown = config.apply(values)
    except ConfigError as error:
        named = [line for key, line in lines.items() if str(error).startswith(key)]
        where = f"{path}:{named[0]}" if named else str(path)
        raise ConfigError(f"{where}: {error}") from error
    return LoadedConfig(config, [(lines[key], key) for key in unknown if key in lines])
