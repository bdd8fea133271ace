"""A consumer whose work is in a database: it claims the message's id in the same transaction.

Brokers deliver at least once. The id and the work are stored together or not at all, so that a
message which comes again, also after a crash, changes nothing.
"""

import sqlite3

import congreve
from congreve.client import ConsumeFrom, ReceivedMessage


def open_database() -> sqlite3.Connection:
    """The program's own database, with a table of the ids of consumed messages."""
    database = sqlite3.connect("shop.db")
    database.execute("CREATE TABLE IF NOT EXISTS consumed (id TEXT PRIMARY KEY) WITHOUT ROWID")
    database.execute("CREATE TABLE IF NOT EXISTS sales (amount INTEGER)")
    return database


def consume(database: sqlite3.Connection, message: ReceivedMessage) -> bool:
    """Do the work of a message; False when it was done before."""
    with database:  # one transaction, which an error rolls back
        claimed = database.execute(
            "INSERT OR IGNORE INTO consumed VALUES (?)", (message.message_id,)
        ).rowcount
        if claimed:
            database.execute("INSERT INTO sales VALUES (?)", (int(message.body),))
    return bool(claimed)


with congreve.serve("data") as node:
    with node.producer("shop") as producer:
        for amount in (b"10", b"20", b"30"):
            producer.send(congreve.Message(topic="sales", body=amount))
    done = 0
    # Two groups read the same messages, as one group does after a crash before its commit.
    for group in ("accounts", "accounts-again"):
        with node.consumer(
            group, {"sales": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
        ) as consumer:
            database, seen = open_database(), 0
            while seen < 3:
                for message in consumer.poll():
                    seen += 1
                    done += consume(database, message)
    (total,) = database.execute("SELECT sum(amount) FROM sales").fetchone()
    print(f"{done} messages consumed once, total {total}")
