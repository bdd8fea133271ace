"""Send and receive with asyncio: many sends at once, an iteration over what arrives."""

import asyncio

import congreve

COUNT = 100


async def main() -> None:
    async with congreve.serve("data") as node:
        async with node.producer("shop") as producer:
            messages = (
                congreve.Message(topic="orders", body=b"%d" % number) for number in range(COUNT)
            )
            await asyncio.gather(*map(producer.send, messages))
        async with node.consumer("billing", topics={"orders": "*"}) as consumer:
            received = 0
            async for _ in consumer:
                received += 1
                if received == COUNT:
                    break
    print(f"received {received} messages")


asyncio.run(main())
