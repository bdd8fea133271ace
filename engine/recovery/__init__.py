"""Recovery of the log after a stop or a crash, and repair of queue entries."""
