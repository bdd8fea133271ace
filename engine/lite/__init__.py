"""Lite topics: many light queues in the queues of one topic (RocketMQ 5.5: RIP-83)."""
