def stored(
    properties: bytes,
    *,
    batch: bool = False,
    half: bool = False,
    group: bytes = b"P",
    sync_flush: bool = False,
    reserves: bool = False,
) -> tuple[bytes, int] | None: ...
