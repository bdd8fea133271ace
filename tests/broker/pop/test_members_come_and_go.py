"""Members of a group that pops come and go under load: it needs no rebalance."""

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from congreve.remoting.transport.client import RemotingClient

from ..tool import Tool, config_of, running
from .popping import ACK, OK, Member, Popped

STEADY = 4
QUEUES = 4
AT_ONCE = 50
BATCH = 8
LEFT_MS = 2_000
"""After which what a member has left comes again."""


@pytest.fixture
def brief_members(quick, kill_rounds) -> int:
    """So many come and go: fewer in `make check`, and 1,000 in `make soak`."""
    return 20 if quick else 1_000 if kill_rounds >= 1_000 else 150


class Load:
    """Messages that are sent while members come and go, by number, and what became of them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()  # the answer to its acknowledgement was lost
        self.is_over = False
        self.again: list[int] = []  # it came after it was acknowledged
        self.of_steady: Counter[int] = Counter()  # how many messages each of those has got

    async def send(self, tool: Tool) -> None:
        """Send until it is over, some messages ahead of the members."""
        while not self.is_over:
            if self.sent - len(self.acknowledged | self.unsure) < 200:
                sends = [
                    tool.send("T", b"%d" % (self.sent + number), number % QUEUES)
                    for number in range(20)
                ]
                for answer in await asyncio.gather(*sends):
                    assert answer.code == OK
                self.sent += len(sends)
            await asyncio.sleep(0.01)

    async def settle(self, member: Member, messages: list[Popped]) -> None:
        for message in messages:
            number = int(message.body)
            if number in self.acknowledged:
                self.again.append(number)
            if await member.ack(message) == OK:
                self.acknowledged.add(number)

    async def stay(self, place: int) -> None:
        """A member that pops until it is cancelled."""
        async with connected(self.address) as member:
            while True:
                messages = await member.pop(maxMsgNums=BATCH, pollTime=1_000, invisibleTime=LEFT_MS)
                await self.settle(member, messages)
                self.of_steady[place] += len(messages)

    async def come_and_go(self, chance: random.Random) -> None:
        """A member that pops once or twice, and ends in one of four ways."""
        async with connected(self.address) as member:
            assert (await member.tool.heart_beat("G", "T")).code == OK
            for _ in range(chance.randrange(1, 3)):
                messages = await member.pop(maxMsgNums=BATCH, pollTime=1_000, invisibleTime=LEFT_MS)
                await self.settle(member, messages[: chance.randrange(BATCH + 1)])
            match chance.randrange(4):
                case 0:  # it says that it goes
                    fields = {"clientID": "c1", "consumerGroup": "G"}
                    assert (await member.tool.ask(35, fields)).code == OK
                case 1:  # its connection ends while it waits for messages
                    waiting = asyncio.create_task(member.ask(pollTime=60_000))
                    await asyncio.sleep(0)
                    await member.tool.client.close()
                    await asyncio.gather(waiting, return_exceptions=True)
                case 2:  # its connection ends before the answer to an acknowledgement
                    await self._ack_and_close(member)
                case _:
                    pass

    async def _ack_and_close(self, member: Member) -> None:
        for message in await member.pop(maxMsgNums=1, invisibleTime=LEFT_MS):
            self.unsure.add(int(message.body))
            fields = member.fields(offset=message.offset, extraInfo=message.handle)
            fields |= {"topic": message.topic, "queueId": str(message.queue_id)}
            waiting = asyncio.create_task(member.tool.ask(ACK, fields))
            await asyncio.sleep(0)
            await member.tool.client.close()
            await asyncio.gather(waiting, return_exceptions=True)


@asynccontextmanager
async def connected(address: str):
    client = RemotingClient()
    try:
        yield Member(Tool(address, client))
    finally:
        await client.close()


async def test_members_come_and_go_and_the_others_go_on(tmp_path, brief_members):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=QUEUES)
        load = Load(broker.address)
        steady = [asyncio.create_task(load.stay(place)) for place in range(STEADY)]
        sending = asyncio.create_task(load.send(tool))
        try:
            chance = random.Random(5)
            for first in range(0, brief_members, AT_ONCE):
                count = min(AT_ONCE, brief_members - first)
                before = load.of_steady.copy()
                await asyncio.gather(*(load.come_and_go(chance) for _ in range(count)))
                async with asyncio.timeout(60):
                    while any(load.of_steady[each] == before[each] for each in range(STEADY)):
                        await asyncio.sleep(0.01)
            load.is_over = True
            await sending
            async with asyncio.timeout(60):
                while not load.acknowledged | load.unsure >= set(range(load.sent)):
                    await asyncio.sleep(0.05)
                while broker.managers.pops.in_flight.out:
                    await asyncio.sleep(0.05)
        finally:
            for task in (sending, *steady):
                task.cancel()
            await asyncio.gather(sending, *steady, return_exceptions=True)
        assert load.again == []
