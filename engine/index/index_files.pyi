from collections.abc import Generator

from congreve.engine.config import StoreConfig
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.results import QueryResult
from congreve.io_backends.files.file_system import FileSystem

ANSWER_MAX: int

class IndexFiles:
    def __init__(self, config: StoreConfig, log: CommitLog, disk: FileSystem) -> None: ...
    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> QueryResult: ...
    def query_steps(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, QueryResult]: ...
    def forget_pages(self) -> None: ...
    def delete_expired(self, min_physical: int) -> int: ...
