"""Three queries on the flights of `make run`, for a Python prompt in the folder of the checkout."""

from pyspark.sql.functions import (
    col,
    element_at,
    get_json_object,
    session_window,
    split,
    to_timestamp,
    window,
)

from congreve.spark.session import local_session

spark = local_session("flights")
flights = spark.read.format("rocketmq").option("storePath", "data/store").option("topic", "flights")

# Flights by tag and minute.
(
    flights.option("columns", "tags,storeTimestamp")
    .load()
    .groupBy("tags", window("storeTimestamp", "1 minute").start.alias("minute"))
    .count()
    .orderBy("minute", "tags")
    .show()
)

# Sessions of each aircraft, in a stream: flights less than eight hours apart.
stream = (
    spark.readStream.format("rocketmq")
    .option("nameServer", "127.0.0.1:9876")
    .option("topic", "flights")
    .option("startingOffsets", "earliest")
    .option("columns", "keys,body")
    .load()
)
at = to_timestamp(get_json_object(col("body").cast("string"), "$.time_hour"))
(
    stream.select(element_at(split("keys", " "), -1).alias("aircraft"), at.alias("at"))
    .withWatermark("at", "2 days")
    .groupBy("aircraft", session_window("at", "8 hours"))
    .count()
    .writeStream.format("memory")
    .queryName("sessions")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
    .awaitTermination()
)

# Dead letters of a group, their number of attempts, and a copy back to the topic.
# The group of `make run` sends cancelled flights to its dead-letter topic at once.
dead = (
    spark.read.format("rocketmq")
    .option("nameServer", "127.0.0.1:9876")
    .option("topic", "%DLQ%demo-consumer")
    .load()
)
dead.selectExpr(
    "properties['RETRY_TOPIC'] AS topic", "tags", "keys", "reconsumeTimes", "storeTimestamp"
).show()
(
    dead.selectExpr("body", "tags", "keys", "properties['RETRY_TOPIC'] AS topic")
    .write.format("rocketmq")
    .option("nameServer", "127.0.0.1:9876")
    .mode("append")
    .save()
)
