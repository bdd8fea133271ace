from typing import Self, final

@final
class Window:
    def __new__(cls, size: int) -> Self: ...
    @property
    def size(self) -> int: ...
