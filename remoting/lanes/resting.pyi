from typing import final

@final
class RestingConnections:
    def __init__(self, rest_ms: int) -> None: ...
