from typing_extensions import Buffer

FRAME_MAX: int

def split(data: Buffer) -> tuple[list[bytes], int, bool]: ...
