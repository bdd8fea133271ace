"""Send and receive without an event loop: a producer, and a consumer that calls a listener."""

import threading

import congreve
from congreve.client import ConsumerSettings, ReceivedMessage

COUNT = 100
received: set[bytes] = set()
complete = threading.Event()


def listener(message: ReceivedMessage) -> None:
    """Called in threads; if it raises an error, its message is delivered again later."""
    received.add(message.body)
    if len(received) == COUNT:
        complete.set()


with congreve.serve("data") as node:
    with node.producer("shop") as producer:
        producer.send(congreve.Message(topic="orders", body=b"not for billing", tags="placed"))
        for number in range(COUNT):
            tag = "paid" if number % 2 else "refunded"
            producer.send(congreve.Message(topic="orders", body=b"%d" % number, tags=tag))
    topics = {"orders": "paid || refunded"}
    settings = ConsumerSettings(concurrency=4)
    with node.push_consumer("billing", topics, listener, settings=settings):
        complete.wait(30)
print(f"received {len(received)} messages")
