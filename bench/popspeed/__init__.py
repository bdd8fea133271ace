"""POP beside RocketMQ 5.5."""
