from typing import final

from congreve.engine.commitlog import CommitLog
from congreve.engine.config import StoreConfig
from congreve.engine.results import QueryResult

@final
class KeyIndex:
    """Finds messages by UNIQ_KEY and KEYS (RocketMQ: IndexService).

    A thread reads the log behind its writer and fills the files; it rests where nothing arrives.
    """

    def __init__(self, config: StoreConfig, log: CommitLog) -> None: ...
    def start(self, *, clean: bool) -> None:
        """Open the files and begin to follow the log, which recovery has given its end.

        After an unclean stop the newest file, and each that names records which the log lost, is
        made anew from its first message on (D2); so is a damaged one with all that follow.
        """
    def stop(self) -> None:
        """Index what the log holds, save, end; idempotent."""
    def wake(self) -> None:
        """The log has grown; cheap, and nothing at all while the thread is at work."""
    @property
    def indexed_offset(self) -> int:
        """Physical offset up to which messages are indexed (dispatch progress)."""
    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Records of `topic` that carry `key`, stored in [begin, end]; the newest where there are
        more than `max_count` (at most maxMsgsNumBatch). Compared with the record itself (D3)."""
    def forget_pages(self) -> None:
        """Let no page of the files count as this process's memory until it is looked at again."""
    def delete_expired(self, min_physical: int) -> int:
        """Remove files that name only what lies before `min_physical`, never the last; how many."""
