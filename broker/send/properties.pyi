def stored(
    properties: bytes,
    *,
    batch: bool = False,
    half: bool = False,
    group: bytes = b"P",
    sync_flush: bool = False,
) -> tuple[bytes, int] | None: ...
