"""State with a checksum: a flipped bit or an edited number in it is detected."""

import zlib

import msgspec


class _Sealed(msgspec.Struct):
    crc: int  # CRC-32 of the bytes of `state`
    state: msgspec.Raw


def seal(state: bytes) -> str:
    """A JSON text with its checksum, as JSON."""
    return msgspec.json.encode(_Sealed(zlib.crc32(state), msgspec.Raw(state))).decode()


def unseal(text: str) -> bytes:
    """The text that seal() got. Raises ValueError where text and checksum differ."""
    sealed = msgspec.json.decode(text, type=_Sealed)
    state = bytes(sealed.state)
    if zlib.crc32(state) != sealed.crc:
        raise ValueError(f"its checksum is {zlib.crc32(state)} and not {sealed.crc}")
    return state
