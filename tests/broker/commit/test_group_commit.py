"""No send succeeds before its message is on disk."""

from congreve.broker.commit.recode import recode
from congreve.broker.requests.checks import put_code
from congreve.engine.results import PutStatus
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand


def test_an_error_response_is_not_changed_by_group_commit():
    refused = RemotingCommand(code=10, opaque=7).reply(ResponseCode.NO_PERMISSION, "no").encode()
    assert recode(refused, ResponseCode.FLUSH_DISK_TIMEOUT, "late") == refused


def test_a_store_without_a_free_buffer_is_answered_like_the_reference() -> None:
    """SendMessageProcessor: CREATE_MAPEDFILE_FAILED is SYSTEM_ERROR, clients try another broker."""
    assert put_code(PutStatus.CREATE_MAPEDFILE_FAILED) is ResponseCode.SYSTEM_ERROR
