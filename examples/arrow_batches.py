"""Send and receive whole columns: Arrow in, Arrow out, no Python object for a message."""

import asyncio

import pyarrow as pa

import congreve

COUNT = 10_000


async def main() -> None:
    bodies = pa.array([f'{{"number": {number}}}' for number in range(COUNT)])
    async with congreve.serve("data") as node:
        async with node.producer("sensors") as producer:
            await producer.send_many("readings", bodies, tags="raw")
        async with node.consumer("analysis", topics={"readings": "*"}) as consumer:
            rows = 0
            async for batch in consumer.arrow_batches(["queueId", "storeTimestamp", "body"]):
                rows += batch.num_rows
                if rows == COUNT:
                    break
    print(f"received {rows} rows of {batch.schema.names}")


asyncio.run(main())
