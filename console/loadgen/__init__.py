"""A load generator for brokers of RocketMQ's protocol, behind ``congreve bench``."""
