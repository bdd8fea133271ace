"""Follow a topic with Spark Structured Streaming, and write its messages to JSON files."""

import congreve
from congreve.spark.session import local_session

with congreve.serve("stream") as node:
    with node.producer("shop") as producer:
        producer.send_many("orders", [b"order %d" % number for number in range(1000)])

    spark = local_session("examples")
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", node.address)
        .option("topic", "orders")
        .option("startingOffsets", "earliest")
        .option("columns", "queueId,queueOffset,body")
        .load()
    )
    # The checkpoint has the stream's position: the same query continues after what it has written.
    # Without a trigger it runs until it is stopped; this one ends with the last message.
    query = (
        messages.writeStream.format("json")
        .option("path", "stream/rows")
        .option("checkpointLocation", "stream/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    print(f"{spark.read.json('stream/rows').count()} rows written")
