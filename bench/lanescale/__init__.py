"""What the log's lock costs, and what it costs when the lock moves between two cores."""
