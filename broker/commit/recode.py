"""Encoded answers of sends that failed after they were encoded."""

from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand


def recode(answers: bytes, code: int, remark: str) -> bytes:
    """The same response frames with another code and remark; errors stay as they are."""
    out = []
    at = 0
    while at < len(answers):
        size = 4 + int.from_bytes(answers[at : at + 4], "big")
        frame = answers[at : at + size]
        command = RemotingCommand.decode(frame)
        if command.code == ResponseCode.SUCCESS:
            command.code = code
            command.remark = remark
            frame = command.encode()
        out.append(frame)
        at += size
    return b"".join(out)
