from typing import final

@final
class HeaderDecoder:
    """Decodes the headers of frames in compiled code, and remembers how the last ones looked.

    Each method takes one whole frame; None: compiled code leaves it to Python.
    """

    def __init__(self) -> None: ...
    @property
    def remembered(self) -> int:
        """JSON headers that looked like none before them and were remembered."""

    def head(self, data: bytes) -> tuple[int, int, int, int, dict[str, str]] | None:
        """(code, version, opaque, flag, ext fields) (RocketMQ: RemotingCommand)."""

    def send(self, data: bytes) -> tuple[str | int | bool | None, ...] | None:
        """The fields of a SendMessageRequestHeaderV2, of code 10 those of a
        SendMessageRequestHeader; unitMode and maxReconsumeTimes are left out."""

    def pull(self, data: bytes) -> tuple[str | int | None, ...] | None:
        """The fields of a PullMessageRequestHeader, the optional ones last."""
