"""Reads broker.conf, and the same settings that a program passes as keywords."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from congreve.base import properties, settings
from congreve.base.errors import CongreveError
from congreve.broker.config import BrokerConfig, all_settings
from congreve.broker.errors import ConfigError
from congreve.broker.foreign_keys import FOREIGN_KEYS
from congreve.broker.setting_types import BrokerSettings
from congreve.engine.errors import StoreConfigError
from congreve.engine.state.sizes import adopt_sizes

__all__ = [
    "BrokerSettings",
    "LoadedConfig",
    "keyword_texts",
    "load_config",
    "parse_config",
    "without_effect",
]


def keyword_texts(keywords: Mapping[str, object]) -> dict[str, str]:
    """The texts of settings that a program passes as keywords, named as in broker.conf.

    Raises ConfigError for a key that has no effect.
    """
    for key in keywords:
        if key not in all_settings():
            raise ConfigError(without_effect(key))
    return {key: settings.as_text(value) for key, value in keywords.items()}


def without_effect(key: str) -> str:
    """Why a key has no effect: RocketMQ alone has it, or it is not spelled as a setting is."""
    if key in FOREIGN_KEYS:
        return f"{key}, a key of RocketMQ, has no effect here"
    like = settings.closest_key(key, [*all_settings(), *FOREIGN_KEYS])
    return f"{key} is not a setting" + (f": did you mean {like}?" if like else "")


class LoadedConfig(NamedTuple):
    """Settings of a broker; `unknown` has (line, key) of each key without effect, 0: an override.

    `lines` has the line of each key of the file.
    """

    config: BrokerConfig
    unknown: list[tuple[int, str]]
    lines: dict[str, int]


def load_config(
    path: str | Path | None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Read a broker.conf, if any; `overrides` have the same keys and take precedence.

    Sizes of files that neither names are those of the store. Raises ConfigError with the line for a
    file or value that cannot be used, StoreError if the store cannot be read.
    """
    try:
        text = "" if path is None else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    loaded = parse_config(text, path, overrides)
    named = {*loaded.lines, *(overrides or {})}
    try:
        adopt_sizes(loaded.config.store, named)
    except StoreConfigError as error:
        raise _located(error, path, loaded.lines) from error
    return loaded


def parse_config(
    text: str, path: str | Path | None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig:
    """load_config() of a text that is, or will be, in the file `path`, without a store."""
    try:
        entries = properties.parse(text)
    except properties.PropertiesError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    lines = {entry.key: entry.first_line for entry in entries}
    values = {entry.key: entry.value for entry in entries} | dict(overrides or {})
    config = BrokerConfig()
    try:
        unknown = config.apply(values)
    except ConfigError as error:
        raise _located(error, path, lines) from error
    return LoadedConfig(config, [(lines.get(key, 0), key) for key in unknown], lines)


def _located(
    error: CongreveError, path: str | Path | None, lines: Mapping[str, int]
) -> ConfigError:
    """The error with the place of its key, with which its text begins."""
    named = [line for key, line in lines.items() if str(error).startswith(key)]
    where = "" if path is None else f"{path}:{named[0]}: " if named else f"{path}: "
    return ConfigError(f"{where}{error}")
