from typing import final

@final
class ConnectionTable:
    @property
    def unfinished_bytes(self) -> int: ...
