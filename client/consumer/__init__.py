"""Push and lite pull consumers: rebalance, process queues, offsets.

client/consumer/member.py keeps a share of the group's queues and a task that pulls for each.
client/received.pyx parses a pull's body once. The PulledRecords then go to
client/consumer/concurrent.py or client/consumer/orderly.py, which create views for listeners, to
an iteration, or to client/pull/arrow.py, which builds columns. A ProcessQueue knows the offset to
commit; client/consumer/offset_store.py commits it.
"""
