from collections.abc import Iterable
from typing import final

@final
class HashedNames:
    def __init__(self, names: Iterable[str] = ()) -> None: ...
    def add(self, name: str) -> None: ...
