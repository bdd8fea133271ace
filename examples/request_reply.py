"""Ask a question through a topic and wait for the answer of a consumer."""

import asyncio

import congreve
from congreve.client import AdminClient, ReceivedMessage


async def main() -> None:
    async with congreve.serve("data") as node, node.producer("service") as service:
        async with AdminClient(node.address) as admin:
            await admin.create_topic("questions")

        async def answer(question: ReceivedMessage) -> None:
            await service.reply(question, question.body.upper())

        async with (
            node.consumer("service", topics={"questions": "*"}, listener=answer),
            node.producer("caller") as caller,
        ):
            question = congreve.Message(topic="questions", body=b"hello")
            reply = await caller.request(question, timeout_s=20)
    print(reply.body.decode())


asyncio.run(main())
