def stored(
    properties: bytes, *, batch: bool = False, half: bool = False, sync_flush: bool = False
) -> tuple[bytes, int] | None:
    """(stored bytes, tags code) of a send's properties; None where Python has to decide."""
