from typing_extensions import Buffer

def encode_json(
    code: int,
    language: str,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: dict[str, str],
    body: Buffer,
) -> bytes | None:
    """A whole frame with a JSON header (RocketMQ: RemotingCommand.encode); None where it would be
    longer than a frame may be. TypeError where a field is no text."""

def decode(
    data: Buffer,
) -> tuple[int, int | str, int, int, int, str | None, dict[str, str], bytes, int] | None:
    """Code, language (its number of a binary header, its name of a JSON one), version, opaque,
    flag, remark, ext fields, body and serialize type of one whole frame. None: it is not plain, or
    no frame at all, and Python decides."""
