"""POP: queues that the broker shares out, message by message."""
