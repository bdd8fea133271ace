from collections.abc import Iterable
from typing import final

__all__ = ["ResendEncoder", "ResendIds"]

@final
class ResendIds:
    def __init__(self, head: str, elapsed: str) -> None: ...
    def __call__(self, offset: int) -> str: ...

@final
class ResendEncoder:
    def __init__(
        self,
        left_out: Iterable[str],
        *,
        size_max: int,
        body_max: int,
        retry_topic: str | None = None,
    ) -> None: ...
    def encode(
        self, bodies: Iterable[bytes], wanted: Iterable[tuple[int, int]], ids: ResendIds
    ) -> tuple[list[tuple[str, bytes, list[tuple[int, int]]]], list[tuple[int, int]]]: ...
