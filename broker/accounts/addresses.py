"""White addresses, and those of permissions: patterns of addresses.

A pattern is an address, a network (`10.1.0.0/16`), a list of them with commas between, or an
address whose parts may be `*`, a range `3-9` or, in the last place, a set `{1,2}`; `*` alone
matches every address. (RocketMQ: RemoteAddressStrategyFactory; RocketMQ 5: IPAddressUtils.)
"""

from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

import msgspec

from congreve.broker.errors import ConfigError

_PARTS = {4: 4, 6: 8}
_PART_MAX = {4: 255, 6: 0xFFFF}
_EVERYTHING = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_ANY = "*"


class _Block(NamedTuple):
    """A range for each part of an address; `version` is 4 or 6."""

    version: int
    ranges: tuple[range, ...]


class AddressPattern(msgspec.Struct, frozen=True):
    """The addresses of one pattern; `text` is how it was written."""

    text: str = ""
    everything: bool = False
    blocks: tuple[_Block, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "AddressPattern":
        """Read a pattern; a blank one matches nothing. Raises ConfigError."""
        text = text.strip()
        if text in _EVERYTHING:
            return cls(text, everything=True)
        try:
            return cls(text, blocks=tuple(_block(one) for one in _alternatives(text)))
        except (ValueError, AddressValueError) as error:
            raise ConfigError(
                f"{text!r} is not a pattern of addresses: write 10.1.2.3, 10.1.2.*, 10.1.2.3-9, "
                "10.1.2.{3,4}, 10.1.0.0/16, the same of IPv6, or several with commas between"
            ) from error

    def matches(self, address: str) -> bool:
        """Whether an address, as sockets give it, is one of the pattern's."""
        if self.everything:
            return True
        if not self.blocks:
            return False
        try:
            parts = _parts(address)
        except ValueError:
            return False  # the peer has disconnected, so its address is unknown
        version = 4 if len(parts) == _PARTS[4] else 6
        return any(
            block.version == version
            and all(part in wanted for part, wanted in zip(parts, block.ranges, strict=True))
            for block in self.blocks
        )


def _parts(address: str) -> tuple[int, ...]:
    """The four or eight numbers of an address; an IPv4 address mapped to IPv6 has four."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    packed = found.packed
    if isinstance(found, IPv4Address):
        return tuple(packed)
    return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))


def _alternatives(text: str) -> list[str]:
    """The patterns without sets and commas that the text stands for."""
    if not text:
        return []
    if not text.endswith("}"):
        return [one.strip() for one in text.split(",")]
    head, brace, numbers = text[:-1].partition("{")
    if not brace or not head.endswith((".", ":")):
        raise ValueError("a set is the last part")
    return [head + number.strip() for number in numbers.split(",")]


def _block(text: str) -> _Block:
    if "/" in text:
        return _network(text)
    version, separator, base = (6, ":", 16) if ":" in text else (4, ".", 10)
    if _ANY not in text and "-" not in text:
        parts = [str(part) if version == 4 else f"{part:x}" for part in _parts(text)]
        version = 4 if len(parts) == _PARTS[4] else 6
        base = 10 if version == 4 else 16
    else:
        parts = _expanded(text.split(separator), _PARTS[version])
    if len(parts) != _PARTS[version]:
        raise ValueError("too few or too many parts")
    return _Block(version, tuple(_range(part, base, _PART_MAX[version]) for part in parts))


def _network(text: str) -> _Block:
    """The block of an address and the number of its leading bits."""
    address, _, count = text.partition("/")
    parts, bits = _parts(address), int(count)
    version = 4 if len(parts) == _PARTS[4] else 6
    width = _PART_MAX[version].bit_length()
    if not 0 <= bits <= width * len(parts):
        raise ValueError("too many bits")
    ranges = []
    for at, part in enumerate(parts, 1):
        free = min(max(at * width - bits, 0), width)
        low = part >> free << free
        ranges.append(range(low, low + (1 << free)))
    return _Block(version, tuple(ranges))


def _expanded(parts: list[str], wanted: int) -> list[str]:
    """All parts: an empty one stands for zeros, a last `*` for all that follow."""
    if "" in parts:
        at = parts.index("")
        rest = [part for part in parts[at:] if part]
        return parts[:at] + ["0"] * (wanted - at - len(rest)) + rest
    if parts[-1] == _ANY:
        return parts + [_ANY] * (wanted - len(parts))
    return parts


def _range(text: str, base: int, most: int) -> range:
    text = text.strip()
    if text == _ANY:
        return range(most + 1)
    low, dash, high = text.partition("-")
    first = int(low, base)
    last = int(high, base) if dash else first
    if not 0 <= first <= last <= most:
        raise ValueError("a part is out of range")
    return range(first, last + 1)
