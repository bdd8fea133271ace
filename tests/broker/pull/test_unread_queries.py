"""Answers of queries that a client does not read do not fill the broker's memory."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from congreve.broker.pull.query_processor import QueryMessageProcessor
from congreve.remoting.messages.command import RemotingCommand

from ..tool import config_of, running

QUERIES = 60
SIZE = 1 << 20


async def test_queries_wait_until_earlier_answers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    query = QueryMessageProcessor._query

    async def counted(
        processor: QueryMessageProcessor, request: RemotingCommand
    ) -> RemotingCommand:
        asked.append(request.opaque)
        return await query(processor, request)

    monkeypatch.setattr(QueryMessageProcessor, "_query", counted)
    fields = {"topic": "T", "key": "k", "maxNum": "9", "beginTimestamp": "0"}
    fields["endTimestamp"] = str(1 << 62)
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T")
        for _ in range(4):
            assert (await tool.send("T", bytes(SIZE), properties="KEYS\x01k")).code == 0
        while len((await tool.ask(12, fields)).body) < 4 * SIZE:  # a thread writes the index
            await asyncio.sleep(0.01)
        asked.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for opaque in range(QUERIES):
            writer.write(RemotingCommand(code=12, ext_fields=fields, opaque=opaque).encode())
        while not asked:
            await asyncio.sleep(0.01)
        for _ in range(3):  # of a neighbour
            assert len((await tool.ask(12, fields)).body) > 4 * SIZE
        assert len(asked) < QUERIES / 2
        for _ in range(QUERIES):
            (size,) = struct.unpack(">I", await reader.readexactly(4))
            answer = RemotingCommand.decode(
                struct.pack(">I", size) + await reader.readexactly(size)
            )
            assert answer.code == 0 and len(answer.body) > 4 * SIZE
        writer.close()
    assert len(asked) == QUERIES + 3
