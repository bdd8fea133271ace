"""Sends to a master with a slave, ours and RocketMQ's in turns."""
