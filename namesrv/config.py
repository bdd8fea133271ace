"""The name server's settings for UPDATE_ and GET_NAMESRV_CONFIG (RocketMQ: NamesrvConfig)."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from congreve.base import settings
from congreve.base.settings import INT_MAX, Change, Range
from congreve.namesrv.errors import ConfigError

MAX_UPDATE = 64 << 10
"""Bytes of one request's key=value lines."""


class NamesrvConfig(msgspec.Struct, kw_only=True, rename="camel"):
    """`order_message_enable` puts the queues of ordered topics into their routes.

    (RocketMQ: NamesrvConfig.)
    """

    product_env_name: Annotated[str, Change.NOW] = "center"
    """Kept and shown for tools; it has no effect."""
    order_message_enable: Annotated[bool, Change.NOW] = False
    """Put the queues of ordered topics into their routes."""
    max_brokers: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000
    """Most brokers. Congreve only."""
    max_topics: Annotated[int, Range(1, INT_MAX), Change.NOW] = 10_000_000
    """Most topics; a topic counts once for each broker name that has it. Congreve only."""
    max_kv_settings: Annotated[int, Range(1, INT_MAX), Change.NOW] = 100_000
    """Most key-value settings. Congreve only."""
    max_kv_bytes: Annotated[int, Range(1, INT_MAX), Change.NOW] = 16 << 20
    """Most bytes of key-value settings. Congreve only."""

    def changed(self, texts: Mapping[str, str]) -> "NamesrvConfig":
        """A copy with other values by their names on the wire.

        Raises ConfigError for an unknown name and for a value that is not allowed.
        """
        try:
            settings.check_changeable(
                settings.table_of(NamesrvConfig), texts, "the name server's start"
            )
            config = msgspec.structs.replace(self, **settings.parse(NamesrvConfig, texts))
            settings.check(config)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return config

    def copy_from(self, other: "NamesrvConfig") -> None:
        """Copy the other's values into this object."""
        for setting in settings.table_of(NamesrvConfig).values():
            setattr(self, setting.field, getattr(other, setting.field))
