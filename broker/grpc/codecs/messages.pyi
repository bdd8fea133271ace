from collections.abc import Iterable
from typing import final

from congreve.remoting.signatures.md5 import Md5

TIME_FIRST_MS: int
TIME_LAST_MS: int

@final
class ReceivedMessages:
    def __init__(self, md5: Md5, broker_name: str, hidden: Iterable[str]) -> None: ...
