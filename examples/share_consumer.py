"""Share jobs among workers: each is acknowledged by itself, and a failed one comes again."""

import asyncio
from collections import Counter

import congreve
from congreve.client import (
    ConsumeFrom,
    ConsumeResult,
    ReceivedMessage,
    ShareConsumer,
    ShareSettings,
)

JOBS, WORKERS = 10, 3


async def main() -> None:
    attempts: Counter[bytes] = Counter()
    finished: set[bytes] = set()

    async def work(message: ReceivedMessage) -> ConsumeResult | None:
        attempts[message.body] += 1
        if message.body == b"job 7" and not message.reconsume_times:
            return ConsumeResult.LATER
        finished.add(message.body)
        return None

    async with congreve.serve("data") as node:
        async with node.producer("office") as producer:
            for number in range(JOBS):
                await producer.send(congreve.Message(topic="jobs", body=b"job %d" % number))
        workers = [
            ShareConsumer(
                node.address,
                group="workers",
                topics={"jobs": "*"},
                listener=work,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                settings=ShareSettings(retry_delays_s=(0.5,)),
            )
            for _ in range(WORKERS)
        ]
        await asyncio.gather(*(worker.start() for worker in workers))
        while len(finished) < JOBS:
            await asyncio.sleep(0.1)
        await asyncio.gather(*(worker.stop() for worker in workers))
    twice = sum(count == 2 for count in attempts.values())
    print(f"{JOBS} jobs done by {WORKERS} workers, {twice} of them twice")


asyncio.run(main())
