"""Read a topic as a Spark DataFrame: from a store's files, and from the broker."""

import congreve
from congreve.spark.session import local_session

with congreve.serve("batch") as node:
    with node.producer("shop") as producer:
        for tag in ("paid", "paid", "refunded"):
            producer.send(congreve.Message(topic="orders", body=b"order", tags=tag))

    spark = local_session("examples")
    from_files = (
        spark.read.format("rocketmq")
        .option("storePath", "batch/store")
        .option("topic", "orders")
        .load()
    )
    from_broker = (
        spark.read.format("rocketmq")
        .option("nameServer", node.address)
        .option("topic", "orders")
        .load()
    )
    from_files.groupBy("tags").count().orderBy("tags").show()
    print(f"{from_broker.count()} messages read from the broker")
