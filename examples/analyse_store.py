"""Read a store's files with numpy and Arrow; without a broker, while one may be running."""

import numpy as np
import pyarrow.compute as pc

import congreve

with congreve.serve("data") as node, node.producer("shop") as producer:
    bodies = [b"x" * (1 + number % 100) for number in range(10_000)]
    producer.send_many("orders", bodies, tags="paid")

store = congreve.open_store("data")
for topic in store.topics():
    print(topic, [queue.max - queue.min for queue in store.queues(topic)])

messages = store.numpy("orders", ["queueOffset", "storeTimestamp", "storeSize"])
times = messages["storeTimestamp"]
seconds = (times.max() - times.min()) / np.timedelta64(1, "s")
print(f"{messages['storeSize'].sum():,} bytes, stored within {seconds:.2f} s")

table = store.arrow("orders", ["tags", "body"])
print(f"{table.num_rows:,} bodies of {pc.sum(pc.binary_length(table['body'])).as_py():,} bytes")

report = store.verify()
print(f"verified {report.records:,} records: {len(report.problems)} problems")
