"""Send in transactions: consumers see a message only after the program has committed it."""

import congreve
from congreve.client import (
    Message,
    ReceivedMessage,
    SendResult,
    SyncTransactionProducer,
    TransactionState,
)

accounts = {"order-1": 10, "order-2": 0}


def pay(message: Message, half: SendResult) -> TransactionState:
    """The local transaction; the broker hides the message until it has ended."""
    return TransactionState.COMMIT if accounts[message.body.decode()] else TransactionState.ROLLBACK


def check(message: ReceivedMessage) -> TransactionState:
    """The broker calls this if it did not receive a transaction's end."""
    return TransactionState.COMMIT if accounts[message.body.decode()] else TransactionState.ROLLBACK


with congreve.serve("data") as node:
    with SyncTransactionProducer(node.address, group="payments", check=check) as producer:
        for order in accounts:
            result = producer.send_in_transaction(Message(topic="paid", body=order.encode()), pay)
            print(f"{order}: {result.state.name}")
    with node.consumer("shipping", topics={"paid": "*"}) as consumer:
        for message in consumer.poll():
            print(f"to be shipped: {message.body.decode()}")
