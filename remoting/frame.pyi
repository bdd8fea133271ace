"""The compiled side of the wire. Its C interface is in frame.pxd; this is what Python sees of it."""

from typing_extensions import Buffer

def send_response_constants(fields: dict[str, str]) -> tuple[bytes, bytes]:
    """The ext fields that every answer to a send carries, prepared for JSON and binary headers."""

def split_frame(data: Buffer) -> int | None:
    """Bytes of the whole frame at the head of `data`; None when more are needed, -1 for no frame."""

def decode_compiled(data: Buffer) -> tuple[int, int, int, int, list[tuple[str, str]]] | None:
    """(code, version, opaque, flag, ext fields) of a whole frame; None where Python has to decide.

    For tests, which hold it against `command.RemotingCommand.decode`.
    """
