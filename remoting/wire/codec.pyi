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
) -> bytes | None: ...
def encode_frame(serialize_type: int, header: bytes, body: Buffer) -> bytes | None: ...
def decode(
    data: Buffer,
) -> tuple[int, int | str, int, int, int, str | None, dict[str, str], bytes, int] | None: ...
