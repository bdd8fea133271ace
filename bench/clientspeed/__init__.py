"""Our client and the Java client, one process each, at the same broker."""
