"""Builds the store's rows with Spark's own expressions, and compares frames."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f

from congreve.records.record import string_hash
from sparkspeed.store import BATCH, BEGIN_MS, BODY, BROKER, DAY_MS, QUEUES, TAGS, TOPIC


def own_frame(spark: Any, messages: int) -> Any:
    """The rows of store.fill() as Spark expressions, without any code of the source."""
    codes = f.array(*(f.lit(string_hash(f"Tag{tag}")).cast("bigint") for tag in range(TAGS)))
    batch = f.expr(f"id div {BATCH}")
    stored = f.expr(f"{BEGIN_MS} + {DAY_MS} * (id - id % {BATCH}) div {messages}")
    body = f.expr(f"repeat(lpad(id, 16, '0'), {BODY // 16})").cast("binary")
    tag = f.expr(f"concat('Tag', id % {TAGS})")
    key = f.expr("concat('order-', id)")
    unique = f.expr("concat('7F0000010000', lpad(hex(id), 20, '0'))")
    pairs = {"KEYS": key, "UNIQ_KEY": unique, "WAIT": f.lit("true"), "TAGS": tag,
             "CLUSTER": f.lit("DefaultCluster")}  # fmt: skip
    return spark.range(messages).select(
        f.lit(TOPIC).alias("topic"),
        f.lit(0).alias("flag"),
        body.alias("body"),
        f.create_map(*(part for name, value in pairs.items() for part in (f.lit(name), value)))
        .alias("properties"),
        f.lit(BROKER).alias("brokerName"),
        (batch % QUEUES).cast("int").alias("queueId"),
        (f.floor(batch / QUEUES) * BATCH + f.col("id") % BATCH).alias("queueOffset"),
        f.timestamp_millis(stored - 3).alias("bornTimestamp"),
        f.timestamp_millis(stored).alias("storeTimestamp"),
        tag.alias("tags"),
        key.alias("keys"),
        unique.alias("msgId"),
        f.get(codes, (f.col("id") % TAGS).cast("int")).alias("tagsCode"),
        f.crc32(body).bitwiseAND(0x7FFFFFFF).cast("int").alias("bodyCRC"),
        f.lit(0).alias("reconsumeTimes"),
    )  # fmt: skip


def digest(frame: Any, columns: list[str]) -> tuple[Any, ...]:
    """A digest that is equal for equal rows in any order: their number, two sums of hashes of
    each row's bytes and, so that differences cannot cancel out, the extremes of the hashes."""
    parts = [
        f.array_sort(f.map_entries(name)) if name == "properties" else f.col(name)
        for name in columns
    ]
    row = f.xxhash64(*parts)
    found = frame.select(row.alias("row"), f.hash(*parts).alias("other")).agg(
        f.count("*"),
        f.bit_xor("row"),
        f.sum(f.col("row").cast("decimal(38,0)")),
        f.sum(f.col("other").cast("bigint")),
        f.min("row"),
        f.max("row"),
    )
    return tuple(found.first())
