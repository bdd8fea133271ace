"""Requests with 100,000 fields or properties are refused, and other clients are served."""

import asyncio
from pathlib import Path

import pytest

from congreve.remoting.errors import FrameError
from congreve.remoting.messages.codes import ResponseCode, SerializeType
from congreve.remoting.messages.command import HEADER_MAX, RemotingCommand

from ..tool import config_of, running

MANY = 100_000
SEND = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
FORMS = [SerializeType.JSON, SerializeType.ROCKETMQ]


def with_fields(count: int, form: SerializeType) -> bytes:
    fields = SEND | {f"k{i}": "" for i in range(count)}
    return RemotingCommand(code=310, ext_fields=fields, serialize_type=form).encode()


@pytest.mark.parametrize("form", FORMS)
def test_a_header_is_read_up_to_its_limit(form: SerializeType) -> None:
    few = with_fields(10_000, form)
    assert len(few) < HEADER_MAX
    assert len(RemotingCommand.decode(few).ext_fields) == 10_000 + len(SEND)
    with pytest.raises(FrameError, match=f"at most {HEADER_MAX} are read"):
        RemotingCommand.decode(with_fields(MANY, form))


async def test_a_frame_of_many_fields_ends_its_own_connection(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T")
        for form in FORMS:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(with_fields(MANY, form))
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
            assert (await tool.send("T")).code == 0


async def test_a_message_of_many_properties_is_refused(tmp_path: Path) -> None:
    properties = "\x02".join(f"k{i}\x01v" for i in range(MANY))
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T")
        answer = await tool.ask(310, SEND | {"i": properties})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await tool.send("T")).code == 0
