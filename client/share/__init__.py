"""Consumers of messages that brokers share out one by one."""
