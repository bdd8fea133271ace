"""Congreve and Apache RocketMQ 4.9.4 under the same load, in turns, on the same disk."""
