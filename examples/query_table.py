"""A topic as an Iceberg table: the broker keeps it up to date, DuckDB and pyiceberg query it."""

import time
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import congreve

lake = Path("lake").absolute()
lake.mkdir(exist_ok=True)
catalog = load_catalog("congreve", uri=f"sqlite:///{lake}/catalog.db", warehouse=lake.as_uri())

with congreve.serve(
    "data", lakeTopics="orders", lakeWarehouse=str(lake), lakeLagMillis=2000
) as node:
    with node.producer("shop") as producer:
        for tag in ("new", "paid"):
            producer.send_many("orders", [f"{tag} {i}".encode() for i in range(500)], tags=tag)

    while True:  # each message is visible some seconds after it was acknowledged
        try:
            orders = catalog.load_table("rocketmq.orders")
            if orders.scan().count() == 1000:
                break
        except NoSuchTableError:
            pass
        time.sleep(0.5)

paid = orders.scan("tags = 'paid'", selected_fields=("queueOffset", "body")).to_arrow()
print(f"pyiceberg: {len(paid)} paid orders")

messages = orders.scan().to_duckdb("messages")
query = "select tags, count(*), sum(octet_length(body)) from messages group by tags order by tags"
for tag, count, size in messages.execute(query).fetchall():
    print(f"DuckDB: {tag} {count} messages, {size} bytes")
