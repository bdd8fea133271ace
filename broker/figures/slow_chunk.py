"""A slow chunk of requests that compiled code served."""

from typing import NamedTuple


class SlowChunk(NamedTuple):
    """Requests that one connection sent together, and where their time went, in nanoseconds."""

    requests: dict[str, int]  # by the names of their codes
    messages: int  # of their sends
    address: bytes  # of the client, 4 or 16 bytes
    port: int
    queued_ns: int  # behind other connections of the same lane
    worked_ns: int  # decoding, appending with the wait for the log's lock, reading, answering
    files_ns: int  # for new files of the log and of queues
    disk_ns: int  # until the messages were on disk
    slave_ns: int  # after that, until a slave had them
    by_grpc: bool
    missed: int  # further slow chunks, which were not noted

    @property
    def whole_ns(self) -> int:
        """From the arrival of the requests to their answers."""
        return self.queued_ns + self.worked_ns + self.files_ns + self.disk_ns + self.slave_ns
