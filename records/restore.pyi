from typing import Final

from typing_extensions import Buffer

from congreve.records.message.message import Record

DELAYED: Final[int]
TIMED: Final[int]
COMMITTED: Final[int]

def restored(record: Buffer, kind: int) -> Record: ...
