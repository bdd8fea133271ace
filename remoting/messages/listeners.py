"""Listeners and their addresses as text: ``outside=203.0.113.5:10921,inside=10.0.0.5:10911``."""

import re
from collections.abc import Mapping

from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.addresses import host_port

LISTENERS_MAX = 16
TEXT_MAX = 2048
"""Characters."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def parse_addresses(text: str) -> dict[str, str]:
    """The address `host:port` of each listener, by name. Raises HeaderError."""
    if len(text) > TEXT_MAX:
        raise HeaderError(f"listeners of {len(text)} characters: {TEXT_MAX} at most")
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in re.split("[,;]", text))):
        name, _, address = part.partition("=")
        host_port(address)
        if not _NAME.fullmatch(name) or name in found:
            raise HeaderError(f"{part!r}: write NAME=HOST:PORT, with a name of its own for each")
        found[name] = address
    if len(found) > LISTENERS_MAX:
        raise HeaderError(f"{len(found)} listeners: {LISTENERS_MAX} at most")
    return found


def format_addresses(addresses: Mapping[str, str]) -> str:
    """The text of parse_addresses()."""
    return ",".join(f"{name}={address}" for name, address in addresses.items())
