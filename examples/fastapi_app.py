"""A web application that sends a message for each order; its producer lives as long as it does.

Run: NAMESRV_ADDR=127.0.0.1:9876 uvicorn fastapi_app:app. As a program it starts a node of its own
and orders once. Needs: pip install fastapi httpx2 'congreve[broker]'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from congreve.client import Message, Producer, SendResult


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Producer]]:
    """Each worker process makes a producer of its own, after the fork."""
    async with Producer(os.environ["NAMESRV_ADDR"], group="shop") as producer:
        yield {"producer": producer}


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def order(number: int, request: Request) -> SendResult:
    """Answers when a broker has stored the message: where it is, as JSON."""
    producer: Producer = request.state.producer
    return await producer.send(Message(topic="orders", body=b"%d" % number, keys=str(number)))


if __name__ == "__main__":
    from starlette.testclient import TestClient

    import congreve

    with congreve.serve("data") as node:
        os.environ["NAMESRV_ADDR"] = node.address
        with TestClient(app) as web:
            stored = web.post("/orders/7").json()
            print(
                "order 7 is message",
                stored["queue_offset"],
                "of a queue of",
                stored["queue"]["topic"],
            )
