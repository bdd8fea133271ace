"""Lite topics: a million light queues under one parent topic (RocketMQ 5.5: RIP-83).

A message of a lite topic is one of its parent topic, with the property __LITE_TOPIC. All of a lite
topic are in one queue of the parent as long as the number of queues is the same. A group that the
attribute lite.bind.topic binds to the parent gets the messages of each lite topic in their order.
"""
