"""State with a checksum, which detects flipped bits and edits."""

import zlib

import msgspec


class _Sealed(msgspec.Struct):
    crc: int  # CRC-32 of the bytes of `state`
    state: msgspec.Raw


def seal(state: bytes) -> str:
    """A JSON text with its checksum, as JSON."""
    return msgspec.json.encode(_Sealed(zlib.crc32(state), msgspec.Raw(state))).decode()


def unseal(text: str) -> bytes:
    """The text that was passed to seal(). Raises ValueError if the checksum is wrong."""
    sealed = msgspec.json.decode(text, type=_Sealed)
    state = bytes(sealed.state)
    if zlib.crc32(state) != sealed.crc:
        raise ValueError(f"its checksum is {zlib.crc32(state)} instead of {sealed.crc}")
    return state
