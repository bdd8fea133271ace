"""The official gRPC client for Python: a producer of all types, a push and a simple consumer, with
the commands of java5/GrpcClients.java."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import grpc
import rocketmq
from rocketmq.v5.exception import ClientException

CLIENT_FAULTS = (ClientException, grpc.RpcError)
TOPICS = ("Normal", "Fifo", "Delay", "Trans")


class Checker(rocketmq.TransactionChecker):  # type: ignore[misc]
    """Commits what it is asked for."""

    def check(self, message: Any) -> Any:
        """The end of a transaction."""
        return rocketmq.TransactionResolution.COMMIT


class Listener(rocketmq.MessageListener):  # type: ignore[misc]
    """Notes the texts of all messages."""

    def __init__(self) -> None:
        self.pushed: set[str] = set()

    def consume(self, message: Any) -> Any:
        """Take a message; the first delivery of one fails."""
        self.pushed.add(text(message))
        fails = text(message).startswith("n0") and message.delivery_attempt == 1
        return rocketmq.ConsumeResult.FAILURE if fails else rocketmq.ConsumeResult.SUCCESS


def main(endpoints: str, key: str, secret: str) -> None:
    """Serve commands until the input ends."""
    configuration = rocketmq.ClientConfiguration(endpoints, rocketmq.Credentials(key, secret))
    producer = rocketmq.Producer(configuration, TOPICS, checker=Checker(), tls_enable=True)
    producer.startup()
    listener = Listener()
    every = dict.fromkeys(TOPICS, rocketmq.FilterExpression("*"))
    rocketmq.PushConsumer(configuration, "pushed", listener, every, tls_enable=True).startup()
    simple = rocketmq.SimpleConsumer(
        *(configuration, "simple", {"Normal": rocketmq.FilterExpression("tag")}),
        await_duration=1,
        tls_enable=True,
    )
    simple.startup()
    received: set[str] = set()
    rounds = 0
    for line in sys.stdin:
        if "send" in line:
            while not is_sent(producer, rounds):
                time.sleep(0.2)
            rounds += 1
            print(json.dumps({"sent": True}), flush=True)
            continue
        try:
            for message in simple.receive(16, 30) or ():
                simple.ack(message)
                received.add(text(message))
        except CLIENT_FAULTS as error:
            print(repr(error), file=sys.stderr)
            time.sleep(0.2)
        print(json.dumps({"pushed": list(listener.pushed), "received": list(received)}), flush=True)


def is_sent(producer: Any, number: int) -> bool:
    """Whether all were sent; a client that has lost its connection fails for a while."""
    try:
        send(producer, number)
    except CLIENT_FAULTS as error:
        print(repr(error), file=sys.stderr)
        return False
    return True


def send(producer: Any, number: int) -> None:
    """Send a round of messages."""
    for each in range(3):
        producer.send(message("Normal", f"n{each}-{number}"))
        ordered = message("Fifo", f"f{each}-{number}")
        ordered.message_group = "group"
        producer.send(ordered)
    due = int(time.time()) + 3
    recalled, delayed = message("Delay", f"recalled-{number}"), message("Delay", f"d-{number}")
    recalled.delivery_timestamp = delayed.delivery_timestamp = due
    producer.recall_message("Delay", producer.send(recalled).recall_handle)
    producer.send(delayed)
    committed = producer.begin_transaction()
    producer.send(message("Trans", f"t-{number}"), committed)
    committed.commit()
    rolled_back = producer.begin_transaction()
    producer.send(message("Trans", f"never-{number}"), rolled_back)
    rolled_back.rollback()
    # Its end is asked for.
    producer.send(message("Trans", f"asked-{number}"), producer.begin_transaction())


def message(topic: str, body: str) -> Any:
    """A message with all that a receiver checks."""
    made = rocketmq.Message()
    made.topic, made.body, made.tag, made.keys = topic, body.encode(), "tag", f"key-{body}"
    made.add_property("colour", "blue")
    return made


def text(view: Any) -> str:
    """The body of a received message."""
    whole = view.tag == "tag" and len(view.keys) == 1 and view.properties.get("colour") == "blue"
    body = bytes(view.body).decode()
    return body if whole and not view.corrupted else f"damaged {body}"


if __name__ == "__main__":
    main(*sys.argv[1:])
