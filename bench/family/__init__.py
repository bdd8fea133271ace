"""Four brokers of RocketMQ's family under the same loads, in turns."""
