"""Push and lite pull consumers: rebalance, process queues, offsets."""
