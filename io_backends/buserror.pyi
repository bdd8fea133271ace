def count_bus_errors() -> int:
    """How many pages of mapped files this process lost to SIGBUS (RocketMQ: InternalError)."""
