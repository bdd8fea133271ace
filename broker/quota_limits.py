"""The limits of a quota: what a topic, a group, an account or an address may use."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from ipaddress import ip_address

import msgspec

from congreve.base.settings import LONG_MAX
from congreve.broker.errors import ConfigError

EVERY_NAME = "*"
"""Stands for all names of a kind that have no limits of their own."""
NAME_MAX = 255
"""Bytes of a name."""

Names = tuple[bytes | None, bytes | None, bytes | None, bytes | None]
"""Topic, group, account and address of a request; None: it has none."""
Rates = tuple[float, float, float, float, float, float, float, float, float]
"""Messages and bytes a second of sends, of pulls, of cold reads, of heartbeats; held pulls; 0: no
limit."""


class Kind(StrEnum):
    """What has a quota; the order is that of the compiled table."""

    TOPIC = "topic"
    GROUP = "group"
    ACCOUNT = "account"
    ADDRESS = "address"


class Use(IntEnum):
    """What requests do, as the compiled table numbers it."""

    SENDS = 0
    PULLS = 2
    COLD_READS = 4
    HEARTBEATS = 6
    HELD_PULLS = 8


class Limits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The most that one name may use, a second or at a time; 0: no limit."""

    send_messages: int = 0
    """Messages in sends; each member of a batch counts."""
    send_bytes: int = 0
    """Bytes of the bodies of sends."""
    pull_messages: int = 0
    """Messages in answers to pulls."""
    pull_bytes: int = 0
    """Bytes of the records in answers to pulls."""
    cold_reads: int = 0
    """Reads from disk for pulls of messages that are not in memory."""
    heartbeats: int = 0
    """Heartbeats of clients: their accounts and addresses are charged."""
    held_pulls: int = 0
    """Pulls that wait for messages at a time."""

    def __post_init__(self) -> None:
        for key, value in msgspec.to_builtins(self).items():
            if not 0 <= value <= LONG_MAX:
                raise ConfigError(f"{key}={value}: use a number from 0 to {LONG_MAX}")

    @classmethod
    def parse(cls, text: str) -> "Limits":
        """Read ``sendMessages=1000,sendBytes=1048576``; an empty text has no limit.

        Raises ConfigError for a name or number that is not allowed.
        """
        texts = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            key, _, value = part.partition("=")
            texts[key.strip()] = value.strip()
        return cls.of(texts)

    @classmethod
    def of(cls, fields: object) -> "Limits":
        """The limits of a mapping. Raises ConfigError for a key or value that is not allowed."""
        try:
            return msgspec.convert(fields, cls, strict=False)
        except msgspec.ValidationError as error:
            known = ", ".join(field.encode_name for field in msgspec.structs.fields(cls))
            raise ConfigError(f"{error}: a quota has the limits {known}") from error

    @property
    def rates(self) -> Rates:
        """The limits of each use, in the order of the compiled table."""
        return (
            self.send_messages,
            self.send_bytes,
            self.pull_messages,
            self.pull_bytes,
            self.cold_reads,
            0,
            self.heartbeats,
            0,
            self.held_pulls,
        )


def check_defaults(texts: Mapping[str, str]) -> None:
    """Raises ConfigError for the first text, by kind, that is not a quota."""
    for kind, text in texts.items():
        try:
            Limits.parse(text)
        except ConfigError as error:
            raise ConfigError(f"default{kind.capitalize()}Quota={text}: {error}") from error


def key_of(kind: Kind, name: str) -> bytes:
    """The name as the compiled table has it. Raises ConfigError for one that cannot occur."""
    if kind is Kind.ADDRESS:
        try:
            return ip_address(name).packed
        except ValueError as error:
            raise ConfigError(f"a quota for the address {name!r}: {error}") from error
    key = name.encode()
    if not 0 < len(key) <= NAME_MAX:
        raise ConfigError(f"a quota for the {kind} {name!r}: use a name of 1 to {NAME_MAX} bytes")
    return key


def charged_names(
    topic: str | None, group: str | None, account: str | None, address: bytes
) -> Names:
    """What a request is charged to."""
    names = (None if each is None else each.encode() for each in (topic, group, account))
    first, second, third = names
    return first, second, third, address
